//! One of several copies writes; the others stand by.
//!
//! A Lease says which. The holder renews it every [`RETRY`]; a copy that has seen the same record for
//! [`LEASE`] takes it. Clocks of machines are not compared: each copy measures with its own how long the record has not
//! changed. The holder stops writing once it has not been able to renew for [`RENEW_WITHIN`], which is shorter, so that
//! two copies never write at once, whatever the network does.

mod lease;
mod verdict;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use telemetry::{Gauge, Metrics, catalog::CONTROLLER_LEADER};
use tokio::{sync::watch, time::Instant};

pub use self::lease::stand;

/// A record that has not changed for so long belongs to nobody.
pub const LEASE: Duration = Duration::from_secs(15);
/// A holder that could not renew for so long has lost it.
pub const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// From one try to the next.
pub const RETRY: Duration = Duration::from_secs(2);
/// Name of the Lease, in the system namespace.
pub const LEASE_NAME: &str = "inference-gateway-controller";

/// Whether this copy may write, at this moment.
#[derive(Clone)]
pub struct Leadership {
    started: Instant,
    /// Milliseconds after `started` until which the lease is surely ours; 0: it is not.
    until_ms: Arc<AtomicU64>,
    changes: watch::Sender<bool>,
    gauge: Gauge,
}

impl Leadership {
    /// Nobody's yet.
    #[must_use]
    pub fn new(metrics: &Metrics) -> Self {
        let gauge = metrics.gauge(&CONTROLLER_LEADER, &[]);
        gauge.set(0.0);
        Self { started: Instant::now(), until_ms: Arc::default(), changes: watch::Sender::new(false), gauge }
    }

    /// Asked before each write.
    #[must_use]
    pub fn holds(&self) -> bool {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        now_ms < self.until_ms.load(Ordering::Acquire)
    }

    /// Tells of each change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<bool> {
        self.changes.subscribe()
    }

    /// It was renewed by a request sent at `asked`.
    fn extend(&self, asked: Instant) {
        let until = (asked + RENEW_WITHIN).duration_since(self.started);
        self.until_ms.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        self.gauge.set(1.0);
        self.changes.send_if_modified(|held| !std::mem::replace(held, true));
    }

    fn lose(&self) {
        self.until_ms.store(0, Ordering::Release);
        self.gauge.set(0.0);
        self.changes.send_if_modified(|held| std::mem::replace(held, false));
    }
}
