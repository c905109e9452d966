//! An operator's first day: one config becomes a gateway, and goes without a trace.

use std::{
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use harness::{Answer, Cluster, Space, post};
use serde_json::{Value, json};

const SYSTEM: &str = "hyperpod-inference-system";
/// From the config to the first answered chat.
const FIRST_CHAT_MAX: Duration = Duration::from_secs(10);

fn model(name: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
         spec:\n      containers:\n      - name: server\n        image: model-sim\n        \
         args: [--model, {name}, --time-scale, '0.1']\n        ports: [{{name: http, containerPort: 8000}}]\n        \
         readinessProbe: {{httpGet: {{path: /health, port: http}}, periodSeconds: 1}}\n"
    )
}

fn config(name: &str, models: &[&str]) -> String {
    let schedulers: Vec<Value> = models
        .iter()
        .map(|model| json!({"name": model, "modelName": model, "targetPort": 8000, "modelSelector": {"matchLabels": {"app": model}}}))
        .collect();
    json!({
        "apiVersion": "inference.sagemaker.aws.amazon.com/v1alpha1",
        "kind": "InferenceGatewayConfig",
        "metadata": {"name": name},
        "spec": {"bbr": {"enabled": true}, "schedulers": schedulers},
    })
    .to_string()
}

/// The Service of a config's gateway, found as operators find it.
fn gateway(config: &str) -> Option<SocketAddr> {
    let selector = format!("gateway.envoyproxy.io/owning-gateway-name={config}");
    let words = ["--namespace", SYSTEM, "get", "services", "--selector", &selector, "-o", "json"];
    let list: Value = serde_json::from_str(&Cluster::shared().kubectl(&words)).unwrap();
    let serves = |item: &&Value| item["spec"]["ports"].as_array().unwrap().iter().any(|port| port["port"] == 80);
    let service = list["items"].as_array()?.iter().find(serves)?.clone();
    Some(SocketAddr::new(service["spec"]["clusterIP"].as_str()?.parse().ok()?, 80))
}

fn chat(to: SocketAddr, model: &str) -> Answer {
    let messages = json!([{"role": "user", "content": "hi"}]);
    post(to, "/v1/chat/completions", json!({"model": model, "messages": messages, "max_tokens": 2}).to_string())
}

/// Everything of the models that nobody may change.
fn models(space: &Space) -> Vec<Value> {
    let objects = space.list("deployments,pods", "");
    let kept = |item: &Value| {
        let metadata = &item["metadata"];
        json!([
            item["kind"],
            metadata["name"],
            metadata["uid"],
            metadata["labels"],
            metadata["annotations"],
            metadata["generation"],
            metadata["ownerReferences"],
            metadata["finalizers"],
            item["spec"]
        ])
    };
    objects.iter().map(kept).collect()
}

#[test]
fn one_config_becomes_a_gateway_within_ten_seconds_and_goes_without_a_trace() {
    let cluster = Cluster::shared();
    let space = cluster.namespace("first-day");
    let words = [
        "--namespace",
        SYSTEM,
        "wait",
        "--for=condition=Available",
        "--timeout=60s",
        "deployment/inference-gateway-controller",
    ];
    cluster.kubectl(&words);
    space.apply(&format!("{}---\n{}", model("llama"), model("qwen")));
    space.wait_for("deployment/llama", "Available");
    space.wait_for("deployment/qwen", "Available");
    let before = models(&space);

    let name = format!("day-{}", std::process::id());
    let started = Instant::now();
    space.apply(&config(&name, &["llama", "qwen"]));
    let to = cluster.eventually("the first chat is answered", || {
        let to = gateway(&name).filter(|to| TcpStream::connect(to).is_ok())?;
        (chat(to, "llama").status == 200).then_some(to)
    });
    let took = started.elapsed();
    assert!(took <= FIRST_CHAT_MAX, "the first chat took {took:?}");
    let answer: Value = serde_json::from_slice(&chat(to, "qwen").body).unwrap();
    assert_eq!(answer["model"], "qwen");
    assert_eq!(chat(to, "unknown").status, 404);
    space.wait_for(&format!("igwc/{name}"), "Ready");

    space.kubectl(&["delete", "igwc", &name, "--timeout=50s"]);
    cluster.eventually("the data plane is gone", || gateway(&name).is_none().then_some(()));
    cluster.eventually("routes, pools and pickers are gone", || {
        space.list("httproutes,inferencepools,services", "").is_empty().then_some(())
    });
    assert_eq!(models(&space), before, "the models were changed");
}
