//! `queue`: who will get to this request's first token soonest.
//!
//! The raw value is a length of queue in requests: those waiting; plus the prompt tokens of our own requests that are
//! still to be computed, in prefill steps, so that one request of 100,000 tokens is not taken for one of 100; plus a
//! little for own requests that began to be answered since the endpoint's last report, which no reading shows yet.
//! The rating falls in a straight line over a fixed span above the shortest queue: one request of difference decides
//! between equals and never outweighs a full prefix match.

use crate::Candidate;

/// Requests of difference to the shortest queue at which the rating is 0. At default weights one request is then worth
/// 2/16 against up to 3 for a full prefix match; the same 16 at which the prefix rating has faded away.
pub const QUEUE_SPAN: f64 = 16.0;

/// Prompt tokens that weigh as much as one waiting request: one prefill step of the common engines
/// (`max_num_batched_tokens` 2,048 in vLLM's chunked prefill, `chunked_prefill_size` 2,048 in SGLang on small GPUs).
pub const PREFILL_STEP_TOKENS: f64 = 2_048.0;

/// What a freshly answered request weighs: it decodes, which costs those behind it little. Without it a long scrape
/// interval would send everything to one of two equals as long as answers begin at once.
const ANSWERED_WEIGHT: f64 = 1.0 / 16.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    shortest: f64,
}

impl Field {
    pub(super) fn over(candidates: &[Candidate]) -> Self {
        Self { shortest: candidates.iter().map(length).fold(f64::INFINITY, f64::min) }
    }

    pub(super) fn rate(&self, candidate: &Candidate) -> (f64, f64) {
        let raw = length(candidate);
        (raw, 1.0 - (raw - self.shortest) / QUEUE_SPAN)
    }
}

fn length(candidate: &Candidate) -> f64 {
    candidate.waiting
        + candidate.uncached_tokens as f64 / PREFILL_STEP_TOKENS
        + f64::from(candidate.answered_since) * ANSWERED_WEIGHT
}
