//! From one config to a gateway that answers, and what its status says on the way.

use std::time::Instant;

use harness::{Cluster, request};
use serde_json::{Value, json};

use crate::product::{chat, config, first_chat, is, made, model, undisturbed};

#[test]
fn one_config_becomes_a_gateway_and_each_step_is_an_event() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("first");
    let name = space.name.clone();
    space.apply(&model("llama", 1));
    space.wait_for("deploy/llama", "Available");
    let before = space.kubectl(&["get", "deploy,rs,pod", "-o", "json"]);

    let applied = Instant::now();
    space.apply(&config(&name, &["llama"]).to_string());
    first_chat(cluster, &name, "llama");
    let took = applied.elapsed();
    eprintln!("from apply to the first answered chat: {took:?}");
    // Ten seconds on a machine that does nothing else.
    assert!(took.as_secs() < 30, "{took:?}");

    let ready = space.until(&format!("igwc/{name}"), |it| is(it, "Ready", "True"));
    for (kind, status) in [("Accepted", "True"), ("GatewayProgrammed", "True"), ("AdmissionBlocked", "False")] {
        assert!(is(&ready, kind, status), "{kind}: {}", ready["status"]);
    }
    let scheduler = &ready["status"]["schedulers"][0];
    assert_eq!((&scheduler["name"], &scheduler["rolloutState"]), (&json!("llama"), &json!("Available")));
    assert_eq!(ready["status"]["observedGeneration"], ready["metadata"]["generation"]);
    let told = |reason: &str| {
        let words =
            ["get", "events", "--field-selector", &format!("reason={reason}"), "-o", "jsonpath={.items[*].message}"];
        space.kubectl(&words)
    };
    for reason in ["Accepted", "Created", "GatewayProgrammed", "Ready"] {
        cluster.eventually(reason, || (!told(reason).is_empty()).then_some(()));
    }
    assert!(told("Created").contains(&format!("Gateway hyperpod-inference-system/{name}")));
    for kind in ["gateway", "deployment", "poddisruptionbudget", "networkpolicy", "ingress"] {
        assert_eq!(made(cluster, kind, &name).len(), 1, "{kind}");
    }
    for object in ["httproute/llama", "inferencepool/llama", "service/llama-epp"] {
        space.get(object);
    }
    // Models are looked at and never touched.
    assert_eq!(before, space.kubectl(&["get", "deploy,rs,pod", "-o", "json"]));
    space.kubectl(&["delete", "igwc", &name]);
    crate::product::nothing_left(cluster, &space, &name);
    assert_eq!(before, space.kubectl(&["get", "deploy,rs,pod", "-o", "json"]));
}

#[test]
fn h10_every_config_says_within_moments_whether_it_is_accepted() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("empty");
    space.apply(&config(&space.name, &["nobody"]).to_string());
    let told = space.until(&format!("igwc/{}", space.name), |it| is(it, "Accepted", "True"));
    let scheduler = &told["status"]["schedulers"][0];
    let endpoints =
        scheduler["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "EndpointsReady").unwrap();
    assert_eq!((&endpoints["status"], &endpoints["reason"]), (&json!("False"), &json!("NoMatchingPods")));
    // The name is taken in the system namespace, whatever namespace asks.
    let other = cluster.namespace("second");
    other.apply(&config(&space.name, &["nobody"]).to_string());
    let refused = other.until(&format!("igwc/{}", space.name), |it| is(it, "Accepted", "False"));
    let accepted =
        refused["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Accepted").unwrap();
    assert_eq!(accepted["reason"], "NameConflict");
    space.kubectl(&["delete", "igwc", &space.name]);
    other.until(&format!("igwc/{}", space.name), |it| is(it, "Accepted", "True"));
}

#[test]
fn h05_what_is_taken_out_of_a_config_goes_from_its_status_and_its_objects() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("shrink");
    let igwc = format!("igwc/{}", space.name);
    space.apply(&config(&space.name, &["llama", "qwen"]).to_string());
    space.until(&igwc, |it| it["status"]["schedulers"].as_array().is_some_and(|all| all.len() == 2));
    space.until("inferencepool/qwen", |_| true);
    space.apply(&config(&space.name, &["llama"]).to_string());
    let told = space.until(&igwc, |it| it["status"]["observedGeneration"] == 2);
    assert_eq!(told["status"]["schedulers"].as_array().unwrap().len(), 1);
    assert!(told["status"]["conditions"].as_array().unwrap().iter().all(|it| it["type"] != "BBRReady"));
    for gone in ["inferencepool/qwen", "httproute/qwen", "service/qwen-epp"] {
        cluster.eventually(gone, || space.try_get(gone).is_none().then_some(()));
    }
}

