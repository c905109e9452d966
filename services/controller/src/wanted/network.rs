//! How requests reach a data plane, and what must not.

use std::collections::BTreeMap;

use api::names;
use serde_json::{Value, json};

use super::{ADMIN_PORT, PICKER_PORT, Plane};
use crate::kind::Kind;

/// Annotation of a Gateway's `spec.infrastructure`: the Service's type.
const SERVICE_TYPE: &str = "inference.sagemaker.aws.amazon.com/service-type";

/// The Service of a data plane.
#[must_use]
pub fn service(plane: &Plane) -> Value {
    let mut service = plane.object(Kind::Service);
    let mut ports: BTreeMap<u16, Value> = BTreeMap::new();
    for door in &plane.doors {
        ports.entry(door.port).or_insert_with(|| {
            json!({
                "name": format!("{}-{}", door.scheme, door.port), "port": door.port, "protocol": "TCP",
                "targetPort": names::pod_port(door.port),
            })
        });
    }
    let kind = plane.infrastructure.annotations.get(SERVICE_TYPE).map_or("ClusterIP", String::as_str);
    service["spec"] =
        json!({"type": kind, "selector": plane.selector(), "ports": ports.into_values().collect::<Vec<_>>()});
    service
}

/// One pod at a time may be taken for maintenance.
#[must_use]
pub fn disruption_budget(plane: &Plane) -> Value {
    let mut budget = plane.object(Kind::PodDisruptionBudget);
    budget["spec"] = json!({"maxUnavailable": 1, "selector": {"matchLabels": plane.selector()}});
    budget
}

/// Requests may come from anywhere; health, metrics and the API only from the system namespace and from namespaces
/// that say they monitor. What pods ask for themselves is not restricted: endpoints and identity providers are anywhere.
#[must_use]
pub fn policy(plane: &Plane) -> Value {
    let mut open: Vec<u16> = plane.doors.iter().map(|door| names::pod_port(door.port)).collect();
    open.push(PICKER_PORT);
    open.sort_unstable();
    open.dedup();
    let port = |port: u16| json!({"protocol": "TCP", "port": port});
    let watchers = ["monitoring", "prometheus", "observability", "amazon-cloudwatch", "hyperpod-observability"];
    let mut policy = plane.object(Kind::NetworkPolicy);
    policy["spec"] = json!({
        "podSelector": {"matchLabels": plane.selector()},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": open.into_iter().map(port).collect::<Vec<_>>()},
            {
                "ports": [port(ADMIN_PORT)],
                "from": [
                    {"podSelector": {}},
                    {"namespaceSelector": {"matchLabels": {"inference.sagemaker.aws.amazon.com/monitoring": "true"}}},
                    {"namespaceSelector": {"matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": watchers},
                    ]}},
                ],
            },
        ],
    });
    policy
}
