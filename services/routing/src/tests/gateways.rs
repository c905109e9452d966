//! What is said of Gateways and their listeners.

use super::*;
use crate::verdict::kind::{ACCEPTED, CONFLICTED, PROGRAMMED, RESOLVED_REFS};

/// A Gateway with these listeners, and more of its `spec`.
fn gateway(listeners: &str) -> String {
    format!("kind: Gateway\nmetadata: {{name: gw, namespace: infra}}\nspec:\n  gatewayClassName: ours\n{listeners}")
}

/// The four conditions of the listener at `at`, in the order Accepted, Conflicted, ResolvedRefs, Programmed.
fn listener(objects: &Objects, at: usize) -> [String; 4] {
    let attached = attached(objects);
    let conditions = &attached.gateways[&key("infra/gw")].listeners[at].conditions;
    [ACCEPTED, CONFLICTED, RESOLVED_REFS, PROGRAMMED].map(|kind| told(conditions, kind))
}

fn whole(objects: &Objects) -> [String; 2] {
    let attached = attached(objects);
    let conditions = &attached.gateways[&key("infra/gw")].conditions;
    [ACCEPTED, PROGRAMMED].map(|kind| told(conditions, kind))
}

fn kinds(objects: &Objects, at: usize) -> usize {
    attached(objects).gateways[&key("infra/gw")].listeners[at].supported_kinds.len()
}

const FINE: [&str; 4] = ["True Accepted", "False NoConflicts", "True ResolvedRefs", "True Programmed"];

