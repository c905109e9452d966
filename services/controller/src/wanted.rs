//! The objects that a config or a Gateway asks for, as the API server should have them.
//!
//! Plain JSON, written out in full: the same wish always gives the same bytes. Nothing is read from the cluster here
//! but what the caller hands in, and nothing is taken back: what is no longer wished for is found by its absence.

pub mod access;
pub mod config;
pub mod deployment;
pub mod ingress;
pub mod network;
pub mod picker;
pub mod routes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::{cluster::ObjectKey, names};
use serde_json::{Value, json};

use crate::kind::{Id, Kind};

/// Port of a data plane's health, metrics and API.
pub const ADMIN_PORT: u16 = 9090;
/// Port of a data plane on which endpoint pickers of other gateways ask it.
pub const PICKER_PORT: u16 = 9002;

/// What an installation decides for all data planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub system_namespace: String,
    pub image: String,
    pub pull_policy: String,
}

/// Whom an object belongs to. Kubernetes removes it when that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// Labels of everything that is made for one config or Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks(pub BTreeMap<String, String>);

impl Marks {
    /// Of a Gateway that somebody wrote.
    #[must_use]
    pub fn of_gateway(gateway: &ObjectKey) -> Self {
        let mut marks = Self(BTreeMap::new());
        marks.set(names::MANAGED_BY_LABEL, names::MANAGED_BY);
        // A label's value is shorter than a Gateway's name may be.
        marks.set(names::GATEWAY_NAME_LABEL, &names::fitted(&gateway.name));
        marks.set(names::GATEWAY_NAMESPACE_LABEL, &gateway.namespace);
        marks
    }

    /// Of a config whose Gateway is `gateway`.
    #[must_use]
    pub fn of_config(config: &ObjectKey, gateway: &ObjectKey) -> Self {
        let mut marks = Self::of_gateway(gateway);
        marks.set(names::CONFIG_NAME_LABEL, &names::fitted(&config.name));
        marks.set(names::CONFIG_NAMESPACE_LABEL, &config.namespace);
        marks
    }

    /// With one more.
    #[must_use]
    pub fn and(&self, key: &str, value: &str) -> Self {
        let mut more = self.clone();
        more.set(key, value);
        more
    }

    fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.to_owned(), value.to_owned());
    }
}

/// An object without anything in it yet.
#[must_use]
pub fn object(id: &Id, marks: &Marks, owner: Option<&Owner>) -> Value {
    let mut object = json!({
        "apiVersion": id.kind.api_version(),
        "kind": id.kind.name(),
        "metadata": {"name": id.name, "namespace": id.namespace, "labels": marks.0},
    });
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
        }]);
    }
    object
}

/// Where an object that is wished for belongs.
///
/// # Panics
/// Never for objects of this module: each is made by [`object()`].
#[must_use]
pub fn id_of(object: &Value) -> Id {
    let name = object["kind"].as_str().unwrap_or_default();
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).expect("objects are made of known kinds");
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    Id::new(kind, text("/metadata/namespace"), text("/metadata/name"))
}

/// One door of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// Also the name of the Service's port.
    pub name: String,
    /// As clients know it; in the pod it is [`names::pod_port`].
    pub port: u16,
    /// `http` or `https`.
    pub scheme: &'static str,
}

/// Everything about one data plane that its objects are made of.
#[derive(Clone, Debug)]
pub struct Plane {
    pub settings: Settings,
    /// Whose requests it carries.
    pub gateway: ObjectKey,
    /// Name of all its objects.
    pub name: String,
    pub marks: Marks,
    /// Its anchor.
    pub owner: Owner,
    pub doors: Vec<Door>,
    /// Pods; `None`: an autoscaler says how many.
    pub replicas: Option<u32>,
    pub pods: PodShape,
    /// Labels and annotations of everything made, as the Gateway asks.
    pub infrastructure: api::cluster::GatewayInfrastructure,
}

/// What operators add to the pods.
#[derive(Clone, Debug, Default)]
pub struct PodShape {
    pub defaults: api::document::PodDefaults,
    /// Of the schedulers, after those of `defaults`.
    pub env: Vec<Value>,
    pub env_from: Vec<Value>,
    /// Whether Prometheus is told to look at them.
    pub metrics: bool,
}

impl Plane {
    /// Its anchor, which owns all the rest.
    #[must_use]
    pub fn anchor(settings: &Settings, gateway: &ObjectKey, marks: &Marks) -> Value {
        let name = names::data_plane(&gateway.namespace, &gateway.name);
        let mut anchor = object(&Id::new(Kind::ConfigMap, &settings.system_namespace, name), marks, None);
        anchor["data"] = json!({"gateway": gateway.to_string()});
        anchor
    }

    /// All of its objects but the anchor.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let mut objects = vec![
            access::service_account(self),
            deployment::deployment(self),
            network::disruption_budget(self),
            network::policy(self),
        ];
        // A Service must have a port; a Gateway may have no door that opens.
        objects.extend((!self.doors.is_empty()).then(|| network::service(self)));
        objects
    }

    /// An object of this data plane in the system namespace, with what the Gateway's infrastructure asks for.
    fn object(&self, kind: Kind) -> Value {
        let mut marks = self.marks.clone();
        for (key, value) in &self.infrastructure.labels {
            marks.0.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let id = Id::new(kind, &self.settings.system_namespace, &self.name);
        let mut made = object(&id, &marks, Some(&self.owner));
        if !self.infrastructure.annotations.is_empty() {
            made["metadata"]["annotations"] = json!(self.infrastructure.annotations);
        }
        made
    }

    /// What selects its pods: never changes, since a Deployment's selector cannot.
    fn selector(&self) -> Value {
        json!({
            names::GATEWAY_NAME_LABEL: names::fitted(&self.gateway.name),
            names::GATEWAY_NAMESPACE_LABEL: self.gateway.namespace,
        })
    }
}
