//! Whole snapshots: objects as people write them, and what is said of them and done with requests.

mod gateways;
mod parents;
mod pools;
mod properties;
mod rules;
mod tables;

use std::sync::Arc;

use api::cluster::{ObjectKey, Objects};
use serde_json::Value;

use crate::{Asked, Attached, HeaderSource, Table, Target, Truth, Verdict, attach, verdict, without_port};

const CONTROLLER: &str = "example.com/controller";

/// What most cases stand on: a class of ours and one of another's, and namespaces.
const BASE: &str = r#"
kind: GatewayClass
metadata: {name: ours}
spec: {controllerName: example.com/controller}
---
kind: GatewayClass
metadata: {name: theirs}
spec: {controllerName: example.com/another}
---
kind: Namespace
metadata: {name: infra, labels: {kubernetes.io/metadata.name: infra}}
---
kind: Namespace
metadata: {name: apps, labels: {kubernetes.io/metadata.name: apps, team: red}}
---
kind: Service
metadata: {name: web, namespace: infra}
spec: {type: ClusterIP, ports: [{port: 8080, protocol: TCP}, {name: h2, port: 8081, protocol: TCP, appProtocol: kubernetes.io/h2c}, {name: ws, port: 8082, appProtocol: kubernetes.io/ws}, {name: dns, port: 53, protocol: UDP}]}
---
kind: Service
metadata: {name: web, namespace: apps}
spec: {type: ClusterIP, ports: [{port: 8080, protocol: TCP}]}
---
kind: Service
metadata: {name: away, namespace: infra}
spec: {type: ExternalName, ports: [{port: 8080, protocol: TCP}]}
"#;

/// A Gateway with one listener for HTTP on port 80, for routes of its namespace.
const GATEWAY: &str = r#"
kind: Gateway
metadata: {name: gw, namespace: infra}
spec:
  gatewayClassName: ours
  listeners: [{name: http, port: 80, protocol: HTTP}]
"#;

/// A snapshot of [`BASE`] and these documents.
fn objects(documents: &[&str]) -> Objects {
    let mut objects = Objects::default();
    for text in std::iter::once(&BASE).chain(documents) {
        for document in text.split("\n---\n").filter(|it| !it.trim().is_empty()) {
            let value: Value = yaml_serde::from_str(document).expect("YAML");
            put(&mut objects, value);
        }
    }
    objects
}

fn put(objects: &mut Objects, value: Value) {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, key) = (text("/kind"), ObjectKey::new(text("/metadata/namespace"), text("/metadata/name")));
    fn read<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).expect("the shape of its kind"))
    }
    match kind.as_str() {
        "GatewayClass" => drop(objects.gateway_classes.insert(key, read(value))),
        "Gateway" => drop(objects.gateways.insert(key, read(value))),
        "HTTPRoute" => drop(objects.routes.insert(key, read(value))),
        "ReferenceGrant" => drop(objects.grants.insert(key, read(value))),
        "InferencePool" => drop(objects.pools.insert(key, read(value))),
        "Namespace" => drop(objects.namespaces.insert(key, read(value))),
        "Service" => drop(objects.services.insert(key, read(value))),
        "Secret" => drop(objects.secrets.insert(key, read(value))),
        other => panic!("no place for {other}"),
    }
}

fn key(text: &str) -> ObjectKey {
    text.parse().expect("NAMESPACE/NAME")
}

fn attached(objects: &Objects) -> Attached {
    attach(objects, CONTROLLER)
}

/// `True Reason`, as the condition stands.
fn told(verdicts: &[Verdict], kind: &str) -> String {
    verdict::of(verdicts, kind).map_or_else(|| "absent".to_owned(), |it| format!("{} {}", it.truth.as_str(), it.reason))
}

/// What is said of a route on its first parent.
fn of_route(objects: &Objects, route: &str, kind: &str) -> String {
    let attached = attached(objects);
    told(&attached.routes[&key(route)][0].conditions, kind)
}

/// Headers of a request of a test.
struct Headers<'h>(&'h [(&'h str, &'h str)]);

impl HeaderSource for Headers<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.iter().any(|(known, value)| known.eq_ignore_ascii_case(name) && test(value.as_bytes()))
    }
}

/// Asks a table with `METHOD URL`: the rule that takes it as `route/index`, or `404`.
fn ask(table: &Table, port: u16, request: &str, headers: &[(&str, &str)]) -> String {
    let (method, url) = request.split_once(' ').expect("METHOD URL");
    let (authority, rest) = url.split_once('/').map_or((url, ""), |(host, rest)| (host, rest));
    let rest = format!("/{rest}");
    let (path, query) = rest.split_once('?').map_or((rest.as_str(), None), |(path, query)| (path, Some(query)));
    let headers = Headers(headers);
    let asked = Asked { port, host: without_port(authority), method, path, query, headers: &headers };
    table.find(&asked).map_or_else(|| "404".to_owned(), |it| format!("{}/{}", it.rule.route.name, it.rule.index))
}

/// The table of `infra/gw`.
fn table(objects: &Objects) -> Table {
    Table::of(objects, &attached(objects), &key("infra/gw"))
}

/// Where the rule of a route sends requests.
fn targets(objects: &Objects, route: &str) -> Vec<Target> {
    let table = table(objects);
    table
        .rules()
        .filter(|it| it.route.to_string() == route)
        .flat_map(|it| it.backends.iter().map(|it| it.target.clone()))
        .collect()
}

#[test]
fn words_of_conditions_are_those_of_kubernetes() {
    assert_eq!([Truth::True, Truth::False, Truth::Unknown].map(Truth::as_str), ["True", "False", "Unknown"]);
}
