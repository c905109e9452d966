//! The stand-in for kube-proxy: listens on each ClusterIP and forwards bytes to a ready endpoint.
//!
//! A Service without an endpoint that could take a connection refuses it, as the real one does. Open connections outlive
//! the endpoint's readiness. TCP only; no affinity, no node ports, no load balancers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::watcher::{self, Event},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::place::Place;

/// Between a watch that ended and the next.
const RETRY: Duration = Duration::from_millis(100);
/// Endpoints tried for one connection.
const TRIES: usize = 3;

type Targets = Arc<Mutex<Vec<SocketAddr>>>;

/// Starts it on a thread of its own, so that traffic does not slow the kubelet down.
pub(crate) fn start(place: &Place) {
    let config = place.file("admin.conf");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Err(error) = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(run(&config))) {
            eprintln!("cluster-rig: the service proxy ended: {error:#}");
        }
    });
}

async fn run(config: &std::path::Path) -> anyhow::Result<()> {
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(config)?, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let mut table = Table::default();
    loop {
        let services = watcher::watcher(Api::<Service>::all(client.clone()), watcher::Config::default());
        let slices = watcher::watcher(Api::<EndpointSlice>::all(client.clone()), watcher::Config::default());
        let (mut services, mut slices) = (services.boxed(), slices.boxed());
        loop {
            let going_on = tokio::select! {
                event = services.try_next() => event.is_ok_and(|event| table.services.take(event, |service: &Service| &service.metadata)),
                event = slices.try_next() => event.is_ok_and(|event| table.slices.take(event, |slice: &EndpointSlice| &slice.metadata)),
            };
            if !going_on {
                break;
            }
            table.settle().await;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Objects of one kind by namespace and name, as a watch tells them.
struct Kept<T> {
    objects: BTreeMap<(String, String), T>,
    listed: BTreeSet<(String, String)>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeSet::new() }
    }
}

impl<T> Kept<T> {
    /// Takes an event; whether there can be more.
    fn take(&mut self, event: Option<Event<T>>, metadata: impl Fn(&T) -> &kube::core::ObjectMeta) -> bool {
        let key = |object: &T| {
            let metadata = metadata(object);
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
        };
        match event {
            None => return false,
            Some(Event::Init) => self.listed.clear(),
            Some(Event::InitApply(object)) => {
                let key = key(&object);
                self.listed.insert(key.clone());
                self.objects.insert(key, object);
            }
            Some(Event::InitDone) => self.objects.retain(|key, _| self.listed.contains(key)),
            Some(Event::Apply(object)) => drop(self.objects.insert(key(&object), object)),
            Some(Event::Delete(object)) => drop(self.objects.remove(&key(&object))),
        }
        true
    }
}

#[derive(Default)]
struct Table {
    services: Kept<Service>,
    slices: Kept<EndpointSlice>,
    doors: BTreeMap<SocketAddr, Door>,
}

struct Door {
    targets: Targets,
    listener: JoinHandle<()>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Table {
    /// Opens, feeds and closes doors so that they are as the objects say.
    async fn settle(&mut self) {
        let wanted = wanted(self.services.objects.values(), self.slices.objects.values());
        self.doors.retain(|address, _| wanted.contains_key(address));
        for (address, targets) in wanted {
            if let Some(door) = self.doors.get(&address) {
                *door.targets.lock().expect("no holder panics") = targets;
                continue;
            }
            // An address that is still taken is tried again with the next change.
            let Ok(listener) = TcpListener::bind(address).await else { continue };
            let targets = Arc::new(Mutex::new(targets));
            let listener = tokio::spawn(accept(listener, targets.clone()));
            self.doors.insert(address, Door { targets, listener });
        }
    }
}

/// ClusterIPs and ports with the endpoints behind them; none that has no endpoint.
fn wanted<'a>(
    services: impl Iterator<Item = &'a Service>,
    slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
) -> BTreeMap<SocketAddr, Vec<SocketAddr>> {
    let mut wanted = BTreeMap::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let Some(ip) = spec.cluster_ip.as_deref().and_then(|ip| ip.parse().ok()) else { continue };
        let own = slices.clone().filter(|slice| {
            let labels = slice.metadata.labels.as_ref();
            slice.metadata.namespace == service.metadata.namespace
                && labels.and_then(|labels| labels.get("kubernetes.io/service-name")) == service.metadata.name.as_ref()
        });
        for port in spec.ports.iter().flatten() {
            let Ok(number) = u16::try_from(port.port) else { continue };
            if port.protocol.as_deref().unwrap_or("TCP") != "TCP" {
                continue;
            }
            let targets = targets(own.clone(), port.name.as_deref().unwrap_or_default());
            if !targets.is_empty() {
                wanted.insert(SocketAddr::new(ip, number), targets);
            }
        }
    }
    wanted
}

