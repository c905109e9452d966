//! What is known of an endpoint that bears on a request's first token there: the input of its latency model.

use pool::{Moment, Signal};
use scheduling::Work;

use crate::{
    endpoint_state::EndpointState,
    load_now::{self, Fresh},
    work::Stage,
};

/// One request, as an endpoint would meet it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    pub(crate) cached_tokens: u32,
    pub(crate) uncached_tokens: u32,
}

/// What stands between a request and its first token at an endpoint whose readings were `filled` in. Ranks share work.
/// `typical_tokens` is what a request that another gateway sent is taken to have to compute.
pub(crate) fn work(state: &EndpointState, filled: &Fresh, prompt: Prompt, typical_tokens: f64, now: Moment) -> Work {
    let ranks = f64::from(state.load.ranks.max(1));
    let own_tokens = state.own.total().uncached_tokens;
    let own_ahead = state.prefill_line.left(own_tokens, state.prefill_speed.tokens_per_s(), now);
    let of_others = (filled.waiting.unwrap_or(0.0) - f64::from(state.unanswered_in_report)).max(0.0);
    Work {
        cached_tokens: prompt.cached_tokens.into(),
        uncached_tokens: prompt.uncached_tokens.into(),
        ahead_tokens: of_others.mul_add(typical_tokens, own_ahead) / ranks,
        running: load_now::running(&state.own, filled) / ranks,
        overflow_tokens: overflow_tokens(state, filled, prompt) / ranks,
    }
}

/// Tokens by which the cache would be too small for all that is there and this request.
fn overflow_tokens(state: &EndpointState, filled: &Fresh, prompt: Prompt) -> f64 {
    let own_reading = |signal: Option<Signal>| signal.is_some();
    let Some((cache, used)) = state.load.cache.zip(filled.kv_cache).filter(|_| own_reading(state.load.kv_cache)) else {
        return 0.0;
    };
    let coming = state.own.at(Stage::Since).new_tokens.max(state.own.total().uncached_tokens);
    let free = cache.tokens() as f64 * (1.0 - used);
    (coming as f64 + f64::from(prompt.uncached_tokens) - free).max(0.0)
}
