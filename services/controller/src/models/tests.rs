use serde_json::json;

use super::*;

fn object(name: &str, gateway: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "team", "uid": format!("u-{name}")},
        "spec": {
            "modelName": format!("org/{name}"), "inferenceGateway": gateway,
            "worker": {"modelInvocationPort": {"containerPort": 8081}},
        },
    })
}

fn model(name: &str) -> Model {
    Model::read(ModelKind::InferenceEndpointConfig, &object(name, json!({"enabled": true, "name": "shared"})))
}

fn write(merged: Merged) -> Value {
    match merged {
        Merged::Write(patch) => patch,
        Merged::Same | Merged::Delete => panic!("{merged:?}"),
    }
}

#[test]
fn a_model_without_a_gateways_name_gets_one_of_its_own_that_stays() {
    let model = Model::read(ModelKind::InferenceEndpointConfig, &object("a", json!({"enabled": true})));
    assert_eq!(model.wants_in(), Some("inf-igw-u-a"));
    let off = Model::read(ModelKind::InferenceEndpointConfig, &object("a", json!({"enabled": false, "name": "x"})));
    assert_eq!(off.wants_in(), None);
}

#[test]
fn the_second_model_turns_body_based_routing_on() {
    let (a, b) = (model("a"), model("b"));
    let first = write(merged(None, &BTreeMap::from([("a", &a)])));
    assert_eq!(first["spec"]["bbr"], json!({"enabled": false}));
    assert_eq!(
        first["spec"]["schedulers"],
        json!([{
            "name": "a", "modelName": "org/a", "targetPort": 8081, "scheduler": "llm-d",
            "modelSelector": {"matchLabels": {"app": "a"}},
        }])
    );
    let second = write(merged(Some(&first), &BTreeMap::from([("a", &a), ("b", &b)])));
    assert_eq!(second["spec"]["bbr"], json!({"enabled": true}));
    assert_eq!(second["spec"]["schedulers"].as_array().unwrap().len(), 2);
}

#[test]
fn what_customers_set_stays_and_what_they_wrote_is_not_removed() {
    let a = model("a");
    let mut config = write(merged(None, &BTreeMap::from([("a", &a)])));
    config["spec"]["schedulers"][0]["scheduler"] = json!("epp");
    config["spec"]["schedulers"][0]["weights"] = json!({"prefix": 0});
    assert_eq!(merged(Some(&config), &BTreeMap::from([("a", &a)])), Merged::Same);
    let mut moved = a.clone();
    moved.port = 9000;
    let patch = write(merged(Some(&config), &BTreeMap::from([("a", &moved)])));
    let entry = &patch["spec"]["schedulers"][0];
    assert_eq!(
        (&entry["scheduler"], &entry["weights"]["prefix"], &entry["targetPort"]),
        (&json!("epp"), &json!(0), &json!(9000))
    );
    // An entry of a person's own beside it outlives the model's.
    let own = json!({"name": "mine", "modelName": "m"});
    config["spec"]["schedulers"].as_array_mut().unwrap().push(own.clone());
    let patch = write(merged(Some(&config), &BTreeMap::new()));
    assert_eq!(patch["spec"]["schedulers"], json!([own]));
}

#[test]
fn a_config_that_models_made_goes_with_the_last_of_them() {
    let a = model("a");
    let config = write(merged(None, &BTreeMap::from([("a", &a)])));
    assert_eq!(merged(Some(&config), &BTreeMap::new()), Merged::Delete);
    let mut a_persons = config.clone();
    a_persons["metadata"].as_object_mut().unwrap().remove("labels");
    assert_eq!(merged(Some(&a_persons), &BTreeMap::new()), Merged::Same);
}

#[test]
fn both_kinds_of_routing_at_once_are_refused() {
    let mut object = object("a", json!({"enabled": true, "name": "shared"}));
    object["spec"]["intelligentRoutingSpec"] = json!({"enabled": true});
    let model = Model::read(ModelKind::InferenceEndpointConfig, &object);
    assert_eq!(model.wants_in(), None);
    let state = state("team", "a", &model, &api::cluster::Objects::default());
    assert!(matches!(&state, State::Failed(why) if why.contains("intelligentRoutingSpec")));
}
