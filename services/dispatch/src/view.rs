//! A pool as an operator sees it: a copy to be shown, taken under the pool's lock and formatted outside it.

use std::{net::SocketAddr, sync::Arc};

use pool::{CacheShape, EndpointId, State};

use crate::{Band, InFlight, IndexStats, Seen};

/// One pool at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    /// Load ÷ capacity of the least loaded endpoint, 0–1; 1 = none has room.
    pub saturation: f64,
    /// Its endpoints in the order in which they joined, leaving ones included as long as they have work.
    pub endpoints: Vec<EndpointView>,
    /// Requests waiting, by [`Band::index`](crate::Band::index).
    pub waiting: [u32; Band::COUNT],
    /// Prefix memory.
    pub index: IndexStats,
}

/// One endpoint at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointView {
    /// Which life of it.
    pub id: EndpointId,
    /// Its name.
    pub name: Arc<str>,
    /// Where it serves.
    pub address: SocketAddr,
    /// What it counts as.
    pub state: State,
    /// Load ÷ capacity, 0–1; 1 = full.
    pub fullness: f64,
    /// Own work there.
    pub in_flight: InFlight,
    /// Requests waiting, as last reported.
    pub waiting: Option<Seen>,
    /// Requests running, as last reported.
    pub running: Option<Seen>,
    /// Share of the KV cache in use, as last reported.
    pub kv_cache: Option<Seen>,
    /// Size of its KV cache, where it says so.
    pub cache: Option<CacheShape>,
    /// LoRA adapters known there.
    pub adapters: Vec<AdapterView>,
    /// Picks that chose it first, since it joined.
    pub picks: u64,
    /// What is known of its times to first token.
    pub latency: LatencyView,
}

/// What is known of an endpoint's times to first token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyView {
    /// Seconds to the first token that are expected of a typical request of this pool, sent there now.
    pub typical_ttft_s: f64,
    /// How far predictions for it should be believed, 0–1; 0 before any first token was seen.
    pub confidence: f64,
    /// Mean error of the last few hundred predictions ÷ mean time to first token. `None` before any.
    pub error: Option<f64>,
}

/// One LoRA adapter at one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterView {
    /// Its name.
    pub name: Arc<str>,
    /// Own requests for it in flight there.
    pub in_flight: u32,
}