/// Ready endpoints; where there is none, those that still serve while they terminate.
fn targets<'a>(slices: impl Iterator<Item = &'a EndpointSlice>, port_name: &str) -> Vec<SocketAddr> {
    let (mut ready, mut serving) = (Vec::new(), Vec::new());
    for slice in slices {
        let mut ports = slice.ports.iter().flatten();
        let Some(port) = ports.find(|port| port.name.as_deref().unwrap_or_default() == port_name) else { continue };
        let Some(number) = port.port.and_then(|port| u16::try_from(port).ok()) else { continue };
        for endpoint in &slice.endpoints {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
            let addresses = addresses.map(|ip| SocketAddr::new(ip, number));
            if conditions.ready.unwrap_or(true) {
                ready.extend(addresses);
            } else if conditions.serving.unwrap_or(false) {
                serving.extend(addresses);
            }
        }
    }
    if ready.is_empty() { serving } else { ready }
}

async fn accept(listener: TcpListener, targets: Targets) {
    loop {
        // Out of descriptors, for example: the next one may be taken.
        let Ok((mut client, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let targets = targets.clone();
        tokio::spawn(async move {
            for _ in 0..TRIES {
                let target = fastrand::choice(targets.lock().expect("no holder panics").iter().copied());
                let Some(target) = target else { return };
                if let Ok(mut endpoint) = TcpStream::connect(target).await {
                    let _ = client.set_nodelay(true).and_then(|()| endpoint.set_nodelay(true));
                    // Ends with either side.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut endpoint).await;
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(endpoints: serde_json::Value) -> EndpointSlice {
        serde_json::from_value(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "a", "name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
            "ports": [{"name": "http", "port": 8000}], "endpoints": endpoints,
        }))
        .unwrap()
    }

    fn service(namespace: &str, port: &str) -> Service {
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"namespace": namespace, "name": "s"},
            "spec": {"clusterIP": "10.96.0.9", "ports": [{"name": port, "port": 80}]}}))
        .unwrap()
    }

    #[test]
    fn ready_endpoints_come_first_and_terminating_ones_serve_when_there_is_no_other() {
        let ready = json!({"addresses": ["10.250.1.1"], "conditions": {"ready": true, "serving": true}});
        let ending = json!({"addresses": ["10.250.1.2"], "conditions": {"ready": false, "serving": true}});
        let unready = json!({"addresses": ["10.250.1.3"], "conditions": {"ready": false, "serving": false}});
        let of = |endpoints: serde_json::Value| {
            let slices = [slice(endpoints)];
            targets(slices.iter(), "http").iter().map(|target| target.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(json!([ready, ending, unready])), ["10.250.1.1:8000"]);
        assert_eq!(of(json!([ending, unready])), ["10.250.1.2:8000"]);
        assert!(of(json!([unready])).is_empty());
    }

    #[test]
    fn only_services_with_endpoints_listen_and_names_of_ports_are_matched() {
        let slices = [slice(json!([{"addresses": ["10.250.1.1"]}]))];
        let count = |service: Service| wanted([service].iter(), slices.iter()).len();
        assert_eq!(count(service("a", "http")), 1);
        assert_eq!(count(service("a", "grpc")), 0);
        assert_eq!(count(service("b", "http")), 0);
    }
}
