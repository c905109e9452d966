//! Keeps the picture true: what decides is followed by `discovery`, what is ours by watches of our label.
//!
//! Every watch begins with a list, which replaces what was known of its kind, and is ended by the API server after a
//! short time or given up when it falls silent; so a deletion that was missed is found out. A kind that the cluster does not
//! have, or does not let us see, is absent, asked for again and again, and stops nothing else.

mod feed;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api::{
    cluster::{ObjectKey, Objects},
    names,
};
use discovery::cluster::{self, Limits, Range, Scope};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::{
    client::{Clients, WATCH_MAX_S},
    health::Readiness,
    kind::{Id, Kind},
    models::{Model, ModelKey, ModelKind},
    picture::{Owned, Picture},
    seen::Seen,
};

/// What all watches know, and who waits for news of it.
pub struct Mirror {
    state: Mutex<State>,
    changed: Notify,
    readiness: Readiness,
    scope: watch::Sender<Scope>,
}

struct State {
    picture: Picture,
    /// Watches that have not been answered yet.
    pending: BTreeSet<Source>,
}

/// One watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Deciding,
    Ours(Kind),
    Autoscalers,
    Models(ModelKind),
}

impl Mirror {
    /// Starts all watches; they end with the runtime.
    #[must_use]
    pub fn start(clients: &Clients, system_namespace: &str, readiness: Readiness) -> Arc<Self> {
        let mut pending: BTreeSet<Source> = Kind::ALL.into_iter().map(Source::Ours).collect();
        pending.extend([Source::Deciding, Source::Autoscalers]);
        pending.extend(ModelKind::ALL.map(Source::Models));
        let (scope, scope_seen) = watch::channel(deciding());
        let mirror = Arc::new(Self {
            state: Mutex::new(State { picture: Picture::default(), pending }),
            changed: Notify::new(),
            readiness,
            scope,
        });
        for kind in Kind::ALL {
            tokio::spawn(feed::ours(Arc::clone(&mirror), clients.watch.clone(), kind, system_namespace.to_owned()));
        }
        for kind in ModelKind::ALL {
            tokio::spawn(feed::models(Arc::clone(&mirror), clients.watch.clone(), kind));
        }
        tokio::spawn(feed::autoscalers(Arc::clone(&mirror), clients.watch.clone(), system_namespace.to_owned()));
        let (client, told) = (clients.watch.clone(), Arc::clone(&mirror));
        tokio::spawn(async move {
            let tell = |objects| told.decide(objects);
            // The client gives a watch up that is silent for longer than ours last: these must end before.
            let watch_max = Duration::from_secs(u64::from(WATCH_MAX_S));
            let limits = Limits { watch_min: watch_max / 2, watch_max, ..Limits::default() };
            cluster::follow(client, limits, scope_seen, Arc::default(), tell).await;
        });
        mirror
    }

    /// What is known now; `None` while a watch has never been answered.
    #[must_use]
    pub fn picture(&self) -> Option<Picture> {
        let state = self.state.lock();
        state.pending.is_empty().then(|| state.picture.clone())
    }

    /// Resolves once something has changed since the last call resolved.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Somebody should look again.
    pub fn nudge(&self) {
        self.changed.notify_one();
    }

    /// What was just written, before the watch tells of it.
    pub fn wrote(&self, id: &Id, object: Value) {
        keep_newer(&mut self.state.lock().picture.owned, id.clone(), Seen::new(id.kind, object));
    }

    /// It is not there any more.
    pub fn gone(&self, id: &Id) {
        self.state.lock().picture.owned.remove(id);
    }

    fn decide(&self, objects: Arc<Objects>) {
        self.follow_certificates(&objects);
        self.update(Source::Deciding, |picture| picture.objects = objects);
    }

    /// Secrets are read one by one: those that Gateways of ours name.
    fn follow_certificates(&self, objects: &Objects) {
        let mut scope = deciding();
        let is_ours = |class: &str| {
            let class = objects.gateway_classes.get(&ObjectKey::new("", class));
            class.is_some_and(|class| class.spec.controller_name == names::CONTROLLER_NAME)
        };
        for gateway in objects.gateways.values().filter(|it| is_ours(&it.spec.gateway_class_name)) {
            let listeners = gateway.spec.listeners.iter().filter_map(|listener| listener.tls.as_ref());
            for secret in listeners.flat_map(|tls| &tls.certificate_refs) {
                let namespace = secret.namespace.as_ref().unwrap_or(&gateway.metadata.namespace);
                let key = ObjectKey::new(namespace, &secret.name);
                scope.add(cluster::Kind::Secret, Range::Named(key));
            }
        }
        self.scope.send_if_modified(|known| {
            let differs = *known != scope;
            *known = scope;
            differs
        });
    }

    /// A list of our objects of a kind.
    fn relisted(&self, kind: Kind, listed: Owned) {
        self.update(Source::Ours(kind), |picture| {
            picture.absent.remove(&kind);
            picture.owned.retain(|id, _| id.kind != kind);
            picture.owned.extend(listed);
        });
    }

    fn applied(&self, id: Id, seen: Seen) {
        self.update(Source::Ours(id.kind), |picture| keep_newer(&mut picture.owned, id, seen));
    }

    fn deleted(&self, id: &Id) {
        self.update(Source::Ours(id.kind), |picture| {
            picture.owned.remove(id);
        });
    }

    /// The cluster does not have the kind. What was known of it stays: a server that starts may say so for a moment.
    fn absent(&self, kind: Kind) {
        self.update(Source::Ours(kind), |picture| {
            picture.absent.insert(kind);
        });
    }

    fn autoscaled(&self, deployments: BTreeSet<String>) {
        self.update(Source::Autoscalers, |picture| picture.autoscaled = deployments);
    }

    /// All models of a kind; `None`: the cluster does not have the kind, and what was known of it stays.
    fn models(&self, kind: ModelKind, listed: Option<BTreeMap<ModelKey, Model>>) {
        self.update(Source::Models(kind), |picture| {
            if let Some(listed) = listed {
                let models = picture.models.get_or_insert_default();
                models.retain(|key, _| key.0 != kind);
                models.extend(listed);
            }
        });
    }

    fn update(&self, source: Source, change: impl FnOnce(&mut Picture)) {
        let mut state = self.state.lock();
        change(&mut state.picture);
        state.pending.remove(&source);
        if state.pending.is_empty() {
            self.readiness.filled();
        }
        drop(state);
        self.changed.notify_one();
    }
}

/// What is read of the whole cluster. Not Secrets: those are followed by name.
fn deciding() -> Scope {
    use cluster::Kind as K;
    let kinds = [
        K::GatewayClass,
        K::Gateway,
        K::HttpRoute,
        K::ReferenceGrant,
        K::InferencePool,
        K::Namespace,
        K::Service,
        K::Pod,
        K::Config,
    ];
    kinds.into_iter().map(|kind| cluster::Watch { kind, range: Range::All }).collect()
}

/// An event may be older than what a write of ours returned.
fn keep_newer(owned: &mut Owned, id: Id, seen: Seen) {
    let known = owned.get(&id).map_or(0, |known| known.version);
    if seen.version >= known {
        owned.insert(id, Arc::new(seen));
    }
}
