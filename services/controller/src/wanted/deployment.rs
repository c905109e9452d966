//! The pods that carry a Gateway's requests.

use std::collections::BTreeMap;

use api::names;
use serde_json::{Value, json};

use super::{ADMIN_PORT, PICKER_PORT, Plane};
use crate::kind::Kind;

/// Time in which load balancers learn that a pod is going, during which it still takes connections.
const DRAIN_GRACE_S: u32 = 15;
/// Longest time that running answers may go on.
const DRAIN_TIMEOUT_S: u32 = 300;
/// Until the pod is killed: both of these and a little more, so that the process always ends by itself.
const TERMINATION_S: u32 = DRAIN_GRACE_S + DRAIN_TIMEOUT_S + 15;
/// A user that no image gives anything to.
const USER: u32 = 65_532;
/// Where a data plane keeps what it last knew, so that a restarted container serves without the API server.
/// In memory, since Secrets are among it.
const STATE_DIR: &str = "/var/lib/inference-gateway";

/// The Deployment of a data plane.
#[must_use]
pub fn deployment(plane: &Plane) -> Value {
    let mut deployment = plane.object(Kind::Deployment);
    deployment["spec"] = json!({
        "selector": {"matchLabels": plane.selector()},
        // A pod more before one less: an update takes no capacity away.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "progressDeadlineSeconds": 600,
        "revisionHistoryLimit": 3,
        "template": {"metadata": pod_metadata(plane), "spec": pod_spec(plane)},
    });
    if let Some(replicas) = plane.replicas {
        deployment["spec"]["replicas"] = json!(replicas);
    }
    deployment
}

fn pod_metadata(plane: &Plane) -> Value {
    let defaults = &plane.pods.defaults;
    let mut labels: BTreeMap<String, String> = defaults.labels.clone();
    labels.extend(plane.infrastructure.labels.clone());
    // Ours last: the selector must find its pods whatever operators write.
    labels.extend(plane.marks.0.clone());
    let mut annotations: BTreeMap<String, String> = BTreeMap::new();
    if plane.pods.metrics {
        let port = ADMIN_PORT.to_string();
        for (key, value) in [("scrape", "true"), ("port", port.as_str()), ("path", "/metrics")] {
            annotations.insert(format!("prometheus.io/{key}"), value.to_owned());
        }
    }
    annotations.extend(defaults.annotations.clone());
    annotations.extend(plane.infrastructure.annotations.clone());
    json!({"labels": labels, "annotations": annotations})
}

fn pod_spec(plane: &Plane) -> Value {
    let defaults = &plane.pods.defaults;
    let spread = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map(|key| {
        json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": plane.selector()},
        })
    });
    let mut spec = json!({
        "serviceAccountName": plane.name,
        "terminationGracePeriodSeconds": TERMINATION_S,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": spread,
        "containers": [container(plane)],
        "volumes": [{"name": "state", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
    });
    if !defaults.node_selector.is_empty() {
        spec["nodeSelector"] = json!(defaults.node_selector);
    }
    if !defaults.tolerations.is_empty() {
        spec["tolerations"] = json!(defaults.tolerations);
    }
    if let Some(affinity) = &defaults.affinity {
        spec["affinity"] = affinity.clone();
    }
    spec
}

fn container(plane: &Plane) -> Value {
    json!({
        "name": "inference-gateway",
        "image": plane.settings.image,
        "imagePullPolicy": plane.settings.pull_policy,
        "args": [
            "--kubernetes",
            format!("--gateway={}", plane.gateway),
            format!("--state-dir={STATE_DIR}"),
            format!("--drain-grace={DRAIN_GRACE_S}s"),
            format!("--drain-timeout={DRAIN_TIMEOUT_S}s"),
        ],
        "env": environment(plane),
        "envFrom": sources(plane),
        "ports": ports(plane),
        "readinessProbe": probe("/readyz", 1, 1),
        "livenessProbe": probe("/healthz", 10, 3),
        // Alive at once, ready when it has read the cluster: a start that takes long is no reason to end it.
        "startupProbe": probe("/healthz", 1, 60),
        "resources": plane.pods.defaults.resources.clone().unwrap_or_else(resources),
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "state", "mountPath": STATE_DIR}],
    })
}

/// Twice the memory that bodies may take by default, and no limit on CPU, which would only add latency.
fn resources() -> Value {
    json!({"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}})
}

fn probe(path: &str, period_s: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": path, "port": "admin"},
        "periodSeconds": period_s, "failureThreshold": failures, "timeoutSeconds": 2,
    })
}

fn ports(plane: &Plane) -> Vec<Value> {
    let mut ports: BTreeMap<u16, String> = BTreeMap::new();
    // Several listeners may share a port and differ by host.
    for door in &plane.doors {
        let port = names::pod_port(door.port);
        ports.entry(port).or_insert_with(|| format!("data-{}", door.port));
    }
    ports.entry(ADMIN_PORT).or_insert_with(|| "admin".to_owned());
    ports.entry(PICKER_PORT).or_insert_with(|| "picker".to_owned());
    ports.into_iter().map(|(port, name)| json!({"name": name, "containerPort": port, "protocol": "TCP"})).collect()
}

/// Of the pod, then of `podDefaults`, then of each scheduler; a later one of the same name takes the earlier's place.
fn environment(plane: &Plane) -> Vec<Value> {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut merged = vec![field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")];
    for variable in plane.pods.defaults.env.iter().chain(&plane.pods.env) {
        match merged.iter_mut().find(|known| known["name"] == variable["name"]) {
            Some(known) => *known = variable.clone(),
            None => merged.push(variable.clone()),
        }
    }
    merged
}

fn sources(plane: &Plane) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for source in plane.pods.defaults.env_from.iter().chain(&plane.pods.env_from) {
        if !merged.contains(source) {
            merged.push(source.clone());
        }
    }
    merged
}
