//! The node: one, with room for everything.

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::place::{KUBELET_PORT, NODE, NODE_ADDRESS};

/// Registers the node as ready.
///
/// # Errors
/// When the API server refuses it.
pub(crate) async fn register(client: Client) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client);
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": labels()},
        "spec": {"providerID": "rig://rig"},
    });
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await.context("cannot register the node")?;
    let patch = Patch::Merge(json!({"status": status()}));
    nodes.patch_status(NODE, &PatchParams::default(), &patch).await.context("cannot report the node's status")?;
    Ok(())
}

/// What pods may ask for in their node selectors.
pub(crate) fn labels() -> Value {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    json!({
        "kubernetes.io/hostname": NODE,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "node.kubernetes.io/instance-type": "rig",
        "topology.kubernetes.io/zone": "rig-a",
    })
}

fn status() -> Value {
    let now = jiff::Timestamp::now();
    // GPUs are simulated like everything else: they never run out.
    let room =
        json!({"cpu": "1000", "memory": "8Ti", "pods": "10000", "ephemeral-storage": "8Ti", "nvidia.com/gpu": "1024"});
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason,
        "message": reason, "lastHeartbeatTime": now, "lastTransitionTime": now})
    };
    json!({
        "capacity": room,
        "allocatable": room,
        "addresses": [{"type": "InternalIP", "address": NODE_ADDRESS.to_string()}, {"type": "Hostname", "address": NODE}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "conditions": [
            condition("Ready", "True", "KubeletReady"),
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
        ],
        "nodeInfo": {
            "architecture": "amd64", "bootID": "rig", "containerRuntimeVersion": "process://1",
            "kernelVersion": "rig", "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": "rig",
            "operatingSystem": "linux", "osImage": "processes of this machine", "systemUUID": "rig",
        },
    })
}
