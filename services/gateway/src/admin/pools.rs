//! `/api/v1/pools`: the pools' accounts, as the next pick would see them.

use std::sync::Arc;

use dispatch::{AdapterView, Band, EndpointView, InFlight, IndexStats, LatencyView, PoolView, Seen};
use pool::CacheShape;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    pools::Waiting,
    routes::{Listed, Routes},
};

/// Every pool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pools)]
pub(super) struct Pools {
    /// In the order of the configuration.
    pools: Vec<Pool>,
}

/// The endpoints that serve one model and its adapters.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pool)]
struct Pool {
    /// The scheduler's name.
    #[schema(value_type = String)]
    name: Arc<str>,
    /// Names that clients use for it: its model first, then its adapters.
    #[schema(value_type = Vec<String>)]
    models: Vec<Arc<str>>,
    /// Load of the least loaded endpoint over what makes it full; 1 when no endpoint has room.
    #[schema(minimum = 0, maximum = 1)]
    saturation: f64,
    /// Requests waiting for room in the gateway.
    queue: Queue,
    /// Memory of which endpoint was sent which prompt.
    prefix_index: PrefixIndex,
    /// In the order in which they joined. One that left is listed as `draining` until its last request has ended.
    endpoints: Vec<Endpoint>,
}

/// Requests waiting for room in the gateway, by band.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queue)]
struct Queue {
    /// Of objectives with a priority above 0.
    critical: u32,
    /// Of objectives with priority 0, or of none.
    standard: u32,
    /// Of objectives with a priority below 0.
    sheddable: u32,
}

/// Memory of which endpoint was sent which prompt.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PrefixIndex)]
struct PrefixIndex {
    /// Blocks of prompts known, counted once per endpoint.
    blocks: u64,
    /// Memory reserved.
    bytes: u64,
    /// The most it may take.
    budget_bytes: u64,
    /// Blocks forgotten for lack of room.
    evictions: u64,
}

/// One reachable model-server process.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Endpoint)]
struct Endpoint {
    /// Its name, unique in the pool but for an endpoint that has left and one that came in its place.
    #[schema(value_type = String)]
    name: Arc<str>,
    /// Where it takes requests, `ip:port`.
    address: String,
    /// `ready`, `stale`, `ejected`, `draining` or `starting`.
    #[schema(value_type = String)]
    state: &'static str,
    /// Load over what makes it full; 1 is full.
    #[schema(minimum = 0, maximum = 1)]
    fullness: f64,
    /// This gateway's own requests there.
    in_flight: Work,
    /// Times it was chosen first, since it joined.
    picks: u64,
    /// What it said of itself.
    signals: Signals,
    /// Size of its KV cache, where it says so.
    #[schema(required)]
    cache: Option<Cache>,
    /// What was learned of its times to first token.
    latency: Latency,
}

/// What was learned of an endpoint's times to first token from the streamed answers that passed through.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Latency)]
struct Latency {
    /// Milliseconds to first token that are predicted for a request of the pool's usual length, sent there now.
    typical_ttft_ms: f64,
    /// How far predictions for it are believed; 0 before any first token was seen.
    #[schema(minimum = 0, maximum = 1)]
    confidence: f64,
    /// Mean error of the last few hundred predictions, as a share of the mean time to first token. `null` before any.
    #[schema(required)]
    error: Option<f64>,
}

/// This gateway's own requests at one endpoint.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InFlight)]
pub(super) struct Work {
    /// From the pick to the last byte.
    requests: u32,
    /// Those among them without a byte of answer yet.
    unanswered: u32,
    /// Prompt tokens that are neither cached there nor computed yet, estimated.
    prompt_tokens: u64,
}

/// What an endpoint said of itself. `null` = it never did.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Signals)]
struct Signals {
    /// Requests queued in the engine.
    #[schema(required)]
    waiting: Option<Signal>,
    /// Requests in its running batch.
    #[schema(required)]
    running: Option<Signal>,
    /// Share of its KV cache held by live requests, 0 to 1.
    #[schema(required)]
    kv_cache: Option<Signal>,
    /// LoRA adapters taken to be loaded.
    loras: Loras,
}

