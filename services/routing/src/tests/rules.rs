//! What a rule does with the requests it takes.

use std::time::Duration;

use super::*;
use crate::{
    AppProtocol, Rule,
    filter::{Origin, PathEdit},
    verdict::kind::ACCEPTED,
};

/// A route `r` with one rule.
fn one(rule: &str) -> String {
    format!(
        "kind: HTTPRoute\nmetadata: {{name: r, namespace: infra}}\nspec: {{parentRefs: [{{name: gw}}], rules: [{{{rule}}}]}}"
    )
}

fn rule(text: &str) -> Rule {
    let objects = objects(&[GATEWAY, &one(text)]);
    table(&objects).rules().next().expect("one rule").as_ref().clone()
}

#[test]
fn shares_follow_weights_and_weight_zero_takes_nothing() {
    let rule = rule(
        "backendRefs: [{name: web, port: 8080, weight: 9}, {name: missing, port: 8080}, {name: web, port: 8081, weight: 0}]",
    );
    let shares: Vec<usize> = rule
        .backends
        .iter()
        .map(|backend| {
            (0..1000).filter(|random| rule.share(*random).is_some_and(|it| std::ptr::eq(it, backend))).count()
        })
        .collect();
    // The one that leads nowhere keeps its share: those requests are answered with 500, not moved.
    assert_eq!(shares, [900, 100, 0]);
    assert!(matches!(rule.backends[1].target, Target::Invalid(_)));
}

#[test]
fn k03_without_any_weight_nothing_is_chosen() {
    assert!(
        rule("backendRefs: [{name: web, port: 8080, weight: 0}, {name: web, port: 8081, weight: 0}]")
            .share(7)
            .is_none()
    );
    assert!(rule("").share(7).is_none());
}

#[test]
fn the_port_says_what_is_spoken() {
    let spoken = |port: u16| rule(&format!("backendRefs: [{{name: web, port: {port}}}]")).backends[0].target.clone();
    let service = |port, protocol| Target::Service { key: key("infra/web"), port, protocol };
    assert_eq!(spoken(8080), service(8080, AppProtocol::Http1));
    assert_eq!(spoken(8081), service(8081, AppProtocol::H2c));
}

#[test]
fn timeouts_are_read_and_zero_is_none() {
    let times = |text: &str| rule(&format!("timeouts: {{{text}}}")).timeouts;
    assert_eq!(times("request: 500ms, backendRequest: 250ms").request, Some(Duration::from_millis(500)));
    assert_eq!(times("request: 1m30s, backendRequest: 250ms").backend_request, Some(Duration::from_millis(250)));
    assert_eq!(times("request: 0s").request, None);
    assert!(rule("timeouts: {request: soon}").refused.is_some());
}

#[test]
fn header_filters_become_lists_with_names_in_lower_case() {
    let rule = rule(
        "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: a}], add: [{name: X-Add, value: b}], remove: [X-Remove]}}, {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: X-Out, value: c}]}}]",
    );
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(rule.filters.request_headers.set, [pair("x-set", "a")]);
    assert_eq!(rule.filters.request_headers.add, [pair("x-add", "b")]);
    assert_eq!(rule.filters.request_headers.remove, ["x-remove"]);
    assert_eq!(rule.filters.response_headers.set, [pair("x-out", "c")]);
}

#[test]
fn filters_that_would_break_messages_or_are_unknown_refuse_the_rule() {
    for filter in [
        "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Content-Length, value: '0'}]}}",
        "{type: RequestHeaderModifier, requestHeaderModifier: {remove: [Transfer-Encoding]}}",
        "{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: x, value: \"a\\r\\nb: c\"}]}}",
        "{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: 'a b', value: c}]}}",
        "{type: RequestHeaderModifier}",
        "{type: ExtensionRef, extensionRef: {group: g, kind: k, name: n}}",
        "{type: CORS, cors: {}}",
        "{type: RequestRedirect, requestRedirect: {statusCode: 300}}",
        "{type: RequestRedirect, requestRedirect: {scheme: ftp}}",
        "{type: URLRewrite, urlRewrite: {path: {type: Odd}}}",
        "{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: \"/a\\r\\nb\"}}}",
        "{type: RequestMirror, requestMirror: {backendRef: {name: web, port: 8080}}}",
    ] {
        let text = format!("filters: [{filter}], backendRefs: [{{name: web, port: 8080}}]");
        assert!(rule(&text).refused.is_some(), "{filter}");
        assert_eq!(of_route(&objects(&[GATEWAY, &one(&text)]), "infra/r", ACCEPTED), "False UnsupportedValue");
    }
    let both =
        "filters: [{type: RequestRedirect, requestRedirect: {port: 1}}, {type: URLRewrite, urlRewrite: {hostname: x}}]";
    assert_eq!(of_route(&objects(&[GATEWAY, &one(both)]), "infra/r", ACCEPTED), "False IncompatibleFilters");
}

