//! One watch: lists, follows, starts again.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use api::{cluster::ObjectKey, names};
use futures::StreamExt;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    runtime::watcher::{self, Event, watcher},
};

use super::Mirror;
use crate::{
    client::WATCH_MAX_S,
    kind::{Id, Kind},
    models::{Model, ModelKey, ModelKind},
    picture::Owned,
    seen::Seen,
    wanted::picker::MANAGER_OF_SLICE,
};

/// Wait after a first failure; doubled for each further one.
const RETRY_MIN: Duration = Duration::from_millis(200);
/// Longest wait between two tries.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Objects in a page of a list.
const PAGE: u32 = 200;

/// Follows our objects of one kind, for ever.
pub(super) async fn ours(mirror: Arc<Mirror>, client: Client, kind: Kind, system_namespace: String) {
    let api: Api<DynamicObject> = if kind.is_of_system() {
        Api::namespaced_with(client, &system_namespace, &kind.resource())
    } else {
        Api::all_with(client, &kind.resource())
    };
    let mut selector = format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY);
    if kind == Kind::EndpointSlice {
        // Kubernetes copies the labels of a Service to the slices that it makes itself.
        selector.push_str(&format!(",{MANAGER_OF_SLICE}={}", names::MANAGED_BY));
    }
    let mut events = pin!(watcher(api, settings().labels(&selector)));
    let mut listed = Owned::new();
    let mut retry = Retry::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                if let Some((id, seen)) = read(kind, &object) {
                    listed.insert(id, Arc::new(seen));
                }
            }
            Ok(Event::InitDone) => {
                retry = Retry::default();
                mirror.relisted(kind, std::mem::take(&mut listed));
            }
            Ok(Event::Apply(object)) => {
                if let Some((id, seen)) = read(kind, &object) {
                    mirror.applied(id, seen);
                }
            }
            Ok(Event::Delete(object)) => {
                mirror.deleted(&Id::new(kind, object.namespace().unwrap_or_default(), object.name_any()));
            }
            Err(error) => {
                if is_absent(&error) {
                    mirror.absent(kind);
                }
                retry.wait(kind.name(), &error).await;
            }
        }
    }
}

/// Follows models of one kind, reduced to what matters.
pub(super) async fn models(mirror: Arc<Mirror>, client: Client, kind: ModelKind) {
    let api: Api<DynamicObject> = Api::all_with(client, &kind.resource());
    let mut events = pin!(watcher(api, settings()));
    let mut known: BTreeMap<ModelKey, Model> = BTreeMap::new();
    let mut retry = Retry::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => known.clear(),
            Ok(Event::InitApply(object)) => known.extend(read_model(kind, &object)),
            Ok(Event::InitDone) => {
                retry = Retry::default();
                mirror.models(kind, Some(known.clone()));
            }
            Ok(Event::Apply(object)) => {
                known.extend(read_model(kind, &object));
                mirror.models(kind, Some(known.clone()));
            }
            Ok(Event::Delete(object)) => {
                known.remove(&model_key(kind, &object));
                mirror.models(kind, Some(known.clone()));
            }
            Err(error) => {
                if is_absent(&error) {
                    mirror.models(kind, None);
                }
                retry.wait(kind.name(), &error).await;
            }
        }
    }
}

fn model_key(kind: ModelKind, object: &DynamicObject) -> ModelKey {
    (kind, ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any()))
}

fn read_model(kind: ModelKind, object: &DynamicObject) -> Option<(ModelKey, Model)> {
    let model = Model::read(kind, &serde_json::to_value(object).ok()?);
    Some((model_key(kind, object), model))
}

/// Follows which Deployments of the system namespace an autoscaler looks after.
pub(super) async fn autoscalers(mirror: Arc<Mirror>, client: Client, namespace: String) {
    let api: Api<HorizontalPodAutoscaler> = Api::namespaced(client, &namespace);
    let mut events = pin!(watcher(api, settings()));
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut retry = Retry::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => known.clear(),
            Ok(Event::InitApply(scaler)) => note(&mut known, &scaler),
            Ok(Event::InitDone) => {
                retry = Retry::default();
                mirror.autoscaled(known.values().cloned().collect());
            }
            Ok(Event::Apply(scaler)) => {
                note(&mut known, &scaler);
                mirror.autoscaled(known.values().cloned().collect());
            }
            Ok(Event::Delete(scaler)) => {
                known.remove(&scaler.name_any());
                mirror.autoscaled(known.values().cloned().collect());
            }
            Err(error) => {
                if is_absent(&error) {
                    mirror.autoscaled(BTreeSet::new());
                }
                retry.wait("HorizontalPodAutoscaler", &error).await;
            }
        }
    }
}

fn note(known: &mut BTreeMap<String, String>, scaler: &HorizontalPodAutoscaler) {
    let target = scaler.spec.as_ref().map(|spec| &spec.scale_target_ref);
    match target.filter(|target| target.kind == "Deployment") {
        Some(target) => known.insert(scaler.name_any(), target.name.clone()),
        None => known.remove(&scaler.name_any()),
    };
}

fn settings() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_MAX_S).page_size(PAGE)
}

fn read(kind: Kind, object: &DynamicObject) -> Option<(Id, Seen)> {
    let id = Id::new(kind, object.namespace().unwrap_or_default(), object.name_any());
    Some((id, Seen::new(kind, serde_json::to_value(object).ok()?)))
}

/// Whether the API server does not have the kind, or does not show it.
fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    matches!(status.code, 403 | 404)
}

/// Waits longer after each failure, and says the first of a row.
struct Retry {
    next: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { next: RETRY_MIN }
    }
}

impl Retry {
    async fn wait(&mut self, kind: &str, error: &watcher::Error) {
        // Most clusters lack some kind, and what that means is said where somebody asks for it.
        if self.next == RETRY_MIN && !is_absent(error) {
            tracing::warn!(kind, "watch: {error}");
        } else {
            tracing::debug!(kind, "watch: {error}");
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(RETRY_MAX);
    }
}
