//! What an operator can change about a pool's queue, already validated.

use std::time::Duration;

use crate::Band;

/// A pool's settings. They may change at any time: what waits goes on waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// By [`Band::index`].
    pub bands: [BandSettings; Band::COUNT],
    /// Whose turn it is among requests of one priority.
    pub fairness: Fairness,
    /// Which request of one flow is first.
    pub ordering: Ordering,
}

/// One band of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandSettings {
    /// The band is served while the pool's saturation (0–1) is below this; what is above stays for higher bands.
    pub max_saturation: f64,
    /// Longest wait; zero = no waiting.
    pub max_wait: Duration,
    /// Requests that may wait.
    pub queued_requests_max: u32,
    /// Bytes of bodies that may wait. A larger body does not wait.
    pub queued_bytes_max: u64,
}

/// Whose turn it is among requests of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fairness {
    /// One request of each flow in turn.
    #[default]
    RoundRobin,
    /// The flow that was served fewest tokens lately.
    LeastAttainedService,
}

/// Which request of one flow is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// The oldest.
    #[default]
    Fcfs,
    /// The one whose deadline is nearest; without one, the end of its longest wait.
    Deadline,
}

impl Settings {
    /// The settings of one band.
    pub const fn band(&self, band: Band) -> &BandSettings {
        &self.bands[band.index()]
    }
}

impl Default for Settings {
    /// The contract's defaults.
    fn default() -> Self {
        let band = |max_saturation, max_wait_s| BandSettings {
            max_saturation,
            max_wait: Duration::from_secs(max_wait_s),
            queued_requests_max: 1_000,
            queued_bytes_max: 64 << 20,
        };
        Self {
            bands: [band(1.0, 30), band(0.9, 10), band(0.8, 0)],
            fairness: Fairness::default(),
            ordering: Ordering::default(),
        }
    }
}