#[test]
fn h06_a_foreign_finalizer_holds_the_config_and_nothing_else() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("hold");
    let mut held = config(&space.name, &["llama"]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    space.apply(&held.to_string());
    cluster.eventually("a Gateway", || (!made(cluster, "gateway", &space.name).is_empty()).then_some(()));
    space.kubectl(&["delete", "igwc", &space.name, "--wait=false"]);
    cluster.eventually("the Gateway goes", || made(cluster, "gateway", &space.name).is_empty().then_some(()));
    let still = space.get(&format!("igwc/{}", space.name));
    assert_eq!(still["metadata"]["finalizers"], json!(["example.com/hold"]));
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    space.kubectl(&["patch", "igwc", &space.name, "--type=merge", "--patch", patch]);
    crate::product::nothing_left(cluster, &space, &space.name);
}

#[test]
fn somebody_elses_object_of_the_same_name_is_left_alone_and_told() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("foreign");
    let foreign = "apiVersion: v1\nkind: Service\nmetadata: {name: llama-epp}\nspec: {ports: [{port: 1}]}";
    space.apply(foreign);
    let before = space.get("service/llama-epp");
    space.apply(&config(&space.name, &["llama"]).to_string());
    let igwc = format!("igwc/{}", space.name);
    space.until(&igwc, |it| is(it, "AdmissionBlocked", "True"));
    assert_eq!(before, space.get("service/llama-epp"));
    space.kubectl(&["delete", "service", "llama-epp"]);
    space.until(&igwc, |it| is(it, "AdmissionBlocked", "False"));
    space.until("service/llama-epp", |it| it["spec"]["ports"][0]["port"] == 9002);
}

#[test]
fn h04_what_is_settled_is_not_written_again() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("still");
    let mut odd = config(&space.name, &["llama"]);
    // Read back by the API server in another form.
    odd["spec"]["podDefaults"] = json!({"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}});
    space.apply(&odd.to_string());
    let igwc = format!("igwc/{}", space.name);
    space.until(&igwc, |it| is(it, "Ready", "True"));
    let versions = || {
        let mut all = vec![space.get(&igwc)];
        for kind in ["gateway", "service", "networkpolicy", "ingress", "configmap", "serviceaccount"] {
            all.extend(made(cluster, kind, &space.name));
        }
        let deployment = made(cluster, "deployment", &space.name)[0]["metadata"]["generation"].clone();
        let versions: Vec<Value> = all.iter().map(|it| it["metadata"]["resourceVersion"].clone()).collect();
        (versions, deployment)
    };
    let settled = cluster.eventually("it is still", || {
        let first = versions();
        std::thread::sleep(std::time::Duration::from_secs(1));
        (first == versions()).then_some(first)
    });
    // Another config comes to be: many looks of the controller at both.
    let other = cluster.namespace("busy");
    other.apply(&config(&other.name, &["llama"]).to_string());
    other.until(&format!("igwc/{}", other.name), |it| is(it, "Ready", "True"));
    assert_eq!(settled, versions());
}

#[test]
fn an_unknown_model_is_told_and_two_models_are_told_apart() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("two");
    for name in ["llama", "qwen"] {
        space.apply(&model(name, 1));
    }
    space.apply(&config(&space.name, &["llama", "qwen"]).to_string());
    let gateway = first_chat(cluster, &space.name, "llama");
    cluster.eventually("the other model answers", || (chat(gateway, "qwen").status == 200).then_some(()));
    let unknown = chat(gateway, "mistral");
    assert_eq!(unknown.status, 404);
    let text = String::from_utf8_lossy(&unknown.body).into_owned();
    assert!(
        text.contains("no matching model: set the model in the request body or the x-gateway-model-name header"),
        "{text}"
    );
}

#[test]
fn j08_the_controllers_metrics_are_those_that_are_documented() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("metrics");
    space.apply(&config(&space.name, &["llama"]).to_string());
    space.until(&format!("igwc/{}", space.name), |it| is(it, "Ready", "True"));
    let words = [
        "--namespace",
        crate::product::SYSTEM,
        "get",
        "pods",
        "--selector",
        "app.kubernetes.io/name=inference-gateway-controller",
        "-o",
        "jsonpath={.items[*].status.podIP}",
    ];
    let pages: Vec<String> = cluster
        .kubectl(&words)
        .split_whitespace()
        .map(|ip| {
            let answer = request((ip.parse::<std::net::IpAddr>().unwrap(), 9090).into(), "GET", "/metrics", &[], "");
            String::from_utf8(answer.body).unwrap()
        })
        .collect();
    let leaders =
        pages.iter().filter(|page| page.lines().any(|line| line == "inference_gateway_controller_leader 1")).count();
    assert_eq!(leaders, 1, "{pages:?}");
    let documented = include_str!("../../docs/metrics.md");
    let names = documented.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    for name in names.filter(|name| name.starts_with("inference_gateway_controller_")) {
        assert!(pages.iter().any(|page| page.lines().any(|line| line.starts_with(name))), "{name} is on no page");
    }
}
