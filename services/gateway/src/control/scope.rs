//! What a data plane reads of its cluster: what its Gateway decides, and no more than its roles grant.
//!
//! The scope follows from the objects that are known, and more objects become known as it grows: the Gateway names its
//! configuration, that names Secrets. It depends on nothing that depends on it, so this ends after a few steps.

use api::{
    cluster::{Gateway, HttpRoute, ObjectKey, Objects, ParentRef, RouteFilter},
    names,
};
use discovery::cluster::{Kind, Range, Scope};
use serde_json::Value;

use super::cluster::config_of;

/// Where a configuration names Secrets that the data plane needs.
const SECRETS: [&str; 2] = ["/tls/secretRef/name", "/auth/apiKeys/secretRef/name"];

/// What to read, by what is known.
pub(super) fn of(gateway: &ObjectKey, objects: &Objects) -> Scope {
    let mut scope = Scope::default();
    for kind in [Kind::GatewayClass, Kind::HttpRoute, Kind::ReferenceGrant, Kind::InferencePool, Kind::Namespace] {
        scope.add(kind, Range::All);
    }
    scope.add(Kind::Gateway, Range::Named(gateway.clone()));
    for route in objects.routes.values().filter(|route| names_gateway(route, gateway)) {
        of_route(route, &mut scope);
    }
    if let Some(object) = objects.gateways.get(gateway) {
        of_listeners(object, &mut scope);
        if let Some(config) = config_of(object) {
            of_config(&config, objects, &mut scope);
        }
    }
    scope
}

fn of_listeners(gateway: &Gateway, scope: &mut Scope) {
    let own = &gateway.metadata.namespace;
    let certificates = gateway.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
    for named in certificates.flat_map(|tls| &tls.certificate_refs) {
        let is_secret = named.kind.as_deref().is_none_or(|kind| kind == "Secret");
        if is_secret && named.group.as_deref().is_none_or(str::is_empty) {
            let namespace = named.namespace.as_ref().unwrap_or(own);
            scope.add(Kind::Secret, Range::Named(ObjectKey::new(namespace, &named.name)));
        }
    }
}

fn of_config(config: &ObjectKey, objects: &Objects, scope: &mut Scope) {
    let namespace = &config.namespace;
    scope.add(Kind::Config, Range::Named(config.clone()));
    scope.add(Kind::Pod, Range::Namespace(namespace.clone()));
    scope.add(Kind::Objective, Range::Namespace(namespace.clone()));
    scope.add(Kind::Rewrite, Range::Namespace(namespace.clone()));
    let (key, value) = (names::ADAPTERS_LABEL.to_owned(), "true".to_owned());
    scope.add(Kind::ConfigMap, Range::Labelled { namespace: namespace.clone(), key, value });
    let Some(object) = objects.configs.get(config) else { return };
    let text = |pointer: &str| object.spec.pointer(pointer).and_then(Value::as_str);
    for name in SECRETS.iter().filter_map(|pointer| text(pointer)) {
        scope.add(Kind::Secret, Range::Named(ObjectKey::new(namespace, name)));
    }
    if text("/bbr/defaultBackend/name").is_some() {
        of_services(namespace, scope);
    }
}

/// Backends of a route: pools with their pods, Services with their slices.
fn of_route(route: &HttpRoute, scope: &mut Scope) {
    let own = &route.metadata.namespace;
    let rules = || route.spec.rules.iter();
    let mirrors = rules().flat_map(|rule| &rule.filters).filter_map(mirrored);
    for backend in rules().flat_map(|rule| &rule.backend_refs).chain(mirrors) {
        let namespace = backend.namespace.as_ref().unwrap_or(own);
        // A pool names its picker, a Service beside it.
        of_services(namespace, scope);
        if backend.kind.as_deref() == Some("InferencePool") {
            scope.add(Kind::Pod, Range::Namespace(namespace.clone()));
            scope.add(Kind::Objective, Range::Namespace(namespace.clone()));
        }
    }
}

fn mirrored(filter: &RouteFilter) -> Option<&api::cluster::BackendRef> {
    filter.request_mirror.as_ref().map(|mirror| &mirror.backend_ref)
}

fn of_services(namespace: &str, scope: &mut Scope) {
    scope.add(Kind::Service, Range::Namespace(namespace.to_owned()));
    scope.add(Kind::EndpointSlice, Range::Namespace(namespace.to_owned()));
}

fn names_gateway(route: &HttpRoute, gateway: &ObjectKey) -> bool {
    let is_it = |parent: &ParentRef| {
        parent.kind.as_deref().is_none_or(|kind| kind == "Gateway")
            && parent.name == gateway.name
            && parent.namespace.as_ref().unwrap_or(&route.metadata.namespace) == &gateway.namespace
    };
    route.spec.parent_refs.iter().any(is_it)
}
