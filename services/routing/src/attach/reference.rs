//! References from one namespace into another: allowed where a ReferenceGrant in the other one says so.

use api::cluster::{ObjectKey, Objects};

/// API group of Gateways and routes.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
/// API group of pools.
pub(crate) const POOL_GROUP: &str = "inference.networking.k8s.io";

/// Who refers.
#[derive(Clone, Copy)]
pub(crate) struct Referrer<'r> {
    pub kind: &'static str,
    pub namespace: &'r str,
}

/// To what.
#[derive(Clone, Copy)]
pub(crate) struct Referent<'r> {
    pub group: &'static str,
    pub kind: &'static str,
    pub key: &'r ObjectKey,
}

/// Whether the reference may be followed. Asked before the object is looked up, so that nothing is learnt of what a
/// namespace holds without its consent.
pub(crate) fn is_permitted(objects: &Objects, from: Referrer<'_>, to: Referent<'_>) -> bool {
    if from.namespace == to.key.namespace {
        return true;
    }
    let first = ObjectKey::new(&to.key.namespace, "");
    objects.grants.range(first..).take_while(|(key, _)| key.namespace == to.key.namespace).any(|(_, grant)| {
        let names_from = grant
            .spec
            .from
            .iter()
            .any(|it| it.group == GATEWAY_GROUP && it.kind == from.kind && it.namespace == from.namespace);
        let names_to = grant.spec.to.iter().any(|it| {
            it.group == to.group && it.kind == to.kind && it.name.as_ref().is_none_or(|name| *name == to.key.name)
        });
        names_from && names_to
    })
}
