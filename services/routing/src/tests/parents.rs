//! What is said of routes: where they hang, and what they name.

use super::*;
use crate::verdict::kind::{ACCEPTED, PARTIALLY_INVALID, RESOLVED_REFS};

/// A route `r` of a namespace with this `spec`.
fn route(namespace: &str, spec: &str) -> String {
    format!("kind: HTTPRoute\nmetadata: {{name: r, namespace: {namespace}}}\nspec: {{{spec}}}")
}

fn backend(reference: &str) -> String {
    route("infra", &format!("parentRefs: [{{name: gw}}], rules: [{{backendRefs: [{reference}]}}]"))
}

const TO_WEB: &str = "rules: [{backendRefs: [{name: web, port: 8080}]}]";

fn counts(objects: &Objects) -> Vec<u32> {
    attached(objects).gateways[&key("infra/gw")].listeners.iter().map(|it| it.attached_routes).collect()
}

#[test]
fn a_route_hangs_on_the_listeners_that_its_parent_ref_means() {
    let two = "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec:\n  gatewayClassName: ours\n  listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 8080, protocol: HTTP}]";
    for (parent, accepted, expected) in [
        ("{name: gw}", "True Accepted", [1, 1]),
        ("{name: gw, sectionName: a}", "True Accepted", [1, 0]),
        ("{name: gw, port: 8080}", "True Accepted", [0, 1]),
        ("{name: gw, sectionName: b, port: 8080}", "True Accepted", [0, 1]),
        ("{name: gw, sectionName: a, port: 8080}", "False NoMatchingParent", [0, 0]),
        ("{name: gw, sectionName: c}", "False NoMatchingParent", [0, 0]),
        ("{name: gw, port: 81}", "False NoMatchingParent", [0, 0]),
    ] {
        let objects = objects(&[two, &route("infra", &format!("parentRefs: [{parent}], {TO_WEB}"))]);
        assert_eq!(of_route(&objects, "infra/r", ACCEPTED), accepted, "{parent}");
        assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), "True ResolvedRefs", "{parent}");
        assert_eq!(counts(&objects), expected, "{parent}");
    }
}

#[test]
fn a_route_with_two_parent_refs_has_two_entries_and_counts_once_per_listener() {
    let objects = objects(&[
        GATEWAY,
        &route("infra", &format!("parentRefs: [{{name: gw}}, {{name: gw, port: 80}}, {{name: away}}], {TO_WEB}")),
    ]);
    let attached = attached(&objects);
    assert_eq!(attached.routes[&key("infra/r")].len(), 2);
    assert_eq!(counts(&objects), [1]);
}

#[test]
fn routes_of_others_gateways_and_of_services_are_not_ours_to_judge() {
    let mesh = route("infra", "parentRefs: [{group: \"\", kind: Service, name: gw}]");
    assert!(attached(&objects(&[GATEWAY, &mesh])).routes.is_empty());
    let theirs = route("infra", "parentRefs: [{name: gw}]");
    assert!(attached(&objects(&[&GATEWAY.replace("ours", "theirs"), &theirs])).routes.is_empty());
}

#[test]
fn listeners_choose_whose_routes_they_take() {
    for (from, infra, apps) in [
        ("{}", true, false),
        ("{namespaces: {from: Same}}", true, false),
        ("{namespaces: {from: All}}", true, true),
        ("{namespaces: {from: None}}", false, false),
        ("{namespaces: {from: Selector, selector: {matchLabels: {team: red}}}}", false, true),
        (
            "{namespaces: {from: Selector, selector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}}",
            true,
            false,
        ),
        ("{namespaces: {from: Selector}}", false, false),
    ] {
        let gateway = format!(
            "kind: Gateway\nmetadata: {{name: gw, namespace: infra}}\nspec: {{gatewayClassName: ours, listeners: [{{name: http, port: 80, protocol: HTTP, allowedRoutes: {from}}}]}}"
        );
        for (namespace, allowed) in [("infra", infra), ("apps", apps)] {
            let spec = format!("parentRefs: [{{name: gw, namespace: infra}}], {TO_WEB}");
            let objects = objects(&[&gateway, &route(namespace, &spec)]);
            let expected = if allowed { "True Accepted" } else { "False NotAllowedByListeners" };
            assert_eq!(of_route(&objects, &format!("{namespace}/r"), ACCEPTED), expected, "{from} {namespace}");
            // What is wrong with the parent is not said of the references.
            assert_eq!(of_route(&objects, &format!("{namespace}/r"), RESOLVED_REFS), "True ResolvedRefs");
            assert_eq!(counts(&objects), [u32::from(allowed)]);
        }
    }
}

