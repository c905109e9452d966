//! `<scheduler>-epp`: where other gateways ask which endpoint of a pool to take.
//!
//! The data plane answers there, and its pods are in another namespace. A Service selects pods of its own namespace
//! only, so this one selects nothing, and the controller writes the addresses behind it.

use std::net::IpAddr;

use api::names;
use serde_json::{Value, json};

use super::{Marks, Owner, PICKER_PORT, object};
use crate::kind::{Id, Kind};

/// Name of the port that carries requests, health among them.
const DATA: &str = "http";

/// On each slice, who writes it.
pub const MANAGER_OF_SLICE: &str = "endpointslice.kubernetes.io/managed-by";

/// One scheduler's picker Service.
#[must_use]
pub fn service(namespace: &str, scheduler: &str, marks: &Marks, owner: &Owner) -> Value {
    let id = Id::new(Kind::Service, namespace, names::picker_service(scheduler));
    let mut service = object(&id, &marks.and(names::SCHEDULER_LABEL, scheduler), Some(owner));
    service["spec"] = json!({"type": "ClusterIP", "ports": [
        {"name": "grpc", "port": PICKER_PORT, "protocol": "TCP", "targetPort": PICKER_PORT,
         "appProtocol": "kubernetes.io/h2c"},
        {"name": DATA, "port": 80, "protocol": "TCP", "targetPort": 80},
    ]});
    service
}

/// The addresses behind it: `pods` of the data plane, each with whether it is ready.
#[must_use]
pub fn slice(
    namespace: &str,
    scheduler: &str,
    data_port: u16,
    pods: &[(IpAddr, bool)],
    marks: &Marks,
    owner: &Owner,
) -> Value {
    let name = names::picker_service(scheduler);
    let marks = marks
        .and(names::SCHEDULER_LABEL, scheduler)
        .and("kubernetes.io/service-name", &name)
        .and(MANAGER_OF_SLICE, names::MANAGED_BY);
    // A slice holds addresses of one family; pods of one Deployment share theirs.
    let v6 = pods.first().is_some_and(|(address, _)| address.is_ipv6());
    let endpoints: Vec<Value> = pods
        .iter()
        .filter(|(address, _)| address.is_ipv6() == v6)
        .map(|(address, ready)| json!({"addresses": [address.to_string()], "conditions": {"ready": ready}}))
        .collect();
    let family = if v6 { "IPv6" } else { "IPv4" };
    // The family cannot be changed in place, so it is in the name.
    let id = Id::new(Kind::EndpointSlice, namespace, names::fitted(&format!("{name}-{}", family.to_lowercase())));
    let mut slice = object(&id, &marks, Some(owner));
    slice["addressType"] = json!(family);
    slice["endpoints"] = json!(endpoints);
    slice["ports"] = json!([
        {"name": "grpc", "port": PICKER_PORT, "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"},
        {"name": DATA, "port": data_port, "protocol": "TCP"},
    ]);
    slice
}
