//! An operator's first day, typed into `kubectl`: models, a gateway, proofs from its logs, too much work, and the end.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use harness::{Answer, Cluster, Space, chats, post, request};
use serde_json::{Value, json};

use crate::{
    product::{SYSTEM, config, first_chat, made, nothing_left, undisturbed},
    stand_in,
};

/// From the config to the first answered chat.
const FIRST_CHAT_MAX: Duration = Duration::from_secs(10);
const CHATS: &str = "/v1/chat/completions";
const NO_MODEL: &str = "no matching model: set the model in the request body or the x-gateway-model-name header";

/// Models of the inference operator, up and running.
fn models(space: &Space, names: &[&str], replicas: u32) {
    stand_in::install(Cluster::shared());
    for name in names {
        space.apply(&stand_in::endpoint(name, replicas, json!({"enabled": false})).to_string());
    }
    stand_in::tend(space);
    for name in names {
        space.wait_for(&format!("deploy/{name}"), "Available");
        space.until(&format!("deploy/{name}"), |it| it["status"]["readyReplicas"] == replicas);
    }
}

/// `kubectl apply -f FILE`, as from a shell: not server-side, and once more for an object that is there.
fn apply_file(space: &Space, document: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, yaml_serde::to_string(document).unwrap()).unwrap();
    space.kubectl(&["apply", "-f", file.to_str().unwrap()]);
}

/// Every byte that the API server has of the models.
fn seen(space: &Space) -> String {
    space.kubectl(&[
        "get",
        "inferenceendpointconfigs,deployments,replicasets,pods",
        "-o",
        "json",
        "--show-managed-fields",
    ])
}

fn ask(to: SocketAddr, model: &str, id: &str) -> Answer {
    let body = json!({"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Good morning"}]});
    let headers = [("content-type", "application/json"), ("x-request-id", id)];
    request(to, "POST", CHATS, &headers, body.to_string())
}

/// The one line that the logs of a gateway have of a request, whichever of its pods wrote it.
fn logged(cluster: Cluster, config: &str, id: &str) -> Value {
    let selector = format!("gateway.envoyproxy.io/owning-gateway-name={config}");
    cluster.eventually(&format!("a log line of {id}"), || {
        let words = ["--namespace", SYSTEM, "logs", "--selector", &selector, "--tail=-1"];
        let log = cluster.try_kubectl(&words, "").ok()?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut lines = lines.filter(|line| line["x-request-id"] == id);
        let line = lines.next()?;
        assert!(lines.next().is_none(), "two lines of {id}");
        Some(line)
    })
}

/// What one resource creates, each where the contract says it is.
fn found_where_the_contract_says(space: &Space, name: &str, schedulers: &[&str]) {
    let cluster = Cluster::shared();
    let in_system = |what: &str| cluster.try_kubectl(&["--namespace", SYSTEM, "get", what, "-o", "json"], "");
    let gateway: Value = serde_json::from_str(&in_system(&format!("gateway/{name}")).unwrap()).unwrap();
    assert_eq!(gateway["spec"]["gatewayClassName"], "inference-gateway");
    let selector = format!("gateway.envoyproxy.io/owning-gateway-name={name}");
    let words = ["--namespace", SYSTEM, "get", "service", "--selector", &selector, "-o", "name"];
    assert_eq!(cluster.kubectl(&words).lines().count(), 1, "one Service has the label");
    let ingresses = made(cluster, "ingress", name);
    assert_eq!(ingresses.len(), 1);
    let metadata = &ingresses[0]["metadata"];
    assert!(metadata["name"].as_str().unwrap().starts_with("alb-"), "{metadata}");
    assert_eq!(metadata["annotations"]["alb.ingress.kubernetes.io/scheme"], "internal");
    space.get(&format!("httproute/{name}-health"));
    for scheduler in schedulers {
        for kind in ["httproute", "inferencepools.inference.networking.k8s.io"] {
            space.get(&format!("{kind}/{scheduler}"));
        }
        space.get(&format!("service/{scheduler}-epp"));
    }
}

