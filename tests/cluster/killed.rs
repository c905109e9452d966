//! A controller that is killed at any step of a rollout: the next one ends where an undisturbed one would have.

mod gate;

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use harness::{Cluster, Space};
use serde_json::{Value, json};

use self::gate::Gate;
use crate::{
    own_controller::NoController,
    product::{SYSTEM, alone, config, is, model, nothing_left},
};

/// Of every so many steps one is tried; `KILL_EVERY=1` tries each.
const EVERY: usize = 9;
/// A start of a controller and of a data plane, on a loaded machine.
const CONVERGED_MAX: Duration = Duration::from_secs(40);

/// Everything that was made for a config, without what only the API server decides, and what the config says of itself.
fn picture(space: &Space) -> BTreeMap<String, Value> {
    let cluster = Cluster::shared();
    let selector = format!("inference.sagemaker.aws.amazon.com/config-name={}", space.name);
    let kinds = "gateways,httproutes,inferencepools,services,deployments,configmaps,serviceaccounts,roles,rolebindings,\
                 poddisruptionbudgets,networkpolicies,ingresses";
    let mut found = BTreeMap::new();
    for namespace in [SYSTEM, &space.name] {
        let text = cluster.kubectl(&["--namespace", namespace, "get", kinds, "--selector", &selector, "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        for item in list["items"].as_array().unwrap() {
            let key = format!(
                "{} {namespace}/{}",
                item["kind"].as_str().unwrap(),
                item["metadata"]["name"].as_str().unwrap()
            );
            found.insert(key, essence(item));
        }
    }
    let mut status = space.try_get(&format!("igwc/{}", space.name)).map_or(Value::Null, |it| it["status"].clone());
    without(&mut status, &["lastTransitionTime"]);
    found.insert("status".into(), status);
    found
}

fn essence(item: &Value) -> Value {
    let metadata = &item["metadata"];
    let owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
    let owners: Vec<Value> = owners.iter().map(|owner| json!([owner["kind"], owner["name"]])).collect();
    let mut kept = json!({"labels": metadata["labels"], "annotations": metadata["annotations"], "owners": owners});
    for member in ["spec", "data", "rules", "subjects", "roleRef"] {
        kept[member] = item[member].clone();
    }
    // Another life of the config has other identities and addresses.
    const OF_A_LIFE: [&str; 4] =
        ["inference.sagemaker.aws.amazon.com/applied", "deployment.kubernetes.io/revision", "clusterIP", "clusterIPs"];
    without(&mut kept, &OF_A_LIFE);
    kept
}

/// Takes members of these names out, however deep they are.
fn without(value: &mut Value, names: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !names.contains(&name.as_str()));
            members.values_mut().for_each(|member| without(member, names));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| without(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A config's life: made, changed, removed. `seen` is shown the number of each step that was taken.
fn life(space: &Space, mut seen: impl FnMut(usize)) {
    for (step, models) in [["llama", "qwen"], ["llama", "mistral"]].iter().enumerate() {
        space.apply(&config(&space.name, models).to_string());
        seen(step);
    }
    space.kubectl(&["delete", "igwc", &space.name, "--timeout=50s"]);
    seen(2);
}

#[test]
fn a_controller_killed_at_any_step_is_followed_by_one_that_ends_where_it_would_have() {
    let (_controller, cluster) = (alone(), Cluster::shared());
    let space = cluster.namespace("steps");
    let (away, gate) = (NoController::for_a_while(cluster), Gate::new(&space.name));
    space.apply(&model("llama", 1));
    space.wait_for("deploy/llama", "Available");

    let mut controller = away.start(&gate.kubeconfig, &[]);
    gate.kill_at(0, controller.process.id());
    let mut expected: Vec<BTreeMap<String, Value>> = Vec::new();
    life(&space, |step| {
        if step < 2 {
            space.until(&format!("igwc/{}", space.name), |it| {
                is(it, "Ready", "True") && it["status"]["observedGeneration"] == it["metadata"]["generation"]
            });
            expected.push(still(|| picture(&space)));
        }
    });
    nothing_left(cluster, &space, &space.name);
    // Of a config that is gone there is nothing, not even a status.
    expected.push(picture(&space));
    assert_eq!(expected[2].len(), 1);
    let steps = gate.writes();

    let every = std::env::var("KILL_EVERY").map_or(EVERY, |text| text.parse().unwrap());
    let mut killed = 0;
    for write in (1..=steps).step_by(every) {
        gate.kill_at(write, controller.process.id());
        life(&space, |step| {
            converge(&expected[step], &space, write, || {
                if gate.has_killed() {
                    gate.kill_at(0, 0);
                    controller = away.start(&gate.kubeconfig, &[]);
                    killed += 1;
                }
            });
        });
        nothing_left(cluster, &space, &space.name);
        // Killed by the very last write, which was no longer waited for.
        if gate.has_killed() {
            controller = away.start(&gate.kubeconfig, &[]);
            killed += 1;
        }
    }
    println!("{steps} writes, {killed} controllers killed");
    assert!(killed > steps / every / 2, "{killed} of {steps}");
    space.wait_for("deploy/llama", "Available");
}

/// Waits until there is what there would be without a kill, and says what is different if that never comes.
fn converge(expected: &BTreeMap<String, Value>, space: &Space, write: usize, mut look_after: impl FnMut()) {
    let began = Instant::now();
    loop {
        look_after();
        let last = picture(space);
        if *expected == last {
            return;
        }
        if began.elapsed() > CONVERGED_MAX {
            let keys: BTreeSet<&String> = expected.keys().chain(last.keys()).collect();
            let differing = keys.into_iter().filter(|key| expected.get(*key) != last.get(*key));
            let told: Vec<String> = differing
                .map(|key| {
                    format!("{key}\n  expected {}\n  found    {}", json!(expected.get(key)), json!(last.get(key)))
                })
                .collect();
            panic!("killed at write {write}, it ends elsewhere:\n{}", told.join("\n"));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// What is the same twice.
fn still<T: PartialEq>(look: impl Fn() -> T) -> T {
    Cluster::shared().eventually("nothing moves", || {
        let first = look();
        thread::sleep(Duration::from_millis(500));
        (first == look()).then_some(first)
    })
}
