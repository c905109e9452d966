//! Which rule takes which request.

use super::*;

/// A route with more of its metadata, and a `spec`.
fn route(name: &str, more: &str, spec: &str) -> String {
    format!(
        "kind: HTTPRoute\nmetadata: {{name: {name}, namespace: infra{more}}}\nspec: {{parentRefs: [{{name: gw}}], {spec}}}"
    )
}

/// A route with these matches, a rule each.
fn rules(name: &str, matches: &[&str]) -> String {
    let rules: Vec<String> = matches.iter().map(|it| format!("{{matches: [{it}]}}")).collect();
    route(name, "", &format!("rules: [{}]", rules.join(", ")))
}

fn check(objects: &Objects, rows: &[(&str, &str)]) {
    let table = table(objects);
    for (request, expected) in rows {
        assert_eq!(ask(&table, 80, request, &[]), *expected, "{request}");
    }
}

#[test]
fn paths_match_exactly_by_whole_elements_or_by_a_pattern() {
    let objects = objects(&[
        GATEWAY,
        &rules(
            "r",
            &[
                "{path: {type: Exact, value: /one}}",
                "{path: {type: PathPrefix, value: /v2/}}",
                "{path: {type: RegularExpression, value: '/v[34]/.*'}}",
                "{path: {type: Exact, value: /three/}}",
            ],
        ),
    ]);
    check(
        &objects,
        &[
            ("GET x/one", "r/0"),
            ("GET x/one/", "404"),
            ("GET x/One", "404"),
            ("GET x/one/two", "404"),
            ("GET x/v2", "r/1"),
            ("GET x/v2/", "r/1"),
            ("GET x/v2/a/b", "r/1"),
            ("GET x/v22", "404"),
            ("GET x/v3/a", "r/2"),
            ("GET x/a/v3/a", "404"),
            ("GET x/v3", "404"),
            ("GET x/three/", "r/3"),
            ("GET x/three", "404"),
            ("GET x/", "404"),
        ],
    );
}

#[test]
fn the_more_exact_path_wins_wherever_it_stands() {
    let objects = objects(&[
        GATEWAY,
        &rules(
            "r",
            &[
                "{path: {value: /}}",
                "{path: {type: RegularExpression, value: '/match/.*'}}",
                "{path: {value: /match/prefix}}",
                "{path: {value: /match}}",
                "{path: {type: Exact, value: /match/exact}}",
                "{path: {value: /match/exact}}",
            ],
        ),
    ]);
    check(
        &objects,
        &[
            ("GET x/match/exact", "r/4"),
            ("GET x/match/exact/more", "r/5"),
            ("GET x/match/prefix/any", "r/2"),
            ("GET x/match/any", "r/3"),
            ("GET x/other", "r/0"),
        ],
    );
    let open = super::objects(&[
        GATEWAY,
        &rules("r", &["{path: {value: /}}", "{path: {type: RegularExpression, value: '/v[12]'}}"]),
    ]);
    check(&open, &[("GET x/v1", "r/1"), ("GET x/v3", "r/0")]);
}

#[test]
fn methods_headers_and_parameters_count_in_this_order() {
    let objects = objects(&[
        GATEWAY,
        &rules(
            "r",
            &[
                "{path: {value: /p}, queryParams: [{name: a, value: '1'}, {name: b, value: '2'}]}",
                "{path: {value: /p}, headers: [{name: Version, value: one}]}",
                "{path: {value: /p}, headers: [{name: version, value: one}, {name: color, value: red}]}",
                "{path: {value: /p}, method: POST}",
                "{path: {value: /p}}",
                "{path: {value: /p}, queryParams: [{name: a, value: '1'}]}",
            ],
        ),
    ]);
    let table = table(&objects);
    let one: &[(&str, &str)] = &[("VERSION", "one")];
    let two: &[(&str, &str)] = &[("version", "one"), ("Color", "red")];
    for (request, headers, expected) in [
        ("GET x/p", &[][..], "r/4"),
        ("GET x/p?a=1", &[], "r/5"),
        ("GET x/p?b=2&a=1", &[], "r/0"),
        ("GET x/p?a=1&b=2", one, "r/1"),
        ("GET x/p?a=1&b=2", two, "r/2"),
        ("POST x/p?a=1&b=2", two, "r/3"),
        ("post x/p", &[], "r/4"),
    ] {
        assert_eq!(ask(&table, 80, request, headers), expected, "{request} {headers:?}");
    }
}

