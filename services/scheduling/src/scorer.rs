//! The scorers: each rates every candidate from 0 to 1, 1 best, looking at one thing only.
//!
//! A scorer is a function of a candidate and of the [`Field`] it stands in, so that "how much worse than the best" can
//! be said without sorting. Scores are absolute steps rather than min–max ranks wherever a difference has a size: with
//! ranks, one waiting request more would cost as much as a hundred.

mod kv_cache;
mod lora_affinity;
mod lru;
mod predicted_latency;
mod prefix;
mod queue;
mod running_requests;

pub use prefix::{FADE_FROM_WAITING, FADE_TO_WAITING};
pub use queue::{PREFILL_STEP_TOKENS, QUEUE_SPAN};

use crate::{Ask, Candidate, Model};

/// One thing that endpoints are rated by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scorer {
    /// Requests waiting, and prompt tokens still to compute.
    Queue,
    /// KV-cache use.
    KvCache,
    /// Share of the prompt that is probably cached.
    Prefix,
    /// Adapter already loaded, for requests of an adapter.
    LoraAffinity,
    /// Requests in flight.
    RunningRequests,
    /// Least-recently-used spreading of cold prompts.
    Lru,
    /// Predicted time to first token.
    PredictedLatency,
}

impl Scorer {
    /// Every scorer; its place here is its place in [`Scores`].
    pub const ALL: [Self; 7] = [
        Self::Queue,
        Self::KvCache,
        Self::Prefix,
        Self::LoraAffinity,
        Self::RunningRequests,
        Self::Lru,
        Self::PredictedLatency,
    ];

    /// Its name in `weights` of the configuration and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::KvCache => "kvCache",
            Self::Prefix => "prefix",
            Self::LoraAffinity => "loraAffinity",
            Self::RunningRequests => "runningRequests",
            Self::Lru => "lru",
            Self::PredictedLatency => "predictedLatency",
        }
    }
}

/// How much each scorer counts. Relative: only their ratios matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Of [`Scorer::Queue`].
    pub queue: u32,
    /// Of [`Scorer::KvCache`].
    pub kv_cache: u32,
    /// Of [`Scorer::Prefix`].
    pub prefix: u32,
    /// Of [`Scorer::LoraAffinity`], for requests of an adapter.
    pub lora_affinity: u32,
    /// Of [`Scorer::RunningRequests`].
    pub running_requests: u32,
    /// Of [`Scorer::Lru`].
    pub lru: u32,
    /// Of [`Scorer::PredictedLatency`].
    pub predicted_latency: u32,
}

impl Weights {
    /// The profile of `llm-d` where an operator sets nothing: the prediction decides where it differs much, and the plain
    /// weights among endpoints for which it is about the same. A warm endpoint keeps what it has cached while its
    /// prediction is up to four times the soonest.
    pub const LLM_D: Self = Self { prefix: 6, predicted_latency: 8, ..Self::PLAIN };

    /// The plain weights: those of `epp`, and what is left out of a set of weights.
    pub const PLAIN: Self =
        Self { queue: 2, kv_cache: 2, prefix: 3, lora_affinity: 3, running_requests: 0, lru: 0, predicted_latency: 0 };
}

impl Default for Weights {
    /// The plain weights.
    fn default() -> Self {
        Self::PLAIN
    }
}

impl Weights {
    /// What `scorer` counts in a request for `model`.
    pub const fn of(self, scorer: Scorer, model: Model) -> u32 {
        match (scorer, model) {
            (Scorer::Queue, _) => self.queue,
            (Scorer::KvCache, _) => self.kv_cache,
            (Scorer::Prefix, _) => self.prefix,
            (Scorer::LoraAffinity, Model::Adapter) => self.lora_affinity,
            (Scorer::LoraAffinity, Model::Base) => 0,
            (Scorer::RunningRequests, _) => self.running_requests,
            (Scorer::Lru, _) => self.lru,
            (Scorer::PredictedLatency, _) => self.predicted_latency,
        }
    }
}

/// What one scorer said of one candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// The number it looked at, in its own unit.
    pub raw: f64,
    /// Its rating, 0–1.
    pub score: f64,
    /// What the rating counts.
    pub weight: u32,
}

/// What all scorers said of one candidate, in the order of [`Scorer::ALL`].
pub type Scores = [Score; Scorer::ALL.len()];

/// What the candidates have in common: the extremes that ratings are relative to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    queue: queue::Field,
    prefix: prefix::Field,
    running: running_requests::Field,
    predicted: predicted_latency::Field,
}

impl Field {
    /// One pass over the candidates.
    pub(crate) fn over(candidates: &[Candidate]) -> Self {
        Self {
            queue: queue::Field::over(candidates),
            prefix: prefix::Field::over(candidates),
            running: running_requests::Field::over(candidates),
            predicted: predicted_latency::Field::over(candidates),
        }
    }

    /// Rates one candidate. `ages` holds what [`lru::ages`] made of the same candidates.
    pub(crate) fn rate(&self, candidate: &Candidate, ask: &Ask, weights: Weights, ages: &[u64]) -> Scores {
        Scorer::ALL.map(|scorer| {
            let (raw, score) = self.score(scorer, candidate, ask, ages);
            Score { raw, score, weight: weights.of(scorer, ask.model) }
        })
    }

    /// The weighted sum of its ratings.
    pub(crate) fn total(&self, candidate: &Candidate, ask: &Ask, weights: Weights, ages: &[u64]) -> f64 {
        let mut total = 0.0;
        for scorer in Scorer::ALL {
            let weight = weights.of(scorer, ask.model);
            if weight > 0 {
                total += f64::from(weight) * self.score(scorer, candidate, ask, ages).1;
            }
        }
        total
    }

    /// What one scorer looked at, and its rating.
    #[inline]
    fn score(&self, scorer: Scorer, candidate: &Candidate, ask: &Ask, ages: &[u64]) -> (f64, f64) {
        let (raw, score) = match scorer {
            Scorer::Queue => self.queue.rate(candidate),
            Scorer::KvCache => kv_cache::rate(candidate),
            Scorer::Prefix => self.prefix.rate(candidate, ask),
            Scorer::LoraAffinity => lora_affinity::rate(candidate, ask),
            Scorer::RunningRequests => self.running.rate(candidate),
            Scorer::Lru => lru::rate(candidate, self.prefix.coldness(), ages),
            Scorer::PredictedLatency => self.predicted.rate(candidate),
        };
        (raw, score.clamp(0.0, 1.0))
    }
}

pub(crate) use lru::ages;

#[cfg(test)]
mod tests;
