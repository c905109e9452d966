//! The loop: look, plan, write, say.
//!
//! A look begins when something has changed, when a failed subject may be tried again, or after `RESYNC` at the
//! latest. Subjects are worked on side by side, each one's writes in order. A subject that fails waits, longer each
//! time, and holds up no other.

mod models;
mod patience;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::cluster::{Object, ObjectKey};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use telemetry::{
    Metrics,
    catalog::{CONTROLLER_PASSES, CONTROLLER_WAITING},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use self::patience::Patience;
use crate::{
    act::{self, NotWritten, Writer},
    certificates::{Job, Outcomes, jobs, told},
    events::{self, Notice, Teller, Tone},
    gateway_api::Statuses,
    judge::{Judge, Judged, Verdict},
    leader::Leadership,
    mirror::Mirror,
    picture::Picture,
    plan::{Action, Planner, Subject, Wishes},
    status::{self, Certificate},
    wanted::Settings,
};

/// Longest time without a look. Watches tell of every change: this is for what nobody thought of.
const RESYNC: Duration = Duration::from_secs(300);
/// Between two looks: changes come in bursts.
const SETTLE: Duration = Duration::from_millis(25);
/// Before the next look it rests so many times as long as the last one took, so that pods that come and go by the
/// thousand take a small part of a core,
const REST: u32 = 4;
/// but no longer than this.
const REST_MAX: Duration = Duration::from_millis(500);
/// Subjects that are worked on at once.
const AT_ONCE: usize = 8;

/// Everything that the loop works with.
pub struct Reconciler {
    pub client: Client,
    pub settings: Settings,
    pub mirror: Arc<Mirror>,
    pub leadership: Leadership,
    pub metrics: Metrics,
    pub writer: Arc<Writer>,
    pub teller: Teller,
    /// What stands in the statuses of others' objects.
    pub statuses: Statuses,
    /// What became of certificates,
    pub outcomes: Outcomes,
    /// and what is to be done about them.
    pub jobs: watch::Sender<BTreeMap<ObjectKey, Job>>,
}

/// What is kept from look to look.
#[derive(Default)]
struct Memory {
    judge: Judge,
    planner: Planner,
    patience: Patience,
}

impl Reconciler {
    /// Works until the process ends.
    pub async fn run(self) {
        let mut memory = Memory::default();
        let mut pause = SETTLE;
        let mut leading = self.leadership.changes();
        loop {
            let waits = [memory.patience.next(), self.statuses.next(), Some(Instant::now() + RESYNC)];
            let next = waits.into_iter().flatten().min().unwrap_or_else(Instant::now);
            tokio::select! {
                () = self.mirror.changed() => {}
                changed = leading.changed() => if changed.is_err() { return },
                () = sleep_until(next) => {}
            }
            sleep(pause).await;
            let held = *leading.borrow_and_update();
            let Some(picture) = self.mirror.picture().filter(|_| held) else { continue };
            let began = Instant::now();
            self.look(&picture, &mut memory).await;
            pause = (began.elapsed() * REST).clamp(SETTLE, REST_MAX);
        }
    }

