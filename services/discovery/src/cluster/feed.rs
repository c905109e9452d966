//! One watch: list, watch for a while, list again, for ever.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout_at},
};

use super::{
    Limits, Watch,
    answer::{self, Events, Problem, Status},
    layer::Layer,
    limits::OBJECTS_MAX,
    scope::encoded,
};

/// A watch that lived so long ended for a reason of its own; one that did not counts as a failure.
const LIVED: Duration = Duration::from_secs(1);

/// Which watch, and which of the kind's resources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FeedId {
    pub(super) watch: Watch,
    pub(super) resource: usize,
}

/// What a watch has to say.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) from: Arc<FeedId>,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    /// All there is.
    Listed(Box<Layer>),
    /// An object as it now is.
    Put(Box<RawValue>),
    /// An object that is gone.
    Removed(Box<RawValue>),
    /// The kind is not there, or not shown to us.
    Absent,
    /// The API server does not answer, or not well.
    Failed,
}

/// Follows one resource until dropped.
pub(super) struct Feed {
    pub(super) id: Arc<FeedId>,
    pub(super) client: kube::Client,
    pub(super) limits: Limits,
    pub(super) reports: mpsc::Sender<Report>,
}

impl Feed {
    pub(super) async fn run(self) {
        let mut failures: u32 = 0;
        loop {
            let began = Instant::now();
            let ended = self.round(&mut failures).await;
            if began.elapsed() >= LIVED.min(self.limits.watch_min) && ended.is_ok() {
                failures = 0;
                continue;
            }
            match ended {
                // Right from the first time on this is a failure, and yet nothing to tell anybody.
                Ok(()) | Err(Problem::Expired) => {}
                Err(problem) => {
                    self.tell(&problem, failures);
                    let absent = matches!(problem, Problem::Absent { .. });
                    self.report(if absent { News::Absent } else { News::Failed }).await;
                }
            }
            let wait = self.limits.retry_min.saturating_mul(1 << failures.min(16)).min(self.limits.retry_max);
            failures = failures.saturating_add(1);
            // Watches that failed together do not come back together.
            sleep(wait.mul_f64(0.75 + 0.25 * fastrand::f64())).await;
        }
    }

    /// One list and one watch. Returns when the server has ended the watch.
    async fn round(&self, failures: &mut u32) -> Result<(), Problem> {
        let (layer, version) = self.list().await?;
        self.report(News::Listed(Box::new(layer))).await;
        if *failures > 1 {
            let FeedId { watch, .. } = &*self.id;
            tracing::info!(kind = ?watch.kind, range = ?watch.range, "watched again");
        }
        self.watch(&version, failures).await
    }

    /// Every object, and the version from which to watch.
    async fn list(&self) -> Result<(Layer, String), Problem> {
        let mut layer = Layer::empty(self.id.watch.kind);
        let mut next = String::new();
        loop {
            let path = format!("{}limit={}{next}", self.path(), self.limits.page_objects);
            let page = answer::page(&self.client, &path, self.limits.answer_max).await?;
            for item in page.items.iter().flatten() {
                layer.put(item)?;
            }
            if layer.len() > OBJECTS_MAX {
                return Err(Problem::TooMuch("100000 objects of a kind"));
            }
            match page.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => next = format!("&continue={}", encoded(&token)),
                None => return Ok((layer, page.metadata.resource_version)),
            }
        }
    }

    async fn watch(&self, version: &str, failures: &mut u32) -> Result<(), Problem> {
        let seconds = self.watch_seconds();
        let path = format!(
            "{}watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={}",
            self.path(),
            encoded(version)
        );
        let began = Instant::now();
        let overdue = began + Duration::from_secs(seconds) + self.limits.overdue_max;
        let mut events = Events::new(answer::ask(&self.client, &path, self.limits.answer_max).await?);
        loop {
            let next = timeout_at(overdue, events.next()).await;
            let Some(event) = next.map_err(|_| Problem::Late(overdue - began))?? else { return Ok(()) };
            match event.r#type.as_str() {
                "ADDED" | "MODIFIED" => self.report(News::Put(event.object)).await,
                "DELETED" => self.report(News::Removed(event.object)).await,
                "BOOKMARK" => {}
                "ERROR" => {
                    let status: Status = serde_json::from_str(event.object.get()).unwrap_or_default();
                    return Err(status.problem());
                }
                other => return Err(Problem::Garbage(format!("an event of type {other:?}"))),
            }
            if *failures > 0 && began.elapsed() >= LIVED {
                *failures = 0;
            }
        }
    }

    /// Between the limits at random, so that watches which began together do not all list at once.
    fn watch_seconds(&self) -> u64 {
        let Limits { watch_min, watch_max, .. } = self.limits;
        let (min, max) = (watch_min.as_secs().max(1), watch_max.as_secs().max(1));
        fastrand::u64(min..=max.max(min))
    }

    fn path(&self) -> String {
        let FeedId { watch, resource } = &*self.id;
        watch.range.path(watch.kind, watch.kind.resources()[*resource])
    }

    async fn report(&self, news: News) {
        // Nobody listens any more only while everything ends.
        let _ended = self.reports.send(Report { from: Arc::clone(&self.id), news }).await;
    }

    /// Once when it begins; then it is for whoever debugs.
    fn tell(&self, problem: &Problem, failures: u32) {
        let (kind, range) = (self.id.watch.kind, &self.id.watch.range);
        let group = kind.resources()[self.id.resource].root;
        match (problem, failures) {
            (Problem::Absent { .. }, 0) => {
                tracing::warn!(?kind, ?range, group, error = %problem, "not installed or not granted: it counts as absent");
            }
            (_, 0) => tracing::warn!(?kind, ?range, error = %problem, "watch failed: what is known stays"),
            _ => tracing::debug!(?kind, ?range, failures, error = %problem, "still no watch"),
        }
    }
}
