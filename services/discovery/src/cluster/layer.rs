//! What one watch knows: objects of one kind, reduced to what decides as they are read.

use std::{collections::BTreeMap, sync::Arc};

use api::cluster::{ConfigMap, EndpointSlice, Kept, Namespace, Object, ObjectKey, ObjectMeta, Objects, Pod, Secret};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{Kind, Range};

/// What `kubectl apply` notes of each object: a second copy of it that decides nothing.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct Layer {
    kind: Kind,
    /// Only the field of `kind` is used.
    objects: Objects,
    /// Objects that are there and cannot be read, and why.
    unreadable: BTreeMap<ObjectKey, String>,
}

/// Bytes that are no object at all.
#[derive(Debug, thiserror::Error)]
#[error("no object: {0}")]
pub(super) struct NoObject(serde_json::Error);

/// Calls a function with the field of a kind of each of some `Objects`.
macro_rules! of_kind {
    ($kind:expr, $call:ident($($objects:expr),+) $(, $more:expr)*) => {
        match $kind {
            Kind::GatewayClass => $call($(&mut $objects.gateway_classes),+ $(, $more)*),
            Kind::Gateway => $call($(&mut $objects.gateways),+ $(, $more)*),
            Kind::HttpRoute => $call($(&mut $objects.routes),+ $(, $more)*),
            Kind::ReferenceGrant => $call($(&mut $objects.grants),+ $(, $more)*),
            Kind::InferencePool => $call($(&mut $objects.pools),+ $(, $more)*),
            Kind::Namespace => $call($(&mut $objects.namespaces),+ $(, $more)*),
            Kind::Service => $call($(&mut $objects.services),+ $(, $more)*),
            Kind::EndpointSlice => $call($(&mut $objects.slices),+ $(, $more)*),
            Kind::Pod => $call($(&mut $objects.pods),+ $(, $more)*),
            Kind::Secret => $call($(&mut $objects.secrets),+ $(, $more)*),
            Kind::ConfigMap => $call($(&mut $objects.config_maps),+ $(, $more)*),
            Kind::Config => $call($(&mut $objects.configs),+ $(, $more)*),
            Kind::Objective => $call($(&mut $objects.objectives),+ $(, $more)*),
            Kind::Rewrite => $call($(&mut $objects.rewrites),+ $(, $more)*),
        }
    };
}

impl Layer {
    pub(super) fn empty(kind: Kind) -> Self {
        Self { kind, objects: Objects::default(), unreadable: BTreeMap::new() }
    }

    /// What another snapshot knows of a range.
    pub(super) fn seeded(kind: Kind, range: &Range, from: &Objects) -> Self {
        let mut layer = Self::empty(kind);
        let mut from = from.clone();
        of_kind!(kind, seed(layer.objects, from), range);
        layer
    }

    /// Takes an object in as it now is. Returns whether anything changed. One that cannot be read is left out, and what it
    /// was before is no longer true.
    ///
    /// # Errors
    /// When it is no object at all.
    pub(super) fn put(&mut self, raw: &RawValue) -> Result<bool, NoObject> {
        match of_kind!(self.kind, put(self.objects), raw) {
            Ok(changed) => {
                if !self.unreadable.is_empty() {
                    self.unreadable.remove(&key(raw)?);
                }
                Ok(changed)
            }
            Err(error) => {
                let key = key(raw)?;
                let changed = of_kind!(self.kind, remove(self.objects), &key);
                self.unreadable.insert(key, error.to_string());
                Ok(changed)
            }
        }
    }

    /// Takes an object out. Returns whether it was there.
    ///
    /// # Errors
    /// When it is no object at all.
    pub(super) fn remove(&mut self, raw: &RawValue) -> Result<bool, NoObject> {
        let key = key(raw)?;
        self.unreadable.remove(&key);
        Ok(of_kind!(self.kind, remove(self.objects), &key))
    }

    /// Becomes `new`, keeping the very objects that are the same. Returns whether anything changed.
    pub(super) fn become_listed(&mut self, mut new: Self) -> bool {
        std::mem::swap(&mut self.unreadable, &mut new.unreadable);
        self.tell_unreadable(&new.unreadable);
        of_kind!(self.kind, replace(self.objects, new.objects))
    }

    /// Adds its objects to those that are there already; where both have one, the one that is there stays.
    pub(super) fn add_to(&mut self, objects: &mut Objects) {
        of_kind!(self.kind, merge(self.objects, objects));
    }

    /// Says of each object once that it cannot be read.
    pub(super) fn tell_unreadable(&self, told: &BTreeMap<ObjectKey, String>) {
        for (key, error) in self.unreadable.iter().filter(|(key, _)| !told.contains_key(key)) {
            tracing::warn!(kind = ?self.kind, object = %key, error, "an object cannot be read: it is left out");
        }
    }

    pub(super) fn unreadable(&self) -> &BTreeMap<ObjectKey, String> {
        &self.unreadable
    }

    pub(super) fn len(&mut self) -> usize {
        of_kind!(self.kind, len(self.objects))
    }
}

fn seed<T: Described>(into: &mut Kept<T>, from: &mut Kept<T>, range: &Range) {
    *into = std::mem::take(from);
    into.retain(|_, object| range.holds(object.metadata()));
}

fn put<T: Described>(kept: &mut Kept<T>, raw: &RawValue) -> Result<bool, serde_json::Error> {
    let mut object: T = serde_json::from_str(raw.get())?;
    object.metadata_mut().annotations.remove(LAST_APPLIED);
    let key = object.metadata().key();
    if kept.get(&key).is_some_and(|known| **known == object) {
        return Ok(false);
    }
    kept.insert(key, Arc::new(object));
    Ok(true)
}

fn remove<T>(kept: &mut Kept<T>, key: &ObjectKey) -> bool {
    kept.remove(key).is_some()
}

fn replace<T: PartialEq>(kept: &mut Kept<T>, new: &mut Kept<T>) -> bool {
    let mut changed = kept.len() != new.len();
    for (key, object) in new.iter_mut() {
        match kept.get(key) {
            Some(known) if known == object => *object = Arc::clone(known),
            Some(_) | None => changed = true,
        }
    }
    std::mem::swap(kept, new);
    changed
}

fn merge<T>(kept: &mut Kept<T>, into: &mut Kept<T>) {
    if into.is_empty() {
        into.clone_from(kept);
        return;
    }
    for (key, object) in kept {
        into.entry(key.clone()).or_insert_with(|| Arc::clone(object));
    }
}

fn len<T>(kept: &mut Kept<T>) -> usize {
    kept.len()
}

/// Where an object is, whatever the rest of it.
fn key(raw: &RawValue) -> Result<ObjectKey, NoObject> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Key,
    }
    #[derive(Deserialize)]
    struct Key {
        #[serde(default)]
        namespace: String,
        name: String,
    }
    let Named { metadata } = serde_json::from_str(raw.get()).map_err(NoObject)?;
    Ok(ObjectKey::new(metadata.namespace, metadata.name))
}

/// What has metadata.
trait Described: DeserializeOwned + PartialEq {
    fn metadata(&self) -> &ObjectMeta;
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
}

impl<S: DeserializeOwned + PartialEq + Default, T: DeserializeOwned + PartialEq + Default> Described for Object<S, T> {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

macro_rules! described {
    ($($kind:ty),+) => {
        $(impl Described for $kind {
            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        })+
    };
}

described!(ConfigMap, EndpointSlice, Namespace, Pod, Secret);
