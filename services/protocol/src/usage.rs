//! Tokens of a request, as the endpoint counted them.
//!
//! They are read, never guessed: an answer without usage has none, and is counted as such. The APIs disagree on what a
//! prompt token is: OpenAI's count includes the cached ones, Anthropic's leaves out those read from the cache and those
//! written to it. Here they are always included.

use crate::answer::Answer;
use crate::json::Machine;

/// No request takes more tokens. A larger number is a fault of the engine's, and would stand in counters, bills and
/// quotas for ever.
const TOKENS_MAX: u64 = 1 << 32;

/// Tokens of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All tokens of the prompt, cached ones included.
    pub prompt_tokens: u64,
    /// Those of them that the engine's prefix cache held.
    pub cached_tokens: u64,
    /// 0 where nothing is generated, as for embeddings.
    pub completion_tokens: u64,
}

/// Reads the usage of an answer that is one JSON document, as its chunks pass: OpenAI's and Anthropic's `usage`, SGLang's
/// `meta_info` (a list of answers adds up), TGI's `details`.
#[derive(Debug)]
pub struct Reader {
    machine: Machine,
    answer: Answer,
    is_broken: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    pub fn new() -> Self {
        Self { machine: Machine::new(), answer: Answer::default(), is_broken: false }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        self.is_broken = self.is_broken || self.machine.feed(chunk, &mut self.answer).is_err();
    }

    /// The answer is complete. None if it has no usage or is not JSON.
    pub fn finish(mut self) -> Option<Usage> {
        let is_whole = !self.is_broken && self.machine.finish(&mut self.answer).is_ok();
        if is_whole { self.answer.total().usage() } else { None }
    }
}

/// Counts as they stand in answers, before it is known which of them there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// OpenAI's, cached ones included.
    pub(crate) prompt: Option<u64>,
    /// OpenAI's Responses API, cached ones included; Anthropic's, without those in the two counts below.
    pub(crate) input: Option<u64>,
    pub(crate) cache_read: Option<u64>,
    pub(crate) cache_creation: Option<u64>,
    pub(crate) cached: Option<u64>,
    pub(crate) completion: Option<u64>,
}

impl Counts {
    /// What a later part of the same answer says replaces what an earlier one said, number by number. A 0 replaces
    /// nothing: engines send zeros in parts that are about something else.
    pub(crate) fn update(&mut self, later: Self) {
        self.combine(later, |earlier, later| if later == 0 { earlier } else { later });
    }

    /// Another answer of the same request.
    pub(crate) fn add(&mut self, other: Self) {
        self.combine(other, u64::saturating_add);
    }

    /// None without a prompt's tokens: the rest alone would be counted against nothing. None, too, with a number that
    /// cannot be true.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let cache = self.cache_read.unwrap_or(0).saturating_add(self.cache_creation.unwrap_or(0));
        let prompt_tokens = self.prompt.or_else(|| self.input.map(|input| input.saturating_add(cache)))?;
        let cached_tokens = self.cached.or(self.cache_read).unwrap_or(0).min(prompt_tokens);
        let completion_tokens = self.completion.unwrap_or(0);
        let is_possible = prompt_tokens.max(completion_tokens) <= TOKENS_MAX;
        is_possible.then_some(Usage { prompt_tokens, cached_tokens, completion_tokens })
    }

    fn combine(&mut self, other: Self, with: impl Fn(u64, u64) -> u64) {
        let join = |left: &mut Option<u64>, right: Option<u64>| {
            *left = match (*left, right) {
                (Some(left), Some(right)) => Some(with(left, right)),
                (left, right) => left.or(right),
            };
        };
        join(&mut self.prompt, other.prompt);
        join(&mut self.input, other.input);
        join(&mut self.cache_read, other.cache_read);
        join(&mut self.cache_creation, other.cache_creation);
        join(&mut self.cached, other.cached);
        join(&mut self.completion, other.completion);
    }
}

#[cfg(test)]
mod tests;