#[test]
fn headers_match_in_any_of_their_lines() {
    let objects = objects(&[
        GATEWAY,
        &rules(
            "r",
            &["{headers: [{name: x, value: a}]}", "{headers: [{name: y, type: RegularExpression, value: 'v[0-9]+'}]}"],
        ),
    ]);
    let table = table(&objects);
    let lines: &[(&str, &str)] = &[("x", "b"), ("X", "a")];
    assert_eq!(ask(&table, 80, "GET h/", lines), "r/0");
    assert_eq!(ask(&table, 80, "GET h/", &[("x", "b")]), "404");
    assert_eq!(ask(&table, 80, "GET h/", &[("y", "v12")]), "r/1");
    assert_eq!(ask(&table, 80, "GET h/", &[("y", "v12x")]), "404");
}

#[test]
fn of_a_repeated_parameter_the_first_counts_and_values_are_decoded() {
    let objects = objects(&[
        GATEWAY,
        &rules(
            "r",
            &[
                "{queryParams: [{name: animal, value: whale}]}",
                "{queryParams: [{name: animal, value: 'great white'}]}",
                "{queryParams: [{name: animal, type: RegularExpression, value: 'dol[ph ]+in'}]}",
                "{queryParams: [{name: Animal, value: ''}]}",
            ],
        ),
    ]);
    check(
        &objects,
        &[
            ("GET x/?animal=whale", "r/0"),
            ("GET x/?animal=whale&animal=dolphin", "r/0"),
            ("GET x/?animal=cat&animal=whale", "404"),
            ("GET x/?animal=wh%61le", "r/0"),
            ("GET x/?anim%61l=whale", "r/0"),
            ("GET x/?animal=great+white", "r/1"),
            ("GET x/?animal=great%20white", "r/1"),
            ("GET x/?animal=dolph%20in", "r/2"),
            ("GET x/?animal=%", "404"),
            ("GET x/?Animal", "r/3"),
            ("GET x/?x=whale", "404"),
            ("GET x/", "404"),
        ],
    );
}

#[test]
fn a_match_needs_all_of_its_parts_and_a_rule_one_of_its_matches() {
    let objects = objects(&[
        GATEWAY,
        &route(
            "r",
            "",
            "rules: [{matches: [{path: {value: /v1}}, {headers: [{name: version, value: one}]}]}, {matches: [{path: {value: /v2}, headers: [{name: version, value: two}]}]}]",
        ),
    ]);
    let table = table(&objects);
    for (request, headers, expected) in [
        ("GET x/v1/example", &[][..], "r/0"),
        ("GET x/", &[("version", "one")], "r/0"),
        ("GET x/v2/example", &[("version", "two")], "r/1"),
        ("GET x/v2/example", &[], "404"),
        ("GET x/", &[("version", "two")], "404"),
        ("GET x/v2", &[("version", "one")], "r/0"),
    ] {
        assert_eq!(ask(&table, 80, request, headers), expected, "{request}");
    }
}

#[test]
fn a_rule_without_matches_takes_everything() {
    check(
        &objects(&[GATEWAY, &route("r", "", "rules: [{backendRefs: []}]")]),
        &[("GET x/any", "r/0"), ("PUT y/", "r/0")],
    );
}

#[test]
fn between_equals_the_older_route_wins_then_its_name_then_the_order_of_rules() {
    let at = |time: &str| format!(", creationTimestamp: '{time}'");
    let all = "rules: [{matches: [{path: {value: /}}]}, {matches: [{path: {value: /}}]}]";
    let old = route("z", &at("2026-01-01T00:00:00Z"), all);
    let new = route("a", &at("2026-06-01T00:00:00Z"), all);
    check(&objects(&[GATEWAY, &new, &old]), &[("GET x/", "z/0")]);
    let same = route("a", &at("2026-01-01T00:00:00Z"), all);
    check(&objects(&[GATEWAY, &same, &old]), &[("GET x/", "a/0")]);
    let exact = route("new", &at("2026-09-01T00:00:00Z"), "rules: [{matches: [{path: {type: Exact, value: /p}}]}]");
    check(&objects(&[GATEWAY, &old, &exact]), &[("GET x/p", "new/0"), ("GET x/q", "z/0")]);
}

