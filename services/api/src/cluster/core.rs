//! Kubernetes' own objects, reduced to what decides.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use super::{Object, ObjectMeta};

/// A pod. Of its spec nothing is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub status: PodStatus,
}

/// What the kubelet says of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    #[serde(rename = "podIP", skip_serializing_if = "String::is_empty")]
    pub pod_ip: String,
    /// The node's address: the pod's own too, where it uses the node's network.
    #[serde(rename = "hostIP", skip_serializing_if = "String::is_empty")]
    pub host_ip: String,
    pub conditions: Vec<PodCondition>,
}

/// One statement of a pod's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
}

impl Pod {
    /// Its address, once it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.status.pod_ip.parse().ok()
    }

    /// Whether new requests may go to it: ready, with an address, and neither ended nor being deleted.
    pub fn serves(&self) -> bool {
        let is_ready = self.status.conditions.iter().any(|it| it.kind == "Ready" && it.status == "True");
        is_ready && !self.metadata.is_going() && !self.has_ended() && self.ip().is_some()
    }

    /// Whether its containers have ended for good: an evicted pod keeps its object, and often its address.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Failed" | "Succeeded")
    }
}

/// A Service.
pub type Service = Object<ServiceSpec>;

/// What a Service is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Empty, an address, or `None` for a headless Service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    pub selector: BTreeMap<String, String>,
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// May be empty if it is the only one; slices carry the same name.
    pub name: String,
    pub port: u16,
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// Addresses behind a Service. Its name is in the label `kubernetes.io/service-name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    pub metadata: ObjectMeta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    pub endpoints: Vec<SliceEndpoint>,
    pub ports: Vec<SlicePort>,
}

impl EndpointSlice {
    /// The Service it belongs to.
    pub fn service(&self) -> Option<&str> {
        self.metadata.label("kubernetes.io/service-name")
    }
}

/// One process behind a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    pub addresses: Vec<String>,
    pub conditions: SliceConditions,
}

/// Whether it can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceConditions {
    /// Absent means ready, as Kubernetes says.
    pub ready: Option<bool>,
    pub terminating: Option<bool>,
}

/// One port of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlicePort {
    pub name: Option<String>,
    pub port: Option<u16>,
    pub protocol: Option<String>,
}

/// A Secret, its values as the API server sends them: base64.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Secret {
    pub metadata: ObjectMeta,
    #[serde(rename = "type")]
    pub kind: String,
    pub data: BTreeMap<String, String>,
}

impl std::fmt::Debug for Secret {
    /// Without what is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

/// A ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    pub metadata: ObjectMeta,
    pub data: BTreeMap<String, String>,
}

/// A namespace: its labels say whose routes a Gateway takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}
