//! A controller whose way to the API server breaks at the worst moment, and deletions that something could hold up.

use std::{
    thread,
    time::{Duration, Instant},
};

use harness::Cluster;
use serde_json::{Value, json};

use crate::{
    own_controller::NoController,
    plane::{Between, Wire},
    product::{alone, config, is, made, nothing_left, undisturbed},
};

/// From the end of a hole to the first change that is made.
const RECOVERED_MAX: Duration = Duration::from_secs(30);

/// `DELETES` makes them more.
#[test]
fn h01_a_config_deleted_as_the_watch_breaks_is_not_made_anew() {
    let (_controller, cluster) = (alone(), Cluster::shared());
    let (away, between) = (NoController::for_a_while(cluster), Between::new());
    let controller = away.start(&between.kubeconfig, &[]);
    let deletes = std::env::var("DELETES").map_or(8, |text| text.parse().unwrap());
    let space = cluster.namespace("cut");
    let names: Vec<String> = (0..deletes).map(|number| format!("{}-{number}", space.name)).collect();
    for name in &names {
        space.apply(&config(name, &[name]).to_string());
    }
    for name in &names {
        cluster.eventually("its Deployment", || (!made(cluster, "deployment", name).is_empty()).then_some(()));
    }
    for (number, name) in names.iter().enumerate() {
        // Before the deletion, right after it, or while what hung on it is collected.
        let cut_after = Duration::from_millis(100 * (number as u64 % 4));
        let cut = thread::spawn({
            let wire = between.wire();
            move || {
                thread::sleep(cut_after);
                wire.send_replace(Wire::Cut);
                thread::sleep(Duration::from_millis(300));
                wire.send_replace(Wire::Whole);
            }
        });
        space.kubectl(&["delete", "igwc", name, "--wait=false"]);
        cut.join().unwrap();
    }
    for name in &names {
        nothing_left(cluster, &space, name);
    }
    // It sees the cluster again, and still makes none of it.
    let after = format!("{}-after", space.name);
    space.apply(&config(&after, &["after"]).to_string());
    space.until(&format!("igwc/{after}"), |it| is(it, "Accepted", "True"));
    for name in &names {
        nothing_left(cluster, &space, name);
    }
    assert!(controller.leads());
}

/// `HOLE_SECONDS` makes it another. After a shorter hole, watches that are still silent hold a change up for longer than after
/// this one, by which all have been given up.
#[test]
fn h03_a_controller_is_back_soon_after_a_hole_that_swallowed_everything() {
    let (_controller, cluster) = (alone(), Cluster::shared());
    let (away, between) = (NoController::for_a_while(cluster), Between::new());
    let controller = away.start(&between.kubeconfig, &[]);
    let hole = std::env::var("HOLE_SECONDS").map_or(60, |text| text.parse().unwrap());
    let space = cluster.namespace("hole");
    space.apply(&config(&space.name, &["llama"]).to_string());
    space.until("inferencepool/llama", |_| true);

    let began = Instant::now();
    between.set(Wire::Hole);
    cluster.eventually("it knows that it does not lead any more", || (!controller.leads()).then_some(()));
    let given_up = began.elapsed();
    assert!(given_up < Duration::from_secs(15), "before another one may: {given_up:?}");
    thread::sleep(Duration::from_secs(hole).saturating_sub(began.elapsed()));
    between.set(Wire::Whole);
    let ended = Instant::now();
    space.apply(&config(&space.name, &["llama", "qwen"]).to_string());
    space.until("inferencepool/qwen", |_| true);
    let took = ended.elapsed();
    println!("the lease was given up after {given_up:?}; a change was made {took:?} after the hole");
    assert!(took < RECOVERED_MAX, "{took:?}");
}

#[test]
fn h07_a_users_route_to_a_pool_holds_no_deletion_up_and_says_what_it_misses() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("used");
    space.apply(&config(&space.name, &["llama"]).to_string());
    space.until("inferencepool/llama", |_| true);
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "mine"},
        "spec": {"gatewayClassName": "inference-gateway", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    });
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "mine"},
        "spec": {"parentRefs": [{"name": "mine"}], "rules": [{"backendRefs": [
            {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "llama"}]}]},
    });
    space.apply(&gateway.to_string());
    space.apply(&route.to_string());
    let resolved = |route: &Value| {
        let all = route["status"]["parents"][0]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|it| it["type"] == "ResolvedRefs").map(|it| (it["status"].clone(), it["reason"].clone()))
    };
    space.until("httproute/mine", |it| resolved(it) == Some((json!("True"), json!("ResolvedRefs"))));
    let spec = space.get("httproute/mine")["spec"].clone();

    let began = Instant::now();
    space.kubectl(&["delete", "igwc", &space.name, "--timeout=30s"]);
    nothing_left(cluster, &space, &space.name);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let left = space.until("httproute/mine", |it| resolved(it) == Some((json!("False"), json!("BackendNotFound"))));
    assert_eq!(left["spec"], spec);
}
