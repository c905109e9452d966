//! What is read from a cluster: the parts of Kubernetes' own objects, of the Gateway API and of its inference extension
//! that decide where a request goes.
//!
//! The API server has checked these objects against their schemas, and newer servers send fields that we do not know:
//! so unlike the product's own documents they are read with tolerance. A snapshot of all of them is one plain value,
//! [`Objects`], that decisions are made on: by the controller for statuses, by the data plane for routes, with the same
//! code, so that what a status says is what a request meets.

mod core;
mod gateway;
mod inference;

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    core::{
        ConfigMap, EndpointSlice, Namespace, Pod, PodCondition, PodStatus, Secret, Service, ServicePort, ServiceSpec,
        SliceConditions, SliceEndpoint, SlicePort,
    },
    gateway::{
        AllowedRoutes, BackendRef, CertificateRef, Fraction, FromNamespaces, Gateway, GatewayClass, GatewayClassSpec,
        GatewayInfrastructure, GatewayListener, GatewaySpec, GrantFrom, GrantSpec, GrantTo, HeaderFilter, HeaderMatch,
        HeaderValue, HttpRoute, HttpRouteSpec, ListenerTls, LocalRef, Mirror, ParentRef, PathMatch, PathModifier,
        QueryMatch, Redirect, ReferenceGrant, RouteFilter, RouteKind, RouteMatch, RouteNamespaces, RouteRule,
        RouteTimeouts, UrlRewrite,
    },
    inference::{InferencePool, InferencePoolSpec, PickerPort, PickerRef, PoolSelector, PoolStatus, TargetPort},
};

/// Everything of a cluster that decides where requests go, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Objects {
    pub gateway_classes: Kept<GatewayClass>,
    pub gateways: Kept<Gateway>,
    pub routes: Kept<HttpRoute>,
    pub grants: Kept<ReferenceGrant>,
    pub pools: Kept<InferencePool>,
    pub namespaces: Kept<Namespace>,
    pub services: Kept<Service>,
    pub slices: Kept<EndpointSlice>,
    pub pods: Kept<Pod>,
    pub secrets: Kept<Secret>,
    pub config_maps: Kept<ConfigMap>,
    /// `InferenceGatewayConfig`, as it stands in the cluster: checked by who uses it.
    pub configs: Kept<Object<Value>>,
    /// `InferenceObjective` of both groups. An object of `llm-d.ai` wins over its twin of the older group.
    pub objectives: Kept<Object<Value>>,
    /// `InferenceModelRewrite` of both groups, likewise.
    pub rewrites: Kept<Object<Value>>,
}

/// Objects of one kind.
pub type Kept<T> = BTreeMap<ObjectKey, Arc<T>>;

/// Where an object is. `namespace` is empty for objects of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// The object `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl From<ObjectKey> for String {
    fn from(key: ObjectKey) -> Self {
        key.to_string()
    }
}

/// A text that is no `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not NAMESPACE/NAME")]
pub struct NotAKey(String);

impl TryFrom<String> for ObjectKey {
    type Error = NotAKey;

    fn try_from(text: String) -> Result<Self, NotAKey> {
        text.parse()
    }
}

impl std::str::FromStr for ObjectKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        match text.split_once('/') {
            Some((namespace, name)) if !name.is_empty() && !name.contains('/') => Ok(Self::new(namespace, name)),
            _ => Err(NotAKey(text.to_owned())),
        }
    }
}

/// An object with a `spec` and a `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Object<S, T = Value> {
    pub metadata: ObjectMeta,
    pub spec: S,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<T>,
}

impl<S, T> Object<S, T> {
    /// Where it is.
    pub fn key(&self) -> ObjectKey {
        self.metadata.key()
    }
}

/// What every object in a cluster carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    pub name: String,
    /// Empty for objects of the whole cluster.
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    /// RFC 3339 with whole seconds and `Z`, as the API server writes it: older sorts first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// Set once its deletion has been asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    /// Who must let go of it before it is gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// Whom an object belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

impl ObjectMeta {
    /// Where the object is.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Whether its deletion has been asked for.
    pub fn is_going(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// One statement of a status, in Kubernetes' form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub observed_generation: i64,
    /// When `status` last changed; RFC 3339.
    #[serde(default)]
    pub last_transition_time: String,
}