#[test]
fn listeners_for_other_kinds_take_no_routes() {
    let gateway = "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {gatewayClassName: ours, listeners: [{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {kinds: [{kind: TLSRoute}]}}]}";
    let objects = objects(&[gateway, &route("infra", &format!("parentRefs: [{{name: gw}}], {TO_WEB}"))]);
    assert_eq!(of_route(&objects, "infra/r", ACCEPTED), "False NotAllowedByListeners");
    assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), "True ResolvedRefs");
    assert_eq!(counts(&objects), [0]);
}

#[test]
fn hostnames_must_meet() {
    let gateway = "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {gatewayClassName: ours, listeners: [{name: http, port: 80, protocol: HTTP, hostname: foo.example.com}]}";
    for (hostnames, expected, count) in [
        ("", "True Accepted", 1),
        ("hostnames: [foo.example.com],", "True Accepted", 1),
        ("hostnames: ['*.example.com'],", "True Accepted", 1),
        ("hostnames: [not.test, foo.example.com],", "True Accepted", 1),
        ("hostnames: [not.test],", "False NoMatchingListenerHostname", 0),
        ("hostnames: ['*.foo.example.com'],", "False NoMatchingListenerHostname", 0),
    ] {
        let objects =
            objects(&[gateway, &route("infra", &format!("parentRefs: [{{name: gw}}], {hostnames} {TO_WEB}"))]);
        assert_eq!(
            (of_route(&objects, "infra/r", ACCEPTED), counts(&objects)),
            (expected.to_owned(), vec![count]),
            "{hostnames}"
        );
    }
}

#[test]
fn a_listener_without_its_certificate_still_counts_its_routes() {
    let gateway = "kind: Gateway\nmetadata: {name: gw, namespace: infra}\nspec: {gatewayClassName: ours, listeners: [{name: tls, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: missing}]}}]}";
    let objects = objects(&[gateway, &backend("{name: missing, port: 8080}")]);
    assert_eq!(counts(&objects), [1]);
    assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), "False BackendNotFound");
    assert!(table(&objects).rules().next().is_none(), "nothing is served without a certificate");
}

#[test]
fn references_that_lead_nowhere_are_told_and_answer_with_500() {
    for (reference, expected) in [
        ("{name: web, port: 8080}", "True ResolvedRefs"),
        ("{name: web, port: 8081}", "True ResolvedRefs"),
        ("{name: missing, port: 8080}", "False BackendNotFound"),
        ("{name: web, port: 9}", "False BackendNotFound"),
        ("{name: web}", "False BackendNotFound"),
        ("{name: web, port: 53}", "False BackendNotFound"),
        ("{name: web, port: 8082}", "False UnsupportedProtocol"),
        ("{name: away, port: 8080}", "False InvalidKind"),
        ("{name: x, kind: NonExistent}", "False InvalidKind"),
        ("{name: x, kind: InferencePool}", "False InvalidKind"),
        ("{name: x, group: inference.networking.k8s.io, kind: InferencePool}", "False BackendNotFound"),
        ("{name: x, group: inference.networking.x-k8s.io, kind: InferencePool}", "False InvalidKind"),
        ("{name: web, namespace: apps, port: 8080}", "False RefNotPermitted"),
        ("{name: missing, namespace: apps, port: 8080}", "False RefNotPermitted"),
    ] {
        let objects = objects(&[GATEWAY, &backend(reference)]);
        assert_eq!(of_route(&objects, "infra/r", ACCEPTED), "True Accepted", "{reference}");
        assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), expected, "{reference}");
        let is_invalid = matches!(targets(&objects, "infra/r")[..], [Target::Invalid(_)]);
        assert_eq!(is_invalid, expected != "True ResolvedRefs", "{reference}");
    }
}