    async fn look(&self, picture: &Picture, memory: &mut Memory) {
        let Memory { judge, planner, patience } = memory;
        let configs = judge.judge(&picture.objects, &self.settings);
        self.jobs.send_if_modified(|known| {
            let jobs = jobs(picture, &configs, &self.settings);
            let differs = *known != jobs;
            *known = jobs;
            differs
        });
        let imported = self.imported(&configs);
        let wishes = Wishes { settings: &self.settings, configs: &configs, imported: &imported };
        let due = planner.plan(picture, wishes, &self.writer.settled());
        patience.keep(|subject| due.contains_key(subject));
        let now = Instant::now();
        let due: Vec<_> = due.into_iter().filter(|(subject, _)| patience.is_due(subject, now)).collect();
        let mut works = stream::iter(due)
            .map(|(subject, actions)| async move {
                let done = self.work(picture, &subject, &actions).await;
                (subject, !actions.is_empty(), done)
            })
            .buffer_unordered(AT_ONCE);
        while let Some((subject, wrote, done)) = works.next().await {
            let result = match (&done, wrote) {
                (Ok(()), false) => "settled",
                (Ok(()), true) => "written",
                (Err(_), _) => "failed",
            };
            self.metrics.counter(&CONTROLLER_PASSES, &[result]).increment(1);
            if wrote {
                // What was written is in the mirror already: the next look goes on from there.
                self.mirror.nudge();
            }
            patience.record(subject, done.err(), Instant::now());
        }
        drop(works);
        #[expect(clippy::cast_precision_loss, reason = "a count of objects")]
        self.metrics.gauge(&CONTROLLER_WAITING, &[]).set(patience.waiting() as f64);
        self.say(&configs, patience).await;
        self.statuses.settle(&picture.objects, &timestamp()).await;
        self.follow_models(picture).await;
    }

    /// What is known of a config's certificate: from this run, else from what the status says of an earlier one.
    fn certificate(&self, config: &Object<Value>) -> Option<Certificate> {
        self.outcomes.of(&config.key(), &config.metadata.uid).or_else(|| told(config))
    }

    fn imported(&self, configs: &BTreeMap<ObjectKey, Judged>) -> BTreeMap<ObjectKey, String> {
        let arn = |judged: &Judged| self.certificate(&judged.object)?.arn;
        configs.iter().filter_map(|(key, judged)| Some((key.clone(), arn(judged)?))).collect()
    }

