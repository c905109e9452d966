//! A data plane whose replicas an autoscaler decides.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use harness::Cluster;
use serde_json::{Value, json};

use crate::product::{SYSTEM, config, is, made, model, undisturbed};

/// Who owns the number of replicas, as server-side apply sees it.
fn owners(deployment: &Value) -> Vec<String> {
    let all = deployment["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let owns = |entry: &&Value| !entry["fieldsV1"]["f:spec"]["f:replicas"].is_null();
    all.iter().filter(owns).map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_autoscaler_takes_over_where_the_controller_was_and_never_finds_fewer_pods() {
    let (_controller, cluster) = (undisturbed(), Cluster::shared());
    let space = cluster.namespace("scaled");
    space.apply(&model("llama", 1));
    let mut three = config(&space.name, &["llama"]);
    three["spec"]["bbr"]["replicas"] = json!(3);
    space.apply(&three.to_string());
    let igwc = format!("igwc/{}", space.name);
    space.until(&igwc, |it| is(it, "Ready", "True"));
    let name = made(cluster, "deployment", &space.name)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let deployment = || -> Value {
        let what = format!("deployment/{name}");
        let words = ["--namespace", SYSTEM, "get", &what, "-o", "json", "--show-managed-fields"];
        serde_json::from_str(&cluster.kubectl(&words)).unwrap()
    };
    assert_eq!(deployment()["spec"]["replicas"], 3);
    let scaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": &space.name, "namespace": SYSTEM},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": &name},
            "minReplicas": 2, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
        },
    });
    // Nobody measures here, so that the autoscaler itself changes nothing: three there were, and three there stay.
    let done = AtomicBool::new(false);
    let fewest = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut fewest = u64::MAX;
            while !done.load(Ordering::Acquire) {
                fewest = fewest.min(deployment()["spec"]["replicas"].as_u64().unwrap());
            }
            fewest
        });
        cluster.apply(&scaler.to_string());
        let given = std::panic::catch_unwind(|| {
            cluster.eventually("the controller lets go of the replicas", || {
                (!owners(&deployment()).contains(&"inference-gateway-controller".to_owned())).then_some(())
            });
        });
        done.store(true, Ordering::Release);
        given.unwrap();
        watch.join().unwrap()
    });
    assert_eq!(fewest, 3, "requests were served by fewer pods while nobody wanted that");

    // As the autoscaler does it; and the config, changed since, does not take it back.
    cluster.kubectl(&["--namespace", SYSTEM, "scale", &format!("deployment/{name}"), "--replicas=4"]);
    three["spec"]["schedulers"][0]["logLevel"] = json!(2);
    three["spec"]["podDefaults"] = json!({"labels": {"team": "a"}});
    space.apply(&three.to_string());
    cluster.eventually("the change comes through", || {
        (deployment()["spec"]["template"]["metadata"]["labels"]["team"] == "a").then_some(())
    });
    assert_eq!(deployment()["spec"]["replicas"], 4);
    cluster.kubectl(&["--namespace", SYSTEM, "delete", "hpa", &space.name]);
    cluster.eventually("without an autoscaler the config decides", || {
        (deployment()["spec"]["replicas"] == 3).then_some(())
    });
}
