//! Who waits, and who is refused, when a pool is full: as programs need it.

use std::{num::NonZeroU32, time::Duration};

/// One pool's flow control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowControl {
    /// Off: every request is sent on at once, however full its pool is.
    pub enabled: bool,
    /// When an endpoint has no room.
    pub endpoint_full: EndpointFull,
    /// Requests of this gateway at one endpoint; `None`: no such limit.
    pub max_in_flight_per_endpoint: Option<NonZeroU32>,
    /// The bands of priority. `max_saturation` never grows from one to the next.
    pub bands: Bands,
    /// Whose turn it is inside a band.
    pub fairness: Fairness,
    /// Which request of one caller is first.
    pub ordering: Ordering,
    /// Whether running work gives way.
    pub eviction: Eviction,
}

/// When an endpoint has no room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndpointFull {
    /// This many requests wait, per rank.
    pub waiting: u32,
    /// Or this share of the KV cache is used (0 to 1) while at least one waits.
    pub kv_cache: f64,
}

/// The three bands of priority, in the order of service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bands {
    /// Objectives of a priority above 0.
    pub critical: Band,
    /// Objectives of priority 0, and requests without one.
    pub standard: Band,
    /// Objectives of a priority below 0.
    pub sheddable: Band,
}

/// One band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The band is served while the pool's saturation is below this; more than 0, at most 1.
    pub max_saturation: f64,
    /// Longest wait; zero: none.
    pub max_wait: Duration,
    /// Requests that may wait.
    pub max_queued_requests: u32,
    /// Bytes of bodies that may wait. A larger body does not wait.
    pub max_queued_bytes: u64,
}

/// A band's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowBand {
    /// First.
    Critical,
    /// In between.
    Standard,
    /// Refused first.
    Sheddable,
}

/// Whose turn it is inside a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fairness {
    /// One request of each caller in turn.
    RoundRobin,
    /// The caller that was served fewest tokens.
    LeastAttainedService,
}

/// Which request of one caller is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// The oldest.
    Fcfs,
    /// The one whose deadline is nearest.
    Deadline,
}

/// Whether running work of the lowest band gives way to waiting requests of higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eviction {
    /// What was sent to an endpoint stays there.
    Never,
    /// Until the first byte of its answer.
    BeforeFirstByte,
}

/// The priority of requests that name it by header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// What requests send.
    pub name: String,
    /// The scheduler whose requests it is for; one of the configuration.
    pub pool: String,
    /// Above 0 is critical, 0 standard, below 0 sheddable. Higher goes first inside a band.
    pub priority: i32,
}
