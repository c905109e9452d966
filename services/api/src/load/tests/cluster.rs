//! Objects as a cluster has them.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::{
    Violations,
    cluster::{Object, ObjectKey, Objects},
    load_from_cluster,
};

fn object<T: serde::de::DeserializeOwned>(tree: Json) -> Arc<T> {
    Arc::new(serde_json::from_value(tree).unwrap())
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ml", name)
}

/// As an API server tells it: with what it fills in and what it keeps for itself.
fn config_object(spec: Json) -> Arc<Object<Json>> {
    object(json!({
        "metadata": {"name": "chat", "namespace": "ml", "uid": "3d1b3c1e", "generation": 3, "resourceVersion": "12",
            "creationTimestamp": "2026-11-30T21:00:00Z",
            "managedFields": [{"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {}}}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        "spec": spec,
        "status": {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn spec() -> Json {
    json!({
        "bbr": {"enabled": true, "replicas": 3, "defaultBackend": {"name": "somewhere", "port": 8000}},
        "podDefaults": {"labels": {"team": "a"}},
        "schedulers": [{"name": "llama", "modelName": "llama", "modelSelector": {"matchLabels": {"app": "llama"}},
            "targetPort": 8000, "replicas": 2}],
    })
}

fn adapters(name: &str, base: &str, list: &str) -> Json {
    let labels = json!({"inference.networking.k8s.io/bbr-managed": "true"});
    json!({"metadata": {"name": name, "namespace": "ml", "labels": labels}, "data": {"baseModel": base, "adapters": list}})
}

#[test]
fn objects_are_read_as_the_api_server_tells_them() {
    let mut objects = Objects::default();
    objects.configs.insert(key("chat"), config_object(spec()));
    objects.config_maps.insert(key("llama"), object(adapters("llama", "llama", "- sql\n- chat\n")));
    objects.config_maps.insert(ObjectKey::new("other", "llama"), object(adapters("llama", "llama", "- elsewhere\n")));
    let objective = json!({"metadata": {"name": "gold", "namespace": "ml"},
        "spec": {"priority": 1, "poolRef": {"name": "llama"}}, "status": {"conditions": []}});
    objects.objectives.insert(key("gold"), object(objective));
    let loaded = load_from_cluster(&objects, &key("chat")).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(loaded.notices, Vec::<String>::new());
    assert_eq!((loaded.config.name.as_str(), loaded.config.namespace.as_str()), ("chat", "ml"));
    assert_eq!(loaded.config.bbr.default_backend.as_deref(), Some("somewhere"));
    assert_eq!(loaded.config.schedulers[0].lora_adapters, ["chat", "sql"]);
    assert_eq!(loaded.config.objectives.len(), 1);
}

#[test]
fn what_others_write_beside_a_configuration_does_not_stop_it() {
    let mut objects = Objects::default();
    objects.configs.insert(key("chat"), config_object(spec()));
    objects.config_maps.insert(key("a"), object(adapters("a", "another", "- x\n")));
    objects.config_maps.insert(key("b"), object(adapters("b", "llama", "{ no list")));
    objects.config_maps.insert(key("c"), object(adapters("c", "llama", "- good\n- llama\n")));
    objects
        .objectives
        .insert(key("odd"), object(json!({"metadata": {"name": "odd", "namespace": "ml"}, "spec": {"new": 1}})));
    let loaded = load_from_cluster(&objects, &key("chat")).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert_eq!(loaded.config.schedulers[0].lora_adapters, ["good"]);
    assert_eq!(loaded.config.objectives, []);
    assert!(
        loaded.notices[0].starts_with("ConfigMap ml/a:1: data.baseModel: no scheduler has the modelName \"another\"")
    );
    let told = Violations(loaded.left_out).to_string();
    for expected in [
        "ConfigMap ml/b:1: data.adapters: must be a YAML list",
        "ConfigMap ml/c:1: data.adapters[1]: adapter \"llama\" is called like a model",
        "InferenceObjective ml/odd:1: spec.new: unknown field \"spec.new\"",
    ] {
        assert!(told.contains(expected), "{expected} is not in:\n{told}");
    }
}

#[test]
fn a_bad_configuration_is_refused_with_its_name() {
    let mut objects = Objects::default();
    assert_eq!(
        load_from_cluster(&objects, &key("chat")).unwrap_err().to_string(),
        "InferenceGatewayConfig ml/chat: there is no such InferenceGatewayConfig"
    );
    let mut bad = spec();
    bad["schedulers"][0]["targetPort"] = json!(0);
    objects.configs.insert(key("chat"), config_object(bad));
    assert_eq!(
        load_from_cluster(&objects, &key("chat")).unwrap_err().to_string(),
        "InferenceGatewayConfig ml/chat:1: spec.schedulers[0].targetPort: must be at least 1, not 0"
    );
}
