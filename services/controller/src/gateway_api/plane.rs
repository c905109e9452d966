//! What is known of a Gateway's data plane: where it can be reached, and whether anybody is there.

use api::{
    cluster::{ObjectKey, Objects, Service},
    names,
};

use crate::picture::inside;

/// Most addresses that a status tells of: the Gateway API allows 16.
const ADDRESSES_MAX: usize = 16;

/// A Gateway's data plane, seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    pub addresses: Vec<Address>,
    /// Whether a pod of it serves.
    pub serves: bool,
}

/// Where a Gateway is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    Ip(String),
    Hostname(String),
}

impl Plane {
    /// The data plane of `gateway`, whose objects are in `system_namespace`.
    #[must_use]
    pub fn of(objects: &Objects, system_namespace: &str, gateway: &ObjectKey) -> Self {
        let key = ObjectKey::new(system_namespace, names::data_plane(&gateway.namespace, &gateway.name));
        let addresses = objects.services.get(&key).map(|it| addresses(it)).unwrap_or_default();
        let name = names::fitted(&gateway.name);
        let serves = inside(&objects.pods, system_namespace).any(|pod| {
            pod.metadata.label(names::GATEWAY_NAME_LABEL) == Some(name.as_str())
                && pod.metadata.label(names::GATEWAY_NAMESPACE_LABEL) == Some(gateway.namespace.as_str())
                && pod.serves()
        });
        Self { addresses, serves }
    }
}

/// Where a Service is reached: by its load balancer if it has one, else inside the cluster.
fn addresses(service: &Service) -> Vec<Address> {
    let ingress =
        service.status.as_ref().and_then(|it| it.pointer("/loadBalancer/ingress")).and_then(|it| it.as_array());
    let balanced = ingress.into_iter().flatten().filter_map(|it| {
        let text = |name: &str| it.get(name).and_then(|it| it.as_str()).filter(|it| !it.is_empty());
        text("ip").map(|it| Address::Ip(it.into())).or_else(|| text("hostname").map(|it| Address::Hostname(it.into())))
    });
    let balanced: Vec<Address> = balanced.take(ADDRESSES_MAX).collect();
    let inside = service.spec.cluster_ip.as_str();
    match inside {
        "" | "None" => balanced,
        _ if balanced.is_empty() => vec![Address::Ip(inside.to_owned())],
        _ => balanced,
    }
}
