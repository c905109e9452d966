//! InferencePools behind routes written by hand, with pickers of other makes: whose pool is accepted, where requests go,
//! and what happens while a picker is away.

mod ground;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Mutex,
    thread,
};

use harness::{Cluster, SERVED, Space, soon};
use serde_json::{Value, json};

use self::ground::{Ground, Server, ask, by, ground, picker_at, pod, to};
use crate::product::{is, undisturbed};

const POOLS: &str = "inferencepools.inference.networking.k8s.io";

/// Waits until a path is answered with this status.
fn until(at: SocketAddr, host: &str, path: &str, status: u16) {
    soon(&format!("{host}{path} is {status}"), || ask(at, host, path, None, None).status == status);
}

/// The entry of a pool's status for a Gateway.
fn entry(pool: &Value, gateway: &str) -> Option<Value> {
    let parents = pool["status"]["parents"].as_array()?;
    parents.iter().find(|it| it["parentRef"]["name"] == gateway).cloned()
}

/// Waits until a condition of a pool, as one Gateway sees it, is as said.
fn pool_is(space: &Space, pool: &str, gateway: &str, kind: &str, status: &str) -> Value {
    space.until(&format!("{POOLS}/{pool}"), |it| {
        entry(it, gateway).is_some_and(|entry| is(&json!({"status": entry}), kind, status))
    })
}

/// Waits until a condition of a route is as said; the reason.
fn route_is(space: &Space, route: &str, kind: &str, status: &str) -> String {
    let says = |it: &Value| {
        let all = it["status"]["parents"][0]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == kind && it["status"] == status)
    };
    let found = space.until(&format!("httproute/{route}"), |it| says(it).is_some());
    says(&found).unwrap()["reason"].as_str().unwrap().to_owned()
}

/// A pool of `servers` with a picker, and a route to it, all of one name.
fn served(ground: &Ground, name: &str, servers: &[Server]) -> harness::Picker {
    let app = if std::ptr::eq(servers, ground.second.as_slice()) { "second" } else { "first" };
    let picker = ground.picker(name, servers, &[3000]);
    ground.pool(name, app, &[3000], by(name, "FailClose"), json!({}));
    ground.route(name, "any", &json!([to(name)]));
    until(ground.any, "x", &format!("/{name}"), 200);
    picker
}

#[test]
fn a_pool_behind_a_route_is_accepted() {
    let (_controller, ground) = (undisturbed(), ground());
    let _picker = served(ground, "accepted", &ground.first);
    let pool = pool_is(&ground.space, "accepted", "any", "Accepted", "True");
    assert_eq!(pool["status"]["parents"].as_array().unwrap().len(), 1);
    pool_is(&ground.space, "accepted", "any", "ResolvedRefs", "True");
}

#[test]
fn a_pool_of_two_gateways_has_an_entry_for_each_until_its_routes_go() {
    let (_controller, ground) = (undisturbed(), ground());
    let space = &ground.space;
    let _picker = served(ground, "both", &ground.first);
    ground.route("both-second", "second", &json!([to("both")]));
    let host = "second.example.com";
    until(ground.second_host, host, "/both-second", 200);
    for gateway in ["any", "second"] {
        pool_is(space, "both", gateway, "Accepted", "True");
        pool_is(space, "both", gateway, "ResolvedRefs", "True");
    }
    space.kubectl(&["delete", "httproute", "both"]);
    until(ground.any, "x", "/both", 404);
    assert_eq!(ask(ground.second_host, host, "/both-second", None, None).status, 200);
    space.until(&format!("{POOLS}/both"), |it| entry(it, "any").is_none() && entry(it, "second").is_some());
    space.kubectl(&["delete", "httproute", "both-second"]);
    until(ground.second_host, host, "/both-second", 404);
    space.until(&format!("{POOLS}/both"), |it| it["status"]["parents"].as_array().is_none_or(Vec::is_empty));
}

