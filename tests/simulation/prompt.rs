//! Prompts: what the gateway hashes and what an engine caches are views of one text.

use engine::BlockHash;
use fastrand::Rng;
use pool::Moment;

use crate::scenario::Class;

/// Tokens that an engine's block holds; all profiles agree.
const ENGINE_BLOCK_TOKENS: u32 = 16;

/// One request as its client sends it.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
    /// Chained hashes, as the gateway makes them.
    pub(crate) prefix: Vec<u64>,
    /// Content hashes of the shared beginning; an engine takes the rest as unlike anything else.
    pub(crate) blocks: Vec<BlockHash>,
}

impl Draft {
    /// The next request of a class. `serial` is its own number: what it does not share is unlike all others.
    pub(crate) fn draw(class: &Class, salt: u64, serial: u64, rng: &mut Rng) -> Self {
        let (shared_tokens, group) = match class.prefixes {
            Some(prefixes) => (prefixes.tokens, rng.u32(0..prefixes.groups.max(1))),
            None => (0, 0),
        };
        let prompt_tokens = class.prompt_tokens.draw(rng).max(shared_tokens + 1);
        let text = mix(salt, u64::from(group));
        let shared = |tokens: u32| (0..tokens / ENGINE_BLOCK_TOKENS).map(|i| BlockHash(mix(text, u64::from(i))));
        let mut chain = salt;
        let prefix = (0..prompt_tokens / dispatch::BLOCK_TOKENS).map(|block| {
            let whole = (block + 1) * dispatch::BLOCK_TOKENS <= shared_tokens;
            chain = mix(chain, if whole { mix(text, u64::from(block)) } else { mix(!serial, u64::from(block)) });
            chain
        });
        Self {
            prompt_tokens,
            output_tokens: class.output_tokens.draw(rng).max(1),
            prefix: prefix.collect(),
            blocks: shared(shared_tokens).collect(),
        }
    }

    /// As it is handed to an engine.
    pub(crate) fn for_engine(&self, id: u64) -> engine::Request {
        engine::Request {
            id: engine::RequestId(id),
            blocks: self.blocks.clone(),
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            max_tokens: None,
            adapter: None,
            priority: 0,
        }
    }
}

/// Time to the next of Poisson arrivals.
pub(crate) fn gap(rate_per_s: f64, now: Moment, rng: &mut Rng) -> Moment {
    now + std::time::Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate_per_s)
}

/// A number that looks like chance, from two (SplitMix64's finaliser).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_add(0x2545_f491_4f6c_dd1d);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
