//! The listeners of a Gateway: opened, closed and given their certificates as the Gateway says.
//!
//! What a listener speaks is settled before its socket is opened, so that nobody finds plain text where TLS is meant. A
//! socket that cannot be opened is tried again, since what holds its port may leave.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use api::{
    cluster::{ObjectKey, Objects},
    names::pod_port,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use proxy::serve::{Listener, Scheme, Serving, tls::Tls};
use routing::{GatewayState, Hostname, ListenerState, Protocol};
use telemetry::Metrics;
use tokio::{sync::watch, time::timeout};

use super::certificates::{Certificates, Pair, Wanted};

/// How long until a socket that did not open is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A listener, and what it speaks.
#[derive(Clone, Debug)]
pub(super) struct Door {
    listener: Listener,
    tls: Arc<Tls>,
}

impl PartialEq for Door {
    /// The very same: what it speaks may change without anything to do for whoever opens doors.
    fn eq(&self, other: &Self) -> bool {
        self.listener == other.listener && Arc::ptr_eq(&self.tls, &other.tls)
    }
}

/// What each listener of a Gateway speaks.
#[derive(Default)]
pub(super) struct Speaking(BTreeMap<Listener, Arc<Tls>>);

/// What one listener with TLS is to show, read out of its Secrets.
struct Shown<'a> {
    name: &'a str,
    hostname: Option<String>,
    secrets: Vec<(String, Option<PemPair>)>,
}

/// A certificate and its key.
type PemPair = (Vec<u8>, Vec<u8>);

impl Speaking {
    /// Has every listener speak what the Gateway says. Returns the doors that should be open: one per port, whatever the
    /// number of its hosts.
    pub(super) fn follow(
        &mut self,
        gateway: Option<&GatewayState>,
        objects: &Objects,
        certificates: &mut Certificates,
        metrics: &Metrics,
    ) -> Vec<Door> {
        let mut shown: BTreeMap<Listener, Vec<Shown<'_>>> = BTreeMap::new();
        let listeners = gateway.iter().flat_map(|gateway| &gateway.listeners);
        for state in listeners.filter(|state| state.serves()) {
            let scheme = match state.protocol {
                Some(Protocol::Http) => Scheme::Http,
                Some(Protocol::Https) => Scheme::Https,
                None => continue,
            };
            shown.entry(Listener { port: state.port, scheme }).or_default().push(Shown::of(state, objects));
        }
        self.0.retain(|listener, _| shown.contains_key(listener));
        for listener in shown.keys() {
            self.0.entry(*listener).or_insert_with(Tls::plain);
        }
        let with_tls = shown.iter().filter(|(listener, _)| listener.scheme == Scheme::Https);
        let doors: Vec<(&Tls, Vec<Wanted<'_>>)> =
            with_tls.map(|(listener, sites)| (&*self.0[listener], sites.iter().map(Shown::wanted).collect())).collect();
        certificates.show(&doors, metrics);
        self.0.iter().map(|(listener, tls)| Door { listener: *listener, tls: Arc::clone(tls) }).collect()
    }
}

impl<'a> Shown<'a> {
    fn of(state: &'a ListenerState, objects: &Objects) -> Self {
        let hostname = match &state.hostname {
            Hostname::Any => None,
            named @ (Hostname::Suffix(_) | Hostname::Exact(_)) => Some(named.to_string()),
        };
        let secrets = state.certificates.iter().map(|key| (key.to_string(), pair(key, objects))).collect();
        Self { name: &state.name, hostname, secrets }
    }

    fn wanted(&self) -> Wanted<'_> {
        let secrets = self
            .secrets
            .iter()
            .map(|(secret, pair)| (secret.as_str(), pair.as_ref().map(|(certificate, key)| Pair { certificate, key })));
        Wanted { listener: self.name, hostname: self.hostname.as_deref(), secrets: secrets.collect() }
    }
}

/// Certificate and key out of a Secret.
fn pair(key: &ObjectKey, objects: &Objects) -> Option<PemPair> {
    let data = &objects.secrets.get(key)?.data;
    let part = |name: &str| data.get(name).and_then(|value| STANDARD.decode(value).ok());
    part("tls.crt").zip(part("tls.key"))
}

/// Keeps the doors open that should be, and no others, until nobody says any more which.
pub(super) async fn keep(serving: Arc<Serving>, bind: IpAddr, mut wanted: watch::Receiver<Vec<Door>>) {
    let mut open: Vec<Door> = Vec::new();
    let mut refused = BTreeSet::new();
    loop {
        let doors = wanted.borrow_and_update().clone();
        let (stay, gone): (Vec<_>, Vec<_>) = open.into_iter().partition(|door| doors.contains(door));
        open = stay;
        for Door { listener, .. } in gone {
            serving.remove(listener.port).await;
            tracing::info!(port = listener.port, "listener closed");
        }
        refused.retain(|listener| doors.iter().any(|door| door.listener == *listener));
        for door in doors {
            if open.contains(&door) {
                continue;
            }
            match unlock(&serving, bind, &door) {
                Ok(()) => {
                    refused.remove(&door.listener);
                    open.push(door);
                }
                Err(error) if refused.insert(door.listener) => {
                    tracing::error!(port = door.listener.port, error, "a listener cannot be opened: it is tried again");
                }
                Err(_) => {}
            }
        }
        let changed = wanted.changed();
        let ended = if refused.is_empty() {
            changed.await.is_err()
        } else {
            timeout(TRY_AGAIN_AFTER, changed).await.is_ok_and(|changed| changed.is_err())
        };
        if ended {
            return;
        }
    }
}

fn unlock(serving: &Serving, bind: IpAddr, Door { listener, tls }: &Door) -> Result<(), String> {
    let address = SocketAddr::new(bind, pod_port(listener.port));
    let socket = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    socket.set_nonblocking(true).map_err(|error| error.to_string())?;
    serving.add(socket, *listener, Arc::clone(tls)).map_err(|error| error.to_string())?;
    tracing::info!(port = listener.port, %address, scheme = listener.scheme.as_str(), "listener open");
    Ok(())
}
