//! The inference operator's part, which the rig has not: its kind, and the Deployment that it makes of each object.
//!
//! Only what a gateway meets of it. Where the real one decides by the kind of machine, this one takes what is written.

use harness::{Cluster, Space};
use serde_json::{Value, json};

/// As small as a definition can be that keeps what the operator's keeps.
const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: inferenceendpointconfigs.inference.sagemaker.aws.amazon.com}
spec:
  group: inference.sagemaker.aws.amazon.com
  scope: Namespaced
  names: {kind: InferenceEndpointConfig, plural: inferenceendpointconfigs, singular: inferenceendpointconfig}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

/// Makes the kind known, once or again.
pub(crate) fn install(cluster: Cluster) {
    cluster.apply(DEFINITION);
    let kind = "crd/inferenceendpointconfigs.inference.sagemaker.aws.amazon.com";
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", kind]);
}

/// A model as its owner writes it; `gateway` is its `spec.inferenceGateway`.
pub(crate) fn endpoint(name: &str, replicas: u32, gateway: Value) -> Value {
    json!({
        "apiVersion": "inference.sagemaker.aws.amazon.com/v1", "kind": "InferenceEndpointConfig",
        "metadata": {"name": name},
        "spec": {
            "modelName": name, "replicas": replicas, "inferenceGateway": gateway,
            "worker": {
                "image": "vllm/vllm-openai:v0.11.0",
                "args": ["--model", name, "--served-model-name", name],
                "modelInvocationPort": {"containerPort": 8000, "name": "http"},
            },
        },
    })
}

/// Makes the Deployment of each such object of a namespace, with pods that carry `app=NAME`.
pub(crate) fn tend(space: &Space) {
    for endpoint in space.list("inferenceendpointconfigs", "") {
        space.apply(&deployment(&endpoint).to_string());
    }
}

fn deployment(endpoint: &Value) -> Value {
    let (metadata, spec) = (&endpoint["metadata"], &endpoint["spec"]);
    let labels = json!({"app": metadata["name"]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": metadata["name"], "labels": labels, "ownerReferences": [{
            "apiVersion": endpoint["apiVersion"], "kind": endpoint["kind"],
            "name": metadata["name"], "uid": metadata["uid"], "controller": true,
        }]},
        "spec": {
            "replicas": spec["replicas"], "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{
                    "name": "worker", "image": spec["worker"]["image"], "args": spec["worker"]["args"],
                    "ports": [spec["worker"]["modelInvocationPort"]],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
                }]},
            },
        },
    })
}
