//! Whether every object that one definition admits is admitted by another.

use serde_json::{Value as Json, json};

/// What the newer definition refuses, loses or changes of what the older one admits.
pub(super) fn breaches(old: &Json, new: &Json) -> Vec<String> {
    let mut found = Vec::new();
    for version in old["spec"]["versions"].as_array().into_iter().flatten() {
        let versions = new["spec"]["versions"].as_array().into_iter().flatten();
        match versions.into_iter().find(|other| other["name"] == version["name"]) {
            Some(other) if other["served"] == version["served"] => {
                schema(&version["schema"]["openAPIV3Schema"], &other["schema"]["openAPIV3Schema"], "", &mut found);
            }
            // Objects are stored under it: an API server refuses a definition that lacks it.
            Some(_) | None => found.push(format!("version {} is gone", version["name"])),
        }
    }
    for names in ["group", "scope"] {
        if old["spec"][names] != new["spec"][names] {
            found.push(format!("{names} has changed"));
        }
    }
    if old["spec"]["names"]["plural"] != new["spec"]["names"]["plural"] {
        found.push("the plural has changed".into());
    }
    found
}

fn schema(old: &Json, new: &Json, path: &str, found: &mut Vec<String>) {
    for keyword in ["type", "x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"] {
        if old[keyword] != new[keyword] {
            found.push(format!("{path}: {keyword} has changed"));
        }
    }
    // A default that changes, changes what stored objects mean; the pattern that replaces another may be narrower.
    for keyword in ["default", "pattern"] {
        if !new[keyword].is_null() && old[keyword] != new[keyword] && (keyword != "default" || !old[keyword].is_null())
        {
            found.push(format!("{path}: {keyword} has changed"));
        }
    }
    for keyword in ["minimum", "minLength", "minItems", "minProperties"] {
        if new[keyword].as_f64() > old[keyword].as_f64() {
            found.push(format!("{path}: {keyword} has grown"));
        }
    }
    for keyword in ["maximum", "maxLength", "maxItems", "maxProperties"] {
        let narrower = new[keyword].as_f64().is_some_and(|now| old[keyword].as_f64().is_none_or(|then| now < then));
        if narrower {
            found.push(format!("{path}: {keyword} has shrunk"));
        }
    }
    if new["exclusiveMinimum"] == true && old["exclusiveMinimum"] != true && new["minimum"] == old["minimum"] {
        found.push(format!("{path}: the minimum itself is no longer allowed"));
    }
    members(old, new, path, found);
    inside(old, new, path, found);
}

fn members(old: &Json, new: &Json, path: &str, found: &mut Vec<String>) {
    let has = |list: &Json, item: &Json| list.as_array().is_some_and(|list| list.contains(item));
    let empty = Vec::new();
    let items = |list: &Json| list.as_array().unwrap_or(&empty).clone();
    for name in items(&new["required"]).iter().filter(|name| !has(&old["required"], name)) {
        found.push(format!("{path}: {name} has become required"));
    }
    if new["enum"].is_array() {
        for choice in items(&old["enum"]).iter().filter(|choice| !has(&new["enum"], choice)) {
            found.push(format!("{path}: {choice} is no choice any more"));
        }
    }
    let texts = |schema: &Json| {
        let rules = items(&schema["x-kubernetes-validations"]);
        rules.iter().map(|rule| rule["rule"].clone()).collect::<Vec<_>>()
    };
    let before = texts(old);
    for rule in texts(new).iter().filter(|rule| !before.contains(rule)) {
        found.push(format!("{path}: a rule is new: {rule}"));
    }
}

fn inside(old: &Json, new: &Json, path: &str, found: &mut Vec<String>) {
    for (name, property) in old["properties"].as_object().into_iter().flatten() {
        match new["properties"].get(name) {
            Some(other) => schema(property, other, &format!("{path}.{name}"), found),
            None if new["x-kubernetes-preserve-unknown-fields"] == true => {}
            None => found.push(format!("{path}.{name} is gone: its values would be dropped")),
        }
    }
    for (keyword, sign) in [("items", "[]"), ("additionalProperties", "{}")] {
        if old[keyword].is_object() {
            schema(&old[keyword], &new[keyword], &format!("{path}{sign}"), found);
        }
    }
}

/// Each way to narrow a definition is found, so that a test which finds none means something.
#[test]
fn every_way_to_narrow_a_definition_is_found() {
    let old = super::definition();
    assert_eq!(breaches(&old, &old), Vec::<String>::new());
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let scheduler = format!("{spec}/properties/schedulers/items");
    for (at, keyword, value) in [
        (format!("{spec}/properties/schedulers"), "maxItems", json!(99)),
        (format!("{spec}/properties/schedulers"), "minItems", json!(2)),
        (spec.to_owned(), "required", json!(["bbr", "schedulers", "tls"])),
        (format!("{scheduler}/properties/engineType"), "enum", json!(["vllm"])),
        (format!("{scheduler}/properties/targetPort"), "maximum", json!(9999)),
        (format!("{scheduler}/properties/targetPort"), "default", json!(8001)),
        (format!("{scheduler}/properties/targetPort"), "type", json!("string")),
        (format!("{scheduler}/properties/modelName"), "pattern", json!("^a$")),
        (format!("{scheduler}/properties/modelName"), "maxLength", json!(63)),
        (scheduler.clone(), "x-kubernetes-validations", json!([{"rule": "false", "message": "no"}])),
        (format!("{spec}/properties/bbr"), "properties", json!({"enabled": {"type": "boolean"}})),
        ("/spec/versions/0".to_owned(), "name", json!("v1beta1")),
        ("/spec/versions/0".to_owned(), "served", json!(false)),
        ("/spec".to_owned(), "scope", json!("Cluster")),
    ] {
        let mut new = old.clone();
        new.pointer_mut(&at).unwrap()[keyword] = value;
        assert!(!breaches(&old, &new).is_empty(), "{at} {keyword}");
        assert_eq!(breaches(&new, &new), Vec::<String>::new());
    }
}
