//! A provider's keys: fetched by one task off the request path, read by every request, kept when the provider is away.
//!
//! Keys that were good once stay in use until the provider itself publishes others: its being away lets nobody in and keeps
//! nobody out. Before the first keys everybody is refused. The task runs with everything else that is no request; a request
//! that needs newer keys says so and waits for it, for a bounded time and in a bounded crowd.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use telemetry::{
    Metrics,
    catalog::{AUTH_KEY_FETCHES, AUTH_KEYS, AUTH_KEYS_FETCHED},
};
use tokio::sync::{Notify, watch};

use super::{
    fetch::{Fetched, Fetcher, NotFetched},
    key_set::KeySet,
    schedule::{Schedule, Wish},
};
use crate::clock::Clock;

/// Longest time that a request waits for newer keys.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Requests that wait for newer keys at the same time, at most; more are refused at once.
const WAITERS_MAX: usize = 1024;

/// The keys of one provider.
pub struct KeySource {
    provider: Box<str>,
    uri: Box<str>,
    keys: ArcSwap<Versioned>,
    schedule: Mutex<Schedule>,
    /// A request wished for a fetch.
    wished: Notify,
    /// Grows with each fetch that ended.
    ended: watch::Sender<u64>,
    waiters: AtomicUsize,
    clock: Clock,
    metrics: Metrics,
}

/// Keys, and how many times there were others. Version 0 is none yet.
#[derive(Default)]
pub(super) struct Versioned {
    pub(super) version: u64,
    pub(super) set: KeySet,
}

/// A fetch that a request waits for.
pub struct Waiting {
    source: Arc<KeySource>,
    ended: watch::Receiver<u64>,
}

impl KeySource {
    /// The keys that this provider publishes there. None are known until [`follow`] has run.
    pub(super) fn new(provider: &str, uri: &str, clock: Clock, metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            provider: provider.into(),
            uri: uri.into(),
            keys: ArcSwap::default(),
            schedule: Mutex::new(Schedule::new(clock.now())),
            wished: Notify::new(),
            ended: watch::Sender::new(0),
            waiters: AtomicUsize::new(0),
            clock,
            metrics: metrics.clone(),
        })
    }

    /// Whether it is that provider's.
    pub(super) fn is_of(&self, provider: &str, uri: &str) -> bool {
        *self.provider == *provider && *self.uri == *uri
    }

    /// The keys known now.
    pub(super) fn keys(&self) -> arc_swap::Guard<Arc<Versioned>> {
        self.keys.load()
    }

    #[cfg(test)]
    pub(super) fn put(&self, set: KeySet) {
        let version = self.keys.load().version + 1;
        self.keys.store(Arc::new(Versioned { version, set }));
    }

    /// Wishes for newer keys. Nothing, if none are to be expected soon.
    pub(super) fn wish(self: &Arc<Self>) -> Option<Waiting> {
        // Before the wish, so that no end is missed.
        let ended = self.ended.subscribe();
        if self.schedule.lock().wish(self.clock.now()) == Wish::Refused {
            return None;
        }
        self.wished.notify_one();
        let waits = |waiters: usize| (waiters < WAITERS_MAX).then_some(waiters + 1);
        self.waiters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, waits).ok()?;
        Some(Waiting { source: Arc::clone(self), ended })
    }

    async fn keep(&self) {
        let mut fetcher = None;
        let mut said = None;
        loop {
            let due_in = self.schedule.lock().due_in(self.clock.now());
            tokio::select! {
                () = tokio::time::sleep(due_in) => {}
                () = self.wished.notified() => continue,
            }
            self.schedule.lock().began();
            let fetched = self.fetch(&mut fetcher).await;
            self.book(&fetched, &mut said);
            self.ended.send_modify(|ends| *ends += 1);
        }
    }

    async fn fetch(&self, fetcher: &mut Option<Fetcher>) -> Result<Fetched, NotFetched> {
        // What is trusted is read anew after a failure: a mended file of certificates needs no restart.
        let ready = match fetcher.take() {
            Some(ready) => ready,
            None => tokio::task::spawn_blocking(Fetcher::new).await.map_err(|_| NotFetched::NoRoots)??,
        };
        let fetched = ready.fetch(&self.uri).await?;
        *fetcher = Some(ready);
        Ok(fetched)
    }

    fn book(&self, fetched: &Result<Fetched, NotFetched>, said: &mut Option<&'static str>) {
        let outcome = fetched.as_ref().map_or_else(NotFetched::label, |_| "ok");
        self.metrics.counter(&AUTH_KEY_FETCHES, &[outcome]).increment(1);
        let has_changed = said.replace(outcome) != Some(outcome);
        let now = self.clock.now();
        match fetched {
            Ok(fetched) => {
                self.take(fetched, has_changed);
                self.schedule.lock().succeeded(fetched.good_for, now);
            }
            Err(error) => {
                self.schedule.lock().failed(now);
                if has_changed {
                    let (provider, uri, error) = (&*self.provider, &*self.uri, crate::errors::chain(error));
                    let known = self.keys.load().set.len();
                    tracing::warn!(
                        provider,
                        uri,
                        error,
                        known,
                        "keys of the identity provider cannot be read; known ones stay"
                    );
                }
            }
        }
    }

    fn take(&self, fetched: &Fetched, is_news: bool) {
        let known = self.keys.load();
        let set = &fetched.set;
        let (provider, keys, left_out) = (&*self.provider, set.len(), &fetched.notes);
        if known.version == 0 || known.set != *set {
            self.keys.store(Arc::new(Versioned { version: known.version + 1, set: set.clone() }));
            tracing::info!(provider, keys, ?left_out, "keys of the identity provider");
        } else if is_news {
            tracing::info!(provider, keys, "keys of the identity provider can be read again");
        }
        #[expect(clippy::cast_precision_loss, reason = "at most a hundred")]
        self.metrics.gauge(&AUTH_KEYS, &[]).set(keys as f64);
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        self.metrics.gauge(&AUTH_KEYS_FETCHED, &[]).set(now_s);
    }
}

impl Waiting {
    /// Until the fetch is over, or the time that a request may wait.
    pub async fn over(mut self) {
        let _either = tokio::time::timeout(WAIT_MAX, self.ended.changed()).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.source.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps the keys of the provider in force true until nobody can name another.
pub async fn follow(mut wanted: watch::Receiver<Option<Arc<KeySource>>>) {
    loop {
        let source = wanted.borrow_and_update().clone();
        let keep = async {
            match &source {
                Some(source) => source.keep().await,
                None => pending().await,
            }
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = keep => {}
        }
    }
}
