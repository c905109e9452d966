//! Models of the inference operator that ask for a gateway by `spec.inferenceGateway`.

use harness::Cluster;
use serde_json::json;

use crate::{
    product::{first_chat, nothing_left, undisturbed},
    stand_in,
};

#[test]
fn models_that_opt_in_share_a_gateway_and_leave_it() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    stand_in::install(cluster);
    let space = cluster.namespace("models");
    let name = space.name.clone();
    let igwc = format!("igwc/{name}");
    let shared = json!({"enabled": true, "name": name});
    let state = |model: &str, wanted: &str| {
        space.until(&format!("inferenceendpointconfig/{model}"), |it| {
            it["status"]["inferenceGateway"]["state"] == wanted
        })
    };

    space.apply(&stand_in::endpoint("llama", 1, shared.clone()).to_string());
    stand_in::tend(&space);
    let first = space.until(&igwc, |_| true);
    assert_eq!(first["spec"]["bbr"]["enabled"], false);
    assert_eq!(first["spec"]["schedulers"][0]["scheduler"], "llm-d");
    assert_eq!(state("llama", "Ready")["status"]["inferenceGateway"]["name"], json!(name));
    first_chat(cluster, &name, "llama");

    // What a customer sets stays when the next model comes.
    let patch = r#"[{"op": "add", "path": "/spec/schedulers/0/weights", "value": {"prefix": 0}}]"#;
    space.kubectl(&["patch", "igwc", &name, "--type=json", "--patch", patch]);
    space.apply(&stand_in::endpoint("qwen", 1, shared).to_string());
    stand_in::tend(&space);
    let both = space.until(&igwc, |it| it["spec"]["schedulers"].as_array().is_some_and(|all| all.len() == 2));
    assert_eq!(both["spec"]["bbr"]["enabled"], true);
    let llama = both["spec"]["schedulers"].as_array().unwrap().iter().find(|it| it["name"] == "llama").unwrap();
    assert_eq!(llama["weights"]["prefix"], 0);
    first_chat(cluster, &name, "qwen");

    // Both ways of routing at once are refused.
    let patch = r#"{"spec": {"intelligentRoutingSpec": {"enabled": true}}}"#;
    space.kubectl(&["patch", "inferenceendpointconfig", "qwen", "--type=merge", "--patch", patch]);
    state("qwen", "Failed");
    space.until(&igwc, |it| it["spec"]["schedulers"].as_array().is_some_and(|all| all.len() == 1));

    // The last one that was in it opts out, and nothing of the model changes.
    let before = space.kubectl(&["get", "deploy,rs,pod", "--selector=app=llama", "-o", "json"]);
    let patch = r#"{"spec": {"inferenceGateway": {"enabled": false}}}"#;
    space.kubectl(&["patch", "inferenceendpointconfig", "llama", "--type=merge", "--patch", patch]);
    cluster.eventually("the config goes with its last model", || space.try_get(&igwc).is_none().then_some(()));
    nothing_left(cluster, &space, &name);
    assert_eq!(before, space.kubectl(&["get", "deploy,rs,pod", "--selector=app=llama", "-o", "json"]));
}