// === Hosts and listeners ===

fn listeners(list: &[(&str, u16, &str)]) -> String {
    let each: Vec<String> = list
        .iter()
        .map(|(name, port, hostname)| {
            let hostname = if hostname.is_empty() { String::new() } else { format!(", hostname: '{hostname}'") };
            format!("{{name: {name}, port: {port}, protocol: HTTP{hostname}}}")
        })
        .collect();
    format!(
        "kind: Gateway\nmetadata: {{name: gw, namespace: infra}}\nspec: {{gatewayClassName: ours, listeners: [{}]}}",
        each.join(", ")
    )
}

fn on(name: &str, section: &str, spec: &str) -> String {
    route(name, "", spec).replace("[{name: gw}]", &format!("[{{name: gw, sectionName: {section}}}]"))
}

#[test]
fn routes_are_reached_only_by_hosts_that_they_and_a_listener_mean() {
    let gateway = listeners(&[("a", 80, "very.specific.com"), ("b", 80, "*.wildcard.io"), ("c", 80, "*.another.io")]);
    let spec = |hostnames: &str, path: &str| {
        format!("hostnames: [{hostnames}], rules: [{{matches: [{{path: {{value: {path}}}}}]}}]")
    };
    let objects = objects(&[
        &gateway,
        &route("s1", "", &spec("non.matching.com, '*.nonmatching.io', very.specific.com", "/s1")),
        &route(
            "s2",
            "",
            &spec("non.matching.com, wildcard.io, foo.wildcard.io, bar.wildcard.io, foo.bar.wildcard.io", "/s2"),
        ),
        &route("s3", "", &spec("non.matching.com, '*.specific.com'", "/s3")),
        &route("s4", "", &spec("'*.another.io'", "/s4")),
    ]);
    check(
        &objects,
        &[
            ("GET very.specific.com/s1", "s1/0"),
            ("GET VERY.specific.com/s1", "s1/0"),
            ("GET very.specific.com./s1", "s1/0"),
            ("GET very.specific.com:1234/s1", "s1/0"),
            ("GET non.matching.com/s1", "404"),
            ("GET foo.nonmatching.io/s1", "404"),
            ("GET foo.wildcard.io/s1", "404"),
            ("GET very.specific.com/other", "404"),
            ("GET foo.wildcard.io/s2", "s2/0"),
            ("GET foo.bar.wildcard.io/s2", "s2/0"),
            ("GET wildcard.io/s2", "404"),
            ("GET very.specific.com/s2", "404"),
            ("GET very.specific.com/s3", "s3/0"),
            ("GET foo.specific.com/s3", "404"),
            ("GET a.another.io/s4", "s4/0"),
            ("GET a.b.another.io/s4", "s4/0"),
            ("GET another.io/s4", "404"),
            ("GET foo.wildcard.io/s4", "404"),
            ("GET /s1", "404"),
        ],
    );
}

#[test]
fn listeners_are_walls() {
    let gateway = listeners(&[
        ("any", 80, ""),
        ("wide", 80, "*.example.com"),
        ("foo", 80, "*.foo.example.com"),
        ("abc", 80, "abc.foo.example.com"),
    ]);
    let spec = |path: &str| format!("rules: [{{matches: [{{path: {{value: {path}}}}}]}}]");
    let objects = objects(&[
        &gateway,
        &on("any", "any", &spec("/any")),
        &on("wide", "wide", &spec("/wide")),
        &on("foo", "foo", &spec("/foo")),
        &on("abc", "abc", &spec("/abc")),
    ]);
    let hosts = [
        ("bar.com", "any"),
        ("bar.example.com", "wide"),
        ("bar.foo.example.com", "foo"),
        ("abc.foo.example.com", "abc"),
    ];
    for (host, owner) in hosts {
        for path in ["any", "wide", "foo", "abc"] {
            let expected = if path == owner { format!("{owner}/0") } else { "404".to_owned() };
            assert_eq!(ask(&table(&objects), 80, &format!("GET {host}/{path}"), &[]), expected, "{host} {path}");
        }
    }
}

