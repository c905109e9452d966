//! What happens to requests that wait, and to those that give way. How many wait is a level, set when a page is made.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use flow_control::Band;
use telemetry::{
    Counter, Histogram, Metrics,
    catalog::{EVICTIONS, QUEUE_WAIT, UNKNOWN_OBJECTIVES},
};

/// The series of one pool's queue. No series appears before its first use.
pub struct QueueMetrics {
    metrics: Metrics,
    pool: Arc<str>,
    waits: [OnceLock<Histogram>; Band::COUNT],
    evictions: OnceLock<Counter>,
    unknown_objectives: OnceLock<Counter>,
}

impl QueueMetrics {
    /// Handles for this pool.
    pub fn new(metrics: &Metrics, pool: Arc<str>) -> Self {
        Self {
            metrics: metrics.clone(),
            pool,
            waits: [const { OnceLock::new() }; Band::COUNT],
            evictions: OnceLock::new(),
            unknown_objectives: OnceLock::new(),
        }
    }

    /// A request of this band has waited so long, whatever became of it then.
    pub fn waited(&self, band: Band, wait: Duration) {
        let histogram = || self.metrics.histogram(&QUEUE_WAIT, &[&self.pool, band.label()]);
        self.waits[band.index()].get_or_init(histogram).record(wait.as_secs_f64());
    }

    /// A request was ended so that one of a higher band gets its place.
    pub fn evicted(&self) {
        self.evictions.get_or_init(|| self.metrics.counter(&EVICTIONS, &[&self.pool])).increment(1);
    }

    /// A request named an objective that the pool does not have.
    pub fn unknown_objective(&self) {
        let counter = || self.metrics.counter(&UNKNOWN_OBJECTIVES, &[&self.pool]);
        self.unknown_objectives.get_or_init(counter).increment(1);
    }
}
