//! A pool seen from each Gateway whose routes name it.

use std::collections::BTreeMap;

use api::cluster::{ObjectKey, Objects};

use super::{PoolParent, RouteParent};
use crate::{
    Verdict,
    compile::{Compiled, picker_fault},
    verdict::{
        self,
        kind::{ACCEPTED, RESOLVED_REFS},
    },
};

/// Collects who names which pool.
#[derive(Default)]
pub(super) struct Naming {
    /// Pool, then Gateway: whether a route that names it is accepted there.
    seen: BTreeMap<ObjectKey, BTreeMap<ObjectKey, Verdict>>,
}

impl Naming {
    /// Takes in one route.
    pub(super) fn add(&mut self, compiled: &Compiled, parents: &[RouteParent]) {
        for pool in &compiled.pools {
            let gateways = self.seen.entry(pool.clone()).or_default();
            for parent in parents {
                let verdict = accepted(parent);
                let kept = gateways.entry(parent.gateway.clone()).or_insert_with(|| verdict.clone());
                if verdict.is_true() {
                    *kept = verdict;
                }
            }
        }
    }

    /// What is said of each pool.
    pub(super) fn finish(self, objects: &Objects) -> BTreeMap<ObjectKey, Vec<PoolParent>> {
        let pools = self.seen.into_iter().filter(|(_, gateways)| !gateways.is_empty());
        pools
            .map(|(pool, gateways)| {
                let resolved = resolved(objects, &pool);
                let parents = gateways
                    .into_iter()
                    .map(|(gateway, accepted)| PoolParent { gateway, conditions: vec![accepted, resolved.clone()] });
                let parents = parents.collect();
                (pool, parents)
            })
            .collect()
    }
}

fn accepted(parent: &RouteParent) -> Verdict {
    if verdict::of(&parent.conditions, ACCEPTED).is_some_and(Verdict::is_true) {
        Verdict::holds(ACCEPTED, "a route of this Gateway sends requests to the pool")
    } else {
        let message = "no route that names the pool is accepted by this Gateway: see the status of the routes";
        Verdict::fails(ACCEPTED, "HTTPRouteNotAccepted", message)
    }
}

fn resolved(objects: &Objects, pool: &ObjectKey) -> Verdict {
    match objects.pools.get(pool).and_then(|it| picker_fault(objects, it)) {
        Some(fault) => Verdict::fails(RESOLVED_REFS, "InvalidExtensionRef", fault),
        None => Verdict::holds(RESOLVED_REFS, "all references of the pool are resolved"),
    }
}
