//! Makes the writes of a plan.
//!
//! Each asks first whether the lease is still held. Objects are made and changed by server-side apply under our own name, so
//! what others add to them stays; nothing is taken over that is not marked as ours.

use std::{sync::Arc, time::Duration};

use api::names;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use telemetry::{Metrics, catalog::CONTROLLER_WRITES};

use crate::{
    client::CALL_MAX,
    difference::{is_met, print},
    kind::{Id, Kind},
    leader::Leadership,
    mirror::Mirror,
    picture::{label, text, trimmed},
    plan::{Action, Settled},
};

/// Who owns a Deployment's replicas between us and an autoscaler that has not scaled it yet.
const LET_GO_MANAGER: &str = "inference-gateway-controller-let-go";

/// Why something was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// Another copy of the controller writes now.
    #[error("the lease is not held")]
    NotLeading,
    /// Somebody else has an object of this name.
    #[error("{0} exists and was not made by this controller for this purpose; rename or delete it")]
    Foreign(String),
    /// The API server, a quota or an admission rule says no.
    #[error("{id}: refused: {message}")]
    Refused { id: String, message: String },
    /// It has changed meanwhile.
    #[error("{0} has changed meanwhile")]
    Conflict(String),
    /// No answer, or none that says anything.
    #[error("{id}: {message}")]
    Unavailable { id: String, message: String },
}

impl NotWritten {
    const fn result(&self) -> &'static str {
        match self {
            Self::NotLeading | Self::Conflict(_) => "conflict",
            Self::Foreign(_) | Self::Refused { .. } => "refused",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    /// What became of a call about `id`.
    #[must_use]
    pub fn of(id: String, error: &kube::Error) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Unavailable { id, message: error.to_string() };
        };
        match status.code {
            409 => Self::Conflict(id),
            400 | 403 | 404 | 422 => Self::Refused { id, message: status.message.clone() },
            _ => Self::Unavailable { id, message: status.message.clone() },
        }
    }
}

/// Whoever writes.
pub struct Writer {
    client: Client,
    leadership: Leadership,
    mirror: Arc<Mirror>,
    metrics: Metrics,
    settled: Mutex<Settled>,
}

impl Writer {
    /// Writes through `client` while `leadership` holds, and tells `mirror`.
    #[must_use]
    pub fn new(client: Client, leadership: Leadership, mirror: Arc<Mirror>, metrics: Metrics) -> Self {
        Self { client, leadership, mirror, metrics, settled: Mutex::default() }
    }

    /// How objects looked after they were written.
    #[must_use]
    pub fn settled(&self) -> Settled {
        self.settled.lock().clone()
    }

    /// Makes one write.
    ///
    /// # Errors
    /// When it was not made; see [`NotWritten`].
    pub async fn act(&self, action: &Action) -> Result<(), NotWritten> {
        let verb = match action {
            Action::Create { .. } | Action::Change { .. } | Action::LetGo { .. } => "apply",
            Action::Delete { .. } => "delete",
        };
        self.counted(verb, action.id().to_string(), async {
            match action {
                Action::Create { id, body } => self.create(id, body).await,
                Action::Change { id, uid, body } => {
                    let mut body = body.clone();
                    // With a uid, apply does not bring back what was deleted meanwhile.
                    body["metadata"]["uid"] = json!(uid);
                    self.apply(id, &body, names::MANAGED_BY).await
                }
                Action::LetGo { id, replicas } => {
                    let body = json!({
                        "apiVersion": id.kind.api_version(), "kind": id.kind.name(),
                        "metadata": {"name": id.name, "namespace": id.namespace}, "spec": {"replicas": replicas},
                    });
                    self.apply(id, &body, LET_GO_MANAGER).await
                }
                Action::Delete { id, uid } => self.delete(id, uid).await,
            }
        })
        .await
    }

