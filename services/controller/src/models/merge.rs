//! A config with the entries of its models.

use std::collections::{BTreeMap, BTreeSet};

use api::names;
use serde_json::{Value, json};

use super::Model;

/// Annotation of a config: names of the entries that came from models, comma-separated.
const FROM_MODELS: &str = "inference.sagemaker.aws.amazon.com/from-models";

/// What a config becomes.
#[derive(Clone, Debug, PartialEq)]
pub enum Merged {
    /// It is as it should be.
    Same,
    /// It is made, or changed to this. As a merge patch: what is not in it stays.
    Write(Value),
    /// Nothing is left in it, and no person made it.
    Delete,
}

/// `config` (`None`: there is none) with exactly the entries of `models` besides those that people wrote.
#[must_use]
pub fn merged(config: Option<&Value>, models: &BTreeMap<&str, &Model>) -> Merged {
    let Some(config) = config else {
        return if models.is_empty() { Merged::Same } else { Merged::Write(fresh(models)) };
    };
    let before = entries(config);
    let known = from_models(config);
    let left = before.iter().filter(|entry| {
        let name = entry["name"].as_str().unwrap_or_default();
        models.contains_key(name) || !known.contains(name)
    });
    let mut after: Vec<Value> = left.cloned().collect();
    for (name, model) in models {
        match after.iter_mut().find(|entry| entry["name"] == **name) {
            Some(entry) => fill(entry, name, model),
            None => after.push(entry(name, model)),
        }
    }
    if after.is_empty() {
        let by_us = crate::picture::label(config, names::MANAGED_BY_LABEL) == names::MANAGED_BY;
        // A config cannot be empty. One that a person made is theirs to delete.
        return if by_us { Merged::Delete } else { Merged::Same };
    }
    let from: BTreeSet<&str> = models.keys().copied().collect();
    let enabled = config.pointer("/spec/bbr/enabled").and_then(Value::as_bool) == Some(true);
    let must_enable = after.len() > 1 && !enabled;
    if after == before && from == known && !must_enable {
        return Merged::Same;
    }
    let mut patch = json!({
        "metadata": {"annotations": {FROM_MODELS: joined(&from)}},
        "spec": {"schedulers": after},
    });
    if must_enable {
        patch["spec"]["bbr"] = json!({"enabled": true});
    }
    Merged::Write(patch)
}

fn fresh(models: &BTreeMap<&str, &Model>) -> Value {
    let entries: Vec<Value> = models.iter().map(|(name, model)| entry(name, model)).collect();
    json!({
        "metadata": {
            "labels": {names::MANAGED_BY_LABEL: names::MANAGED_BY},
            "annotations": {FROM_MODELS: joined(&models.keys().copied().collect())},
        },
        "spec": {"bbr": {"enabled": entries.len() > 1}, "schedulers": entries},
    })
}

fn entry(name: &str, model: &Model) -> Value {
    let mut entry = json!({"scheduler": "llm-d"});
    fill(&mut entry, name, model);
    entry
}

/// What the model knows better than anybody.
fn fill(entry: &mut Value, name: &str, model: &Model) {
    if let Some(entry) = entry.as_object_mut() {
        entry.insert("name".into(), json!(name));
        entry.insert("modelName".into(), json!(model.model_name));
        entry.insert("targetPort".into(), json!(model.port));
        entry.insert("modelSelector".into(), json!({"matchLabels": {"app": name}}));
    }
}

fn entries(config: &Value) -> Vec<Value> {
    config.pointer("/spec/schedulers").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn from_models(config: &Value) -> BTreeSet<&str> {
    let annotations = config.pointer("/metadata/annotations");
    let names = annotations.and_then(|all| all.get(FROM_MODELS)).and_then(Value::as_str).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).collect()
}

fn joined(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(",")
}

/// Whether a config has entries of models.
#[must_use]
pub fn comes_from_models(annotations: &BTreeMap<String, String>) -> bool {
    annotations.get(FROM_MODELS).is_some_and(|names| !names.is_empty())
}