#[test]
fn a_pool_whose_picker_is_not_there_says_so_and_refuses() {
    let (_controller, ground) = (undisturbed(), ground());
    ground.pool("nobody", "first", &[3000], by("nobody", "FailClose"), json!({}));
    ground.route("nobody", "any", &json!([to("nobody")]));
    route_is(&ground.space, "nobody", "Accepted", "True");
    pool_is(&ground.space, "nobody", "any", "ResolvedRefs", "False");
    until(ground.any, "x", "/nobody", 500);
    // As soon as it is there, it is asked.
    let _picker = ground.picker("nobody", &ground.first, &[3000]);
    until(ground.any, "x", "/nobody", 200);
    pool_is(&ground.space, "nobody", "any", "ResolvedRefs", "True");
}

#[test]
fn a_pool_that_names_no_picker_is_picked_in_by_the_gateway() {
    let (_controller, ground) = (undisturbed(), ground());
    // From release 1.6 on a pool may leave it out; the definition of an earlier one is loosened as that did it.
    let definition: Value =
        serde_json::from_str(&Cluster::shared().kubectl(&["get", "crd", POOLS, "-o", "json"])).unwrap();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let v1 = versions.iter().position(|it| it["name"] == "v1").unwrap();
    let patch = json!([{
        "op": "replace", "value": ["selector", "targetPorts"],
        "path": format!("/spec/versions/{v1}/schema/openAPIV3Schema/properties/spec/required"),
    }]);
    Cluster::shared().kubectl(&["patch", "crd", POOLS, "--type=json", "--patch", &patch.to_string()]);
    let space = &ground.space;
    soon("the definition counts", || {
        let pool = json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "alone"},
            "spec": {"selector": {"matchLabels": {"app": "first"}}, "targetPorts": [{"number": 3000}]},
        });
        space.try_apply(&pool.to_string()).is_ok()
    });
    ground.route("alone", "any", &json!([to("alone")]));
    route_is(space, "alone", "Accepted", "True");
    pool_is(space, "alone", "any", "Accepted", "True");
    until(ground.any, "x", "/alone", 200);
}

#[test]
fn the_port_of_a_reference_to_a_pool_does_not_matter() {
    let (_controller, ground) = (undisturbed(), ground());
    let _picker = served(ground, "port", &ground.first);
    for (route, port) in [("port-right", 3000), ("port-wrong", 4321)] {
        let mut backend = to("port");
        backend["port"] = json!(port);
        ground.route(route, "any", &json!([backend]));
        until(ground.any, "x", &format!("/{route}"), 200);
    }
}

#[test]
fn a_pool_says_how_its_pods_are_spoken_to() {
    let (_controller, ground) = (undisturbed(), ground());
    for (name, port, protocol, spoken) in [
        ("usual", 3000, Value::Null, "HTTP/1.1"),
        ("http", 3000, json!("http"), "HTTP/1.1"),
        ("h2c", 3001, json!("kubernetes.io/h2c"), "HTTP/2.0"),
    ] {
        let name = format!("speaks-{name}");
        let _picker = ground.picker(&name, &ground.first, &[port]);
        let rest = if protocol.is_null() { json!({}) } else { json!({"appProtocol": protocol}) };
        ground.pool(&name, "first", &[port], by(&name, "FailClose"), rest);
        ground.route(&name, "any", &json!([to(&name)]));
        let path = format!("/{name}");
        until(ground.any, "x", &path, 200);
        for server in &ground.first {
            let answer = ask(ground.any, "x", &path, Some(&server.ip.to_string()), Some("{}"));
            assert_eq!((pod(&answer), &answer.json()["proto"]), (server.name.clone(), &json!(spoken)));
            assert_eq!(answer.header(SERVED), Some(&*format!("{}:{port}", server.ip)));
        }
    }
}

#[test]
fn a_route_to_a_pool_that_is_not_there_says_so() {
    let (_controller, ground) = (undisturbed(), ground());
    ground.route("nowhere", "any", &json!([to("nowhere")]));
    assert_eq!(route_is(&ground.space, "nowhere", "Accepted", "True"), "Accepted");
    assert_eq!(route_is(&ground.space, "nowhere", "ResolvedRefs", "False"), "BackendNotFound");
    until(ground.any, "x", "/nowhere", 500);
}