    /// One subject's writes. Before the first, whom they are for is looked up where it is kept: what is known may be
    /// old, and nothing is to be made for what is gone.
    async fn work(&self, picture: &Picture, subject: &Subject, actions: &[Action]) -> Result<(), NotWritten> {
        if actions.is_empty() {
            return Ok(());
        }
        let seen = self.uid_of(subject).await?;
        let known = uid_known(picture, subject);
        let only_deletes = actions.iter().all(|action| matches!(action, Action::Delete { .. }));
        match (&known, &seen) {
            (Some(known), Some(seen)) if known == seen => {}
            (None, None) if only_deletes => {}
            // The watch will tell what happened; until then nothing is sure.
            _ => return Err(NotWritten::Conflict(format!("{subject:?}"))),
        }
        let mut first = None;
        for action in actions {
            match self.writer.act(action).await {
                Ok(()) => self.tell(picture, subject, act::told(action)).await,
                Err(NotWritten::NotLeading) => return Err(NotWritten::NotLeading),
                // The others may still be made: the more there is, the more works.
                Err(error) => {
                    tracing::warn!(?subject, "{error}");
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    async fn tell(&self, picture: &Picture, subject: &Subject, told: Option<(&'static str, String)>) {
        let Some((reason, text)) = told else { return };
        tracing::info!(?subject, "{text}");
        self.tell_of(picture, subject, &Notice { tone: Tone::Normal, reason, text }).await;
    }

    async fn tell_of(&self, picture: &Picture, subject: &Subject, notice: &Notice) {
        let metadata = match subject {
            Subject::Config(key) => picture.objects.configs.get(key).map(|it| &it.metadata),
            Subject::Gateway(key) => picture.objects.gateways.get(key).map(|it| &it.metadata),
        };
        let Some(metadata) = metadata else { return };
        self.publish(&events::of_subject(subject, metadata), notice).await;
    }

    async fn publish(&self, about: &ObjectReference, notice: &Notice) {
        let told = self.writer.counted("event", "an event".into(), async {
            let told = self.teller.tell(about, notice).await;
            told.map_err(|error| NotWritten::of("an event".into(), &error))
        });
        if let Err(error) = told.await {
            tracing::debug!("not told: {error}");
        }
    }

    /// The uid of a subject that is there to stay, asked of the API server.
    async fn uid_of(&self, subject: &Subject) -> Result<Option<String>, NotWritten> {
        let (key, resource) = match subject {
            Subject::Config(key) => (key, config_resource()),
            Subject::Gateway(key) => (key, crate::kind::Kind::Gateway.resource()),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
        let asked = tokio::time::timeout(crate::client::CALL_MAX, api.get_metadata_opt(&key.name)).await;
        let found = match asked {
            // A kind that is not installed any more is answered without the words of an object that is not there.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => None,
            Ok(found) => found.map_err(|error| NotWritten::of(key.to_string(), &error))?,
            Err(_) => {
                let message = "the API server did not answer in time".into();
                return Err(NotWritten::Unavailable { id: key.to_string(), message });
            }
        };
        let staying = found.filter(|found| found.metadata.deletion_timestamp.is_none());
        Ok(staying.and_then(|found| found.metadata.uid))
    }

    /// Statuses of all configs, as the picture is after the writes.
    async fn say(&self, configs: &BTreeMap<ObjectKey, Judged>, patience: &Patience) {
        let Some(picture) = self.mirror.picture() else { return };
        let now = timestamp();
        stream::iter(configs)
            .for_each_concurrent(AT_ONCE, |(key, judged)| self.say_one(&picture, key, judged, patience, &now))
            .await;
    }

    async fn say_one(&self, picture: &Picture, key: &ObjectKey, judged: &Judged, patience: &Patience, now: &str) {
        // What the mirror says now may be newer than what was judged, or gone.
        let Some(object) = picture.objects.configs.get(key) else { return };
        if object.metadata.generation != judged.object.metadata.generation || object.metadata.is_going() {
            return;
        }
        let judged = Judged { object: Arc::clone(object), verdict: judged.verdict.clone() };
        let subject = Subject::Config(key.clone());
        let trouble = match &judged.verdict {
            Verdict::InForce(_) => patience.trouble(&subject),
            Verdict::Refused { .. } => Vec::new(),
        };
        let certificate = self.certificate(object);
        let certificate = certificate.as_ref();
        let known = status::Known { picture, settings: &self.settings, trouble: &trouble, certificate, now };
        let wanted = status::of(&judged, known);
        if !status::differs(object.status.as_ref(), &wanted) {
            return;
        }
        let notices = status::turns(object.status.as_ref(), &wanted);
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &config_resource());
        // With the uid: a status is never written to another object of the same name.
        let patch = json!({"metadata": {"uid": object.metadata.uid}, "status": wanted});
        let written = self.writer.counted("status", key.to_string(), async {
            let parameters =
                PatchParams { field_manager: Some(api::names::MANAGED_BY.into()), ..PatchParams::default() };
            let written = api.patch_status(&key.name, &parameters, &Patch::Merge(&patch)).await;
            written.map_err(|error| NotWritten::of(key.to_string(), &error))
        });
        match written.await {
            Ok(_) => {
                for notice in notices {
                    tracing::info!(%key, reason = notice.reason, "{}", notice.text);
                    self.tell_of(picture, &subject, &notice).await;
                }
            }
            Err(error) => tracing::warn!(%key, "status: {error}"),
        }
    }
}

/// Now, as conditions carry it.
fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn uid_known(picture: &Picture, subject: &Subject) -> Option<String> {
    let metadata = match subject {
        Subject::Config(key) => &picture.objects.configs.get(key)?.metadata,
        Subject::Gateway(key) => &picture.objects.gateways.get(key)?.metadata,
    };
    (!metadata.is_going()).then(|| metadata.uid.clone())
}

/// InferenceGatewayConfigs, as the client names them.
pub(crate) fn config_resource() -> ApiResource {
    let kind = GroupVersionKind::gvk(api::names::GROUP, api::names::CONFIG_VERSION, "InferenceGatewayConfig");
    ApiResource::from_gvk_with_plural(&kind, "inferencegatewayconfigs")
}
