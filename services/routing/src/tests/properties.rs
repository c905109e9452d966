//! What holds for all hostnames and all sets of routes.

use proptest::prelude::*;

use super::*;
use crate::Hostname;

fn host() -> impl Strategy<Value = String> {
    proptest::collection::vec("[ab]", 1..4).prop_map(|it| it.join("."))
}

fn hostname() -> impl Strategy<Value = Hostname> {
    (host(), 0..4_u8).prop_map(|(host, kind)| match kind {
        0 => Hostname::Any,
        1 => Hostname::read(Some(&format!("*.{host}"))),
        _ => Hostname::read(Some(&host)),
    })
}

/// A rule of one match, often like others.
fn written() -> impl Strategy<Value = String> {
    let path = prop_oneof![
        Just(String::new()),
        Just("path: {type: Exact, value: /a/b}".to_owned()),
        Just("path: {type: RegularExpression, value: '/a.*'}".to_owned()),
        prop_oneof![Just("/"), Just("/a"), Just("/a/"), Just("/a/b")].prop_map(|it| format!("path: {{value: {it}}}")),
    ];
    let rest = prop_oneof![
        Just(""),
        Just("method: GET"),
        Just("headers: [{name: h, value: '1'}]"),
        Just("queryParams: [{name: q, value: '1'}]"),
    ];
    (path, rest).prop_map(|(path, rest)| {
        let parts: Vec<&str> = [path.as_str(), rest].into_iter().filter(|it| !it.is_empty()).collect();
        format!("{{matches: [{{{}}}]}}", parts.join(", "))
    })
}

/// A route as it is drawn: its hosts and rules.
type Drawn = (&'static str, Vec<String>);

/// A route of this name, older the smaller `day` is.
fn route(name: &str, drawn: &Drawn, day: usize) -> String {
    let (hosts, rules) = drawn;
    format!(
        "kind: HTTPRoute\nmetadata: {{name: {name}, namespace: infra, creationTimestamp: '2026-01-0{day}T00:00:00Z'}}\nspec: {{parentRefs: [{{name: gw}}], {hosts}rules: [{}]}}",
        rules.join(", ")
    )
}

fn routes() -> impl Strategy<Value = Vec<Drawn>> {
    let hosts = prop_oneof![
        Just(""),
        Just("hostnames: [a.b], "),
        Just("hostnames: ['*.b'], "),
        Just("hostnames: ['*.b', a.b], ")
    ];
    proptest::collection::vec((hosts, proptest::collection::vec(written(), 1..4)), 1..5)
}

/// Documents of routes `r0`, `r1`, …, each younger than the one before.
fn in_order(routes: &[Drawn]) -> Vec<String> {
    routes.iter().enumerate().map(|(at, it)| route(&format!("r{at}"), it, at + 1)).collect()
}

const REQUESTS: [&str; 8] = [
    "GET a.b/",
    "GET a.b/a",
    "GET a.b/a/b",
    "POST a.b/a/b?q=1",
    "GET c.b/a/b",
    "GET x/a/b?q=1",
    "GET x/c",
    "GET b/a/c",
];

fn answers(documents: &[String]) -> Vec<String> {
    let mut all = vec![GATEWAY];
    all.extend(documents.iter().map(String::as_str));
    let table = table(&objects(&all));
    let plain = REQUESTS.iter().map(|it| ask(&table, 80, it, &[]));
    let with_header = REQUESTS.iter().map(|it| ask(&table, 80, it, &[("h", "1")]));
    plain.chain(with_header).collect()
}

proptest! {
    #[test]
    fn hostnames_meet_the_same_both_ways_and_exactly_where_both_take(one in hostname(), two in hostname(), host in host()) {
        let both = one.intersection(&two);
        prop_assert_eq!(&both, &two.intersection(&one));
        prop_assert_eq!(both.is_some_and(|it| it.takes(&host)), one.takes(&host) && two.takes(&host));
    }

    #[test]
    fn a_hostname_meets_itself(one in hostname()) {
        prop_assert_eq!(one.intersection(&one), Some(one.clone()));
        prop_assert_eq!(&Hostname::read(Some(&one.to_string())), &one);
    }

    #[test]
    fn age_decides_before_names(routes in routes()) {
        let last = routes.len() - 1;
        let renamed: Vec<String> =
            routes.iter().enumerate().map(|(at, it)| route(&format!("r{}", last - at), it, at + 1)).collect();
        let back = answers(&renamed).into_iter().map(|it| {
            let at = it.strip_prefix('r').and_then(|it| it.split_once('/'));
            at.map_or(it.clone(), |(at, rule)| format!("r{}/{rule}", last - at.parse::<usize>().unwrap()))
        });
        prop_assert_eq!(answers(&in_order(&routes)), back.collect::<Vec<_>>());
    }

    #[test]
    fn the_answer_is_that_of_one_of_the_routes_alone(routes in routes()) {
        let documents = in_order(&routes);
        let alone: Vec<Vec<String>> = documents.iter().map(|it| answers(std::slice::from_ref(it))).collect();
        for (at, all) in answers(&documents).iter().enumerate() {
            let own: Vec<&String> = alone.iter().map(|it| &it[at]).filter(|it| *it != "404").collect();
            // A request is lost only if no route takes it, and within its route the rule is the same as alone.
            prop_assert_eq!(all == "404", own.is_empty());
            prop_assert!(all == "404" || own.contains(&all));
        }
    }

    #[test]
    fn a_route_for_other_hosts_changes_nothing(routes in routes()) {
        let mut documents = in_order(&routes);
        let before = answers(&documents);
        let elsewhere = ("hostnames: [elsewhere.example], ", vec!["{matches: [{path: {type: Exact, value: /a/b}}]}".to_owned()]);
        documents.push(route("a", &elsewhere, 0));
        prop_assert_eq!(before, answers(&documents));
    }
}