#[test]
fn from_a_model_to_a_gateway_for_two_and_back_to_the_models_as_they_were() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("first-day");
    let name = space.name.clone();
    models(&space, &["llama", "qwen"], 1);
    let before = seen(&space);

    // One model, whose every request goes to its pool, whatever model it names.
    let started = Instant::now();
    apply_file(&space, &config(&name, &["llama"]));
    let to = first_chat(cluster, &name, "llama");
    let took = started.elapsed();
    eprintln!("from apply to the first answered chat: {took:?}");
    assert!(took <= FIRST_CHAT_MAX, "the first chat took {took:?}");
    space.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", &format!("igwc/{name}")]);
    let completion =
        post(to, "/v1/completions", json!({"model": "llama", "prompt": "Once", "max_tokens": 4}).to_string());
    assert_eq!((completion.status, &completion.json()["object"]), (200, &json!("text_completion")));
    let other = ask(to, "mistral", "other");
    assert!(other.status == 404 && !other.text().contains(NO_MODEL), "the engine answers: {}", other.text());
    assert_eq!(logged(cluster, &name, "other")["outcome"], "upstream_4xx");
    found_where_the_contract_says(&space, &name, &["llama"]);

    // Two models, told apart by the body.
    apply_file(&space, &config(&name, &["llama", "qwen"]));
    cluster.eventually("the second model answers", || {
        let answer = ask(to, "qwen", "early");
        (answer.status == 200 && answer.json()["model"] == "qwen").then_some(())
    });
    for model in ["llama", "qwen"] {
        let id = format!("proof-{model}");
        assert_eq!(ask(to, model, &id).status, 200);
        let line = logged(cluster, &name, &id);
        assert_eq!((&line["modelName"], &line["pool"]), (&json!(model), &json!(model)));
        let pods = space.list("pods", &format!("app={model}"));
        assert_eq!(line["endpoint"], pods[0]["metadata"]["name"]);
    }
    let unknown = ask(to, "mistral", "unknown");
    assert_eq!((unknown.status, unknown.code()), (404, "model_not_found".to_owned()));
    assert!(unknown.text().contains(NO_MODEL), "{}", unknown.text());
    assert_eq!(logged(cluster, &name, "unknown")["endpoint"], Value::Null, "no endpoint is touched");
    found_where_the_contract_says(&space, &name, &["llama", "qwen"]);

    space.kubectl(&["delete", "igwc", &name, "--timeout=50s"]);
    nothing_left(cluster, &space, &name);
    assert_eq!(seen(&space), before, "the models were changed");
}

