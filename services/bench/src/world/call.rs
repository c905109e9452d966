//! What clients ask: one request each, with everything about it drawn beforehand.
//!
//! What the gateway hashes and what an engine caches are views of one text.

use engine::{AdapterId, BlockHash};
use pool::Moment;
use serde::Deserialize;

/// Tokens that an engine's block holds; all profiles agree.
pub const ENGINE_BLOCK_TOKENS: u32 = 16;

/// One request and its client. Clients are open-loop: they ask whatever becomes of the requests before.
#[derive(Clone, Debug)]
pub struct Call {
    /// When the client asks.
    pub at: Moment,
    /// Which of the stage's classes it is of.
    pub class: usize,
    /// Its fairness key.
    pub flow: u64,
    /// The objective's priority: it names the band.
    pub priority: i32,
    pub draft: Draft,
    /// When its client wants the first token.
    pub deadline: Option<Moment>,
    /// When its client, without a first token, has had enough.
    pub leaves: Option<Moment>,
    pub answers: Answers,
    /// The one endpoint, by number, that it must go to.
    pub only: Option<usize>,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Draft {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Chained hashes, as the gateway makes them.
    pub prefix: Vec<u64>,
    /// Content hashes of the leading blocks that others may share; an engine takes the rest as unlike anything else.
    pub blocks: Vec<BlockHash>,
    /// The LoRA adapter asked for, by number.
    pub adapter: Option<u32>,
}

/// How an answer comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answers {
    /// Token by token.
    #[default]
    Streamed,
    /// At the end: until then nothing is seen of it.
    Whole,
}

impl Draft {
    /// As it is handed to an engine.
    pub fn for_engine(&self, id: u64) -> engine::Request {
        engine::Request {
            id: engine::RequestId(id),
            blocks: self.blocks.clone(),
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            max_tokens: None,
            adapter: self.adapter.map(AdapterId),
            priority: 0,
        }
    }
}

/// A number that looks like chance, from two (SplitMix64's finaliser).
pub fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0x2545_f491_4f6c_dd1d);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
