//! What hangs on what: Gateways of our classes, the routes that hang on their listeners, the pools that these name.
//!
//! Everything that is wrong is said, in the words of the Gateway API. Nothing of other controllers' Gateways appears.

use std::collections::BTreeMap;

use api::cluster::{ObjectKey, Objects, ParentRef};

use crate::{Hostname, Verdict};

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
    /// Listeners that it hangs on; empty unless it is accepted.
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
        crate::verdict::of(&self.conditions, crate::verdict::kind::PROGRAMMED).is_some_and(Verdict::is_true)
    }
}

/// Looks at a snapshot as the controller named `controller`.
#[must_use]
pub fn attach(_objects: &Objects, _controller: &str) -> Attached {
    Attached::default()
}
