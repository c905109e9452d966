//! A route seen from each Gateway of ours that it names: the listeners it hangs on, and what is wrong with it.

use std::collections::BTreeMap;

use api::{
    Selector,
    cluster::{FromNamespaces, Gateway, HttpRoute, ObjectKey, Objects, ParentRef},
};

use super::{Attachment, GatewayState, ListenerState, RouteParent, reference::GATEWAY_GROUP};
use crate::{
    Hostname, Verdict,
    compile::{Compiled, Fault},
    verdict::kind::{ACCEPTED, PARTIALLY_INVALID, RESOLVED_REFS},
};

/// The entries of a route for the Gateways in `gateways`.
pub(super) fn parents(
    objects: &Objects,
    gateways: &BTreeMap<ObjectKey, GatewayState>,
    route: &HttpRoute,
    compiled: &Compiled,
) -> Vec<RouteParent> {
    let named = route.spec.parent_refs.iter().filter_map(|parent| {
        let key = gateway_key(route, parent)?;
        let (state, gateway) = (gateways.get(&key)?, objects.gateways.get(&key)?);
        Some((parent, key, state, gateway))
    });
    named
        .map(|(parent, key, state, gateway)| {
            let (on, accepted) = match attachments(objects, gateway, state, route, parent) {
                Ok(on) => (on, judged(compiled)),
                Err(refusal) => (Vec::new(), vec![refusal]),
            };
            let mut conditions = accepted;
            conditions.push(resolved(compiled));
            RouteParent { parent: parent.clone(), gateway: key, on, conditions }
        })
        .collect()
}

/// The Gateway that a `parentRef` names, if it names one.
fn gateway_key(route: &HttpRoute, parent: &ParentRef) -> Option<ObjectKey> {
    let is_gateway = parent.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP
        && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway";
    let namespace = parent.namespace.as_ref().unwrap_or(&route.metadata.namespace);
    is_gateway.then(|| ObjectKey::new(namespace, &parent.name))
}

/// The listeners that a route hangs on by one of its `parentRefs`; else why it hangs on none.
fn attachments(
    objects: &Objects,
    gateway: &Gateway,
    state: &GatewayState,
    route: &HttpRoute,
    parent: &ParentRef,
) -> Result<Vec<Attachment>, Verdict> {
    let named: Vec<usize> = (0..state.listeners.len()).filter(|at| is_named(&state.listeners[*at], parent)).collect();
    if named.is_empty() {
        return Err(refused("NoMatchingParent", "the Gateway has no listener of this name and port"));
    }
    let allowing: Vec<usize> = named.into_iter().filter(|at| allows(objects, gateway, state, *at, route)).collect();
    if allowing.is_empty() {
        return Err(refused("NotAllowedByListeners", "no listener allows routes of this kind and namespace"));
    }
    let asked = hostnames(route);
    let meeting: Vec<Attachment> =
        allowing.into_iter().filter_map(|at| attachment(at, &state.listeners[at], &asked)).collect();
    if meeting.is_empty() {
        return Err(refused("NoMatchingListenerHostname", "no listener has a hostname that meets those of the route"));
    }
    Ok(meeting)
}

fn refused(reason: &'static str, message: &str) -> Verdict {
    Verdict::fails(ACCEPTED, reason, message)
}

fn is_named(listener: &ListenerState, parent: &ParentRef) -> bool {
    parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
        && parent.port.is_none_or(|port| port == listener.port)
}

/// Whether a listener takes routes of this kind and namespace.
fn allows(objects: &Objects, gateway: &Gateway, state: &GatewayState, at: usize, route: &HttpRoute) -> bool {
    let Some(listener) = gateway.spec.listeners.get(at) else {
        return false;
    };
    if state.listeners[at].supported_kinds.is_empty() {
        return false;
    }
    let namespaces = listener.allowed_routes.as_ref().and_then(|it| it.namespaces.as_ref());
    let from = namespaces.and_then(|it| it.from).unwrap_or(FromNamespaces::Same);
    let theirs = &route.metadata.namespace;
    match from {
        FromNamespaces::All => true,
        FromNamespaces::Same => *theirs == gateway.metadata.namespace,
        FromNamespaces::None => false,
        FromNamespaces::Selector => {
            let selector = namespaces.and_then(|it| it.selector.clone());
            let namespace = objects.namespaces.get(&ObjectKey::new("", theirs));
            selector
                .zip(namespace)
                .is_some_and(|(selector, namespace)| Selector::from(selector).matches(&namespace.metadata.labels))
        }
    }
}

/// Hosts that a route asks for.
fn hostnames(route: &HttpRoute) -> Vec<Hostname> {
    if route.spec.hostnames.is_empty() {
        return vec![Hostname::Any];
    }
    route.spec.hostnames.iter().map(|it| Hostname::read(Some(it))).collect()
}

fn attachment(at: usize, listener: &ListenerState, asked: &[Hostname]) -> Option<Attachment> {
    let mut hostnames: Vec<Hostname> = asked.iter().filter_map(|it| it.intersection(&listener.hostname)).collect();
    hostnames.sort();
    hostnames.dedup();
    (!hostnames.is_empty()).then_some(Attachment { listener: at, hostnames })
}

/// What is said of a route that hangs on something: whether its rules can be followed.
fn judged(compiled: &Compiled) -> Vec<Verdict> {
    let broken: Vec<&Fault> = compiled.rules.iter().filter_map(|it| it.fault.as_ref()).collect();
    let Some(first) = broken.first() else {
        return vec![Verdict::holds(ACCEPTED, "the route is accepted")];
    };
    if broken.len() == compiled.rules.len() {
        return vec![Verdict::fails(ACCEPTED, first.reason, first.message.clone())];
    }
    let told: Vec<String> = compiled
        .rules
        .iter()
        .enumerate()
        .filter_map(|(at, it)| it.fault.as_ref().map(|fault| format!("{at} ({})", fault.message)))
        .collect();
    let message = format!("Dropped Rule {}; what they match is answered with 500", told.join(", "));
    vec![
        Verdict::holds(ACCEPTED, "the route is accepted"),
        Verdict { reason: first.reason, ..Verdict::holds(PARTIALLY_INVALID, message) },
    ]
}

fn resolved(compiled: &Compiled) -> Verdict {
    compiled.unresolved.first().map_or_else(
        || Verdict::holds(RESOLVED_REFS, "all references of the route are resolved"),
        |fault| Verdict::fails(RESOLVED_REFS, fault.reason, fault.message.clone()),
    )
}
