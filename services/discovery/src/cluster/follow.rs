//! All watches together: one owner takes in what they report and tells a snapshot once it has settled.

use std::{collections::BTreeMap, sync::Arc};

use api::cluster::Objects;
use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    task::AbortHandle,
    time::{Instant, sleep_until},
};

use super::{
    Kind, Limits, Scope,
    feed::{Feed, FeedId, News, Report},
    layer::Layer,
    limits::{REPORTS_MAX, WATCHES_MAX},
    scope::counted,
};

/// Tells all objects within `scope`: at first when every watch of it has been answered, then whenever something changed,
/// and once after each change of the scope, when its new watches have been answered. Watches that are not answered
/// within [`Limits::pending_max`] hold nothing up: their part comes from `seed`, a snapshot of an earlier run, or stays as it
/// was. Nothing is told before something is known.
///
/// Ends when `scope` has no sender left.
pub async fn follow(
    client: Client,
    limits: Limits,
    mut scope: watch::Receiver<Scope>,
    seed: Arc<Objects>,
    mut tell: impl FnMut(Arc<Objects>),
) {
    let (reports_sent, mut reports) = mpsc::channel(REPORTS_MAX);
    let mut known = Known {
        client,
        limits,
        reports: reports_sent,
        seed,
        feeds: BTreeMap::new(),
        due: None,
        pending_until: Instant::now(),
        told: None,
        must_tell: false,
    };
    known.set_scope(&scope.borrow_and_update().clone());
    loop {
        let due = known.due();
        tokio::select! {
            changed = scope.changed() => match changed {
                Ok(()) => {
                    let now = scope.borrow_and_update().clone();
                    known.set_scope(&now);
                }
                Err(_) => return,
            },
            Some(report) = reports.recv() => known.take(report),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                if let Some(objects) = known.settled() {
                    tell(objects);
                }
            }
        }
    }
}

/// What all watches know.
struct Known {
    client: Client,
    limits: Limits,
    reports: mpsc::Sender<Report>,
    seed: Arc<Objects>,
    feeds: BTreeMap<Arc<FeedId>, Source>,
    /// When what has changed is to be told.
    due: Option<Instant>,
    /// Until when watches that were never answered hold the telling up.
    pending_until: Instant,
    told: Option<Arc<Objects>>,
    /// Whether to tell even what has not changed: the scope was changed, and somebody waits for that.
    must_tell: bool,
}

/// What one watch knows.
struct Source {
    task: AbortHandle,
    /// `None`: never listed, or absent.
    layer: Option<Layer>,
    answered: Answered,
    /// Since when the API server says that it does not have what it had.
    absent_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Never,
    Once,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Known {
    fn set_scope(&mut self, scope: &Scope) {
        let watches = scope.iter().take(WATCHES_MAX);
        if scope.iter().count() > WATCHES_MAX {
            tracing::error!(most = WATCHES_MAX, counts = ?counted(scope), "more watches than can be held: the rest is not read");
        }
        let resources = |kind: Kind| 0..kind.resources().len();
        let wanted: Vec<FeedId> = watches
            .flat_map(|watch| resources(watch.kind).map(|resource| FeedId { watch: watch.clone(), resource }))
            .collect();
        self.feeds.retain(|id, _| wanted.contains(id));
        for id in wanted {
            if !self.feeds.contains_key(&id) {
                self.start(Arc::new(id));
            }
        }
        self.must_tell = true;
        self.pending_until = Instant::now() + self.limits.pending_max;
        self.due = Some(Instant::now());
    }

    fn start(&mut self, id: Arc<FeedId>) {
        let feed = Feed {
            id: Arc::clone(&id),
            client: self.client.clone(),
            limits: self.limits,
            reports: self.reports.clone(),
        };
        // An earlier run did not note which of the groups it had an object from.
        let seeded = (id.resource == 0).then(|| Layer::seeded(id.watch.kind, &id.watch.range, &self.seed));
        let layer = seeded.and_then(|mut layer| (layer.len() > 0).then_some(layer));
        let task = tokio::spawn(feed.run()).abort_handle();
        self.feeds.insert(id, Source { task, layer, answered: Answered::Never, absent_since: None });
    }

    fn take(&mut self, Report { from, news }: Report) {
        // A report of a watch that is no longer wanted may still be on its way.
        let Some(feed) = self.feeds.get_mut(&from) else { return };
        let was_pending = feed.answered == Answered::Never;
        let changed = feed.take(from.watch.kind, news, &self.limits);
        let first_answer = was_pending && feed.answered == Answered::Once;
        if changed || first_answer {
            let settle = if from.watch.kind == Kind::Pod { self.limits.pods_settle } else { self.limits.settle };
            let due = Instant::now() + settle;
            self.due = Some(self.due.map_or(due, |former| former.min(due)));
        }
        if first_answer && !self.is_pending() {
            // Nothing of the seed is needed any more.
            self.seed = Arc::default();
        }
    }

    fn is_pending(&self) -> bool {
        self.feeds.values().any(|feed| feed.answered == Answered::Never)
    }

    /// When to look whether there is something to tell.
    fn due(&self) -> Option<Instant> {
        let due = self.due?;
        if self.is_pending() { Some(due.max(self.pending_until)) } else { Some(due) }
    }

    /// The snapshot, if it is to be told.
    fn settled(&mut self) -> Option<Arc<Objects>> {
        self.due = None;
        let nothing_known = self.feeds.values().all(|feed| feed.answered == Answered::Never && feed.layer.is_none());
        if nothing_known && !self.feeds.is_empty() {
            return None;
        }
        let objects = self.merged();
        if !self.must_tell && self.told.as_deref() == Some(&objects) {
            return None;
        }
        self.must_tell = false;
        let objects = Arc::new(objects);
        self.told = Some(Arc::clone(&objects));
        Some(objects)
    }

    fn merged(&mut self) -> Objects {
        let mut objects = Objects::default();
        // Ids are in the order of a kind's resources within a watch; across watches of a kind the earlier resource must
        // win too.
        for resource in 0..2 {
            for feed in self.feeds.iter_mut().filter(|(id, _)| id.resource == resource).map(|(_, feed)| feed) {
                if let Some(layer) = &mut feed.layer {
                    layer.add_to(&mut objects);
                }
            }
        }
        objects
    }
}

impl Source {
    /// Takes news in. Returns whether objects have changed.
    fn take(&mut self, kind: Kind, news: News, limits: &Limits) -> bool {
        match news {
            News::Listed(layer) => {
                self.answered = Answered::Once;
                self.absent_since = None;
                self.layer.get_or_insert_with(|| Layer::empty(kind)).become_listed(*layer)
            }
            News::Put(raw) => self.change(|layer| layer.put(&raw)),
            News::Removed(raw) => self.change(|layer| layer.remove(&raw)),
            News::Absent => {
                self.answered = Answered::Once;
                let since = *self.absent_since.get_or_insert_with(Instant::now);
                let is_absent = since.elapsed() >= limits.absent_after;
                is_absent && self.layer.take().is_some()
            }
            News::Failed => {
                self.absent_since = None;
                false
            }
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Layer) -> Result<bool, super::layer::NoObject>) -> bool {
        let Some(layer) = &mut self.layer else { return false };
        let unreadable = layer.unreadable().clone();
        match change(layer) {
            Ok(changed) => {
                layer.tell_unreadable(&unreadable);
                changed
            }
            Err(error) => {
                tracing::warn!(%error, "an event is not understood: the next list mends it");
                false
            }
        }
    }
}
