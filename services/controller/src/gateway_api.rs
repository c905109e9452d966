//! What the controller says in the statuses of the Gateway API's objects and of InferencePools.
//!
//! What is wrong with them is decided by `routing`, the same code by which the data plane routes. Here that is joined with
//! what is known of the data planes ([`plane`]), turned into what each status should say ([`say`]), compared with what
//! it says ([`merge`]), and written where it differs ([`mod@write`], [`settle`]). Times of conditions move only with their status, so an
//! object that stays as it is is not written again.
//!
//! Entries and objects of other controllers are never touched.

pub mod merge;
pub mod plane;
pub mod say;
pub mod settle;
#[cfg(test)]
mod tests;
pub mod write;

use std::borrow::Cow;

use api::cluster::{Object, ObjectKey, ObjectMeta, Objects};
use serde_json::{Value, json};

pub use self::{
    plane::{Address, Plane},
    say::{Entry, Say, Surroundings},
    settle::Statuses,
};

/// A kind whose status we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusKind {
    GatewayClass,
    Gateway,
    HttpRoute,
    InferencePool,
}

/// The object that a status is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub kind: StatusKind,
    pub key: ObjectKey,
}

/// One status that does not say what it should.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    pub place: Place,
    pub uid: String,
    /// What was decided is of this generation.
    pub generation: i64,
    pub say: Say,
}

/// Every status that differs from what it should say.
#[must_use]
pub fn due(objects: &Objects, around: &Surroundings<'_>) -> Vec<Due> {
    let said = say::everything(objects, around);
    let differs = said.into_iter().filter_map(|(place, say)| {
        let (status, metadata) = found(objects, &place)?;
        // The time matters only to what is written.
        merge::merged(&status, &say, metadata.generation, "")?;
        Some(Due { place, uid: metadata.uid.clone(), generation: metadata.generation, say })
    });
    differs.collect()
}

/// Status and metadata of an object in a snapshot.
fn found<'o>(objects: &'o Objects, place: &Place) -> Option<(Cow<'o, Value>, &'o ObjectMeta)> {
    fn of<S>(it: &Object<S>) -> (Cow<'_, Value>, &ObjectMeta) {
        (it.status.as_ref().map_or(Cow::Owned(Value::Null), Cow::Borrowed), &it.metadata)
    }
    let key = &place.key;
    match place.kind {
        StatusKind::GatewayClass => objects.gateway_classes.get(key).map(|it| of(it)),
        StatusKind::Gateway => objects.gateways.get(key).map(|it| of(it)),
        StatusKind::HttpRoute => objects.routes.get(key).map(|it| of(it)),
        StatusKind::InferencePool => objects.pools.get(key).map(|it| {
            let parents = it.status.as_ref().map(|it| it.parents.clone()).unwrap_or_default();
            (Cow::Owned(json!({ "parents": parents })), &it.metadata)
        }),
    }
}
