//! Objects of a cluster to a configuration.

use serde_json::{Value as Json, json};

use super::load_in_cluster;
use crate::{
    Loaded, Source, Violations,
    cluster::{Kept, ObjectKey, Objects},
    document::Kind,
    names::ADAPTERS_LABEL,
    rules::secrets::REFERENCES,
    violation::Violation,
};

/// Reads the `InferenceGatewayConfig` at `config` with everything in its namespace that counts for it: ConfigMaps of
/// adapters, the Secrets that it names, objectives and rewrites.
///
/// # Errors
/// As [`load_in_cluster`], or that there is no such object.
pub fn load_from_cluster(objects: &Objects, config: &ObjectKey) -> Result<Loaded, Violations> {
    let Some(object) = objects.configs.get(config) else {
        let message = "there is no such InferenceGatewayConfig".to_owned();
        let source = source_name(Kind::InferenceGatewayConfig, config);
        return Err(Violations(vec![Violation { source, line: None, path: String::new(), message }]));
    };
    let mut sources = vec![document(Kind::InferenceGatewayConfig, config, &**object)];
    for name in REFERENCES.iter().filter_map(|(path, _)| named(&object.spec, path)) {
        let key = ObjectKey::new(&config.namespace, name);
        if let Some(secret) = objects.secrets.get(&key) {
            sources.push(document(Kind::Secret, &key, &**secret));
        }
    }
    for (key, map) in inside(&objects.config_maps, config) {
        if map.metadata.label(ADAPTERS_LABEL) == Some("true") && !map.metadata.is_going() {
            sources.push(document(Kind::ConfigMap, key, &**map));
        }
    }
    for (kind, kept) in
        [(Kind::InferenceObjective, &objects.objectives), (Kind::InferenceModelRewrite, &objects.rewrites)]
    {
        let there = inside(kept, config).filter(|(_, object)| !object.metadata.is_going());
        sources.extend(there.map(|(key, object)| document(kind, key, &**object)));
    }
    load_in_cluster(&sources)
}

fn inside<'a, T>(
    kept: &'a Kept<T>,
    config: &'a ObjectKey,
) -> impl Iterator<Item = (&'a ObjectKey, &'a std::sync::Arc<T>)> {
    kept.iter().filter(|(key, _)| key.namespace == config.namespace)
}

fn named<'a>(spec: &'a Json, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(spec, |value, step| value.get(step))?.as_str()
}

/// An object as a document: snapshots hold neither its version nor its kind, the place says both.
fn document<T: serde::Serialize>(kind: Kind, key: &ObjectKey, object: &T) -> Source {
    let mut tree = serde_json::to_value(object).unwrap_or_else(|error| json!({ "unreadable": error.to_string() }));
    if let Json::Object(fields) = &mut tree {
        fields.insert("apiVersion".into(), kind.api_versions()[0].into());
        fields.insert("kind".into(), kind.name().into());
        // Written by controllers, and looked at by nobody here.
        fields.remove("status");
    }
    Source { name: source_name(kind, key), text: tree.to_string() }
}

fn source_name(kind: Kind, key: &ObjectKey) -> String {
    format!("{} {key}", kind.name())
}