#[test]
fn a_grant_opens_exactly_what_it_names() {
    let grant = |from: &str, to: &str| {
        format!("kind: ReferenceGrant\nmetadata: {{name: g, namespace: apps}}\nspec: {{from: [{from}], to: [{to}]}}")
    };
    let from = "{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: infra}";
    for (from, to, permitted) in [
        (from, "{group: \"\", kind: Service}", true),
        (from, "{group: \"\", kind: Service, name: web}", true),
        (from, "{group: \"\", kind: Service, name: other}", false),
        (from, "{group: \"\", kind: Secret}", false),
        ("{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}", "{group: \"\", kind: Service}", false),
        (
            "{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: other}",
            "{group: \"\", kind: Service}",
            false,
        ),
    ] {
        let objects = objects(&[GATEWAY, &backend("{name: web, namespace: apps, port: 8080}"), &grant(from, to)]);
        let expected = if permitted { "True ResolvedRefs" } else { "False RefNotPermitted" };
        assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), expected, "{from} {to}");
    }
    // One in another namespace opens nothing.
    let elsewhere =
        grant(from, "{group: \"\", kind: Service}").replace("namespace: apps}\nspec", "namespace: infra}\nspec");
    let objects = objects(&[GATEWAY, &backend("{name: web, namespace: apps, port: 8080}"), &elsewhere]);
    assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), "False RefNotPermitted");
}

#[test]
fn a_reference_that_appears_later_is_seen_and_one_that_goes_is_missed() {
    let mut objects = objects(&[GATEWAY, &backend("{name: late, port: 8080}")]);
    assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), "False BackendNotFound");
    let late = objects.services[&key("infra/web")].clone();
    objects.services.insert(key("infra/late"), late);
    assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), "True ResolvedRefs");
    objects.services.remove(&key("infra/late"));
    assert_eq!(of_route(&objects, "infra/r", RESOLVED_REFS), "False BackendNotFound");
}

#[test]
fn what_cannot_be_done_costs_its_rule_and_alone_the_route() {
    let odd = "{filters: [{type: Odd}], backendRefs: [{name: web, port: 8080}]}";
    let good = "{matches: [{path: {value: /good}}], backendRefs: [{name: web, port: 8080}]}";
    let both = objects(&[GATEWAY, &route("infra", &format!("parentRefs: [{{name: gw}}], rules: [{odd}, {good}]"))]);
    assert_eq!(of_route(&both, "infra/r", ACCEPTED), "True Accepted");
    assert_eq!(of_route(&both, "infra/r", PARTIALLY_INVALID), "True UnsupportedValue");
    let message = &attached(&both).routes[&key("infra/r")][0].conditions[1].message.clone();
    assert!(message.starts_with("Dropped Rule 0"), "{message}");
    let only = objects(&[GATEWAY, &route("infra", &format!("parentRefs: [{{name: gw}}], rules: [{odd}]"))]);
    assert_eq!(of_route(&only, "infra/r", ACCEPTED), "False UnsupportedValue");
    assert_eq!(of_route(&only, "infra/r", PARTIALLY_INVALID), "absent");
    assert_eq!(counts(&only), [0]);
    let found = table(&only);
    assert!(found.rules().all(|it| it.refused.is_some()), "its requests are answered with 500, not passed on");
    assert_eq!(ask(&found, 80, "GET x/any", &[]), "r/0");
}