#[test]
fn listeners_of_one_port_and_of_several_keep_their_routes_apart() {
    let gateway = listeners(&[
        ("a", 80, "bar.com"),
        ("b", 80, "foo.bar.com"),
        ("c", 80, "*.bar.com"),
        ("d", 80, "*.foo.com"),
        ("e", 8080, ""),
    ]);
    let all = "rules: [{backendRefs: []}]";
    let three = on("three", "c", all).replace("sectionName: c}", "sectionName: c}, {name: gw, sectionName: d}");
    let objects = objects(&[&gateway, &on("one", "a", all), &on("two", "b", all), &three, &on("five", "e", all)]);
    check(
        &objects,
        &[
            ("GET bar.com/", "one/0"),
            ("GET foo.bar.com/", "two/0"),
            ("GET baz.bar.com/", "three/0"),
            ("GET multiple.prefixes.bar.com/", "three/0"),
            ("GET multiple.prefixes.foo.com/", "three/0"),
            ("GET foo.com/", "404"),
            ("GET no.matching.host/", "404"),
        ],
    );
    assert_eq!(ask(&table(&objects), 8080, "GET bar.com/", &[]), "five/0");
    assert_eq!(ask(&table(&objects), 81, "GET bar.com/", &[]), "404");
}

#[test]
fn within_a_listener_the_more_exact_host_of_a_route_comes_first_and_others_after() {
    let spec =
        |host: &str, path: &str| format!("hostnames: [{host}], rules: [{{matches: [{{path: {{value: {path}}}}}]}}]");
    let objects = objects(&[
        GATEWAY,
        &route("exact", "", &spec("a.example.com", "/x")),
        &route("wide", "", &spec("'*.example.com'", "/x/longer")),
        &route("all", "", "rules: [{backendRefs: []}]"),
    ]);
    check(
        &objects,
        &[
            ("GET a.example.com/x/longer", "exact/0"),
            ("GET b.example.com/x/longer", "wide/0"),
            ("GET a.example.com/y", "all/0"),
            ("GET other/x", "all/0"),
        ],
    );
}

// === What is left out ===

#[test]
fn routes_that_show_what_a_config_does_route_nothing() {
    let made = ", labels: {app.kubernetes.io/managed-by: inference-gateway-controller, inference.sagemaker.aws.amazon.com/config-name: gw}, ownerReferences: [{apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1, kind: InferenceGatewayConfig, name: gw, uid: u}]";
    let all = "rules: [{backendRefs: [{name: web, port: 8080}]}]";
    let shown = objects(&[GATEWAY, &route("shown", made, all)]);
    check(&shown, &[("GET x/", "404")]);
    assert!(table(&shown).is_empty());
    assert_eq!(of_route(&shown, "infra/shown", "Accepted"), "True Accepted");
    let lookalike = made.replace("kind: InferenceGatewayConfig", "kind: Other");
    check(&objects(&[GATEWAY, &route("own", &lookalike, all)]), &[("GET x/", "own/0")]);
}

#[test]
fn a_match_that_cannot_be_understood_takes_nothing_and_the_others_work() {
    for odd in [
        "{path: {type: RegularExpression, value: '/(a'}}",
        "{path: {type: RegularExpression, value: 'a)|(b'}}",
        "{path: {type: Odd, value: /odd}}",
        "{headers: [{name: a, type: Odd, value: b}]}",
        "{path: {type: RegularExpression, value: '/(a{1000}){1000}'}}",
    ] {
        let objects =
            objects(&[GATEWAY, &route("r", "", &format!("rules: [{{matches: [{odd}, {{path: {{value: /good}}}}]}}]"))]);
        check(&objects, &[("GET x/odd", "404"), ("GET x/good", "r/0"), ("GET x/b", "404")]);
        assert_eq!(of_route(&objects, "infra/r", "Accepted"), "False UnsupportedValue", "{odd}");
    }
}

#[test]
fn authorities_lose_their_port() {
    for (authority, host) in
        [("a.b", "a.b"), ("a.b:80", "a.b"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("", ""), ("[", "[")]
    {
        assert_eq!(without_port(authority), host);
    }
}
