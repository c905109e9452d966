//! What hangs on what: Gateways of our classes, the routes that hang on their listeners, the pools that these name.
//!
//! Everything that is wrong is said, in the words of the Gateway API. Nothing of other controllers' Gateways appears.

mod certificate;
mod gateway;
mod listener;
mod pool;
pub(crate) mod reference;
mod route;

use std::collections::BTreeMap;

use api::cluster::{ObjectKey, Objects, ParentRef};

use crate::{Hostname, Verdict, compile, verdict::kind};

/// What of a snapshot belongs together, and what is wrong with it. Only what is ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attached {
    /// Each Gateway of a class of ours.
    pub gateways: BTreeMap<ObjectKey, GatewayState>,
    /// Each route that names a Gateway of ours: one entry per such `parentRef`, in its order.
    pub routes: BTreeMap<ObjectKey, Vec<RouteParent>>,
    /// Each pool that a route on a Gateway of ours names: one entry per Gateway.
    pub pools: BTreeMap<ObjectKey, Vec<PoolParent>>,
}

/// One of our Gateways.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayState {
    /// In the order of its `spec`.
    pub listeners: Vec<ListenerState>,
    /// `Accepted` and `Programmed`, as far as the objects decide: whether the data plane stands is added by who knows.
    pub conditions: Vec<Verdict>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerState {
    pub name: String,
    pub port: u16,
    /// `None` where we do not serve what it asks for.
    pub protocol: Option<Protocol>,
    pub hostname: Hostname,
    pub attached_routes: u32,
    pub supported_kinds: Vec<SupportedKind>,
    /// Secrets to end TLS with, in order; only those that may and can be used.
    pub certificates: Vec<ObjectKey>,
    pub conditions: Vec<Verdict>,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http,
    /// TLS ends at the listener.
    Https,
}

/// A kind of route that a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupportedKind {
    HttpRoute,
}

/// A route seen from one of its `parentRefs`.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteParent {
    /// As the route writes it: status entries repeat it.
    pub parent: ParentRef,
    pub gateway: ObjectKey,
    /// Listeners that it hangs on. A route with nothing but rules that cannot be followed hangs on them too, and answers
    /// 500 there: what it matches must not fall through to a rule that asks for less.
    pub on: Vec<Attachment>,
    pub conditions: Vec<Verdict>,
}

/// A route on one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Index in [`GatewayState::listeners`].
    pub listener: usize,
    /// Hosts that both mean; never empty.
    pub hostnames: Vec<Hostname>,
}

/// A pool seen from one Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolParent {
    pub gateway: ObjectKey,
    pub conditions: Vec<Verdict>,
}

impl ListenerState {
    /// Whether requests are taken on it.
    #[must_use]
    pub fn serves(&self) -> bool {
        verdict_holds(&self.conditions, kind::PROGRAMMED)
    }
}

/// Looks at a snapshot as the controller named `controller`.
#[must_use]
pub fn attach(objects: &Objects, controller: &str) -> Attached {
    let mut attached = Attached::default();
    for (key, gateway) in gateway::ours(objects, controller) {
        attached.gateways.insert(key.clone(), gateway::state(objects, gateway));
    }
    let mut naming = pool::Naming::default();
    for (key, route) in &objects.routes {
        let compiled = compile::route(objects, route);
        let parents = route::parents(objects, &attached.gateways, route, &compiled);
        if parents.is_empty() {
            continue;
        }
        attached.count(&parents);
        naming.add(&compiled, &parents);
        attached.routes.insert(key.clone(), parents);
    }
    attached.pools = naming.finish(objects);
    attached
}

impl Attached {
    /// Counts a route on the listeners that it hangs on: once each, however often it names them.
    fn count(&mut self, parents: &[RouteParent]) {
        let accepted = parents.iter().filter(|it| verdict_holds(&it.conditions, kind::ACCEPTED));
        let mut on: Vec<(&ObjectKey, usize)> =
            accepted.flat_map(|it| it.on.iter().map(|at| (&it.gateway, at.listener))).collect();
        on.sort();
        on.dedup();
        for (gateway, at) in on {
            let listener = self.gateways.get_mut(gateway).and_then(|it| it.listeners.get_mut(at));
            if let Some(listener) = listener {
                listener.attached_routes += 1;
            }
        }
    }
}

fn verdict_holds(verdicts: &[Verdict], kind: &str) -> bool {
    crate::verdict::of(verdicts, kind).is_some_and(Verdict::is_true)
}
