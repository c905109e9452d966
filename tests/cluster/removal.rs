//! The product taken out of a cluster in the wrong order: nothing is stuck, nothing of it stays, and models go on.
//!
//! This removes what all other tests stand on, so it has a cluster of its own, inside the one that they share. By default
//! it tries one order: in the others Kubernetes looks at the namespace only after half the time that the data plane's pods
//! may take to end, which is almost three minutes each.

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use harness::{Cluster, Space, eventually, program};
use serde_json::Value;

use crate::product::{SYSTEM, config, first_chat, made, model};

const CONFIGS: &str = "crd/inferencegatewayconfigs.inference.sagemaker.aws.amazon.com";

/// A kind that is gone is believed to be after half a minute; then the data plane drains.
const NOTICED_MAX: Duration = Duration::from_secs(120);
/// Kubernetes' own collector learns every half minute of kinds that came and went.
const COLLECTED_MAX: Duration = Duration::from_secs(90);

fn installation() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("addon-manifest")
}

#[test]
fn an_installation_can_be_removed_in_any_order() {
    let _shared = Cluster::shared();
    let mut rig = Command::new(program("cluster-rig"));
    rig.arg("run").arg("--apply").arg(installation()).arg("--").arg(std::env::current_exe().unwrap());
    rig.args(["--exact", "removal::in_a_cluster_of_its_own", "--ignored", "--nocapture"]);
    let output = rig.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "started by the test above, in a cluster that nothing else needs"]
fn in_a_cluster_of_its_own() {
    let cluster = Cluster::shared();
    let manifest = installation();
    let manifest = manifest.to_str().unwrap();
    let orders: [(&str, &[&[&str]]); 5] = [
        ("the definition first", &[&[CONFIGS], &["-k", manifest]]),
        ("all of it at once", &[&["-k", manifest]]),
        ("the namespace first", &[&["namespace", SYSTEM], &["-k", manifest]]),
        ("the controller first", &[&["deploy/inference-gateway-controller", "-n", SYSTEM], &["-k", manifest]]),
        (
            "what the controller may do first",
            &[
                &["clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/part-of=inference-gateway"],
                &["-k", manifest],
            ],
        ),
    ];
    let all = std::env::var_os("REMOVAL_ORDERS").is_some_and(|orders| orders == "all");
    for (order, steps) in orders.into_iter().take(if all { 5 } else { 1 }) {
        println!("{order}");
        cluster.kubectl(&["apply", "--server-side", "-k", manifest]);
        cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", CONFIGS]);
        let space = cluster.namespace("stays");
        space.apply(&model("llama", 1));
        space.wait_for("deploy/llama", "Available");
        let before = models(&space);
        known_to_the_collector(&space);
        space.apply(&config(&space.name, &["llama"]).to_string());
        first_chat(cluster, &space.name, "llama");
        for step in steps {
            cluster.kubectl(&[&["delete", "--ignore-not-found", "--timeout=240s"], *step].concat());
            // Whatever still serves, and whoever looks after it, ends by itself where its config has gone.
            if step == &[CONFIGS] {
                eventually("its data plane goes", NOTICED_MAX, || {
                    made(cluster, "pods", &space.name).is_empty().then_some(())
                });
            }
        }
        gone(cluster, &space, order);
        assert_eq!(models(&space), before, "{order}");
    }
}

/// Kubernetes collects what belongs to objects of a kind only once it has noticed that there is the kind. In a cluster that
/// is a minute old this makes a difference.
fn known_to_the_collector(space: &Space) {
    let name = format!("{}-first", space.name);
    space.apply(&config(&name, &["first"]).to_string());
    space.until("inferencepool/first", |_| true);
    space.kubectl(&["delete", "igwc", &name]);
    let pool = || space.try_get("inferencepool/first").is_none().then_some(());
    eventually("what belonged to a config is collected", COLLECTED_MAX, pool);
}

fn models(space: &Space) -> String {
    space.kubectl(&["get", "deploy,rs,pod", "-o", "json", "--show-managed-fields"])
}

/// Waits until nothing of the product is in the cluster any more, also not half deleted.
fn gone(cluster: Cluster, space: &Space, order: &str) {
    for what in [&format!("namespace/{SYSTEM}"), CONFIGS, "gatewayclass/inference-gateway"] {
        cluster.eventually(&format!("{order}: no {what}"), || cluster.try_kubectl(&["get", what], "").err());
    }
    let kinds =
        "gateways,httproutes,inferencepools,services,endpointslices,configmaps,roles,rolebindings,referencegrants";
    let selector = "app.kubernetes.io/managed-by=inference-gateway-controller";
    let left = || space.kubectl(&["get", kinds, "--selector", selector, "-o", "name"]);
    let began = Instant::now();
    while !left().is_empty() {
        assert!(began.elapsed() < COLLECTED_MAX, "{order}: beside the config there is still\n{}", left());
        thread::sleep(Duration::from_millis(200));
    }
    let selector = "app.kubernetes.io/part-of=inference-gateway";
    let words = ["get", "clusterroles,clusterrolebindings,namespaces", "--selector", selector, "-o", "json"];
    let left: Value = serde_json::from_str(&cluster.kubectl(&words)).unwrap();
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0), "{order}: {left}");
}
