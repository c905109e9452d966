//! What the definition must be for an API server to take it, for clients to apply it, and for objects to outlive it.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::*;
use crate::{Source, load_in_cluster};

mod loosens;

/// The definition of the last release, and of those before it that clusters may come from.
const RELEASED: [(&str, &str); 1] =
    [("0.1.0", include_str!("../../fixtures/released/inferencegatewayconfigs-0.1.0.yaml"))];

/// The largest that a client may put into an annotation is 256 KiB; Helm keeps all definitions of a release together.
const BYTES_MAX: usize = 200_000;

const ADMISSION: &str = include_str!("../../fixtures/admission.yaml");

fn schema_of(definition: &Json) -> &Json {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Calls `on` with every schema below this one, and the way to it.
fn every_schema(schema: &Json, path: &str, on: &mut dyn FnMut(&str, &Json)) {
    on(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        every_schema(property, &format!("{path}.{name}"), on);
    }
    for (keyword, sign) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[keyword].is_object() {
            every_schema(&schema[keyword], &format!("{path}{sign}"), on);
        }
    }
}

#[test]
fn a_client_can_apply_it() {
    let bytes = definition().to_string().len();
    assert!(bytes < BYTES_MAX, "{bytes}");
    assert_eq!(definition()["metadata"]["name"], "inferencegatewayconfigs.inference.sagemaker.aws.amazon.com");
}

/// Optional choices must not become schemas that a server refuses: no `null` type, no `oneOf`, one type each.
#[test]
fn h02_every_schema_is_structural() {
    const KEYWORDS: [&str; 22] = [
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-validations",
        "x-kubernetes-preserve-unknown-fields",
    ];
    const MORE: [&str; 3] = ["x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-list-type"];
    every_schema(schema_of(&definition()), "", &mut |path, schema| {
        for keyword in schema.as_object().unwrap().keys() {
            assert!(KEYWORDS.contains(&keyword.as_str()) || MORE.contains(&keyword.as_str()), "{path}: {keyword}");
        }
        let is_quantity = schema["x-kubernetes-int-or-string"] == true;
        assert!(schema["type"].is_string() != is_quantity, "{path}");
        if let Some(wanted) = schema["required"].as_array() {
            assert!(wanted.iter().all(|name| schema["properties"][name.as_str().unwrap()].is_object()), "{path}");
        }
    });
}

/// A rule's cost is reckoned with the longest value that the schema allows.
#[test]
fn h08_every_rule_stands_on_bounded_values() {
    let mut rules = 0;
    every_schema(&schema_of(&definition())["properties"]["spec"], "spec", &mut |path, schema| {
        let Some(found) = schema["x-kubernetes-validations"].as_array() else { return };
        rules += found.len();
        every_schema(schema, path, &mut |inner, schema| {
            let embedded = ["podDefaults", ".env", ".envFrom"].iter().any(|name| inner.contains(name));
            let bounded = match schema["type"].as_str() {
                Some("string") => schema["maxLength"].is_u64() || schema["enum"].is_array(),
                Some("array") => schema["maxItems"].is_u64(),
                Some("object") => schema["properties"].is_object() || schema["maxProperties"].is_u64(),
                Some(_) | None => true,
            };
            assert!(bounded || embedded, "{path} has a rule, and {inner} is unbounded");
        });
        for rule in found {
            let says = rule["message"].as_str().or(rule["messageExpression"].as_str()).unwrap();
            assert!(!says.is_empty() && says.len() < 2048 && !rule["rule"].as_str().unwrap().contains('\n'), "{rule}");
        }
    });
    assert!(rules > 25, "{rules}");
}

/// A rule whose place is misspelt would never be tried.
#[test]
fn every_rule_has_its_place() {
    let mut found = BTreeSet::new();
    every_schema(schema_of(&definition()), "", &mut |_, schema| {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            found.insert(rule["rule"].as_str().unwrap().to_owned());
        }
    });
    for rule in rules::all() {
        assert!(found.contains(rule), "{rule} stands nowhere");
    }
}

/// What is laid over something else field by field must not have defaults filled in, nor what excludes something else.
#[test]
fn nothing_is_filled_in_that_would_count_as_said() {
    every_schema(schema_of(&definition()), "", &mut |path, schema| {
        if path.contains("schedulers[].flowControl") {
            assert!(schema.get("default").is_none(), "{path}");
        }
        assert!(!schema["default"].is_object() && !schema["default"].is_array(), "{path}");
    });
}

/// A case of the list of what is admitted, as a whole document.
fn documents() -> Vec<(Json, Json)> {
    let base = json!({"bbr": {"enabled": true}, "schedulers": [
        {"name": "llama", "modelName": "llama", "modelSelector": {"matchLabels": {"app": "llama"}}}]});
    let cases =
        yaml_serde::Deserializer::from_str(ADMISSION).map(|case| serde::Deserialize::deserialize(case).unwrap());
    cases
        .map(|case: Json| {
            let mut spec = base.clone();
            merge(&mut spec, &case["spec"]);
            if let Some(first) = spec["schedulers"].get_mut(0) {
                merge(first, &case["scheduler"]);
            }
            let document = json!({"apiVersion": Kind::InferenceGatewayConfig.api_versions()[0],
                "kind": "InferenceGatewayConfig", "metadata": {"name": "chat", "namespace": "default"}, "spec": spec});
            (case, document)
        })
        .collect()
}

fn merge(into: &mut Json, from: &Json) {
    match (into, from) {
        (_, Json::Null) => {}
        (Json::Object(into), Json::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.insert(key.clone(), Json::Null);
                } else {
                    merge(into.entry(key.clone()).or_insert(Json::Null), value);
                }
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The other half, an API server's verdict on the same list, is among the tests of the cluster.
#[test]
fn files_are_refused_for_what_a_cluster_refuses_and_with_the_same_words() {
    let cases = documents();
    assert!(cases.len() > 70, "{}", cases.len());
    for (case, document) in cases {
        let source = Source { name: "chat".into(), text: document.to_string() };
        let found = load_in_cluster(&[source]).err().map(|violations| violations.0).unwrap_or_default();
        let found: Vec<String> =
            found.iter().map(ToString::to_string).filter(|violation| !violation.contains("not enforced yet")).collect();
        match case["both"].as_str().or(case["file"].as_str()) {
            Some(words) => assert!(found.iter().any(|violation| violation.contains(words)), "{case}: {found:?}"),
            None => assert_eq!(found, Vec::<String>::new(), "{case}"),
        }
    }
}

#[test]
fn h09_what_an_older_release_admitted_is_admitted_still() {
    for (release, text) in RELEASED {
        let old: Json = yaml_serde::from_str(text).unwrap();
        let broken = loosens::breaches(&old, &definition());
        assert_eq!(broken, Vec::<String>::new(), "since {release}");
    }
}