#[test]
fn a_plain_gateway_is_served_and_one_of_another_class_is_not_ours() {
    let objects = objects(&[
        GATEWAY,
        "kind: Gateway\nmetadata: {name: other, namespace: infra}\nspec: {gatewayClassName: theirs, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    ]);
    assert_eq!(listener(&objects, 0), FINE);
    assert_eq!(whole(&objects), ["True Accepted", "True Programmed"]);
    assert_eq!(attached(&objects).gateways.len(), 1);
}

#[test]
fn a_protocol_that_is_not_served_costs_its_listener_and_alone_the_gateway() {
    let only = objects(&[&gateway("  listeners: [{name: invalid, port: 1111, protocol: INVALID}]")]);
    assert_eq!(listener(&only, 0)[0], "False UnsupportedProtocol");
    assert_eq!((kinds(&only, 0), whole(&only)), (0, ["False ListenersNotValid", "False Invalid"].map(String::from)));

    let both = objects(&[&gateway(
        "  listeners: [{name: http, port: 80, protocol: HTTP}, {name: invalid, port: 1111, protocol: INVALID}]",
    )]);
    assert_eq!(listener(&both, 0), FINE);
    assert_eq!(listener(&both, 1)[0], "False UnsupportedProtocol");
    assert_eq!(whole(&both), ["True ListenersNotValid", "True Programmed"]);
}

#[test]
fn kinds_of_routes_that_are_not_served_are_named_and_the_others_stay() {
    let only = objects(&[&gateway(
        "  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: InvalidRoute}]}}]",
    )]);
    assert_eq!((listener(&only, 0)[2].as_str(), kinds(&only, 0)), ("False InvalidRouteKinds", 0));
    let both = objects(&[&gateway(
        "  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: InvalidRoute}, {kind: HTTPRoute}]}}]",
    )]);
    assert_eq!((listener(&both, 0)[2].as_str(), kinds(&both, 0)), ("False InvalidRouteKinds", 1));
    assert_eq!(listener(&both, 0)[3], "True Programmed");
}

#[test]
fn listeners_that_cannot_be_told_apart_are_all_refused() {
    let hosts = objects(&[&gateway(
        "  listeners: [{name: a, port: 80, protocol: HTTP, hostname: x.example}, {name: b, port: 80, protocol: HTTP, hostname: X.example}, {name: c, port: 80, protocol: HTTP}]",
    )]);
    for at in [0, 1] {
        assert_eq!(listener(&hosts, at)[..2], ["False HostnameConflict", "True HostnameConflict"]);
        assert_eq!(listener(&hosts, at)[3], "False Invalid");
    }
    assert_eq!(listener(&hosts, 2), FINE);
    let protocols = objects(&[&gateway(
        "  listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: HTTPS, hostname: x.example}]",
    )]);
    assert_eq!(listener(&protocols, 0)[1], "True ProtocolConflict");
    assert_eq!(listener(&protocols, 1)[1], "True ProtocolConflict");
}

#[test]
fn ports_that_the_data_plane_cannot_bind_are_refused() {
    let admin = objects(&[&gateway("  listeners: [{name: a, port: 9090, protocol: HTTP}]")]);
    assert_eq!(listener(&admin, 0)[0], "False PortUnavailable");
    let shifted = objects(&[&gateway(
        "  listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 10080, protocol: HTTP}]",
    )]);
    assert_eq!(listener(&shifted, 0), FINE);
    assert_eq!(listener(&shifted, 1)[0], "False PortUnavailable");
}

#[test]
fn addresses_cannot_be_asked_for_but_may_be_left_open() {
    let listeners = "  listeners: [{name: http, port: 80, protocol: HTTP}]\n";
    let with = |addresses: &str| objects(&[&gateway(&format!("{listeners}  addresses: {addresses}"))]);
    assert_eq!(whole(&with("[{type: IPAddress}]")), ["True Accepted", "True Programmed"]);
    assert_eq!(whole(&with("[{type: IPAddress, value: 1.2.3.4}]")), ["True Accepted", "False AddressNotUsable"]);
    assert_eq!(whole(&with("[{type: example.com/odd, value: x}]"))[0], "False UnsupportedAddress");
}

#[test]
fn parameters_that_nobody_reads_refuse_the_gateway() {
    let infrastructure = "  infrastructure: {parametersRef: {group: g.example, kind: Odd, name: x}}";
    let objects =
        objects(&[&gateway(&format!("  listeners: [{{name: http, port: 80, protocol: HTTP}}]\n{infrastructure}"))]);
    assert_eq!(whole(&objects), ["False InvalidParameters", "False Invalid"]);
    assert_eq!(listener(&objects, 0)[3], "False Invalid");
}

// === TLS ===

/// `-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----`, and the same with `PRIVATE KEY`.
const CRT: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
const KEY: &str = "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCkFBQUEKLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo=";

fn secret(namespace: &str, crt: &str, key: &str) -> String {
    format!(
        "kind: Secret\nmetadata: {{name: cert, namespace: {namespace}}}\ntype: kubernetes.io/tls\ndata: {{tls.crt: {crt}, tls.key: {key}}}"
    )
}

fn https(reference: &str) -> String {
    gateway(&format!(
        "  listeners: [{{name: https, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{reference}]}}}}]"
    ))
}

#[test]
fn a_certificate_must_be_there_and_look_like_one() {
    let hello = "SGVsbG8gd29ybGQK";
    let fine = objects(&[&https("{name: cert}"), &secret("infra", CRT, KEY)]);
    assert_eq!(listener(&fine, 0), FINE);
    assert_eq!(attached(&fine).gateways[&key("infra/gw")].listeners[0].certificates, [key("infra/cert")]);
    for (reference, secret) in [
        ("{name: missing}", secret("infra", CRT, KEY)),
        ("{name: cert, group: wrong.example, kind: Secret}", secret("infra", CRT, KEY)),
        ("{name: cert, kind: WrongKind}", secret("infra", CRT, KEY)),
        ("{name: cert}", secret("infra", hello, hello)),
        ("{name: cert}", secret("infra", CRT, CRT)),
        ("{name: cert}", secret("infra", "'%%%'", KEY)),
    ] {
        let objects = objects(&[&https(reference), &secret]);
        assert_eq!(listener(&objects, 0)[2..], ["False InvalidCertificateRef", "False Invalid"], "{reference}");
        assert_eq!(kinds(&objects, 0), 1);
        assert_eq!(whole(&objects), ["True ListenersNotValid", "False Invalid"]);
    }
}

#[test]
fn a_certificate_of_another_namespace_needs_its_consent() {
    let gateway = https("{name: cert, namespace: apps}");
    let grant = |to: &str, from: &str| {
        format!(
            "kind: ReferenceGrant\nmetadata: {{name: g, namespace: apps}}\nspec: {{from: [{{group: gateway.networking.k8s.io, kind: Gateway, namespace: {from}}}], to: [{{group: \"\", kind: Secret{to}}}]}}"
        )
    };
    let secret = secret("apps", CRT, KEY);
    let with = |grant: &str| listener(&objects(&[&gateway, &secret, grant]), 0)[2].clone();
    assert_eq!(with(""), "False RefNotPermitted");
    assert_eq!(with(&grant(", name: other", "infra")), "False RefNotPermitted");
    assert_eq!(with(&grant("", "apps")), "False RefNotPermitted");
    assert_eq!(with(&grant("", "infra")), "True ResolvedRefs");
    assert_eq!(with(&grant(", name: cert", "infra")), "True ResolvedRefs");
    // Of a Secret that may not be named, not even its absence is told.
    assert_eq!(listener(&objects(&[&gateway]), 0)[2], "False RefNotPermitted");
}

#[test]
fn one_good_certificate_serves_and_the_bad_one_is_told() {
    let objects = objects(&[&https("{name: missing}, {name: cert}"), &secret("infra", CRT, KEY)]);
    assert_eq!(listener(&objects, 0)[2..], ["False InvalidCertificateRef", "True Programmed"]);
}

#[test]
fn what_is_asked_of_clients_certificates_is_never_passed_over() {
    let listeners = "  listeners: [{name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}, {name: http, port: 80, protocol: HTTP}]\n";
    let asked = "  tls: {frontend: {default: {validation: {caCertificateRefs: [{name: ca}]}}}}";
    let objects = objects(&[&gateway(&format!("{listeners}{asked}")), &secret("infra", CRT, KEY)]);
    assert_eq!(listener(&objects, 0)[0], "False UnsupportedValue");
    assert_eq!(listener(&objects, 1), FINE);
}

#[test]
fn tls_is_ended_here_or_not_at_all() {
    let listeners = "  listeners: [{name: https, port: 443, protocol: HTTPS, tls: {mode: Passthrough, certificateRefs: [{name: cert}]}}]";
    let objects = objects(&[&gateway(listeners), &secret("infra", CRT, KEY)]);
    assert_eq!(listener(&objects, 0)[0], "False UnsupportedValue");
    let bare = super::objects(&[&gateway("  listeners: [{name: https, port: 443, protocol: HTTPS}]")]);
    assert_eq!(listener(&bare, 0)[2], "False InvalidCertificateRef");
}
