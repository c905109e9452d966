//! What is said of pools.

use super::*;
use crate::verdict::kind::{ACCEPTED, RESOLVED_REFS};

fn pool(picker: &str) -> String {
    format!(
        "kind: InferencePool\nmetadata: {{name: p, namespace: infra}}\nspec: {{selector: {{matchLabels: {{app: p}}}}, targetPorts: [{{number: 8000}}]{picker}}}"
    )
}

fn route(name: &str, gateway: &str) -> String {
    format!(
        "kind: HTTPRoute\nmetadata: {{name: {name}, namespace: infra}}\nspec: {{parentRefs: [{{name: {gateway}}}], rules: [{{backendRefs: [{{group: inference.networking.k8s.io, kind: InferencePool, name: p, port: 8080}}]}}]}}"
    )
}

const PICKER: &str = "kind: Service\nmetadata: {name: picker, namespace: infra}\nspec: {type: ClusterIP, ports: [{port: 9002, protocol: TCP}]}";

/// Gateway, Accepted and ResolvedRefs of each parent of `infra/p`.
fn said(objects: &Objects) -> Vec<String> {
    let attached = attached(objects);
    let parents = attached.pools.get(&key("infra/p")).map(Vec::as_slice).unwrap_or_default();
    let line = |it: &crate::PoolParent| {
        format!("{}: {}, {}", it.gateway.name, told(&it.conditions, ACCEPTED), told(&it.conditions, RESOLVED_REFS))
    };
    parents.iter().map(line).collect()
}

#[test]
fn a_pool_has_one_entry_per_gateway_while_routes_name_it() {
    let second = GATEWAY.replace("name: gw", "name: gw2");
    let (one, two, three) = (route("one", "gw"), route("two", "gw2"), route("three", "gw"));
    let fine = |gateway: &str| format!("{gateway}: True Accepted, True ResolvedRefs");
    let mut objects = objects(&[GATEWAY, &second, &pool(""), &one, &two, &three]);
    assert_eq!(said(&objects), [fine("gw"), fine("gw2")]);
    objects.routes.remove(&key("infra/two"));
    assert_eq!(said(&objects), [fine("gw")]);
    objects.routes.remove(&key("infra/one"));
    assert_eq!(said(&objects), [fine("gw")]);
    objects.routes.remove(&key("infra/three"));
    assert_eq!(said(&objects), Vec::<String>::new());
}

#[test]
fn a_pool_of_a_route_that_is_not_accepted_says_so() {
    let refused = route("one", "gw, sectionName: none");
    let only = objects(&[GATEWAY, &pool(""), &refused]);
    assert_eq!(said(&only), ["gw: False HTTPRouteNotAccepted, True ResolvedRefs"]);
    let also = objects(&[GATEWAY, &pool(""), &refused, &route("two", "gw")]);
    assert_eq!(said(&also), ["gw: True Accepted, True ResolvedRefs"]);
}

#[test]
fn a_picker_that_cannot_be_called_is_told_and_closes_the_pool_unless_it_fails_open() {
    let external = PICKER.replace("ClusterIP", "ExternalName");
    for (picker, service, mode, is_fine) in [
        ("{name: picker, port: {number: 9002}}", PICKER, "FailClose", true),
        ("{name: missing, port: {number: 9002}}", PICKER, "FailClose", false),
        ("{name: picker, port: {number: 1}}", PICKER, "FailClose", false),
        ("{name: picker, port: {number: 9002}}", external.as_str(), "FailClose", false),
        ("{name: picker, kind: Odd, group: odd.example}", PICKER, "FailClose", false),
        ("{name: missing, port: {number: 9002}}", PICKER, "FailOpen", false),
    ] {
        let picker = format!(", endpointPickerRef: {}", picker.replacen('{', &format!("{{failureMode: {mode}, "), 1));
        let objects = objects(&[GATEWAY, service, &pool(&picker), &route("one", "gw")]);
        let resolved = if is_fine { "True ResolvedRefs" } else { "False InvalidExtensionRef" };
        assert_eq!(said(&objects), [format!("gw: True Accepted, {resolved}")], "{picker}");
        assert_eq!(of_route(&objects, "infra/one", RESOLVED_REFS), "True ResolvedRefs");
        let serves = targets(&objects, "infra/one") == [Target::Pool(key("infra/p"))];
        assert_eq!(serves, is_fine || mode == "FailOpen", "{picker}");
    }
}

#[test]
fn the_port_of_a_reference_to_a_pool_means_nothing() {
    for port in ["", ", port: 8000", ", port: 1"] {
        let route = route("one", "gw").replace(", port: 8080", port);
        let objects = objects(&[GATEWAY, &pool(""), &route]);
        assert_eq!(targets(&objects, "infra/one"), [Target::Pool(key("infra/p"))]);
    }
}

#[test]
fn a_pool_that_may_not_be_named_hears_nothing_of_it() {
    let route = route("one", "gw")
        .replace("name: one, namespace: infra", "name: one, namespace: apps")
        .replace("name: gw", "name: gw, namespace: infra")
        .replace("name: p", "name: p, namespace: infra");
    let gateway = GATEWAY.replace("protocol: HTTP", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}");
    let objects = objects(&[&gateway, &pool(""), &route]);
    assert_eq!(of_route(&objects, "apps/one", RESOLVED_REFS), "False RefNotPermitted");
    assert_eq!(said(&objects), Vec::<String>::new());
}
