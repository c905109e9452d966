//! How loaded an endpoint said it was, and when it said so.

use std::sync::Arc;

use crate::Moment;

/// One number read off an endpoint. Its age is `now - at`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signal {
    /// Never NaN, infinite or negative: such readings count as missing.
    pub value: f64,
    /// When the scrape that read it began: the newest moment at which the number can have been true.
    pub at: Moment,
    /// The metric family it was read from, as it stands on the page (`vllm:num_requests_waiting`).
    pub source: &'static str,
}

/// The signals of one endpoint. A family that is missing from a page keeps its former value and so grows old alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Requests queued in the engine, summed over its data-parallel ranks.
    pub waiting: Option<Signal>,
    /// Requests in the engine's running batch, summed over ranks.
    pub running: Option<Signal>,
    /// Share of KV-cache blocks held by live requests, 0–1, mean over ranks.
    pub kv_cache: Option<Signal>,
    /// Data-parallel ranks seen on the page; 0 = unknown, which counts as one.
    pub ranks: u32,
    /// Size of the engine's KV cache, where it says so.
    pub cache: Option<CacheShape>,
    /// LoRA adapters with work, where the engine says so.
    pub adapters: Option<Adapters>,
    /// When the process behind the page started, in Unix seconds by its own clock, where the page says so. A later start
    /// at the same address is another process, which has nothing of what the former one had.
    pub started_unix_s: Option<f64>,
}

/// The engine's KV cache, over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Tokens in one block.
    pub block_tokens: u32,
    /// Blocks over all ranks.
    pub blocks: u64,
}

impl CacheShape {
    /// Tokens that fit.
    pub fn tokens(self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_tokens))
    }
}

/// LoRA adapters that have requests in the engine. Absence means idle, not unloaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters {
    /// Adapters with a running request.
    pub running: Vec<Arc<str>>,
    /// Adapters with a waiting request only.
    pub waiting: Vec<Arc<str>>,
    /// Adapters that fit in one batch (`--max-loras`).
    pub slots: Option<u32>,
    /// When the scrape that read them began.
    pub at: Moment,
}

/// What one look at an endpoint found.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all are pages, made a few times a second and moved once")]
pub enum Observation {
    /// A metrics page with at least one family we know; the load merged with what was known before.
    Page {
        /// When that scrape began.
        began: Moment,
        /// The signals now known.
        load: Load,
    },
    /// No usable page, for the reason given.
    NoPage {
        /// When that look began.
        began: Moment,
        /// Why.
        why: NoPage,
    },
    /// An engine without a metrics page answered its health check.
    Healthy {
        /// When that check began.
        began: Moment,
    },
}

/// Why there is no usable page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPage {
    /// The serving port takes connections, but the page is missing, broken or holds no family we know.
    Accepting,
    /// The serving port takes no connections, or (for engines without a page) the health check failed.
    Unreachable,
}
