//! A Gateway as a whole: whether it is ours, and what its listeners make of it.

use std::collections::BTreeSet;

use api::cluster::{Gateway, ObjectKey, Objects};

use super::{GatewayState, ListenerState, listener};
use crate::{
    Verdict,
    verdict::{
        self,
        kind::{ACCEPTED, PROGRAMMED},
    },
};

/// Gateways of the classes whose controller is `controller`.
pub(super) fn ours<'o>(objects: &'o Objects, controller: &str) -> impl Iterator<Item = (&'o ObjectKey, &'o Gateway)> {
    let classes: BTreeSet<&str> = objects
        .gateway_classes
        .iter()
        .filter(|(_, class)| class.spec.controller_name == controller)
        .map(|(key, _)| key.name.as_str())
        .collect();
    let gateways = objects.gateways.iter().map(|(key, gateway)| (key, gateway.as_ref()));
    gateways.filter(move |(_, gateway)| classes.contains(gateway.spec.gateway_class_name.as_str()))
}

/// What is said of a Gateway.
pub(super) fn state(objects: &Objects, gateway: &Gateway) -> GatewayState {
    let mut listeners = listener::states(objects, gateway);
    if let Some(refusal) = parameters(gateway) {
        for condition in listeners.iter_mut().flat_map(|it| &mut it.conditions).filter(|it| it.kind == PROGRAMMED) {
            *condition = Verdict::fails(PROGRAMMED, "Invalid", "the Gateway is not accepted");
        }
        let programmed = programmed(gateway, &listeners);
        return GatewayState { listeners, conditions: vec![refusal, programmed] };
    }
    let conditions = vec![accepted(gateway, &listeners), programmed(gateway, &listeners)];
    GatewayState { listeners, conditions }
}

/// Whoever names parameters means them; there is no kind of them that we read.
fn parameters(gateway: &Gateway) -> Option<Verdict> {
    let named = gateway.spec.infrastructure.as_ref()?.parameters_ref.as_ref()?;
    let kind = named.get("kind").and_then(|it| it.as_str()).unwrap_or_default();
    Some(Verdict::fails(ACCEPTED, "InvalidParameters", format!("parameters of kind `{kind}` are not known")))
}

fn accepted(gateway: &Gateway, listeners: &[ListenerState]) -> Verdict {
    if let Some(kind) =
        asked_addresses(gateway).find_map(|(kind, _)| (kind != "IPAddress" && kind != "Hostname").then_some(kind))
    {
        return Verdict::fails(
            ACCEPTED,
            "UnsupportedAddress",
            format!("addresses of type `{kind}` cannot be asked for"),
        );
    }
    let holds = |it: &&ListenerState, kind| verdict::of(&it.conditions, kind).is_some_and(Verdict::is_true);
    if !listeners.iter().any(|it| holds(&it, ACCEPTED)) {
        return Verdict::fails(ACCEPTED, "ListenersNotValid", "none of its listeners can be served");
    }
    match listeners.iter().find(|it| !holds(it, PROGRAMMED)) {
        Some(bad) => Verdict {
            reason: "ListenersNotValid",
            ..Verdict::holds(ACCEPTED, format!("accepted without listener `{}`: see its conditions", bad.name))
        },
        None => Verdict::holds(ACCEPTED, "the Gateway is accepted"),
    }
}

fn programmed(gateway: &Gateway, listeners: &[ListenerState]) -> Verdict {
    if let Some((_, value)) = asked_addresses(gateway).find(|(_, value)| !value.is_empty()) {
        let message = format!("address `{value}` cannot be given: leave it out, and one is assigned");
        return Verdict::fails(PROGRAMMED, "AddressNotUsable", message);
    }
    if listeners.iter().any(ListenerState::serves) {
        Verdict::holds(PROGRAMMED, "the Gateway is served")
    } else {
        Verdict::fails(PROGRAMMED, "Invalid", "none of its listeners can be served")
    }
}

/// Type and value of each address that the Gateway asks for.
fn asked_addresses(gateway: &Gateway) -> impl Iterator<Item = (&str, &str)> {
    gateway.spec.addresses.iter().map(|it| {
        let text = |name: &str| it.get(name).and_then(|it| it.as_str());
        (text("type").unwrap_or("IPAddress"), text("value").unwrap_or_default())
    })
}
