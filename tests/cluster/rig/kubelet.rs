//! The simulated kubelet, which is its own scheduler: pods that nobody has bound become this node's, and each of its pods
//! is run by a task of its own.

mod board;
mod container;
mod environment;
mod images;
mod logs;
mod node;
mod probe;
mod process;
mod status;
mod trusting;
mod volumes;
mod worker;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event as Told, Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher::{self, Event},
};
use serde_json::json;
use tokio::sync::watch;

pub(crate) use self::images::Images;
use crate::place::{NODE, Place};

/// Between a watch that ended and the next.
const RETRY: Duration = Duration::from_millis(100);
/// Addresses of pods: 10.250.1.0 to 10.250.255.255. An address comes again only after all others.
const ADDRESSES: u32 = 255 * 256;

/// What all pods share.
pub(crate) struct Shared {
    client: Client,
    place: Place,
    images: Images,
}

impl Shared {
    /// An event about a pod, as `kubectl describe` shows them.
    fn tell(&self, pod: &Pod, reason: &str, message: &str) {
        let metadata = &pod.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let now = jiff::Timestamp::now();
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": format!("{}.", metadata.name.as_deref().unwrap_or_default())},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": metadata.name, "uid": metadata.uid},
            "type": "Warning", "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": {"component": "kubelet", "host": NODE},
        });
        let events = Api::<Told>::namespaced(self.client.clone(), &namespace);
        tokio::spawn(async move {
            if let Ok(event) = serde_json::from_value(event) {
                // An event that is lost, for example because its namespace goes, is no loss.
                drop(events.create(&PostParams::default(), &event).await);
            }
        });
    }
}

/// Registers the node and runs its pods from now on.
///
/// # Errors
/// When the node cannot be registered.
pub(crate) async fn start(client: Client, place: Place, images: Images) -> anyhow::Result<()> {
    node::register(client.clone()).await?;
    logs::serve(place.clone()).await.context("the kubelet cannot serve logs")?;
    let shared = Arc::new(Shared { client, place, images });
    tokio::spawn(async move {
        let mut pods = Pods { shared, known: HashMap::new(), addresses: 0 };
        pods.follow().await;
    });
    Ok(())
}

struct Pods {
    shared: Arc<Shared>,
    /// By UID.
    known: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    /// Given out so far.
    addresses: u32,
}

impl Pods {
    async fn follow(&mut self) {
        let api = Api::<Pod>::all(self.shared.client.clone());
        let mut listed = HashSet::new();
        loop {
            let mut events = watcher::watcher(api.clone(), watcher::Config::default()).boxed();
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    Event::Init => listed.clear(),
                    Event::InitApply(pod) => {
                        listed.extend(pod.metadata.uid.clone());
                        self.apply(pod).await;
                    }
                    Event::InitDone => self.keep(&listed),
                    Event::Apply(pod) => self.apply(pod).await,
                    Event::Delete(pod) => self.gone(pod.metadata.uid.as_deref().unwrap_or_default()),
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// After a list: what is not in it is gone.
    fn keep(&mut self, listed: &HashSet<String>) {
        let missing: Vec<String> = self.known.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
        missing.iter().for_each(|uid| self.gone(uid));
    }

    fn gone(&mut self, uid: &str) {
        if let Some(object) = self.known.remove(uid) {
            object.send_replace(None);
        }
    }

    async fn apply(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        match node {
            None => self.bind(&pod),
            Some(node) if node == NODE => self.take(uid, pod),
            Some(_) => {}
        }
    }

    fn take(&mut self, uid: String, pod: Pod) {
        if let Some(object) = self.known.get(&uid) {
            object.send_replace(Some(Arc::new(pod)));
            return;
        }
        let finished = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(finished, Some("Failed" | "Succeeded")) && pod.metadata.deletion_timestamp.is_none() {
            return;
        }
        let ip = address(self.addresses);
        self.addresses += 1;
        let (sender, object) = watch::channel(Some(Arc::new(pod)));
        self.known.insert(uid, sender);
        tokio::spawn(worker::run(self.shared.clone(), ip, object));
    }

    /// The scheduler's part.
    fn bind(&self, pod: &Pod) {
        let Some(spec) = &pod.spec else { return };
        if spec.scheduler_name.as_deref().is_some_and(|name| name != "default-scheduler")
            || pod.metadata.deletion_timestamp.is_some()
            || !spec.scheduling_gates.as_deref().unwrap_or_default().is_empty()
        {
            return;
        }
        let (Some(name), Some(namespace)) = (pod.metadata.name.clone(), pod.metadata.namespace.clone()) else { return };
        let pods = Api::<Pod>::namespaced(self.shared.client.clone(), &namespace);
        if let Some(wanted) = spec.node_selector.as_ref().and_then(unmet) {
            tokio::spawn(async move {
                let message = format!("0/1 nodes are available: 1 node(s) didn't match the node selector {wanted}.");
                let condition =
                    json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
                let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
                drop(pods.patch_status(&name, &PatchParams::default(), &patch).await);
            });
            return;
        }
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE}});
        tokio::spawn(async move {
            // A pod that is gone or bound already needs no binding.
            drop(
                pods.create_subresource::<_, serde_json::Value>("binding", &name, &PostParams::default(), &binding)
                    .await,
            );
        });
    }
}

/// A label that a pod wants of its node and this one does not have.
fn unmet(selector: &BTreeMap<String, String>) -> Option<String> {
    let labels = node::labels();
    let missing = selector.iter().find(|(key, value)| labels[key.as_str()].as_str() != Some(value.as_str()));
    missing.map(|(key, value)| format!("{key}={value}"))
}

fn address(given: u32) -> IpAddr {
    let base = u32::from(Ipv4Addr::new(10, 250, 1, 0));
    // The first address of the range is skipped: some programs take .0 for a network.
    IpAddr::V4(Ipv4Addr::from(base + (given + 1) % ADDRESSES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_and_stay_in_their_range() {
        assert_eq!(address(0).to_string(), "10.250.1.1");
        assert_eq!(address(300).to_string(), "10.250.2.45");
        let all: HashSet<IpAddr> = (0..ADDRESSES).map(address).collect();
        assert_eq!(all.len(), ADDRESSES as usize);
        assert!(!all.contains(&IpAddr::V4(crate::place::NODE_ADDRESS)));
    }

    #[test]
    fn selectors_are_met_by_the_labels_of_the_node() {
        let selector = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(unmet(&selector("kubernetes.io/os", "linux")), None);
        assert_eq!(unmet(&selector("gpu", "h100")), Some("gpu=h100".into()));
    }
}
