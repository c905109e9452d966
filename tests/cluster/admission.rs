//! What the API server itself says of a configuration: with our definition alone, before any program of ours has seen it.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use harness::{Cluster, Space};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// The list that files are judged by as well.
const CASES: &str = include_str!("../../services/api/fixtures/admission.yaml");
/// The definition of the last release.
const RELEASED: &str = include_str!("../../services/api/fixtures/released/inferencegatewayconfigs-0.1.0.yaml");
const KIND: &str = "inferencegatewayconfigs.inference.sagemaker.aws.amazon.com";

/// Every member of `from` over `into`; a `null` is one that was written.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.insert(key.clone(), Value::Null);
                } else {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}

fn smallest(name: &str) -> Value {
    json!({
        "apiVersion": "inference.sagemaker.aws.amazon.com/v1alpha1", "kind": "InferenceGatewayConfig",
        "metadata": {"name": name},
        "spec": {
            "bbr": {"enabled": true},
            "schedulers": [{"name": "llama", "modelName": "llama", "modelSelector": {"matchLabels": {"app": "llama"}}}],
        },
    })
}

/// The cases, and the document of each.
fn cases() -> Vec<(Value, Value)> {
    let cases = yaml_serde::Deserializer::from_str(CASES).map(|case| Value::deserialize(case).unwrap());
    cases
        .map(|case| {
            let mut document = smallest("chat");
            merge(&mut document["spec"], &case["spec"]);
            if let Some(first) = document["spec"]["schedulers"].get_mut(0) {
                merge(first, &case["scheduler"]);
            }
            (case, document)
        })
        .collect()
}

/// What `kubectl apply --dry-run=server` prints of a document, refused or not.
fn tried(space: &Space, document: &Value) -> Result<String, String> {
    let words = ["--namespace", &space.name, "create", "--dry-run=server", "--validate=strict", "-f", "-"];
    Cluster::shared().try_kubectl(&words, &document.to_string())
}

fn judged(space: &Space, case: &Value, document: &Value) -> Option<String> {
    let said = tried(space, document);
    let wanted = case["both"].as_str().or(case["server"].as_str());
    let holds = match (&said, wanted) {
        (Ok(_), None) => true,
        (Err(said), Some(words)) => {
            said.contains(words) && case["field"].as_str().is_none_or(|field| said.contains(field))
        }
        (Ok(_), Some(_)) | (Err(_), None) => false,
    };
    (!holds).then(|| format!("{case}\n  {said:?}"))
}

