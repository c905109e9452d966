//! What is behind a port of a Service.

use std::collections::BTreeMap;

use api::{
    EndpointSpec,
    cluster::{EndpointSlice, ObjectKey, Objects, SliceEndpoint},
};

use super::staff::Candidate;

/// The processes behind port `port` of a Service: ready, each once. Empty if there is no such Service or port.
pub(super) fn behind(objects: &Objects, service: &ObjectKey, port: u16) -> Vec<Candidate> {
    let Some(object) = objects.services.get(service) else { return Vec::new() };
    let Some(named) = object.spec.ports.iter().find(|it| it.port == port && is_tcp(&it.protocol)) else {
        return Vec::new();
    };
    let slices = objects.slices.iter().filter(|(key, slice)| {
        key.namespace == service.namespace && slice.service() == Some(&service.name) && slice.address_type != "FQDN"
    });
    let mut found = BTreeMap::new();
    for (_, slice) in slices {
        let Some(number) = number(slice, &named.name) else { continue };
        for address in slice.endpoints.iter().filter(|it| is_ready(it)).flat_map(|it| it.addresses.first()) {
            let name = format!("{}/{address}:{number}", service.name);
            found.entry(name.clone()).or_insert_with(|| candidate(name, address, number));
        }
    }
    found.into_values().collect()
}

/// The port of the processes themselves that a Service's port of this name leads to.
fn number(slice: &EndpointSlice, name: &str) -> Option<u16> {
    let is_it = |port: &&api::cluster::SlicePort| {
        port.name.as_deref().unwrap_or("") == name && port.protocol.as_deref().is_none_or(is_tcp)
    };
    slice.ports.iter().find(is_it).and_then(|port| port.port)
}

fn is_tcp(protocol: &str) -> bool {
    protocol.is_empty() || protocol == "TCP"
}

fn is_ready(endpoint: &SliceEndpoint) -> bool {
    endpoint.conditions.ready != Some(false) && endpoint.conditions.terminating != Some(true)
}

fn candidate(name: String, address: &str, port: u16) -> Candidate {
    let spec = EndpointSpec {
        name,
        labels: BTreeMap::new(),
        address: address.to_owned(),
        port: Some(port),
        metrics_path: None,
        metrics_port: None,
        tls: None,
        api_key: None,
    };
    // A slice does not say which life of a process an address belongs to; its address is all there is.
    Candidate { spec, life: String::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn objects(slices: &[Value]) -> Objects {
        let mut objects = Objects::default();
        let service = json!({
            "metadata": {"name": "s", "namespace": "ns"},
            "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]},
        });
        objects.services.insert(ObjectKey::new("ns", "s"), Arc::new(serde_json::from_value(service).unwrap()));
        for (index, slice) in slices.iter().enumerate() {
            let mut slice = slice.clone();
            slice["metadata"] = json!({
                "name": format!("s-{index}"), "namespace": "ns", "labels": {"kubernetes.io/service-name": "s"},
            });
            let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
            objects.slices.insert(slice.metadata.key(), Arc::new(slice));
        }
        objects
    }

    fn names(objects: &Objects, port: u16) -> Vec<String> {
        let found = behind(objects, &ObjectKey::new("ns", "s"), port);
        found.into_iter().map(|candidate| candidate.spec.name).collect()
    }

    #[test]
    fn a_port_leads_to_the_port_of_its_name_in_each_slice_and_only_to_what_is_ready() {
        let objects = objects(&[
            json!({"addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": true, "terminating": true}},
                {"addresses": ["10.0.0.4"], "conditions": {}},
            ]}),
            json!({"addressType": "IPv4", "ports": [{"name": "http", "port": 9090}], "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            json!({"addressType": "FQDN", "ports": [{"name": "http", "port": 80}], "endpoints": [{"addresses": ["x.example"]}]}),
        ]);
        assert_eq!(names(&objects, 80), ["s/10.0.0.1:8080", "s/10.0.0.1:9090", "s/10.0.0.4:8080"]);
        assert!(names(&objects, 53).is_empty(), "UDP");
        assert!(names(&objects, 81).is_empty(), "no such port");
    }
}
