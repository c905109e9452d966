//! What the scorers see: one endpoint's facts at the moment of a pick, already made comparable.
//!
//! The facts are numbers without ages. Whoever fills them in has replaced stale and missing readings (by the mean of the
//! others, or by own counts), so no scorer ever meets a NaN or asks how old a value is.

/// One endpoint that no filter has removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The caller's own handle for the endpoint.
    pub slot: u32,
    /// [`name_hash`](crate::name_hash) of the endpoint's name: the same in every gateway.
    pub name_hash: u64,
    /// Requests waiting there: what it reported, joined with own dispatches that it cannot have reported yet.
    pub waiting: f64,
    /// Own dispatches since its last report that are already being answered, and so neither waiting nor reported.
    pub answered_since: u32,
    /// Prompt tokens of own dispatches that it still has to compute.
    pub uncached_tokens: u64,
    /// Requests running there, own ones included.
    pub running: f64,
    /// Share of its KV cache in use, 0–1.
    pub kv_cache: f64,
    /// Leading blocks of this prompt that it was sent before.
    pub matched_blocks: u32,
    /// How it stands to the adapter asked for.
    pub residency: Residency,
    /// How long it is expected to take to this request's first token.
    pub predicted: Prediction,
    /// Number of the pick that chose it last, counted from 1; 0 = never.
    pub last_picked: u64,
}

/// A prediction of one request's time to first token at one endpoint, with how good such predictions are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds from dispatch to first token.
    pub ttft_s: f64,
    /// How far it should be believed, 0–1.
    pub confidence: f64,
    /// The usual |ln(actual ÷ predicted)| there.
    pub usual_error: f64,
}

/// How an endpoint stands to one LoRA adapter. Best first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Residency {
    /// The adapter is loaded: it is running, or was used there recently.
    Loaded,
    /// It is not, but a slot is left.
    Room {
        /// How free the slots are, 0–1: 1 when none is used.
        free_share: f64,
    },
    /// It waits there for a slot.
    Queued,
    /// Neither loaded nor room for it.
    Absent,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Blocks in the prompt's chain; 0 = shorter than a block.
    pub blocks: u32,
    /// Stands for the prompt's first blocks when totals tie; `None` without a prefix.
    pub head: Option<u64>,
    /// Whose weights it is served by.
    pub model: Model,
    /// Breaks ties that nothing else breaks.
    pub tie: u64,
}

/// Whether a request is for the base model or for an adapter of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// The base model: adapter residency says nothing.
    Base,
    /// An adapter: residency counts.
    Adapter,
}

/// Blocks that decide where a cold prefix goes: enough to tell system prompts apart, few enough that conversations
/// with the same beginning stay together.
const HEAD_BLOCKS: usize = 4;

impl Ask {
    /// For a prompt with this chain of block hashes. Each hash stands for all blocks before it too, so one is enough.
    pub fn new(prefix: &[u64], model: Model, tie: u64) -> Self {
        let head = prefix.get(prefix.len().min(HEAD_BLOCKS).wrapping_sub(1)).copied();
        Self { blocks: u32::try_from(prefix.len()).unwrap_or(u32::MAX), head, model, tie }
    }
}