/// About 700 tokens that `seed` decides, and a question about them.
fn prompt(seed: &str, question: usize) -> String {
    let context: String = (0..100).map(|n| format!("Clause {n} of contract {seed}: ")).collect();
    let text = format!("{context}\nQuestion {question}: what does it say?");
    json!({"model": "llama", "max_tokens": 8, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// Between requests that are made one at a time: longer than two looks at a page. What a pod of the gateway has just sent is
/// seen by the other one only as a busier endpoint, and a prompt that it does not know yet goes to the idle one.
const PAUSE: Duration = Duration::from_millis(600);

/// How many of twelve requests went to each pod of a model, as the logs say. Asked one at a time, they are asked in peace.
fn spread(config: &str, to: SocketAddr, bodies: &[String], at_a_time: usize) -> Vec<usize> {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    let alone = |body| {
        std::thread::sleep(PAUSE);
        chats(to, std::slice::from_ref(body), 1)
    };
    let answers = if at_a_time == 1 { bodies.iter().flat_map(alone).collect() } else { chats(to, bodies, at_a_time) };
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let line = logged(Cluster::shared(), config, answer.header("x-request-id").unwrap());
        *counts.entry(line["endpoint"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts.into_values().collect()
}

#[test]
fn twelve_requests_of_one_prefix_land_on_one_pod_and_weights_say_otherwise() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("proof");
    let name = space.name.clone();
    models(&space, &["llama"], 2);
    // With two pods of the gateway, as they are without a word on it: they agree though they share nothing.
    let mut usual = config(&name, &["llama"]);
    usual["spec"]["bbr"]["replicas"] = Value::Null;
    usual["spec"]["schedulers"][0]["replicas"] = Value::Null;
    space.apply(&usual.to_string());
    let to = first_chat(cluster, &name, "llama");
    space.until(&format!("igwc/{name}"), |it| crate::product::is(it, "Ready", "True"));

    for at_a_time in [1, 4] {
        let shared: Vec<String> = (0..12).map(|n| prompt(&format!("shared {at_a_time}"), n)).collect();
        assert_eq!(spread(&name, to, &shared, at_a_time), [12], "{at_a_time} at a time");
    }
    let own: Vec<String> = (0..12).map(|n| prompt(&format!("own {n}"), n)).collect();
    let counts = spread(&name, to, &own, 4);
    assert!(counts.len() == 2 && counts.iter().all(|count| *count >= 2), "{counts:?}");

    let patch =
        r#"[{"op": "add", "path": "/spec/schedulers/0/weights", "value": {"prefix": 0, "queue": 3, "kvCache": 2}}]"#;
    space.kubectl(&["patch", "igwc", &name, "--type=json", "--patch", patch]);
    cluster.eventually("the shared batch spreads", || {
        let shared: Vec<String> = (0..12).map(|n| prompt("spread", n)).collect();
        let counts = spread(&name, to, &shared, 4);
        (counts.len() == 2 && counts.iter().all(|count| *count >= 2)).then_some(())
    });
}

/// A config whose requests are refused at once when their pool is full, and its model's Deployment with this many pods
/// that each do one thing at a time.
fn narrow(name: &str, replicas: u32) -> (Value, Value) {
    let mut impatient = config(name, &["llama"]);
    impatient["spec"]["flowControl"] = json!({"bands": {"standard": {"maxWait": "0s"}}});
    let mut model: Value = serde_json::from_str(&crate::product::model("llama", replicas)).unwrap();
    model["spec"]["template"]["spec"]["containers"][0]["args"] =
        json!(["--model", "llama", "--served-model-name", "llama", "--max-num-seqs", "1"]);
    (impatient, model)
}

/// Clients that ask without a pause, and what they were told.
#[derive(Default)]
struct Crowd {
    stop: AtomicBool,
    served: AtomicUsize,
    refused: AtomicUsize,
}

impl Crowd {
    fn ask(&self, to: SocketAddr, client: usize) {
        let text = format!("client {client}");
        let messages = json!([{"role": "user", "content": text}]);
        let body = json!({"model": "llama", "max_tokens": 100, "ignore_eos": true, "messages": messages}).to_string();
        while !self.stop.load(Ordering::Acquire) {
            let answer = post(to, CHATS, &body);
            match answer.status {
                200 => self.served.fetch_add(1, Ordering::AcqRel),
                429 => {
                    let wait = answer.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
                    assert!(wait >= Some(1), "{:?}", answer.header("retry-after"));
                    assert_eq!(answer.json()["error"]["type"], "overloaded_error");
                    thread::sleep(Duration::from_millis(200));
                    self.refused.fetch_add(1, Ordering::AcqRel)
                }
                other => panic!("{other}: {}", answer.text()),
            };
        }
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::Acquire)
    }
}

#[test]
fn a_full_pool_refuses_with_429_until_its_deployment_is_scaled_up() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("full");
    let (config, model) = narrow(&space.name, 1);
    space.apply(&model.to_string());
    space.apply(&config.to_string());
    let to = first_chat(cluster, &space.name, "llama");
    // More than one pod has room for, and fewer than three have.
    let crowd = Crowd::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..10).map(|client| (client, &crowd)).collect();
        let clients: Vec<_> = clients.into_iter().map(|(n, crowd)| scope.spawn(move || crowd.ask(to, n))).collect();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cluster.eventually("some are refused", || (crowd.refused() > 5).then_some(()));
            space.kubectl(&["scale", "deploy/llama", "--replicas=3"]);
            space.until("deploy/llama", |it| it["status"]["readyReplicas"] == 3);
            cluster.eventually("for three seconds nobody is refused", || {
                let (refused, served) = (crowd.refused(), crowd.served.load(Ordering::Acquire));
                thread::sleep(Duration::from_secs(3));
                (crowd.refused() == refused && crowd.served.load(Ordering::Acquire) > served).then_some(())
            });
        }));
        crowd.stop.store(true, Ordering::Release);
        for client in clients {
            client.join().unwrap();
        }
        outcome.unwrap();
    });
}

#[test]
fn a_pool_without_pods_says_503_until_its_deployment_is_scaled_up_from_zero() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("zero");
    let (config, model) = narrow(&space.name, 0);
    space.apply(&model.to_string());
    space.apply(&config.to_string());
    let to = crate::product::gateway(cluster, &space.name);
    let empty = cluster.eventually("the gateway answers", || {
        let answer = std::panic::catch_unwind(|| ask(to, "llama", "zero")).ok()?;
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(
        (empty.code().as_str(), &empty.json()["error"]["type"]),
        ("no_endpoint", &json!("service_unavailable_error"))
    );
    assert!(empty.header("retry-after").and_then(|wait| wait.parse::<u64>().ok()) >= Some(1));
    for _ in 0..2 {
        space.kubectl(&["scale", "deploy/llama", "--replicas=1"]);
        cluster.eventually("it is served", || (ask(to, "llama", "one").status == 200).then_some(()));
        space.kubectl(&["scale", "deploy/llama", "--replicas=0"]);
        cluster.eventually("and no longer", || (ask(to, "llama", "none").status == 503).then_some(()));
    }
}
