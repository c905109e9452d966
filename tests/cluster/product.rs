//! What tests of the product in a cluster share: a model, a config, a chat, and who may disturb the controller.

use std::{
    net::SocketAddr,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use harness::{Answer, Cluster, Space, request};
use serde_json::{Value, json};

/// Where the controller and every data plane run.
pub(crate) const SYSTEM: &str = "hyperpod-inference-system";

/// All tests share one controller.
static CONTROLLER: RwLock<()> = RwLock::new(());

/// For a test that needs the controller at work.
pub(crate) fn undisturbed() -> RwLockReadGuard<'static, ()> {
    CONTROLLER.read().unwrap_or_else(|failed| failed.into_inner())
}

/// For a test that stops the controller or kills it.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    CONTROLLER.write().unwrap_or_else(|failed| failed.into_inner())
}

/// A model server's Deployment, whose pods carry `app=NAME`.
pub(crate) fn model(name: &str, replicas: u32) -> String {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": "server", "image": "model-sim",
                    "args": ["--model", name, "--served-model-name", name, "--time-scale", "0.1"],
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
                }]},
            },
        },
    })
    .to_string()
}

/// A config for these models, each selected by `app=NAME`.
pub(crate) fn config(name: &str, models: &[&str]) -> Value {
    let schedulers: Vec<Value> = models
        .iter()
        .map(|model| json!({"name": model, "modelName": model, "replicas": 1, "modelSelector": {"matchLabels": {"app": model}}}))
        .collect();
    json!({
        "apiVersion": "inference.sagemaker.aws.amazon.com/v1alpha1", "kind": "InferenceGatewayConfig",
        "metadata": {"name": name},
        "spec": {"bbr": {"enabled": models.len() > 1, "replicas": 1}, "schedulers": schedulers},
    })
}

/// Whether a condition of an object's status is as said.
pub(crate) fn is(object: &Value, kind: &str, status: &str) -> bool {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().any(|it| it["type"] == kind && it["status"] == status)
}

/// Objects of the system namespace that were made for a config.
pub(crate) fn made(cluster: Cluster, kind: &str, config: &str) -> Vec<Value> {
    let selector = format!("inference.sagemaker.aws.amazon.com/config-name={config}");
    let text = cluster.kubectl(&["--namespace", SYSTEM, "get", kind, "--selector", &selector, "-o", "json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Where a config's gateway answers: found as operators find it, by the label.
pub(crate) fn gateway(cluster: Cluster, config: &str) -> SocketAddr {
    let selector = format!("gateway.envoyproxy.io/owning-gateway-name={config}");
    cluster.eventually("the Service of the data plane", || {
        let words = ["--namespace", SYSTEM, "get", "service", "--selector", &selector, "-o", "json"];
        let list: Value = serde_json::from_str(&cluster.kubectl(&words)).unwrap();
        let ip = list["items"][0]["spec"]["clusterIP"].as_str()?.parse().ok()?;
        Some(SocketAddr::new(ip, 80))
    })
}

/// One chat.
pub(crate) fn chat(gateway: SocketAddr, model: &str) -> Answer {
    let body = json!({"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Good morning"}]});
    request(gateway, "POST", "/v1/chat/completions", &[("content-type", "application/json")], body.to_string())
}

/// Waits for the first chat that is answered with 200.
pub(crate) fn first_chat(cluster: Cluster, config: &str, model: &str) -> SocketAddr {
    let gateway = gateway(cluster, config);
    cluster.eventually("a chat is answered", || {
        // Between a connection and its answer the first pods come and go.
        let answer = std::panic::catch_unwind(|| chat(gateway, model)).ok()?;
        (answer.status == 200).then_some(gateway)
    })
}

/// Waits until nothing is left that was made for a config, in either namespace.
pub(crate) fn nothing_left(cluster: Cluster, space: &Space, config: &str) {
    let selector = format!("inference.sagemaker.aws.amazon.com/config-name={config}");
    let kinds = "gateways,httproutes,inferencepools,services,endpointslices,deployments,configmaps,serviceaccounts,\
                 roles,rolebindings,poddisruptionbudgets,networkpolicies,ingresses";
    for namespace in [SYSTEM, &space.name] {
        cluster.eventually("all is gone", || {
            let words = ["--namespace", namespace, "get", kinds, "--selector", &selector, "-o", "name"];
            cluster.kubectl(&words).trim().is_empty().then_some(())
        });
    }
}
