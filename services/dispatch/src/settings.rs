//! What an operator can change about a pool's dispatching, already validated.

use std::{num::NonZeroU32, time::Duration};

use scheduling::Weights;

/// Endpoints in a ranked list, at most: a request is tried at one and passed on once or twice, so more are never used.
pub const RANKED_MAX: usize = 4;

/// A pool's settings. They may change at any time: counts, endpoints and prefix memory stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What each scorer counts.
    pub weights: Weights,
    /// Age from which an endpoint's report is no longer believed.
    pub stale_after: Duration,
    /// How long an endpoint that was never read counts as starting.
    pub starting_for: Duration,
    /// When an endpoint is full.
    pub full: Full,
    /// Own requests that one endpoint may have in flight; `None` = no cap. For engines that report nothing.
    pub max_in_flight_per_endpoint: Option<NonZeroU32>,
    /// Memory for the prefix index, in bytes. A change starts an empty one.
    pub prefix_budget_bytes: usize,
    /// Whether the pool's engines have a metrics page.
    pub has_page: HasPage,
    /// Whether requests wait for room.
    pub flow_control: FlowControl,
    /// Who waits, how long and in which order.
    pub flow: flow_control::Settings,
    /// Whether requests in flight are ended for those of a higher band.
    pub eviction: Eviction,
    /// Endpoints in a ranked list: 1 to [`RANKED_MAX`]; what lies outside is brought inside.
    pub ranked_max: usize,
}

/// When an endpoint is full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Full {
    /// Requests waiting, per data-parallel rank. At least 1.
    pub waiting: u32,
    /// Share of the KV cache in use, 0–1, while at least one request waits.
    pub kv_cache: f64,
}

/// Whether requests wait for room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowControl {
    /// They do, as far as their band may.
    #[default]
    On,
    /// Every request is sent on at once, however full the endpoints are: to one with room if there is one.
    Off,
}

/// Whether requests in flight are ended for those of a higher band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// What was sent runs to its end.
    #[default]
    Never,
    /// When a request of another band must wait, a sheddable one without a byte of answer may be ended for it.
    BeforeFirstByte,
}

/// Whether engines have a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HasPage {
    /// They do; without it little is known of them.
    Yes,
    /// They do not (`engineType: none`): a passed health check is all there is to know, and own work is all there is to
    /// count.
    No,
    /// Nobody looks at them, since they are servers of any kind: who lists them says that they serve, own work is all there
    /// is to count, and of failures only that one cannot be connected to says something, since what else a plain server
    /// answers is its own business.
    Unasked,
}

impl Default for Settings {
    /// The contract's defaults; 32 MiB hold about 530,000 blocks: the default history of 17 endpoints.
    fn default() -> Self {
        Self {
            weights: Weights::default(),
            stale_after: Duration::from_secs(2),
            starting_for: Duration::from_secs(2),
            full: Full { waiting: 5, kv_cache: 0.8 },
            max_in_flight_per_endpoint: None,
            prefix_budget_bytes: 32 << 20,
            has_page: HasPage::Yes,
            flow_control: FlowControl::default(),
            flow: flow_control::Settings::default(),
            eviction: Eviction::default(),
            ranked_max: 3,
        }
    }
}
