//! Listeners of one Gateway: which of them can be served, and what is wrong with the others.

use std::collections::BTreeSet;

use api::{
    cluster::{Gateway, GatewayListener, Objects},
    names,
};

use super::{ListenerState, Protocol, SupportedKind, certificate, reference::GATEWAY_GROUP};
use crate::{
    Hostname, Verdict,
    verdict::kind::{ACCEPTED, CONFLICTED, PROGRAMMED, RESOLVED_REFS},
};

/// The states of a Gateway's listeners, in its order.
pub(super) fn states(objects: &Objects, gateway: &Gateway) -> Vec<ListenerState> {
    let ports: BTreeSet<u16> = gateway.spec.listeners.iter().map(|it| it.port).collect();
    gateway.spec.listeners.iter().map(|listener| state(objects, gateway, listener, &ports)).collect()
}

fn state(objects: &Objects, gateway: &Gateway, listener: &GatewayListener, ports: &BTreeSet<u16>) -> ListenerState {
    let protocol = protocol(listener);
    let (supported_kinds, kinds_flaw) = kinds(listener, protocol);
    let (certificates, certificate_flaw) = match protocol {
        Some(Protocol::Https) => certificates(objects, gateway, listener),
        Some(Protocol::Http) | None => (Vec::new(), None),
    };
    let conflicted = conflict(gateway, listener);
    let accepted = accepted(gateway, listener, protocol, conflicted.as_ref(), ports);
    let lacks_certificate = protocol == Some(Protocol::Https) && certificates.is_empty();
    let programmed = programmed(&accepted, lacks_certificate, supported_kinds.is_empty());
    let resolved = kinds_flaw
        .or(certificate_flaw)
        .unwrap_or_else(|| Verdict::holds(RESOLVED_REFS, "all references of the listener are resolved"));
    let conflicted =
        conflicted.unwrap_or_else(|| Verdict::fails(CONFLICTED, "NoConflicts", "no other listener is like it"));
    ListenerState {
        name: listener.name.clone(),
        port: listener.port,
        protocol,
        hostname: Hostname::read(listener.hostname.as_deref()),
        attached_routes: 0,
        supported_kinds,
        certificates,
        conditions: vec![accepted, conflicted, resolved, programmed],
    }
}

fn protocol(listener: &GatewayListener) -> Option<Protocol> {
    match listener.protocol.as_str() {
        "HTTP" => Some(Protocol::Http),
        "HTTPS" => Some(Protocol::Https),
        _ => None,
    }
}

/// The kinds of routes that a listener takes, and what is wrong with those that it names.
fn kinds(listener: &GatewayListener, protocol: Option<Protocol>) -> (Vec<SupportedKind>, Option<Verdict>) {
    if protocol.is_none() {
        return (Vec::new(), None);
    }
    let named = listener.allowed_routes.as_ref().map(|it| it.kinds.as_slice()).unwrap_or_default();
    let is_ours = |it: &api::cluster::RouteKind| {
        it.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP && it.kind == "HTTPRoute"
    };
    let supported = named.is_empty() || named.iter().any(is_ours);
    let flaw = named.iter().find(|it| !is_ours(it)).map(|it| {
        let message = format!("routes of kind `{}` are not served: only HTTPRoute", it.kind);
        Verdict::fails(RESOLVED_REFS, "InvalidRouteKinds", message)
    });
    (if supported { vec![SupportedKind::HttpRoute] } else { Vec::new() }, flaw)
}

/// Certificates that can be used, and what is wrong with the first that cannot.
fn certificates(
    objects: &Objects,
    gateway: &Gateway,
    listener: &GatewayListener,
) -> (Vec<api::cluster::ObjectKey>, Option<Verdict>) {
    let named = listener.tls.as_ref().map(|it| it.certificate_refs.as_slice()).unwrap_or_default();
    let mut flaw = named.is_empty().then(|| {
        Verdict::fails(
            RESOLVED_REFS,
            "InvalidCertificateRef",
            "a listener of protocol HTTPS needs a `tls.certificateRefs`",
        )
    });
    let mut usable = Vec::new();
    for found in named.iter().map(|it| certificate::find(objects, &gateway.metadata.namespace, it)) {
        match found {
            Ok(key) => usable.push(key),
            Err(verdict) => flaw = flaw.or(Some(verdict)),
        }
    }
    (usable, flaw)
}

