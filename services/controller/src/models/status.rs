//! What a model is told about its gateway.

use api::cluster::{Object, ObjectKey, Objects};
use serde_json::Value;

use super::Model;

/// `status.inferenceGateway.state`, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It asks for none.
    None,
    Pending,
    Ready,
    Failed(String),
}

impl State {
    /// As the status writes it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "",
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Failed(_) => "Failed",
        }
    }
}

/// What is so for `model` of `namespace`.
#[must_use]
pub fn state(namespace: &str, name: &str, model: &Model, objects: &Objects) -> State {
    let Some(gateway) = &model.gateway else { return State::None };
    if model.routed_by_operator {
        return State::Failed(
            "inferenceGateway cannot be used together with intelligentRoutingSpec.enabled: turn one of them off".into(),
        );
    }
    if model.model_name.is_empty() {
        return State::Failed("the model has no name that requests could ask for".into());
    }
    let Some(config) = objects.configs.get(&ObjectKey::new(namespace, gateway)) else { return State::Pending };
    if let Some(message) = condition(config, "Accepted").filter(|it| it["status"] == "False") {
        return State::Failed(message["message"].as_str().unwrap_or_default().to_owned());
    }
    let listed = config.spec.pointer("/schedulers").and_then(Value::as_array);
    let is_listed = listed.is_some_and(|all| all.iter().any(|entry| entry["name"] == name));
    let is_ready = condition(config, "Ready").is_some_and(|it| it["status"] == "True");
    if is_listed && is_ready { State::Ready } else { State::Pending }
}

/// A condition that was written for the config's present form.
fn condition<'a>(config: &'a Object<Value>, kind: &str) -> Option<&'a Value> {
    let all = config.status.as_ref()?.get("conditions")?.as_array()?;
    all.iter().find(|it| it["type"] == kind && it["observedGeneration"] == config.metadata.generation)
}
