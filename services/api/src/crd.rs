//! The CustomResourceDefinition of `InferenceGatewayConfig`, written from the structs that documents are read into.
//!
//! So a cluster refuses at admission what a file is refused for, with the same words: types, bounds, patterns and defaults
//! come from the schema (`shape`), rules across fields from one table (`rules`). A rule that needs other objects (an
//! adapter's base in a ConfigMap) cannot be told there; the controller tells it in `status` then.
//!
//! Kubernetes' own types are taken as they are: copies of pod schemas make definitions that no client can apply. The
//! definition refuses to lose an object that an older one admitted: a stored object must stay valid, so bounds only widen.

mod rules;
mod shape;

use serde_json::{Value as Json, json};

use crate::{
    document::{ConfigStatus, Kind},
    schema,
};

/// The plural of the kind, as in URLs.
pub const PLURAL: &str = "inferencegatewayconfigs";

/// The definition as an object for the API server. The same for every run: keys are sorted wherever it is written.
///
/// # Panics
/// Never: that the definition can be made is tested.
#[must_use]
pub fn definition() -> Json {
    let kind = Kind::InferenceGatewayConfig;
    let (group, version) = kind.api_versions()[0].split_once('/').expect("our own versions have a group");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{PLURAL}.{group}"),
            "labels": {"app.kubernetes.io/part-of": "inference-gateway"},
        },
        "spec": {
            "group": group,
            "names": {
                "kind": kind.name(),
                "listKind": format!("{}List", kind.name()),
                "plural": PLURAL,
                "singular": PLURAL.trim_end_matches('s'),
                "shortNames": ["igwc"],
            },
            "scope": "Namespaced",
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": root(kind)},
            }],
        },
    })
}

fn root(kind: Kind) -> Json {
    let mut status = shape::open_api(&schema::of::<ConfigStatus>(), "status");
    status["description"] = "What the controller tells of it.".into();
    let whole = kind.shape();
    let spec = whole.field("spec").expect("the kind has a spec");
    json!({
        "type": "object",
        "description": "A gateway in front of one or more models.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": shape::described(spec, "spec"),
            "status": status,
        },
    })
}

/// What `kubectl get igwc` prints.
fn columns() -> Json {
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    json!([
        {"name": "Ready", "type": "string", "jsonPath": format!("{ready}.status")},
        {"name": "Address", "type": "string", "jsonPath": ".status.address"},
        {"name": "Schedulers", "type": "string", "jsonPath": ".status.readySchedulers"},
        {"name": "BBR", "type": "boolean", "jsonPath": ".spec.bbr.enabled", "priority": 1},
        {"name": "Reason", "type": "string", "jsonPath": format!("{ready}.reason"), "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ])
}

#[cfg(test)]
mod tests;