/// Another listener of the Gateway that cannot be told from this one. None of them wins: which one was meant is not known.
fn conflict(gateway: &Gateway, listener: &GatewayListener) -> Option<Verdict> {
    let ours = protocol(listener)?;
    let hostname = Hostname::read(listener.hostname.as_deref());
    let others = gateway.spec.listeners.iter().filter(|it| it.port == listener.port && it.name != listener.name);
    others.filter_map(|other| Some((other, protocol(other)?))).find_map(|(other, theirs)| {
        let (reason, what) = if theirs != ours {
            ("ProtocolConflict", "port with another protocol")
        } else if Hostname::read(other.hostname.as_deref()) == hostname {
            ("HostnameConflict", "port and hostname")
        } else {
            return None;
        };
        let message = format!("listener `{}` has the same {what}", other.name);
        Some(Verdict { truth: crate::Truth::True, ..Verdict::fails(CONFLICTED, reason, message) })
    })
}

fn accepted(
    gateway: &Gateway,
    listener: &GatewayListener,
    protocol: Option<Protocol>,
    conflicted: Option<&Verdict>,
    ports: &BTreeSet<u16>,
) -> Verdict {
    let refused = |reason, message: String| Verdict::fails(ACCEPTED, reason, message);
    let Some(protocol) = protocol else {
        let message = format!("protocol `{}` is not served: HTTP and HTTPS are", listener.protocol);
        return refused("UnsupportedProtocol", message);
    };
    if let Some(conflict) = conflicted {
        return refused(conflict.reason, conflict.message.clone());
    }
    if let Some(message) = port_taken(listener.port, ports) {
        return refused("PortUnavailable", message);
    }
    if protocol == Protocol::Https {
        if let Some(mode) = listener.tls.as_ref().and_then(|it| it.mode.as_deref()).filter(|it| *it != "Terminate") {
            return refused("UnsupportedValue", format!("TLS mode `{mode}` is not served: Terminate is"));
        }
        if asks_for_client_certificates(gateway) {
            let message = "`spec.tls.frontend` asks for certificates of clients, which are not checked";
            return refused("UnsupportedValue", message.to_owned());
        }
    }
    Verdict::holds(ACCEPTED, "the listener is accepted")
}

/// Serving without the check that was asked for would open a door that its owner believes shut.
fn asks_for_client_certificates(gateway: &Gateway) -> bool {
    gateway.spec.tls.as_ref().is_some_and(|it| it.get("frontend").is_some_and(|it| !it.is_null()))
}

/// Why the port cannot be had inside a pod of the data plane.
fn port_taken(port: u16, ports: &BTreeSet<u16>) -> Option<String> {
    let inside = names::pod_port(port);
    if inside == names::ADMIN_PORT {
        return Some(format!("port {port} is that of the data plane's admin API"));
    }
    // The one that had to move keeps its place: low ports are the ones that clients expect.
    let lower = port.checked_sub(names::PRIVILEGED_PORT_SHIFT).filter(|it| names::pod_port(*it) == port)?;
    ports.contains(&lower).then(|| format!("port {lower} of this Gateway is {port} inside the data plane"))
}

fn programmed(accepted: &Verdict, lacks_certificate: bool, lacks_kinds: bool) -> Verdict {
    let because = if !accepted.is_true() {
        Some("the listener is not accepted")
    } else if lacks_certificate {
        Some("there is no certificate to serve with")
    } else if lacks_kinds {
        Some("no kind of route that it allows is served")
    } else {
        None
    };
    because.map_or_else(
        || Verdict::holds(PROGRAMMED, "the listener is served"),
        |because| Verdict::fails(PROGRAMMED, "Invalid", because),
    )
}