/// One number that an endpoint reported.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Signal)]
pub(super) struct Signal {
    /// As last reported.
    value: f64,
    /// How long ago the look began that found it.
    age_ms: u64,
    /// The metric family it was read from.
    #[schema(value_type = String)]
    source: &'static str,
}

/// LoRA adapters taken to be loaded on an endpoint. Engines report only those with work, so this is a history rather
/// than a reading, and has no age: what the endpoint was sent lately and what it reported as running, as many as it has
/// slots for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Loras)]
struct Loras {
    /// Their names, least recently used first.
    #[schema(value_type = Vec<String>)]
    value: Vec<Arc<str>>,
    /// Always `null`: a history has no age.
    #[schema(required)]
    age_ms: Option<u64>,
    /// Always `history`.
    #[schema(value_type = String)]
    source: &'static str,
    /// This gateway's own requests in flight for adapters there.
    in_flight: u64,
}

/// Size of an engine's KV cache.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Cache)]
struct Cache {
    /// Tokens in one block.
    block_tokens: u32,
    /// Blocks, over all data-parallel ranks.
    blocks: u64,
}

impl Pools {
    pub(super) fn of(routes: &Routes) -> Self {
        Self { pools: routes.pools.iter().map(|listed| Pool::of(listed, listed.pool.view())).collect() }
    }
}

impl Pool {
    fn of(listed: &Listed, view: PoolView) -> Self {
        Self {
            name: Arc::clone(&listed.pool.name),
            models: listed.models.clone(),
            saturation: view.saturation,
            queue: Queue::of(listed.pool.waiting()),
            prefix_index: PrefixIndex::of(view.index),
            endpoints: view.endpoints.iter().map(Endpoint::of).collect(),
        }
    }
}

impl Queue {
    fn of(waiting: [Waiting; Band::COUNT]) -> Self {
        let [critical, standard, sheddable] = waiting.map(|waiting| waiting.requests);
        Self { critical, standard, sheddable }
    }
}

impl PrefixIndex {
    fn of(IndexStats { entries, bytes, budget_bytes, evictions }: IndexStats) -> Self {
        Self { blocks: entries, bytes, budget_bytes, evictions }
    }
}

impl Endpoint {
    fn of(view: &EndpointView) -> Self {
        Self {
            name: Arc::clone(&view.name),
            address: view.address.to_string(),
            state: view.state.as_str(),
            fullness: view.fullness,
            in_flight: Work::of(view.in_flight),
            picks: view.picks,
            signals: Signals {
                waiting: view.waiting.map(Signal::of),
                running: view.running.map(Signal::of),
                kv_cache: view.kv_cache.map(Signal::of),
                loras: Loras::of(&view.adapters),
            },
            cache: view.cache.map(|CacheShape { block_tokens, blocks }| Cache { block_tokens, blocks }),
            latency: Latency::of(view.latency),
        }
    }
}

impl Latency {
    fn of(LatencyView { typical_ttft_s, confidence, error }: LatencyView) -> Self {
        Self { typical_ttft_ms: typical_ttft_s * 1e3, confidence, error }
    }
}

impl Work {
    pub(super) fn of(InFlight { requests, unanswered, prompt_tokens }: InFlight) -> Self {
        Self { requests, unanswered, prompt_tokens }
    }
}

impl Signal {
    pub(super) fn of(Seen { value, age, source }: Seen) -> Self {
        Self { value, age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX), source }
    }
}

impl Loras {
    fn of(adapters: &[AdapterView]) -> Self {
        Self {
            value: adapters.iter().map(|adapter| Arc::clone(&adapter.name)).collect(),
            age_ms: None,
            source: "history",
            in_flight: adapters.iter().map(|adapter| u64::from(adapter.in_flight)).sum(),
        }
    }
}