#[test]
fn rules_and_hosts_lead_to_their_own_pools() {
    let (_controller, ground) = (undisturbed(), ground());
    let (_one, _two) = (served(ground, "own-first", &ground.first), served(ground, "own-second", &ground.second));
    let rule = |path: &str, pool: &str| json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [to(pool)]});
    ground.rules("own", "any", &json!([rule("/own/first", "own-first"), rule("/own/second", "own-second")]));
    // Two Gateways, with the same path.
    ground.rules("own-host", "second", &json!([rule("/own/first", "own-second")]));
    until(ground.any, "x", "/own/second", 200);
    until(ground.second_host, "second.example.com", "/own/first", 200);
    for (at, host, path, servers) in [
        (ground.any, "x", "/own/first", &ground.first),
        (ground.any, "x", "/own/second", &ground.second),
        (ground.second_host, "second.example.com", "/own/first", &ground.second),
    ] {
        for _ in 0..6 {
            let answered = pod(&ask(at, host, path, None, None));
            assert!(Ground::names(servers).contains(&answered.as_str()), "{host}{path}: {answered}");
        }
    }
    assert_eq!(ask(ground.second_host, "other.example.com", "/own/first", None, None).status, 404);
}

/// Who answered how many of `count` requests, ten at a time.
fn crowd(at: SocketAddr, path: &str, pick: &str, count: usize, at_a_time: usize) -> BTreeMap<(String, String), usize> {
    let counts = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for worker in 0..at_a_time {
            let counts = &counts;
            scope.spawn(move || {
                for _ in (worker..count).step_by(at_a_time) {
                    let answer = ask(at, "x", path, Some(pick), Some(r#"{"model": "m", "prompt": "hello"}"#));
                    let port = answer.json()["httpPort"].as_str().unwrap().to_owned();
                    *counts.lock().unwrap().entry((pod(&answer), port)).or_default() += 1;
                }
            });
        }
    });
    counts.into_inner().unwrap()
}

#[test]
fn requests_go_only_where_the_picker_says() {
    let (_controller, ground) = (undisturbed(), ground());
    let picker = served(ground, "follow", &ground.first);
    for count in 1..=3 {
        let chosen = &ground.first[..count];
        let pick = chosen.iter().map(|server| server.ip.to_string()).collect::<Vec<_>>().join(",");
        let before = picker.asked();
        let answered = crowd(ground.any, "/follow", &pick, 100, 10);
        let pods: Vec<&str> = answered.keys().map(|(pod, _)| pod.as_str()).collect();
        assert_eq!((pods, answered.values().sum::<usize>()), (Ground::names(chosen), 100));
        assert_eq!(picker.asked() - before, 100, "each is asked about once");
    }
}

#[test]
fn requests_go_only_to_the_ranks_that_the_picker_says() {
    let (_controller, ground) = (undisturbed(), ground());
    let ports = [3000, 3002, 3004];
    let _picker = ground.picker("ranks", &ground.ranks, &ports);
    ground.pool("ranks", "ranks", &ports, by("ranks", "FailClose"), json!({}));
    ground.route("ranks", "any", &json!([to("ranks")]));
    until(ground.any, "x", "/ranks", 200);
    let [a, b] = [&ground.ranks[0], &ground.ranks[1]];
    let all = |server: &Server| ports.map(|port| (server.name.clone(), port.to_string()));
    let one = |server: &Server, port: u16| (server.name.clone(), port.to_string());
    for (pick, wanted) in [
        (a.ip.to_string(), all(a).to_vec()),
        (format!("{}:3002", a.ip), vec![one(a, 3002)]),
        (format!("{}:3004,{}:3000", a.ip, b.ip), vec![one(a, 3004), one(b, 3000)]),
        (format!("{},{}:3002", a.ip, b.ip), [all(a).to_vec(), vec![one(b, 3002)]].concat()),
    ] {
        let answered: BTreeSet<_> = crowd(ground.any, "/ranks", &pick, 100, 10).into_keys().collect();
        assert_eq!(answered, wanted.into_iter().collect::<BTreeSet<_>>(), "{pick}");
    }
}

