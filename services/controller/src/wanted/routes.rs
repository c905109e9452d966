//! Routes and pools of a config, for whoever looks at a cluster through the Gateway API.
//!
//! The data plane of the config routes by the config itself; these say the same in the words of the API.

use api::{document::SchedulerSpec, names};
use serde_json::{Value, json};

use super::{Marks, Owner, PICKER_PORT, object};
use crate::kind::{Id, Kind};

/// Whom the routes of a config hang on and belong to.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Of the config, and so of its routes and pools.
    pub namespace: &'a str,
    pub gateway_namespace: &'a str,
    pub gateway: &'a str,
    pub marks: &'a Marks,
    pub owner: &'a Owner,
}

/// One scheduler's route. `by_model`: requests say which model they want.
#[must_use]
pub fn of_scheduler(at: Setting<'_>, scheduler: &SchedulerSpec, chosen: Chosen) -> Value {
    let id = Id::new(Kind::HttpRoute, at.namespace, &scheduler.name);
    let marks = at.marks.and(names::SCHEDULER_LABEL, &scheduler.name);
    let mut rule = json!({"backendRefs": [{
        "group": "inference.networking.k8s.io", "kind": "InferencePool", "name": scheduler.name, "weight": 1,
    }]});
    let everything = json!({"type": "PathPrefix", "value": "/"});
    // An adapter's requests carry the adapter's name in the first, and the model's in the second.
    rule["matches"] = match chosen {
        Chosen::ByModel => ["X-Gateway-Model-Name", "X-Gateway-Base-Model-Name"]
            .map(|header| {
                let header = json!({"type": "Exact", "name": header, "value": scheduler.model_name});
                json!({"path": everything, "headers": [header]})
            })
            .into(),
        Chosen::Always => json!([{"path": everything}]),
    };
    if let Some(timeout) = &scheduler.route_timeout {
        rule["timeouts"] = json!({"request": timeout});
    }
    let mut route = object(&id, &marks, Some(at.owner));
    route["spec"] = json!({"parentRefs": [parent(at)], "rules": [rule]});
    route
}

/// Which requests a scheduler gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// Those that name its model.
    ByModel,
    /// All.
    Always,
}

/// `<config>-health`: answered by the data plane itself, whose addresses are behind every picker Service.
#[must_use]
pub fn health(at: Setting<'_>, config: &str, scheduler: &str) -> Value {
    let id = Id::new(Kind::HttpRoute, at.namespace, names::fitted(&format!("{config}-health")));
    let mut route = object(&id, at.marks, Some(at.owner));
    let exact = |path: &str| json!({"path": {"type": "Exact", "value": path}});
    route["spec"] = json!({"parentRefs": [parent(at)], "rules": [{
        "matches": [exact("/healthz"), exact("/readyz")],
        "backendRefs": [{
            "group": "", "kind": "Service", "name": names::picker_service(scheduler), "port": 80, "weight": 1,
        }],
    }]});
    route
}

fn parent(at: Setting<'_>) -> Value {
    json!({
        "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": at.gateway, "namespace": at.gateway_namespace,
    })
}

/// One scheduler's pool. `None`: what it selects cannot be said in an InferencePool, which knows `matchLabels` only.
#[must_use]
pub fn pool(at: Setting<'_>, scheduler: &SchedulerSpec) -> Option<Value> {
    let selector = &scheduler.model_selector;
    if !selector.match_expressions.is_empty() || selector.match_labels.is_empty() {
        return None;
    }
    let id = Id::new(Kind::InferencePool, at.namespace, &scheduler.name);
    let mut pool = object(&id, &at.marks.and(names::SCHEDULER_LABEL, &scheduler.name), Some(at.owner));
    pool["spec"] = json!({
        "selector": {"matchLabels": selector.match_labels},
        "targetPorts": [{"number": scheduler.target_port}],
        "appProtocol": scheduler.app_protocol,
        "endpointPickerRef": {
            "group": "", "kind": "Service", "name": names::picker_service(&scheduler.name),
            "port": {"number": PICKER_PORT}, "failureMode": "FailClose",
        },
    });
    Some(pool)
}
