//! Nothing stays behind, in whatever order things are removed, and a controller that is killed goes on where it was.

use harness::Cluster;

use crate::{
    own_controller::{no_controller, scale_controller},
    product::{SYSTEM, alone, config, first_chat, is, made, model, nothing_left},
};

#[test]
fn a_config_removed_while_no_controller_runs_is_cleaned_up_by_the_next_one() {
    let (_controller, cluster) = (alone(), Cluster::shared());
    let space = cluster.namespace("orphan");
    space.apply(&model("llama", 1));
    space.apply(&config(&space.name, &["llama"]).to_string());
    first_chat(cluster, &space.name, "llama");
    scale_controller(cluster, 0);
    no_controller(cluster);
    // Nothing holds the config: it goes at once, and what it owned beside it.
    space.kubectl(&["delete", "igwc", &space.name, "--timeout=20s"]);
    cluster.eventually("its pool goes", || space.try_get("inferencepool/llama").is_none().then_some(()));
    assert_eq!(made(cluster, "configmap", &space.name).len(), 1, "the anchor has no owner that is gone");
    scale_controller(cluster, 2);
    nothing_left(cluster, &space, &space.name);
    space.wait_for("deploy/llama", "Available");
}

#[test]
fn a_namespace_that_goes_takes_its_gateway_along() {
    let (_controller, cluster) = (alone(), Cluster::shared());
    let space = cluster.namespace("whole");
    let name = space.name.clone();
    space.apply(&config(&name, &["llama"]).to_string());
    space.until(&format!("igwc/{name}"), |it| is(it, "Accepted", "True"));
    cluster.eventually("a Deployment", || (!made(cluster, "deployment", &name).is_empty()).then_some(()));
    drop(space);
    for kind in ["gateway", "deployment", "configmap", "service"] {
        cluster.eventually(kind, || made(cluster, kind, &name).is_empty().then_some(()));
    }
}

#[test]
fn g09_a_killed_controller_is_replaced_by_its_standby_and_the_rollout_goes_on() {
    let (_controller, cluster) = (alone(), Cluster::shared());
    let space = cluster.namespace("killed");
    let words = [
        "--namespace",
        SYSTEM,
        "wait",
        "--for=condition=Available",
        "--timeout=60s",
        "deploy/inference-gateway-controller",
    ];
    cluster.kubectl(&words);
    let holder = || {
        let words = [
            "--namespace",
            SYSTEM,
            "get",
            "lease/inference-gateway-controller",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ];
        cluster.kubectl(&words)
    };
    let leader = cluster.eventually("a leader", || Some(holder()).filter(|it| !it.is_empty()));
    let pod = leader.split('_').next().unwrap().to_owned();
    space.apply(&config(&space.name, &["a", "b", "c", "d"]).to_string());
    // Right after its first write.
    cluster.eventually("the anchor", || (!made(cluster, "configmap", &space.name).is_empty()).then_some(()));
    let status = cluster.kubectl(&[
        "--namespace",
        SYSTEM,
        "get",
        "pod",
        &pod,
        "-o",
        "jsonpath={.status.containerStatuses[0].containerID}",
    ]);
    let pid = status.strip_prefix("process://").unwrap();
    assert!(std::process::Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    space.until(&format!("igwc/{}", space.name), |it| is(it, "Ready", "True"));
    cluster.eventually("another leader", || (holder() != leader).then_some(()));
    for scheduler in ["a", "b", "c", "d"] {
        space.get(&format!("inferencepool/{scheduler}"));
    }
}