#[test]
fn two_pools_share_requests_by_weight_and_each_picker_picks_its_own() {
    let (_controller, ground) = (undisturbed(), ground());
    let (_one, _two) = (served(ground, "share-first", &ground.first), served(ground, "share-second", &ground.second));
    let weighed = |pool: &str, weight: u32| {
        let mut backend = to(pool);
        backend["weight"] = json!(weight);
        backend
    };
    ground.route("share", "any", &json!([weighed("share-first", 70), weighed("share-second", 30)]));
    until(ground.any, "x", "/share", 200);
    let everyone: Vec<String> = ground.first.iter().chain(&ground.second).map(|server| server.ip.to_string()).collect();
    let answered = crowd(ground.any, "/share", &everyone.join(","), 200, 5);
    let names = Ground::names(&ground.first);
    let first: usize =
        answered.iter().filter(|((pod, _), _)| names.contains(&pod.as_str())).map(|(_, count)| count).sum();
    // Four and a half standard deviations.
    assert!(first.abs_diff(140) <= 29, "{first} of 200");
}

#[test]
fn the_picker_hears_who_served() {
    let (_controller, ground) = (undisturbed(), ground());
    let _picker = served(ground, "heard", &ground.first);
    for server in &ground.first {
        let answer = ask(ground.any, "x", "/heard", Some(&server.ip.to_string()), None);
        assert_eq!(answer.header(SERVED), Some(&*format!("{}:3000", server.ip)));
    }
}

/// The pods that answer twenty requests which all ask for the first one; nothing if one of them is refused.
fn pinned(ground: &Ground, path: &str) -> Result<BTreeSet<String>, u16> {
    let pick = ground.first[0].ip.to_string();
    let answers = (0..20).map(|_| ask(ground.any, "x", path, Some(&pick), Some("{}")));
    answers.map(|answer| if answer.status == 200 { Ok(pod(&answer)) } else { Err(answer.status) }).collect()
}

#[test]
fn while_the_picker_of_its_own_pool_is_away_a_request_is_served_by_anyone_or_refused_as_the_pool_says() {
    let (_controller, ground) = (undisturbed(), ground());
    let first = || Ok(BTreeSet::from([ground.first[0].name.clone()]));
    let mut pickers = BTreeMap::new();
    for (name, mode) in [("opens", "FailOpen"), ("closes", "FailClose")] {
        pickers.insert(name, ground.picker(name, &ground.first, &[3000]));
        ground.pool(name, "first", &[3000], by(name, mode), json!({}));
        ground.route(name, "any", &json!([to(name)]));
        until(ground.any, "x", &format!("/{name}"), 200);
        assert_eq!(pinned(ground, &format!("/{name}")), first());
    }
    let open_or_closed = |status: u16, reason: &str| {
        until(ground.any, "x", "/closes", status);
        soon("nobody says where", || pinned(ground, "/opens").is_ok_and(|pods| pods.len() > 1));
        assert!(pinned(ground, "/opens").unwrap().len() > 1, "anyone serves");
        let refused = ask(ground.any, "x", "/closes", None, Some("{}"));
        assert_eq!((refused.status, refused.code()), (status, reason.to_owned()));
        assert_eq!(refused.header("retry-after").is_some(), status == 503);
    };
    let back = |what: &str| {
        for path in ["/opens", "/closes"] {
            soon(&format!("picks of {path} count again after {what}"), || pinned(ground, path) == first());
        }
    };

    // Its process dies; what leads to it still does.
    let addresses: BTreeMap<_, _> = pickers.iter().map(|(name, picker)| (*name, picker.address)).collect();
    pickers.clear();
    open_or_closed(503, "no_endpoint");
    for (name, address) in &addresses {
        pickers.insert(name, picker_at(*address, &ground.first, &[3000]));
    }
    back("a restart");

    // Its Service leads nowhere, though it runs.
    for name in ["opens", "closes"] {
        ground.lead(name, None);
    }
    open_or_closed(503, "no_endpoint");
    for (name, address) in &addresses {
        ground.lead(name, Some(address.ip()));
    }
    back("an address");

    // Its Service is deleted.
    for name in ["opens", "closes"] {
        ground.space.kubectl(&["delete", "service", name]);
    }
    open_or_closed(500, "route_invalid");
    for (name, address) in &addresses {
        ground.picker_service(name);
        ground.lead(name, Some(address.ip()));
    }
    back("a Service");
}
