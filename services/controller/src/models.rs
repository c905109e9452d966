//! Models of the HyperPod inference operator that want to be behind a gateway.
//!
//! `spec.inferenceGateway` of an InferenceEndpointConfig or a JumpStartModel asks for an entry in an InferenceGatewayConfig
//! of its namespace. Models that name the same gateway share it. An entry says what only the model knows; what customers
//! set in it stays. Which entries came from models is kept in an annotation of the config, so that an entry goes when its
//! model does, and none goes that a person wrote.

mod merge;
mod status;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::{cluster::ObjectKey, names};
use kube::{api::ApiResource, core::GroupVersionKind};
use serde_json::Value;

pub use self::{
    merge::{Merged, comes_from_models, merged},
    status::{State, state},
};
use crate::picture::text;

/// Which kind of model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelKind {
    InferenceEndpointConfig,
    JumpStartModel,
}

impl ModelKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::InferenceEndpointConfig, Self::JumpStartModel];

    /// `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InferenceEndpointConfig => "InferenceEndpointConfig",
            Self::JumpStartModel => "JumpStartModel",
        }
    }

    /// As the client names it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let plural = match self {
            Self::InferenceEndpointConfig => "inferenceendpointconfigs",
            Self::JumpStartModel => "jumpstartmodels",
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(names::GROUP, "v1", self.name()), plural)
    }

    /// Port of a model server that does not say one. JumpStart's containers follow SageMaker's convention.
    const fn port(self) -> u16 {
        match self {
            Self::InferenceEndpointConfig => 8000,
            Self::JumpStartModel => 8080,
        }
    }
}

/// Where a model is.
pub type ModelKey = (ModelKind, ObjectKey);

/// What of a model matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub uid: String,
    /// The gateway that it wants to be behind: `spec.inferenceGateway.name`, or one of its own.
    pub gateway: Option<String>,
    /// What requests call it.
    pub model_name: String,
    pub port: u16,
    /// The operator's own, older routing is on: both cannot be.
    pub routed_by_operator: bool,
    /// It is being deleted.
    pub going: bool,
    /// `status.inferenceGateway`.
    pub told: Option<(String, String)>,
}

impl Model {
    /// Reads what matters. Objects of the operator's are large, and most of them is not kept.
    #[must_use]
    pub fn read(kind: ModelKind, object: &Value) -> Self {
        let on = |pointer| object.pointer(pointer).and_then(Value::as_bool) == Some(true);
        let uid = text(object, "/metadata/uid").to_owned();
        let named = text(object, "/spec/inferenceGateway/name");
        let gateway = if named.is_empty() { format!("inf-igw-{uid}") } else { named.to_owned() };
        let (name, port) = match kind {
            ModelKind::InferenceEndpointConfig => ("/spec/modelName", "/spec/worker/modelInvocationPort/containerPort"),
            ModelKind::JumpStartModel => ("/spec/model/modelId", "/spec/server/modelInvocationPort/containerPort"),
        };
        let port = object.pointer(port).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let told = object.pointer("/status/inferenceGateway").filter(|it| it.is_object());
        Self {
            uid,
            gateway: on("/spec/inferenceGateway/enabled").then_some(gateway),
            model_name: text(object, name).to_owned(),
            port: port.unwrap_or(kind.port()),
            routed_by_operator: on("/spec/intelligentRoutingSpec/enabled"),
            going: object.pointer("/metadata/deletionTimestamp").is_some(),
            told: told.map(|it| (text(it, "/state").to_owned(), text(it, "/name").to_owned())),
        }
    }

    /// Whether it gets an entry.
    #[must_use]
    pub fn wants_in(&self) -> Option<&str> {
        self.gateway.as_deref().filter(|_| !self.going && !self.routed_by_operator && !self.model_name.is_empty())
    }
}

/// Models by the config that they want to be in.
#[must_use]
pub fn by_config(models: &BTreeMap<ModelKey, Model>) -> BTreeMap<ObjectKey, BTreeMap<&str, &Model>> {
    let mut configs: BTreeMap<ObjectKey, BTreeMap<&str, &Model>> = BTreeMap::new();
    for ((_, key), model) in models {
        if let Some(gateway) = model.wants_in() {
            // Of two models of different kinds and one name the first is taken: they would select the same pods.
            configs.entry(ObjectKey::new(&key.namespace, gateway)).or_default().entry(&key.name).or_insert(model);
        }
    }
    configs
}
