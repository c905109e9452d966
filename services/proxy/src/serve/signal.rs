//! Wakes all connections of a listener at the few moments when they must look up from their work.
//!
//! A connection is polled thousands of times for each time this changes, so looking costs one atomic load, and a waker is
//! left once per connection.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What connections are asked to do; each level includes those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Go on.
    Serving,
    /// End with the answer at hand; stay if there is none.
    Draining,
    /// End now unless an answer is at hand.
    Closing,
    /// End now.
    Aborted,
}

#[derive(Default)]
pub(super) struct Signal {
    level: AtomicU8,
    next_key: AtomicUsize,
    connections: Mutex<HashMap<usize, Waker>>,
}

/// One connection's ear for it.
pub(super) struct Listening {
    signal: Arc<Signal>,
    key: usize,
    registered: bool,
}

/// Counts connections and requests per core, so that cores do not write to each other's cache lines.
pub(super) struct Ledger {
    cores: Vec<CoreLedger>,
    draining: AtomicU8,
    changed: Notify,
}

#[derive(Default)]
#[repr(align(128))]
struct CoreLedger {
    connections: AtomicUsize,
    requests: AtomicUsize,
}

impl Signal {
    pub(super) fn level(&self) -> Level {
        match self.level.load(Ordering::Acquire) {
            0 => Level::Serving,
            1 => Level::Draining,
            2 => Level::Closing,
            _ => Level::Aborted,
        }
    }

    /// Goes up to this level, never down.
    pub(super) fn raise(&self, level: Level) {
        self.level.fetch_max(level as u8, Ordering::AcqRel);
        for waker in self.connections.lock().values() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn listen(self: &Arc<Self>) -> Listening {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        Listening { signal: Arc::clone(self), key, registered: false }
    }
}

impl Listening {
    /// The level now; the task that asked first is woken when it changes. A connection is one task all its life.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Level {
        if !self.registered {
            self.registered = true;
            self.signal.connections.lock().insert(self.key, cx.waker().clone());
        }
        self.signal.level()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.registered {
            self.signal.connections.lock().remove(&self.key);
        }
    }
}

impl Ledger {
    pub(super) fn new(cores: usize) -> Self {
        let cores = (0..cores).map(|_| CoreLedger::default()).collect();
        Self { cores, draining: AtomicU8::new(0), changed: Notify::new() }
    }

    pub(super) fn connections(&self) -> usize {
        self.cores.iter().map(|core| core.connections.load(Ordering::SeqCst)).sum()
    }

    pub(super) fn requests(&self) -> usize {
        self.cores.iter().map(|core| core.requests.load(Ordering::SeqCst)).sum()
    }

    pub(super) fn connection_opened(&self, core: usize) {
        self.cores[core].connections.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn connection_ended(&self, core: usize) {
        self.cores[core].connections.fetch_sub(1, Ordering::SeqCst);
        self.tell();
    }

    pub(super) fn request_opened(&self, core: usize) {
        self.cores[core].requests.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn request_ended(&self, core: usize) {
        self.cores[core].requests.fetch_sub(1, Ordering::SeqCst);
        self.tell();
    }

    /// Waits for a condition on these counts.
    pub(super) async fn until(&self, reached: impl Fn() -> bool) {
        self.draining.store(1, Ordering::SeqCst);
        loop {
            let changed = self.changed.notified();
            if reached() {
                return;
            }
            changed.await;
        }
    }

    /// Waits for as long, and says whether no request and no connection ended meanwhile. Only once somebody has waited
    /// for a count.
    pub(super) async fn is_still_for(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.changed.notified()).await.is_err()
    }

    /// Nobody waits for a count before the drain, and then it is one task.
    fn tell(&self) {
        if self.draining.load(Ordering::SeqCst) != 0 {
            self.changed.notify_one();
        }
    }
}