    /// Any writing call: only while the lease is held, within its time, and counted.
    ///
    /// # Errors
    /// Those of `call`, and when it may not be made or does not end.
    pub async fn counted<T>(
        &self,
        verb: &'static str,
        id: String,
        call: impl Future<Output = Result<T, NotWritten>>,
    ) -> Result<T, NotWritten> {
        if !self.leadership.holds() {
            return Err(NotWritten::NotLeading);
        }
        let limit: Duration = CALL_MAX;
        let done = match tokio::time::timeout(limit, call).await {
            Ok(done) => done,
            Err(_) => Err(NotWritten::Unavailable { id, message: "the API server did not answer in time".into() }),
        };
        let result = done.as_ref().err().map_or("ok", NotWritten::result);
        self.metrics.counter(&CONTROLLER_WRITES, &[verb, result]).increment(1);
        done
    }

    /// Server-side apply would quietly change an object of somebody else, so its place is looked at first.
    async fn create(&self, id: &Id, body: &Value) -> Result<(), NotWritten> {
        let found = self.api(id).get_opt(&id.name).await.map_err(|error| NotWritten::of(id.to_string(), &error))?;
        let found = found.and_then(|found| serde_json::to_value(found).ok());
        if let Some(found) = found {
            if !is_for_the_same(&found, body) {
                return Err(NotWritten::Foreign(id.to_string()));
            }
            if found.pointer("/metadata/deletionTimestamp").is_some() {
                return Err(NotWritten::Conflict(id.to_string()));
            }
        }
        self.apply(id, body, names::MANAGED_BY).await
    }

    async fn apply(&self, id: &Id, body: &Value, manager: &str) -> Result<(), NotWritten> {
        let parameters = PatchParams::apply(manager).force();
        let written = self.api(id).patch(&id.name, &parameters, &Patch::Apply(body)).await;
        let written = written.map_err(|error| NotWritten::of(id.to_string(), &error))?;
        let Ok(written) = serde_json::to_value(written) else { return Ok(()) };
        let written = trimmed(id.kind, written);
        let mut settled = self.settled.lock();
        if is_met(body, &written, None) {
            settled.remove(id);
        } else {
            settled.insert(id.clone(), print(body, &written));
        }
        drop(settled);
        self.mirror.wrote(id, written);
        Ok(())
    }

    async fn delete(&self, id: &Id, uid: &str) -> Result<(), NotWritten> {
        let same = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let deleted = self.api(id).delete(&id.name, &DeleteParams::background().preconditions(same)).await;
        match deleted {
            // Gone, or another of the same name: what was to go is not there.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Ok(_) => {}
            Err(error) => return Err(NotWritten::of(id.to_string(), &error)),
        }
        self.settled.lock().remove(id);
        self.mirror.gone(id);
        Ok(())
    }

    fn api(&self, id: &Id) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &id.namespace, &id.kind.resource())
    }
}

/// Whether an object that is there was made by us, and for the same config or Gateway.
fn is_for_the_same(found: &Value, body: &Value) -> bool {
    [
        names::MANAGED_BY_LABEL,
        names::CONFIG_NAME_LABEL,
        names::CONFIG_NAMESPACE_LABEL,
        names::GATEWAY_NAME_LABEL,
        names::GATEWAY_NAMESPACE_LABEL,
    ]
    .into_iter()
    .all(|key| label(found, key) == label(body, key))
}

/// What an event says of a write: only of those that operators look for.
#[must_use]
pub fn told(action: &Action) -> Option<(&'static str, String)> {
    let telling =
        [Kind::Gateway, Kind::Deployment, Kind::Service, Kind::Ingress, Kind::Certificate, Kind::InferencePool];
    let id = action.id();
    if !telling.contains(&id.kind) {
        return None;
    }
    match action {
        Action::Create { body, .. } => Some(("Created", format!("created {id}{}", of_scheduler(body)))),
        Action::Change { .. } => Some(("Updated", format!("updated {id}"))),
        Action::Delete { .. } => Some(("Deleted", format!("deleted {id}"))),
        Action::LetGo { replicas, .. } => {
            Some(("Autoscaled", format!("{id} keeps {replicas} replicas until its autoscaler says otherwise")))
        }
    }
}

fn of_scheduler(body: &Value) -> String {
    let scheduler = label(body, names::SCHEDULER_LABEL);
    let is_named_so = scheduler.is_empty() || text(body, "/metadata/name") == scheduler;
    if is_named_so { String::new() } else { format!(" for scheduler {scheduler}") }
}
