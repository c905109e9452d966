//! What statuses say, from first sight to the last route that goes.

use std::sync::Arc;

use api::{
    cluster::{ObjectKey, Objects},
    names,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Due, Place, StatusKind, Surroundings, due, merge::merged};

const CONTROLLER: &str = names::CONTROLLER_NAME;
const AROUND: Surroundings<'_> =
    Surroundings { controller: CONTROLLER, system_namespace: "system", api_release: Some("v1.6.3") };

fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn key(text: &str) -> ObjectKey {
    text.parse().unwrap()
}

/// A class, a Gateway `infra/gw`, a pool `infra/p` and a route `infra/r` to it.
fn cluster() -> Objects {
    let mut objects = Objects::default();
    let class = json!({"metadata": {"name": "ours", "generation": 1}, "spec": {"controllerName": CONTROLLER}});
    objects.gateway_classes.insert(key("/ours"), read(class));
    let gateway = json!({
        "metadata": {"name": "gw", "namespace": "infra", "generation": 3},
        "spec": {"gatewayClassName": "ours", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    });
    objects.gateways.insert(key("infra/gw"), read(gateway));
    let pool = json!({"metadata": {"name": "p", "namespace": "infra", "generation": 2}, "spec": {}});
    objects.pools.insert(key("infra/p"), read(pool));
    objects.routes.insert(key("infra/r"), read(route(1)));
    objects
}

fn route(generation: i64) -> Value {
    json!({
        "metadata": {"name": "r", "namespace": "infra", "generation": generation},
        "spec": {
            "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}],
            "rules": [{"backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "p"}]}],
        },
    })
}

/// Puts a data plane there: a Service with an address, and a pod that serves.
fn start_plane(objects: &mut Objects) {
    let name = names::data_plane("infra", "gw");
    let service = json!({"metadata": {"name": name, "namespace": "system"}, "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7"}});
    objects.services.insert(ObjectKey::new("system", &name), read(service));
    let labels = json!({names::GATEWAY_NAME_LABEL: "gw", names::GATEWAY_NAMESPACE_LABEL: "infra"});
    let pod = json!({
        "metadata": {"name": "pod", "namespace": "system", "labels": labels},
        "status": {"phase": "Running", "podIP": "10.250.0.9", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    objects.pods.insert(key("system/pod"), read(pod));
}

/// Writes what is due as the API server would, and says how much it was.
fn settle(objects: &mut Objects, now: &str) -> usize {
    let all = due(objects, &AROUND);
    for Due { place, say, .. } in &all {
        let (status, metadata) = super::found(objects, place).unwrap();
        let wanted = merged(&status, say, metadata.generation, now).unwrap();
        put(objects, place, wanted);
    }
    all.len()
}

fn put(objects: &mut Objects, place: &Place, status: Value) {
    let key = &place.key;
    match place.kind {
        StatusKind::GatewayClass => Arc::make_mut(objects.gateway_classes.get_mut(key).unwrap()).status = Some(status),
        StatusKind::Gateway => Arc::make_mut(objects.gateways.get_mut(key).unwrap()).status = Some(status),
        StatusKind::HttpRoute => Arc::make_mut(objects.routes.get_mut(key).unwrap()).status = Some(status),
        StatusKind::InferencePool => {
            let status = serde_json::from_value(status).unwrap();
            Arc::make_mut(objects.pools.get_mut(key).unwrap()).status = Some(status);
        }
    }
}

fn status(objects: &Objects, kind: StatusKind, at: &str) -> Value {
    super::found(objects, &Place { kind, key: key(at) }).unwrap().0.into_owned()
}

fn condition<'s>(owner: &'s Value, kind: &str) -> &'s Value {
    owner["conditions"].as_array().unwrap().iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}

#[test]
fn h10_everything_has_a_status_after_the_first_round() {
    let mut objects = cluster();
    assert_eq!(settle(&mut objects, "t1"), 4);
    let class = status(&objects, StatusKind::GatewayClass, "/ours");
    assert_eq!(condition(&class, "Accepted")["status"], "True");
    assert_eq!(condition(&class, "SupportedVersion")["status"], "True");
    assert_eq!(class["supportedFeatures"][0], json!({"name": "Gateway"}));
    let gateway = status(&objects, StatusKind::Gateway, "infra/gw");
    assert_eq!(condition(&gateway, "Accepted")["observedGeneration"], 3);
    assert_eq!(condition(&gateway, "Programmed")["reason"], "AddressNotAssigned");
    assert_eq!(condition(&gateway["listeners"][0], "Programmed")["reason"], "Pending");
    assert_eq!(gateway["listeners"][0]["attachedRoutes"], 1);
    let route = status(&objects, StatusKind::HttpRoute, "infra/r");
    assert_eq!(route["parents"][0]["controllerName"], CONTROLLER);
    assert_eq!(
        route["parents"][0]["parentRef"],
        json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"})
    );
    let pool = status(&objects, StatusKind::InferencePool, "infra/p");
    assert_eq!(condition(&pool["parents"][0], "Accepted")["status"], "True");
    assert_eq!(condition(&pool["parents"][0], "ResolvedRefs")["observedGeneration"], 2);
}

#[test]
fn h04_nothing_is_written_when_nothing_changed_and_times_move_with_the_status_alone() {
    let mut objects = cluster();
    settle(&mut objects, "t1");
    assert_eq!(settle(&mut objects, "t2"), 0);
    start_plane(&mut objects);
    assert_eq!(settle(&mut objects, "t3"), 1, "the Gateway alone");
    let gateway = status(&objects, StatusKind::Gateway, "infra/gw");
    assert_eq!(gateway["addresses"], json!([{"type": "IPAddress", "value": "10.96.0.7"}]));
    assert_eq!(condition(&gateway, "Programmed")["lastTransitionTime"], "t3");
    assert_eq!(condition(&gateway, "Accepted")["lastTransitionTime"], "t1");
    assert_eq!(condition(&gateway["listeners"][0], "Programmed")["status"], "True");
    // A new generation is told, its times stay.
    let mut changed = route(2);
    changed["status"] = status(&objects, StatusKind::HttpRoute, "infra/r");
    objects.routes.insert(key("infra/r"), read(changed));
    assert_eq!(settle(&mut objects, "t4"), 1);
    let route = status(&objects, StatusKind::HttpRoute, "infra/r");
    let accepted = condition(&route["parents"][0], "Accepted");
    assert_eq!((&accepted["observedGeneration"], &accepted["lastTransitionTime"]), (&json!(2), &json!("t1")));
}

#[test]
fn h05_entries_for_what_is_gone_go_and_late_references_are_seen() {
    let mut objects = cluster();
    let pool = objects.pools.remove(&key("infra/p")).unwrap();
    settle(&mut objects, "t1");
    let resolved = |objects: &Objects| {
        let route = status(objects, StatusKind::HttpRoute, "infra/r");
        condition(&route["parents"][0], "ResolvedRefs")["reason"].clone()
    };
    assert_eq!(resolved(&objects), "BackendNotFound");
    objects.pools.insert(key("infra/p"), pool);
    settle(&mut objects, "t2");
    assert_eq!(resolved(&objects), "ResolvedRefs");
    assert_eq!(status(&objects, StatusKind::InferencePool, "infra/p")["parents"].as_array().unwrap().len(), 1);
    // The route goes: the pool has no parent left.
    let route = objects.routes.remove(&key("infra/r")).unwrap();
    settle(&mut objects, "t3");
    assert_eq!(status(&objects, StatusKind::InferencePool, "infra/p")["parents"], json!([]));
    // It comes back, and its Gateway goes.
    objects.routes.insert(key("infra/r"), route);
    settle(&mut objects, "t4");
    objects.gateways.remove(&key("infra/gw"));
    settle(&mut objects, "t5");
    assert_eq!(status(&objects, StatusKind::HttpRoute, "infra/r")["parents"], json!([]));
    assert_eq!(status(&objects, StatusKind::InferencePool, "infra/p")["parents"], json!([]));
    assert_eq!(settle(&mut objects, "t6"), 0);
}

#[test]
fn entries_of_others_stay_as_and_where_they_are() {
    let mut objects = cluster();
    let others = [
        json!({"parentRef": {"name": "theirs"}, "controllerName": "example.com/other", "conditions": [{"type": "Odd"}]}),
        json!({"parentRef": {"name": "nameless"}}),
    ];
    let place = Place { kind: StatusKind::InferencePool, key: key("infra/p") };
    put(&mut objects, &place, json!({ "parents": others }));
    settle(&mut objects, "t1");
    let parents = |objects: &Objects| status(objects, StatusKind::InferencePool, "infra/p")["parents"].clone();
    assert_eq!(parents(&objects).as_array().unwrap()[..2], others);
    // Another controller puts its own last: that is no reason to write.
    let mut turned = parents(&objects);
    turned.as_array_mut().unwrap().rotate_left(2);
    put(&mut objects, &place, json!({ "parents": turned }));
    assert_eq!(settle(&mut objects, "t2"), 0);
    objects.routes.clear();
    settle(&mut objects, "t3");
    assert_eq!(parents(&objects), json!(others));
}

#[test]
fn a_full_list_gets_no_33rd_entry() {
    let mut objects = cluster();
    let others: Vec<Value> =
        (0..32).map(|at| json!({"parentRef": {"name": format!("g{at}")}, "controllerName": "a.b/c"})).collect();
    put(&mut objects, &Place { kind: StatusKind::InferencePool, key: key("infra/p") }, json!({ "parents": others }));
    assert_eq!(due(&objects, &AROUND).iter().filter(|it| it.place.kind == StatusKind::InferencePool).count(), 0);
}

#[test]
fn objects_of_other_controllers_are_left_alone() {
    let mut objects = cluster();
    let theirs = json!({"metadata": {"name": "theirs"}, "spec": {"controllerName": "example.com/other"}});
    objects.gateway_classes = [(key("/theirs"), read(theirs))].into();
    let gateway = Arc::make_mut(objects.gateways.get_mut(&key("infra/gw")).unwrap());
    gateway.spec.gateway_class_name = "theirs".into();
    assert_eq!(due(&objects, &AROUND), []);
}

#[test]
fn conditions_of_others_on_a_gateway_stay() {
    let mut objects = cluster();
    let place = Place { kind: StatusKind::Gateway, key: key("infra/gw") };
    let default = json!({"conditions": [
        {"type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"},
        {"type": "example.com/Odd", "status": "True"},
    ]});
    put(&mut objects, &place, default);
    settle(&mut objects, "t1");
    let gateway = status(&objects, StatusKind::Gateway, "infra/gw");
    assert_eq!(condition(&gateway, "Accepted")["lastTransitionTime"], "t1");
    assert_eq!(condition(&gateway, "example.com/Odd")["status"], "True");
    assert_eq!(settle(&mut objects, "t2"), 0);
}

#[test]
fn a_pod_that_goes_takes_programmed_with_it() {
    let mut objects = cluster();
    start_plane(&mut objects);
    settle(&mut objects, "t1");
    objects.pods.clear();
    settle(&mut objects, "t2");
    let gateway = status(&objects, StatusKind::Gateway, "infra/gw");
    assert_eq!(condition(&gateway, "Programmed")["reason"], "NoResources");
    assert_eq!(condition(&gateway, "Programmed")["lastTransitionTime"], "t2");
}

#[test]
fn a_load_balancer_is_the_address_where_there_is_one() {
    let mut objects = cluster();
    start_plane(&mut objects);
    let name = ObjectKey::new("system", names::data_plane("infra", "gw"));
    let service = Arc::make_mut(objects.services.get_mut(&name).unwrap());
    service.status = Some(json!({"loadBalancer": {"ingress": [{"hostname": "lb.example"}, {"ip": "1.2.3.4"}]}}));
    settle(&mut objects, "t1");
    let gateway = status(&objects, StatusKind::Gateway, "infra/gw");
    let expected = json!([{"type": "Hostname", "value": "lb.example"}, {"type": "IPAddress", "value": "1.2.3.4"}]);
    assert_eq!(gateway["addresses"], expected);
}

proptest! {
    #[test]
    fn whatever_stands_in_a_list_one_write_settles_it(
        known in proptest::collection::vec((0..4_u8, 0..3_u8, any::<bool>()), 0..33),
    ) {
        let known: Vec<Value> = known.iter().map(|(name, by, fresh)| {
            let by = ["a.b/c", CONTROLLER, "d.e/f"][usize::from(*by)];
            let name = ["gw", "a", "b", "c"][usize::from(*name)];
            let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": name});
            let conditions = if *fresh { json!([]) } else { json!([{"type": "Accepted", "status": "False"}]) };
            json!({"parentRef": parent, "controllerName": by, "conditions": conditions})
        }).collect();
        let mut objects = cluster();
        let foreign: Vec<Value> = known.iter().filter(|it| it["controllerName"] != CONTROLLER).cloned().collect();
        put(&mut objects, &Place { kind: StatusKind::InferencePool, key: key("infra/p") }, json!({ "parents": known }));
        settle(&mut objects, "t1");
        let after = status(&objects, StatusKind::InferencePool, "infra/p");
        let after = after["parents"].as_array().unwrap();
        let kept: Vec<Value> = after.iter().filter(|it| it["controllerName"] != CONTROLLER).cloned().collect();
        prop_assert_eq!(&kept, &foreign);
        let ours = after.len() - kept.len();
        prop_assert_eq!(ours, usize::from(foreign.len() < 32));
        prop_assert_eq!(settle(&mut objects, "t2"), 0);
    }
}
