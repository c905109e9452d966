//! One live request inside the engine: what it holds and how far it is.

use pool::Moment;

use crate::{
    AdapterId, Request,
    blocks::{BlockHash, BlockIndex, ChainHash, mix},
};

/// A request between submission and end.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) request: Request,
    /// Order of submission: breaks ties, and makes contents nobody described unlike any other.
    pub(super) serial: u64,
    /// Chains of the full blocks known so far; grows as tokens are generated.
    pub(super) chains: Vec<ChainHash>,
    /// Blocks held, in order.
    pub(super) blocks: Vec<BlockIndex>,
    /// Leading blocks of `blocks` that the cache knows.
    pub(super) cached_blocks: usize,
    /// Tokens whose KV is in `blocks`, once the step in flight has ended.
    pub(super) computed: u32,
    /// Tokens the step in flight computes.
    pub(super) scheduled: u32,
    /// Tokens the step after it will compute, where that is formed ahead.
    pub(super) ahead: u32,
    /// Tokens generated.
    pub(super) generated: u32,
    /// Whether its blocks are counted among those that decodes read.
    pub(super) decoding: bool,
    /// Whether its client is gone; it leaves when the step in flight has ended.
    pub(super) aborted: bool,
    /// Whether the last look at the queue passed it over for want of an adapter slot.
    pub(super) deferred: bool,
    /// Prompt tokens found in the cache on first admission.
    pub(super) cached_tokens: u32,
    /// Times it lost its blocks.
    pub(super) preemptions: u32,
    pub(super) times: Times,
}

/// When things happened to a request. Later ones equal `arrived` until they happen.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) arrived: Moment,
    pub(super) queued: Moment,
    pub(super) scheduled: Option<Moment>,
    pub(super) first_token: Option<Moment>,
    pub(super) last_token: Option<Moment>,
}

impl Sequence {
    pub(super) fn new(request: Request, serial: u64, now: Moment, queued: Moment) -> Self {
        Self {
            request,
            serial,
            chains: Vec::new(),
            blocks: Vec::new(),
            cached_blocks: 0,
            computed: 0,
            scheduled: 0,
            ahead: 0,
            generated: 0,
            decoding: false,
            aborted: false,
            deferred: false,
            cached_tokens: 0,
            preemptions: 0,
            times: Times { arrived: now, queued, scheduled: None, first_token: None, last_token: None },
        }
    }

    /// Tokens known: the prompt and what was generated.
    pub(super) fn known(&self) -> u32 {
        self.request.prompt_tokens + self.generated
    }

    /// Tokens to compute before the next one can be generated.
    pub(super) fn missing(&self) -> u32 {
        self.known() - self.computed
    }

    /// Tokens computed when the step in flight has ended.
    pub(super) fn position(&self) -> u32 {
        self.computed + self.scheduled
    }

    /// Whether the step in flight computes all that is missing, and so brings a token.
    pub(super) fn brings_token(&self) -> bool {
        self.scheduled > 0 && self.scheduled == self.missing()
    }

    /// Tokens to compute after the step in flight; none when that is its last.
    pub(super) fn missing_after(&self) -> u32 {
        if !self.brings_token() {
            return self.missing() - self.scheduled;
        }
        u32::from(self.generated + 1 < self.request.output_tokens)
    }

    pub(super) fn adapter(&self) -> Option<AdapterId> {
        self.request.adapter
    }

    /// Orders sequences from the first to be served to the last.
    pub(super) fn rank(&self) -> (i32, u64) {
        (self.request.priority, self.serial)
    }

    /// Extends `chains` to cover `full` blocks.
    pub(super) fn extend_chains(&mut self, full: usize) {
        while self.chains.len() < full {
            let index = self.chains.len();
            let content = self.request.blocks.get(index).copied().unwrap_or_else(|| self.private_block(index));
            let before = self.chains.last().copied().unwrap_or_else(|| self.root());
            self.chains.push(before.then(content));
        }
    }

    /// Its first so many chains, known so far or not.
    pub(super) fn chains_up_to(&self, full: usize) -> impl Iterator<Item = ChainHash> + '_ {
        let mut before = None;
        (0..full).map(move |index| {
            let chain = self.chains.get(index).copied().unwrap_or_else(|| {
                let content = self.request.blocks.get(index).copied().unwrap_or_else(|| self.private_block(index));
                before.unwrap_or_else(|| self.root()).then(content)
            });
            before = Some(chain);
            chain
        })
    }

    /// Starts over after its blocks were taken away.
    pub(super) fn reset(&mut self) {
        self.blocks.clear();
        self.cached_blocks = 0;
        self.computed = 0;
        self.scheduled = 0;
        self.ahead = 0;
    }

    /// An adapter changes every KV entry, so its chains start elsewhere.
    fn root(&self) -> ChainHash {
        ChainHash::root(self.request.adapter.map_or(0, |adapter| u64::from(adapter.0) + 1))
    }

    /// A content that no other block has: salted apart from any hash a caller computes from text.
    fn private_block(&self, index: usize) -> BlockHash {
        const SALT: u64 = 0x5e71_a1f0_77c4_93d5;
        BlockHash(mix(mix(SALT, self.serial), index as u64))
    }
}
