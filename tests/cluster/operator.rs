//! Models of the inference operator that ask for a gateway. The operator itself is not here: the test writes the
//! Deployments that it would.

use harness::Cluster;
use serde_json::{Value, json};

use crate::product::{first_chat, is, model, nothing_left, undisturbed};

/// As small as a definition can be that keeps what the operator's keeps.
const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: inferenceendpointconfigs.inference.sagemaker.aws.amazon.com}
spec:
  group: inference.sagemaker.aws.amazon.com
  scope: Namespaced
  names: {kind: InferenceEndpointConfig, plural: inferenceendpointconfigs, singular: inferenceendpointconfig}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

fn endpoint(name: &str, gateway: Value) -> String {
    json!({
        "apiVersion": "inference.sagemaker.aws.amazon.com/v1", "kind": "InferenceEndpointConfig",
        "metadata": {"name": name},
        "spec": {
            "modelName": name, "inferenceGateway": gateway,
            "worker": {"modelInvocationPort": {"containerPort": 8000, "name": "http"}},
        },
    })
    .to_string()
}

#[test]
fn models_that_opt_in_share_a_gateway_and_leave_it() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    cluster.apply(DEFINITION);
    cluster.kubectl(&[
        "wait",
        "--for=condition=Established",
        "--timeout=60s",
        "crd/inferenceendpointconfigs.inference.sagemaker.aws.amazon.com",
    ]);
    let space = cluster.namespace("models");
    let name = space.name.clone();
    let igwc = format!("igwc/{name}");
    let shared = json!({"enabled": true, "name": name});
    let state = |model: &str, wanted: &str| {
        space.until(&format!("inferenceendpointconfig/{model}"), |it| {
            it["status"]["inferenceGateway"]["state"] == wanted
        })
    };

    space.apply(&model("llama", 1));
    space.apply(&endpoint("llama", shared.clone()));
    let first = space.until(&igwc, |_| true);
    assert_eq!(first["spec"]["bbr"]["enabled"], false);
    assert_eq!(first["spec"]["schedulers"][0]["scheduler"], "llm-d");
    assert_eq!(state("llama", "Ready")["status"]["inferenceGateway"]["name"], json!(name));
    first_chat(cluster, &name, "llama");

    // What a customer sets stays when the next model comes.
    let patch = r#"[{"op": "add", "path": "/spec/schedulers/0/weights", "value": {"prefix": 0}}]"#;
    space.kubectl(&["patch", "igwc", &name, "--type=json", "--patch", patch]);
    space.apply(&model("qwen", 1));
    space.apply(&endpoint("qwen", shared));
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

    space.kubectl(&["delete", "inferenceendpointconfig", "llama", "qwen"]);
    cluster.eventually("the config goes with its last model", || space.try_get(&igwc).is_none().then_some(()));
    nothing_left(cluster, &space, &name);
    assert!(is(&space.get("deploy/llama"), "Available", "True"));
}
