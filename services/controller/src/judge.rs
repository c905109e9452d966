//! Which configs are to be in force, and what is wrong with the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    Source, Violations,
    cluster::{Object, ObjectKey, Objects},
    document::InferenceGatewayConfigSpec,
    names,
};
use serde_json::{Value, json};

use crate::wanted::Settings;

/// A config and what became of it.
#[derive(Clone, Debug)]
pub struct Judged {
    pub object: Arc<Object<Value>>,
    pub verdict: Verdict,
}

/// What became of a config.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is to be in force.
    InForce(Arc<InferenceGatewayConfigSpec>),
    /// It is not, and what was made for an earlier form of it stays as it is.
    Refused { reason: &'static str, message: String },
}

/// Judges configs; remembers what it has read.
#[derive(Debug, Default)]
pub struct Judge {
    /// By uid: the generation, and the spec or what is wrong with it.
    read: BTreeMap<String, (i64, Result<Arc<InferenceGatewayConfigSpec>, String>)>,
}

impl Judge {
    /// Every config that is there to stay.
    pub fn judge(&mut self, objects: &Objects, settings: &Settings) -> BTreeMap<ObjectKey, Judged> {
        let staying: Vec<_> = objects.configs.iter().filter(|(_, config)| !config.metadata.is_going()).collect();
        let uids: BTreeSet<&str> = staying.iter().map(|(_, config)| config.metadata.uid.as_str()).collect();
        self.read.retain(|uid, _| uids.contains(uid.as_str()));
        let mut judged = BTreeMap::new();
        for (key, config) in staying {
            let verdict = match conflict(objects, key, config, settings) {
                Some(message) => Verdict::Refused { reason: "NameConflict", message },
                None => match self.spec(config) {
                    Ok(spec) => Verdict::InForce(spec),
                    Err(message) => Verdict::Refused { reason: "Invalid", message },
                },
            };
            judged.insert(key.clone(), Judged { object: Arc::clone(config), verdict });
        }
        judged
    }

    fn spec(&mut self, config: &Object<Value>) -> Result<Arc<InferenceGatewayConfigSpec>, String> {
        let metadata = &config.metadata;
        match self.read.get(&metadata.uid) {
            Some((generation, read)) if *generation == metadata.generation => read.clone(),
            Some(_) | None => {
                let read = read(config).map(Arc::new);
                self.read.insert(metadata.uid.clone(), (metadata.generation, read.clone()));
                read
            }
        }
    }
}

/// The spec, or everything that is wrong with it: what the API server's rules let through, and what was stored before
/// they were there.
fn read(config: &Object<Value>) -> Result<InferenceGatewayConfigSpec, String> {
    let metadata = &config.metadata;
    let document = json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::CONFIG_VERSION),
        "kind": "InferenceGatewayConfig",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "spec": config.spec,
    });
    // JSON is YAML. Without a name, since every message of a status is about this object.
    let source = Source { name: String::new(), text: document.to_string() };
    let messages = |violations: Violations| {
        violations.0.into_iter().map(|it| format!("{}: {}", it.path, it.message)).collect::<Vec<_>>().join("; ")
    };
    api::load_in_cluster(&[source]).map_err(messages)?;
    serde_json::from_value(config.spec.clone()).map_err(|error| format!("spec: {error}"))
}

/// Whose name this config's Gateway would take. Of two configs the older one keeps it.
fn conflict(objects: &Objects, key: &ObjectKey, config: &Object<Value>, settings: &Settings) -> Option<String> {
    let age = |key: &ObjectKey, it: &Object<Value>| (it.metadata.creation_timestamp.clone(), key.namespace.clone());
    let older = objects.configs.iter().find(|(other, it)| {
        other.name == key.name && *other != key && !it.metadata.is_going() && age(other, it) < age(key, config)
    });
    if let Some((other, _)) = older {
        return Some(format!(
            "the config {other} has the same name and is older, and both would make the Gateway {}/{}",
            settings.system_namespace, key.name
        ));
    }
    let gateway = objects.gateways.get(&ObjectKey::new(&settings.system_namespace, &key.name))?;
    let is_ours = gateway.metadata.label(names::CONFIG_NAME_LABEL).is_some();
    (!is_ours).then(|| format!("the Gateway {} was made by somebody else", gateway.key()))
}
