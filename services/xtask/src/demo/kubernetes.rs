//! `cargo xtask demo --kubernetes`: one InferenceGatewayConfig becomes a running gateway, in a cluster without containers.
//!
//! The rig starts this program again inside the cluster's network, where pods and Services can be reached; that part
//! does what an operator does, with the real `kubectl`, and shows what comes of it.

mod operator;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use self::operator::{kubectl, kubectl_json, wait_until};
use super::Mode;
use crate::cluster;
use crate::http::{self, Answer};
use crate::step;
use crate::workspace::Workspace;

/// The word by which the part inside is started.
pub(crate) const INSIDE: &str = "demo-inside-cluster";

const MODELS_YAML: &str = include_str!("kubernetes/models.yaml");
const CONFIG_YAML: &str = include_str!("kubernetes/config.yaml");
const NAMESPACE: &str = "models";
const SYSTEM: &str = "hyperpod-inference-system";
/// Model names as clients write them.
const MODELS: [&str; 2] = ["llama-3.1-8b", "qwen-2.5-7b"];
/// From `kubectl apply` of the config to the first answered chat.
const FIRST_CHAT_MAX: Duration = Duration::from_secs(10);
const REMOVAL_MAX: Duration = Duration::from_secs(60);

/// Builds, starts a cluster, and shows the main job on it.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> anyhow::Result<()> {
    cluster::build(workspace)?;
    let mut command = cluster::rig(workspace);
    command.arg("run").args(cluster::installation(workspace)).arg("--");
    command.arg(workspace.program("xtask")).arg(INSIDE);
    if mode == Mode::Check {
        command.arg("--check");
    }
    step::run(&mut command)
}

/// The part inside the cluster's network.
pub(crate) fn inside(mode: Mode) -> anyhow::Result<()> {
    let folder = std::env::var_os("CLUSTER_RIG").context("this part is started by `demo --kubernetes`")?;
    println!("\n1. Two models, as a team deploys them: no gateway knows of them yet");
    kubectl(&["apply", "--server-side", "-f", "-"], MODELS_YAML)?;
    kubectl(
        &["wait", "--namespace", NAMESPACE, "--for=condition=Available", "--timeout=60s", "deployment", "--all"],
        "",
    )?;
    kubectl(&["wait", "--namespace", SYSTEM, "--for=condition=Available", "--timeout=60s", "deployment", "--all"], "")?;
    let before = models()?;

    println!("\n2. One InferenceGatewayConfig");
    let started = Instant::now();
    kubectl(&["apply", "--server-side", "-f", "-"], CONFIG_YAML)?;
    let first =
        wait_until("the first chat is answered", Duration::from_secs(60), || Ok(chat(MODELS[0]).ok().filter(ok)))?;
    let took = started.elapsed();
    println!("   first chat answered {:.1} s after `kubectl apply`: {}", took.as_secs_f64(), words(&first));

    println!("\n3. One address, two models: the body's `model` decides");
    let mut served = Vec::new();
    for model in MODELS {
        let answer = chat(model)?;
        println!("   {model}: status {}, answered as {}", answer.status, answer.json()?["model"]);
        served.push((model, answer));
    }
    let unknown = chat("gpt-unknown")?;
    println!("   gpt-unknown: status {}, {}", unknown.status, words(&unknown));

    println!("\n4. What the controller said");
    kubectl_shown(&[
        "get",
        "events",
        "--namespace",
        NAMESPACE,
        "--field-selector",
        "involvedObject.kind=InferenceGatewayConfig",
    ])?;
    kubectl_shown(&["get", "igwc", "--namespace", NAMESPACE])?;

    if mode == Mode::KeepRunning {
        let kubeconfig = PathBuf::from(folder).join("kubeconfig-outside");
        println!(
            "\nThe cluster is yours until Ctrl-C, from another shell:\n  export KUBECONFIG={}",
            kubeconfig.display()
        );
        println!("  kubectl get pods --all-namespaces");
        loop {
            std::thread::park();
        }
    }
    check(&served, &unknown, took)?;
    println!("\n5. The config goes, and all that was made for it; the models stay as they were");
    remove(&before)?;
    println!("\ndemo --kubernetes --check: all as shown");
    Ok(())
}

fn check(served: &[(&str, Answer)], unknown: &Answer, took: Duration) -> anyhow::Result<()> {
    for (model, answer) in served {
        anyhow::ensure!(answer.status == 200, "{model}: status {}: {}", answer.status, answer.text());
        let name = answer.json()?["model"].clone();
        anyhow::ensure!(name == *model, "{model} was answered by {name}");
    }
    anyhow::ensure!(unknown.status == 404, "an unknown model got {}: {}", unknown.status, unknown.text());
    anyhow::ensure!(took <= FIRST_CHAT_MAX, "the first chat took {took:?}, more than {FIRST_CHAT_MAX:?}");
    let config = kubectl_json(&["get", "igwc", "chat", "--namespace", NAMESPACE])?;
    let conditions = config["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    anyhow::ensure!(ready, "the config is not Ready: {}", config["status"]);
    Ok(())
}

/// Deletes the config and waits until nothing is left of it.
fn remove(before: &Value) -> anyhow::Result<()> {
    kubectl(&["delete", "igwc", "chat", "--namespace", NAMESPACE, "--timeout=60s"], "")?;
    wait_until("the data plane is gone", REMOVAL_MAX, || {
        let kinds = "deployments,services,configmaps,ingresses,poddisruptionbudgets";
        let left = kubectl_json(&["get", kinds, "--namespace", SYSTEM, "--selector", &owned()])?;
        Ok(left["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })?;
    wait_until("routes and pools are gone", REMOVAL_MAX, || {
        let left = kubectl_json(&["get", "httproutes,inferencepools,services", "--namespace", NAMESPACE])?;
        Ok(left["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })?;
    anyhow::ensure!(models()? == *before, "the models were changed");
    Ok(())
}

fn owned() -> String {
    "gateway.envoyproxy.io/owning-gateway-name=chat".to_owned()
}

/// What the team wrote and what became of it: everything but the status.
fn models() -> anyhow::Result<Value> {
    let list = kubectl_json(&["get", "deployments,pods", "--namespace", NAMESPACE])?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
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
    Ok(items.iter().map(kept).collect())
}

/// Asks the gateway's Service, which is found as operators find it.
fn chat(model: &str) -> anyhow::Result<Answer> {
    let services = kubectl_json(&["get", "services", "--namespace", SYSTEM, "--selector", &owned()])?;
    let service = services["items"].as_array().and_then(|items| {
        items.iter().find(|item| {
            item["spec"]["ports"].as_array().is_some_and(|ports| ports.iter().any(|port| port["port"] == 80))
        })
    });
    let address = service.and_then(|item| item["spec"]["clusterIP"].as_str()).context("no Service yet")?;
    let to = format!("{address}:80").parse().context("a Service without an address")?;
    let messages = json!([{"role": "user", "content": "Say hello."}]);
    http::post(to, "/v1/chat/completions", &json!({"model": model, "messages": messages, "max_tokens": 8}), &mut |_| {})
}

fn ok(answer: &Answer) -> bool {
    answer.status == 200
}

fn words(answer: &Answer) -> String {
    let Ok(body) = answer.json() else { return answer.text() };
    let text = body["choices"][0]["message"]["content"].as_str().or(body["error"]["message"].as_str());
    text.map_or_else(|| answer.text(), str::to_owned)
}

fn kubectl_shown(words: &[&str]) -> anyhow::Result<()> {
    let text = kubectl(words, "")?;
    text.lines().for_each(|line| println!("   {line}"));
    Ok(())
}