#[test]
fn the_api_server_refuses_what_files_are_refused_for_and_in_the_same_words() {
    let space = Cluster::shared().namespace("admission");
    let cases = cases();
    assert!(cases.len() > 70, "{}", cases.len());
    let halves = cases.chunks(cases.len().div_ceil(2));
    let wrong: Vec<String> = thread::scope(|scope| {
        let judge = |half: &[(Value, Value)]| -> Vec<String> {
            half.iter().filter_map(|(case, document)| judged(&space, case, document)).collect()
        };
        let halves: Vec<_> = halves.map(|half| scope.spawn(move || judge(half))).collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert!(space.list("igwc", "").is_empty(), "nothing of a dry run stays");
}

#[test]
fn kubectl_explains_every_field_of_a_scheduler() {
    let space = Cluster::shared().namespace("explain");
    let told = space.kubectl(&["explain", "inferencegatewayconfig.spec.schedulers"]);
    for field in ["modelSelector", "modelName", "targetPort", "weights", "loraAdapters", "routeTimeout", "configMapRef"]
    {
        assert!(told.contains(field), "{field}: {told}");
    }
    for path in ["igwc.spec.schedulers.weights.prefix", "igwc.spec.bbr.enabled", "igwc.status.schedulers.rolloutState"]
    {
        let told = space.kubectl(&["explain", path]);
        let description = told.split_once("DESCRIPTION:").unwrap().1;
        assert!(description.trim().len() > 10 && !description.contains("<empty>"), "{path}: {told}");
    }
}

/// A definition as it stands in the cluster, without what the server adds.
fn definition(name: &str) -> Value {
    let text = Cluster::shared().kubectl(&["get", "crd", name, "-o", "json"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    json!({"apiVersion": all["apiVersion"], "kind": all["kind"], "metadata": {"name": name}, "spec": all["spec"]})
}

/// The kind under another group, so that the product's own is not touched: nobody looks at it but the API server.
fn elsewhere(definition: &Value, group: &str) -> Value {
    let mut moved = definition.clone();
    moved["metadata"] = json!({"name": format!("inferencegatewayconfigs.{group}")});
    moved["spec"]["group"] = json!(group);
    moved.as_object_mut().unwrap().remove("status");
    // Short names are one list for the whole cluster.
    moved["spec"]["names"]["shortNames"] = json!([]);
    moved["spec"]["names"]["categories"] = json!([]);
    moved
}

#[test]
fn h09_objects_of_the_last_release_outlive_its_definition() {
    let cluster = Cluster::shared();
    let space = cluster.namespace("released");
    let group = "released.example.com";
    let what = format!("inferencegatewayconfigs.{group}");
    let old: Value = yaml_serde::from_str(RELEASED).unwrap();
    cluster.apply(&elsewhere(&old, group).to_string());
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &format!("crd/{what}")]);

    // Whatever the last release admitted of the list is stored under its definition.
    let mut stored = BTreeSet::new();
    for (number, (_, mut document)) in cases().into_iter().enumerate() {
        document["apiVersion"] = json!(format!("{group}/v1alpha1"));
        document["metadata"]["name"] = json!(format!("case-{number}"));
        if cluster.try_kubectl(&["--namespace", &space.name, "create", "-f", "-"], &document.to_string()).is_ok() {
            stored.insert(format!("case-{number}"));
        }
    }
    assert!(stored.len() >= 20, "{stored:?}");
    let before = space.list(&what, "");

    // A member that no release has shows when the new definition counts.
    let mut new = elsewhere(&definition(KIND), group);
    let members = new.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").unwrap();
    members["onlyHere"] = json!({"type": "boolean"});
    cluster.apply(&new.to_string());
    let mut marked = smallest("marked");
    marked["apiVersion"] = json!(format!("{group}/v1alpha1"));
    marked["spec"]["onlyHere"] = json!(true);
    cluster.eventually("the new definition counts", || tried(&space, &marked).ok());
    let after = space.list(&what, "");
    let specs = |all: &[Value]| -> Vec<Value> { all.iter().map(|it| it["spec"].clone()).collect() };
    assert_eq!(after.len(), stored.len());
    for (old, new) in specs(&before).iter().zip(specs(&after)) {
        assert!(within(old, &new), "{old}\n{new}");
    }
    for name in &stored {
        space.kubectl(&["label", &what, name, "looked-at=yes"]);
        let status = r#"{"status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}"#;
        space.kubectl(&["patch", &what, name, "--subresource=status", "--type=merge", "--patch", status]);
        // And a change of something else in the specification.
        let patch = r#"{"spec": {"observability": {"metrics": {"enabled": false}}}}"#;
        space.kubectl(&["patch", &what, name, "--type=merge", "--patch", patch]);
    }
}

/// Whether everything in `old` is in `new`, which may have defaults beside it.
fn within(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            old.iter().all(|(key, old)| new.get(key).is_some_and(|new| within(old, new)))
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| within(old, new))
        }
        (old, new) => old == new,
    }
}

