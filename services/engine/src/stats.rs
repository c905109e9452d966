//! What the engine counts, under the meanings vLLM gives its metrics.
//!
//! Gauges are those of the end of the last step: a real engine reports once per step, so a reader never sees what
//! happened since. Counters and histograms are in tokens and seconds of the engine's own time line.

use crate::{AdapterId, FinishReason, Profile};

/// Gauges and counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// As of the end of the last step.
    pub gauges: Gauges,
    /// Since the engine was made.
    pub counters: Counters,
}

/// How loaded the engine is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Requests in the batch, prefilling or decoding.
    pub running: u32,
    /// Requests in the queue, preempted ones among them.
    pub waiting: u32,
    /// Of `waiting`: those passed over for want of an adapter slot.
    pub waiting_deferred: u32,
    /// Share of blocks held by live requests, 0–1. Cached but free blocks do not count.
    pub kv_usage: f64,
    /// Blocks held by live requests.
    pub kv_blocks_used: u32,
    /// Free blocks that still hold a cached prefix.
    pub kv_blocks_cached_free: u32,
    /// Adapters with a running request, ascending.
    pub adapters_running: Vec<AdapterId>,
    /// Adapters with a waiting request, ascending.
    pub adapters_waiting: Vec<AdapterId>,
}

/// What the engine did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps ended.
    pub steps: u64,
    /// Steps ended that computed prefill.
    pub prefill_steps: u64,
    /// Tokens looked up in the prefix cache, on first admissions.
    pub prefix_queries: u64,
    /// Tokens found there.
    pub prefix_hits: u64,
    /// Times a request lost its blocks.
    pub preemptions: u64,
    /// Prompt tokens of requests whose prefill ended, cached ones among them.
    pub prompt_tokens: u64,
    /// Of those: found in the prefix cache.
    pub prompt_tokens_cached: u64,
    /// Tokens generated.
    pub generation_tokens: u64,
    /// Requests ended with [`FinishReason::Stop`].
    pub finished_stop: u64,
    /// Requests ended with [`FinishReason::Length`].
    pub finished_length: u64,
    /// Requests ended with [`FinishReason::Abort`].
    pub finished_abort: u64,
}

/// One histogram: fixed upper bounds and an open last bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
}

/// vLLM's histograms. Times are in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Histograms {
    /// Arrival to first token.
    pub time_to_first_token: Histogram,
    /// Between outputs of one request.
    pub inter_token_latency: Histogram,
    /// Per request: mean time per token after the first.
    pub time_per_output_token: Histogram,
    /// Per request: arrival to end.
    pub e2e_latency: Histogram,
    /// Per request: in the queue before first admission.
    pub queue_time: Histogram,
    /// Per request: first admission to end.
    pub inference_time: Histogram,
    /// Per request: first admission to first token.
    pub prefill_time: Histogram,
    /// Per request: first token to end.
    pub decode_time: Histogram,
    /// Per step: prompt tokens computed and tokens generated.
    pub iteration_tokens: Histogram,
    /// Per request: prompt length.
    pub prompt_tokens: Histogram,
    /// Per request: tokens generated.
    pub generation_tokens: Histogram,
    /// Per request: the limit asked for, where one was.
    pub params_max_tokens: Histogram,
    /// Per request: prompt tokens that were not found in the cache.
    pub prefill_computed_tokens: Histogram,
    /// Per request: times preempted.
    pub preemptions: Histogram,
}

/// Bounds of vLLM 0.9.0–0.33.0.
const TTFT_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const ITL_S: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const LATENCY_S: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const ITERATION_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

impl Histogram {
    /// Empty, with these ascending upper bounds.
    pub fn new(bounds: &[f64]) -> Self {
        Self { bounds: bounds.to_vec(), counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts one value.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }

    /// Upper bounds with cumulative counts, without the open last bucket.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        self.bounds.iter().zip(&self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((*bound, *below))
        })
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Adds what `other`, with the same bounds, has counted.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds, "only like histograms are merged");
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum += other.sum;
    }
}

impl Histograms {
    pub(crate) fn new(profile: &Profile) -> Self {
        let tokens = one_two_five(profile.max_model_tokens);
        let [ttft, itl, latency] = [TTFT_S, ITL_S, LATENCY_S].map(Histogram::new);
        Self {
            time_to_first_token: ttft,
            inter_token_latency: itl.clone(),
            time_per_output_token: itl,
            e2e_latency: latency.clone(),
            queue_time: latency.clone(),
            inference_time: latency.clone(),
            prefill_time: latency.clone(),
            decode_time: latency,
            iteration_tokens: Histogram::new(ITERATION_TOKENS),
            prompt_tokens: Histogram::new(&tokens),
            generation_tokens: Histogram::new(&tokens),
            params_max_tokens: Histogram::new(&tokens),
            prefill_computed_tokens: Histogram::new(&tokens),
            preemptions: Histogram::new(PREEMPTIONS),
        }
    }
}

impl Counters {
    pub(crate) fn count_finished(&mut self, reason: FinishReason) {
        match reason {
            FinishReason::Stop => self.finished_stop += 1,
            FinishReason::Length => self.finished_length += 1,
            FinishReason::Abort => self.finished_abort += 1,
        }
    }

    /// Requests ended, for whatever reason.
    pub fn finished(&self) -> u64 {
        self.finished_stop + self.finished_length + self.finished_abort
    }
}

/// 1, 2, 5, 10, 20, 50 … up to `max`.
fn one_two_five(max: u32) -> Vec<f64> {
    let decades = (0..10).map(|exponent| 10_f64.powi(exponent));
    let all = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * decade));
    all.take_while(|bound| *bound <= f64::from(max)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bounds_end_at_the_context_length() {
        assert_eq!(one_two_five(2048).last(), Some(&2000.0));
        assert_eq!(one_two_five(2000).last(), Some(&2000.0));
        assert_eq!(one_two_five(11), [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn bounds_are_inclusive_and_counts_cumulative() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.observe(value);
        }
        assert_eq!(histogram.cumulative().collect::<Vec<_>>(), [(1.0, 2), (2.0, 3)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 12.0));
        let twice = {
            let mut twice = histogram.clone();
            twice.merge(&histogram);
            twice
        };
        assert_eq!((twice.count(), twice.sum()), (8, 24.0));
    }
}
