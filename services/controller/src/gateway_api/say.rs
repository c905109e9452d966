//! What each status should say.

use std::collections::BTreeMap;

use api::cluster::{GatewayClass, ObjectKey, Objects};
use routing::{Attached, GatewayState, Truth, Verdict, verdict::kind};
use serde_json::{Value, json};

use super::{Address, Place, Plane, StatusKind};

/// Features of the Gateway API that the data plane has, by the names of its conformance suite; sorted.
pub const FEATURES: [&str; 22] = [
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayHTTPListenerIsolation",
    "GatewayPort8080",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
];

/// What is known besides the objects.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Whose name entries carry.
    pub controller: &'a str,
    /// Where data planes run.
    pub system_namespace: &'a str,
    /// Release of the Gateway API that is installed (`v1.6.3`), where it is known.
    pub api_release: Option<&'a str>,
}

/// What one status should say.
#[derive(Clone, Debug, PartialEq)]
pub enum Say {
    Class {
        conditions: Vec<Verdict>,
    },
    Gateway {
        conditions: Vec<Verdict>,
        addresses: Vec<Address>,
        listeners: Vec<Listener>,
    },
    /// Our entries in a list that others write to as well.
    Parents {
        controller: String,
        entries: Vec<Entry>,
    },
}

/// One listener of a Gateway's status.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    pub name: String,
    pub attached_routes: u32,
    pub takes_routes: bool,
    pub conditions: Vec<Verdict>,
}

/// One entry of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// `parentRef`.
    pub parent: Value,
    pub conditions: Vec<Verdict>,
}

/// What every status of the cluster should say, as far as it is ours to say.
#[must_use]
pub fn everything(objects: &Objects, around: &Surroundings<'_>) -> BTreeMap<Place, Say> {
    let attached = routing::attach(objects, around.controller);
    let mut said = BTreeMap::new();
    for (key, it) in objects.gateway_classes.iter().filter(|(_, it)| it.spec.controller_name == around.controller) {
        said.insert(place(StatusKind::GatewayClass, key), class(it, around));
    }
    for (key, state) in &attached.gateways {
        let plane = Plane::of(objects, around.system_namespace, key);
        said.insert(place(StatusKind::Gateway, key), gateway(state, plane));
    }
    let parents = |entries| Say::Parents { controller: around.controller.to_owned(), entries };
    for (key, route) in &objects.routes {
        let entries = route_entries(&attached, key);
        if !entries.is_empty() || has_entries(route.status.as_ref().and_then(|it| it.get("parents")), around) {
            said.insert(place(StatusKind::HttpRoute, key), parents(entries));
        }
    }
    for (key, pool) in &objects.pools {
        let entries = pool_entries(&attached, key);
        let known = pool.status.as_ref().map(|it| it.parents.as_slice()).unwrap_or_default();
        if !entries.is_empty() || known.iter().any(|it| is_by(it, around.controller)) {
            said.insert(place(StatusKind::InferencePool, key), parents(entries));
        }
    }
    said
}

/// Whether an entry of a status was written by this controller.
pub(super) fn is_by(entry: &Value, controller: &str) -> bool {
    entry.get("controllerName").and_then(Value::as_str) == Some(controller)
}

fn place(kind: StatusKind, key: &ObjectKey) -> Place {
    Place { kind, key: key.clone() }
}

fn has_entries(parents: Option<&Value>, around: &Surroundings<'_>) -> bool {
    parents.and_then(Value::as_array).is_some_and(|it| it.iter().any(|it| is_by(it, around.controller)))
}

fn class(class: &GatewayClass, around: &Surroundings<'_>) -> Say {
    let mut conditions = vec![match &class.spec.parameters_ref {
        None => Verdict::holds(kind::ACCEPTED, "Gateways of this class are served"),
        Some(_) => Verdict::fails(kind::ACCEPTED, "InvalidParameters", "the class takes no parameters"),
    }];
    conditions.extend(around.api_release.map(supported_version));
    Say::Class { conditions }
}

/// Of the Gateway API's first version every release is read; what it adds is left out by older programs and clusters.
fn supported_version(release: &str) -> Verdict {
    const KIND: &str = "SupportedVersion";
    if release.starts_with("v1.") {
        Verdict::holds(KIND, format!("Gateway API {release} is supported"))
    } else {
        Verdict::fails(KIND, "UnsupportedVersion", format!("Gateway API {release} is not supported: v1 is"))
    }
}

fn gateway(state: &GatewayState, plane: Plane) -> Say {
    let missing = if plane.addresses.is_empty() {
        Some(("AddressNotAssigned", "the data plane has no address yet"))
    } else if !plane.serves {
        Some(("NoResources", "no pod of the data plane serves yet"))
    } else {
        None
    };
    let listeners = state.listeners.iter().map(|it| Listener {
        name: it.name.clone(),
        attached_routes: it.attached_routes,
        takes_routes: !it.supported_kinds.is_empty(),
        conditions: programmed(&it.conditions, missing.map(|(_, message)| ("Pending", message))),
    });
    let listeners = listeners.collect();
    Say::Gateway { conditions: programmed(&state.conditions, missing), addresses: plane.addresses, listeners }
}

/// Conditions that the objects alone allow, with what the data plane lacks.
fn programmed(conditions: &[Verdict], missing: Option<(&'static str, &'static str)>) -> Vec<Verdict> {
    let one = |verdict: &Verdict| match missing {
        Some((reason, message)) if verdict.kind == kind::PROGRAMMED && verdict.truth == Truth::True => {
            Verdict::fails(kind::PROGRAMMED, reason, message)
        }
        Some(_) | None => verdict.clone(),
    };
    conditions.iter().map(one).collect()
}

fn route_entries(attached: &Attached, route: &ObjectKey) -> Vec<Entry> {
    let parents = attached.routes.get(route).map(Vec::as_slice).unwrap_or_default();
    let entry = |it: &routing::RouteParent| {
        let parent = serde_json::to_value(&it.parent).expect("a reference is made of texts and numbers");
        Entry { parent, conditions: it.conditions.clone() }
    };
    parents.iter().map(entry).collect()
}

fn pool_entries(attached: &Attached, pool: &ObjectKey) -> Vec<Entry> {
    let parents = attached.pools.get(pool).map(Vec::as_slice).unwrap_or_default();
    let entry = |it: &routing::PoolParent| Entry {
        parent: json!({
            "group": "gateway.networking.k8s.io",
            "kind": "Gateway",
            "namespace": it.gateway.namespace,
            "name": it.gateway.name,
        }),
        conditions: it.conditions.clone(),
    };
    parents.iter().map(entry).collect()
}
