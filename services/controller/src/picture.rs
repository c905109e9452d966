//! What is known of the cluster at one moment: what decides, and what of it is ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::cluster::{Kept, ObjectKey, Objects};
use serde_json::Value;

use crate::{
    kind::{Id, Kind},
    models::{Model, ModelKey},
    seen::Seen,
};

/// Objects that carry our label, whole but for what nobody reads.
pub type Owned = BTreeMap<Id, Arc<Seen>>;

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// What decides where requests go.
    pub objects: Arc<Objects>,
    /// What the controller has made.
    pub owned: Owned,
    /// Deployments of the system namespace whose replicas an autoscaler sets.
    pub autoscaled: BTreeSet<String>,
    /// Models of the inference operator; `None` while none of their kinds was ever listed.
    pub models: Option<BTreeMap<ModelKey, Model>>,
    /// Kinds that this cluster does not have: their definitions are not installed.
    pub absent: BTreeSet<Kind>,
}

impl Picture {
    /// One of our objects.
    #[must_use]
    pub fn ours(&self, id: &Id) -> Option<&Seen> {
        self.owned.get(id).map(Arc::as_ref)
    }
}

/// Those of one namespace.
pub fn inside<'a, T>(all: &'a Kept<T>, namespace: &str) -> impl Iterator<Item = &'a Arc<T>> {
    let from = ObjectKey::new(namespace, "");
    all.range(from..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, it)| it)
}

/// Takes away what nobody reads, which is more than half of most objects.
#[must_use]
pub fn trimmed(kind: Kind, mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let (Some(object), false) = (object.as_object_mut(), kind.has_telling_status()) {
        object.remove("status");
    }
    object
}

/// A text inside an object; empty where there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number inside an object; 0 where there is none.
#[must_use]
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// A label's value; empty where there is none.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object.pointer("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str).unwrap_or_default()
}
