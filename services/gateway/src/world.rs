//! What the parts of the process share: the snapshots that one writer replaces and all others read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use arc_swap::ArcSwap;
use proxy::serve::{Drain, Phase, tls::Tls};
use telemetry::Metrics;

use crate::{body_memory::BodyMemory, clock::Clock, pools::LivePools, record::Observer, routes::Routes};

/// The process's shared state. Only [`crate::control`] writes routes and config status; only the run loop drains.
pub struct World {
    /// The time line.
    pub clock: Clock,
    /// All series.
    pub metrics: Metrics,
    /// Where records report to; holds the decisions.
    pub observer: Arc<Observer>,
    /// Request bodies in memory.
    pub body_memory: Arc<BodyMemory>,
    /// Routing in force.
    pub routes: ArcSwap<Routes>,
    /// Every pool that has requests, or may have some.
    pub pools: LivePools,
    /// What `--listen` speaks; nothing where listeners come from a Gateway.
    pub front: Option<Arc<Tls>>,
    /// Which configuration that is, and what became of a newer one.
    pub config: ArcSwap<ConfigStatus>,
    /// Whether to send work here.
    pub readiness: Readiness,
}

/// The configuration in force.
#[derive(Clone, Debug)]
pub struct ConfigStatus {
    /// 1 for the first, one more for each that was applied after it.
    pub generation: u64,
    /// The file or directory it was read from.
    pub source: String,
    /// When it was applied.
    pub loaded_at: SystemTime,
    /// Set while a newer text is refused.
    pub error: Option<ConfigError>,
    /// Whether `/metrics` answers.
    pub metrics_enabled: bool,
}

/// Why a newer configuration is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Every violation, one per line.
    pub message: String,
    /// Field path of the first one; empty when a file could not be read.
    pub path: String,
    /// When it was refused.
    pub at: SystemTime,
}

/// Whether to send work here. Not ready until the first round of scrapes is over (or its time is), and never again once
/// the process has said that it will end.
#[derive(Debug, Default)]
pub struct Readiness {
    started: AtomicBool,
    /// How far the process is on its way to its end.
    pub drain: Drain,
}

/// Why not to send work here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// Endpoints have not been read yet.
    Starting,
    /// The process ends.
    Draining,
}

impl NotReady {
    /// The words of `/readyz`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting: endpoints have not been read yet",
            Self::Draining => "draining: this process is shutting down",
        }
    }
}

impl Readiness {
    /// The first round of scrapes is over.
    pub fn start(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Whether the first round of scrapes is over.
    pub fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Whether new requests are refused.
    pub fn is_closed(&self) -> bool {
        self.drain.phase() >= Phase::Draining
    }

    /// Whether to send work here.
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self) -> Result<(), NotReady> {
        match (self.drain.phase() >= Phase::Announced, self.has_started()) {
            (true, _) => Err(NotReady::Draining),
            (false, false) => Err(NotReady::Starting),
            (false, true) => Ok(()),
        }
    }
}