/// A rule that a later release adds: what breaks it already may stay as it is, and may be changed elsewhere.
#[test]
fn h09_a_rule_that_comes_later_binds_what_is_written_after_it() {
    let cluster = Cluster::shared();
    let space = cluster.namespace("ratchet");
    let group = "ratchet.example.com";
    let what = format!("inferencegatewayconfigs.{group}");
    // As if a release before had forgotten every rule of a scheduler's weights.
    let mut lax = elsewhere(&definition(KIND), group);
    let items = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/schedulers/items";
    let rules = lax.pointer_mut(items).unwrap().as_object_mut().unwrap().remove("x-kubernetes-validations");
    assert!(rules.is_some_and(|rules| !rules.as_array().unwrap().is_empty()));
    cluster.apply(&lax.to_string());
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", &format!("crd/{what}")]);
    let mut document = smallest("chat");
    document["apiVersion"] = json!(format!("{group}/v1alpha1"));
    document["spec"]["schedulers"][0]["weights"] = json!({"queue": 1});
    document["spec"]["schedulers"][0]["configMapRef"] = json!({"name": "plugins"});
    space.apply(&document.to_string());

    cluster.apply(&elsewhere(&definition(KIND), group).to_string());
    document["metadata"]["name"] = json!("late");
    let refused = cluster.eventually("the rule counts for what is new", || tried(&space, &document).err());
    assert!(refused.contains("weights and configMapRef exclude each other"), "{refused}");
    space.kubectl(&["label", &what, "chat", "looked-at=yes"]);
    let patch = r#"{"status": {"observedGeneration": 1}}"#;
    space.kubectl(&["patch", &what, "chat", "--subresource=status", "--type=merge", "--patch", patch]);
    let patch = r#"{"spec": {"bbr": {"replicas": 3}}}"#;
    space.kubectl(&["patch", &what, "chat", "--type=merge", "--patch", patch]);
    // What is changed in the broken part itself must be right.
    let patch = r#"[{"op": "replace", "path": "/spec/schedulers/0/weights/queue", "value": 2}]"#;
    let words = ["--namespace", &space.name, "patch", &what, "chat", "--type=json", "--patch", patch];
    let refused = cluster.try_kubectl(&words, "").unwrap_err();
    assert!(refused.contains("weights and configMapRef exclude each other"), "{refused}");
}

/// Rules are reckoned with the longest values: the longest must also be judged in good time.
#[test]
fn h08_the_largest_lists_are_judged_in_good_time() {
    // A second on a machine that does nothing else, most of it kubectl's own.
    const MAX: Duration = Duration::from_secs(3);

    let space = Cluster::shared().namespace("largest");
    let adapters =
        |model: usize| -> Vec<String> { (0..50).map(|n| format!("{model:03}-{n:02}-{}", "a".repeat(246))).collect() };
    let scheduler = |n: usize| {
        json!({
            "name": format!("s{n:062}"), "modelName": format!("m{n:0252}"), "loraAdapters": adapters(n),
            "modelSelector": {"matchLabels": {"app": format!("{n:063}")}},
        })
    };
    let mut largest = smallest("largest");
    largest["spec"]["schedulers"] = (0..100).map(scheduler).collect();
    let claims: Vec<Value> = (0..16)
        .map(|n| json!({"name": format!("claim-{n}"), "valueType": "StringArray", "values": (0..128).map(|v| format!("{v:01024}")).collect::<Vec<_>>()}))
        .collect();
    // All claims at their longest would be larger than what etcd takes.
    largest["spec"]["auth"] = json!({"jwt": {"provider": {
        "name": "idp", "issuer": "https://idp.example.com", "remoteJWKS": {"uri": "https://idp.example.com/keys"},
        "requiredClaims": &claims[..1],
    }}});
    let took = |document: &Value| {
        let began = Instant::now();
        let said = tried(&space, document);
        (began.elapsed(), said)
    };
    let (usual, said) = took(&smallest("usual"));
    said.unwrap();
    let (longest, said) = took(&largest);
    said.unwrap();
    println!("the smallest took {usual:?}, the largest {longest:?}");
    assert!(longest < usual + MAX, "{longest:?}, the smallest {usual:?}");
    // And each rule at its worst: everything in it is wrong.
    for scheduler in largest["spec"]["schedulers"].as_array_mut().unwrap() {
        scheduler["modelName"] = json!("the same");
    }
    let (longest, said) = took(&largest);
    assert!(said.unwrap_err().contains("modelName must be unique"));
    assert!(longest < usual + MAX, "{longest:?}, the smallest {usual:?}");
}