#[test]
fn a_filter_of_a_backend_that_cannot_be_applied_costs_that_backend() {
    let rule = rule(
        "backendRefs: [{name: web, port: 8080, filters: [{type: Odd}]}, {name: web, port: 8081, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}]}}]}]",
    );
    assert!(rule.refused.is_none());
    assert!(matches!(rule.backends[0].target, Target::Invalid(_)));
    assert_eq!(rule.backends[1].filters.request_headers.set.len(), 1);
}

#[test]
fn a_replaced_prefix_keeps_one_slash_between_its_parts() {
    for (path, prefix, replacement, expected) in [
        ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
        ("/foo", "/foo", "/xyz", "/xyz"),
        ("/foo/", "/foo", "/xyz", "/xyz/"),
        ("/foo/bar", "/foo", "", "/bar"),
        ("/foo/", "/foo", "", "/"),
        ("/foo", "/foo", "", "/"),
        ("/foo/", "/foo", "/", "/"),
        ("/foo", "/foo", "/", "/"),
        ("/foo/bar", "/", "/xyz", "/xyz/foo/bar"),
    ] {
        let text = format!("matches: [{{path: {{value: {prefix}}}}}]");
        let objects = objects(&[GATEWAY, &one(&text)]);
        let table = table(&objects);
        let headers = Headers(&[]);
        let asked = Asked { port: 80, host: "x", method: "GET", path, query: None, headers: &headers };
        let found = table.find(&asked).expect("the prefix takes it");
        assert_eq!(
            PathEdit::Prefix(replacement.to_owned()).applied(path, found.prefix_len),
            expected,
            "{path} {prefix}"
        );
    }
    assert_eq!(PathEdit::Full("/all".to_owned()).applied("/foo/bar", 4), "/all");
}

#[test]
fn redirects_name_a_port_only_where_it_must_be_named() {
    let location = |redirect: &str, scheme: &str, port: u16| {
        let rule = rule(&format!("filters: [{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}]"));
        let from = Origin { scheme, host: "example.org", port, path: "/a/b", query: Some("q=1"), prefix_len: 2 };
        rule.filters.redirect.expect("a redirect").location(&from)
    };
    for (redirect, scheme, port, expected) in [
        ("hostname: other.org", "http", 80, "http://other.org/a/b?q=1"),
        ("hostname: other.org", "http", 8080, "http://other.org:8080/a/b?q=1"),
        ("port: 8083", "http", 80, "http://example.org:8083/a/b?q=1"),
        ("port: 80", "http", 8080, "http://example.org/a/b?q=1"),
        ("scheme: https", "http", 8080, "https://example.org/a/b?q=1"),
        ("scheme: https, port: 8443", "http", 80, "https://example.org:8443/a/b?q=1"),
        ("scheme: http, port: 443", "https", 443, "http://example.org:443/a/b?q=1"),
        ("scheme: https", "https", 443, "https://example.org/a/b?q=1"),
        ("path: {type: ReplacePrefixMatch, replacePrefixMatch: /c}", "http", 80, "http://example.org/c/b?q=1"),
        ("path: {type: ReplaceFullPath, replaceFullPath: /c}", "https", 443, "https://example.org/c?q=1"),
    ] {
        assert_eq!(location(redirect, scheme, port), expected, "{redirect}");
    }
    let status = |text: &str| {
        rule(&format!("filters: [{{type: RequestRedirect, requestRedirect: {{{text}}}}}]"))
            .filters
            .redirect
            .map(|it| it.status)
    };
    assert_eq!([status("port: 1"), status("statusCode: 308")], [Some(302), Some(308)]);
}
