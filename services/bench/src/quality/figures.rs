//! What one run says, as numbers.
//!
//! Requests count that came after the first tenth of the run, when queues and caches have filled. One without a first
//! token at the end has waited at least until then; one that was refused has no first token, and is no goodput.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::scenario::{PodClass, Slo};
use crate::world::ledger::{Ledger, Outcome, Record};

/// Of a run's length: what comes before counts for nothing.
const WARM_UP: f64 = 0.1;

/// Of one run. Times in ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub requests: u32,
    pub offered_per_s: f64,
    pub ttft_mean: f64,
    pub ttft_p50: f64,
    pub ttft_p95: f64,
    pub ttft_p99: f64,
    /// Between two tokens of one answer.
    pub itl_p50: f64,
    pub itl_p95: f64,
    pub itl_p99: f64,
    /// Answers within the objective ÷ offered.
    pub goodput: f64,
    /// Refused for want of room ÷ offered.
    pub shed: f64,
    /// Lost with an endpoint, or sent to one that was gone ÷ offered.
    pub failed: f64,
    /// Output tokens per second.
    pub throughput: f64,
    /// GPU-seconds in which an endpoint had no request, as a share of all.
    pub idle_gpus: f64,
    /// Largest (share of requests ÷ share of capacity) of an endpoint: 1.0 is even.
    pub imbalance: f64,
    /// Share of requests by pod class.
    pub shares: Vec<f64>,
    /// Prompt tokens found in the engines' caches ÷ all prompt tokens.
    pub prefix_hits: f64,
    /// By kind of request: P99 of the first token, and goodput.
    pub kinds: Vec<KindFigures>,
}

/// Of one kind of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KindFigures {
    pub ttft_p99: f64,
    pub goodput: f64,
    pub shed: f64,
}

/// What the figures are relative to.
#[derive(Clone, Copy, Debug)]
pub struct Basis<'a> {
    pub slo: Slo,
    pub length: Duration,
    pub pods: &'a [PodClass],
    /// By pod class: requests per second of one pod.
    pub capacity_per_pod: &'a [f64],
}

impl Figures {
    pub fn of(ledger: &Ledger, basis: &Basis<'_>) -> Self {
        let from = basis.length.mul_f64(WARM_UP);
        let counted: Vec<&Record> =
            ledger.requests.iter().filter(|record| record.arrived.since_origin() >= from).collect();
        let seconds = basis.length.saturating_sub(from).as_secs_f64();
        let ttft = First::of(&counted, ledger);
        let kinds = (0..ledger.classes.len()).map(|class| {
            let of_kind: Vec<&Record> = counted.iter().copied().filter(|record| record.class == class).collect();
            KindFigures {
                ttft_p99: First::of(&of_kind, ledger).at(0.99),
                goodput: share(&of_kind, |record| is_good(record, basis.slo)),
                shed: share(&of_kind, is_shed),
            }
        });
        let prompts: u64 = counted.iter().map(|r| u64::from(r.cached_tokens.map_or(0, |_| r.prompt_tokens))).sum();
        let cached: u64 = counted.iter().map(|record| u64::from(record.cached_tokens.unwrap_or(0))).sum();
        let between = &ledger.between_tokens_ms;
        Self {
            requests: counted.len() as u32,
            offered_per_s: counted.len() as f64 / seconds,
            ttft_mean: ttft.mean(),
            ttft_p50: ttft.at(0.5),
            ttft_p95: ttft.at(0.95),
            ttft_p99: ttft.at(0.99),
            itl_p50: between.at(0.5),
            itl_p95: between.at(0.95),
            itl_p99: between.at(0.99),
            goodput: share(&counted, |record| is_good(record, basis.slo)),
            shed: share(&counted, is_shed),
            failed: share(&counted, |record| record.is(Outcome::Broke) || record.is(Outcome::NoEndpoint)),
            throughput: tokens_within(ledger, from, basis.length) / seconds,
            idle_gpus: idle(ledger, basis),
            imbalance: imbalance(&counted, basis),
            shares: shares(&counted, basis.pods),
            prefix_hits: if prompts > 0 { cached as f64 / prompts as f64 } else { 0.0 },
            kinds: kinds.collect(),
        }
        .rounded()
    }

    /// To nine digits, which JSON gives back as they were: a run that was kept is the same run.
    fn rounded(mut self) -> Self {
        let Self { ttft_mean, ttft_p50, ttft_p95, ttft_p99, itl_p50, itl_p95, itl_p99, goodput, .. } = &mut self;
        [ttft_mean, ttft_p50, ttft_p95, ttft_p99, itl_p50, itl_p95, itl_p99, goodput].into_iter().for_each(nine_digits);
        let Self { offered_per_s, shed, failed, throughput, idle_gpus, imbalance, prefix_hits, .. } = &mut self;
        [offered_per_s, shed, failed, throughput, idle_gpus, imbalance, prefix_hits].into_iter().for_each(nine_digits);
        self.shares.iter_mut().for_each(nine_digits);
        for kind in &mut self.kinds {
            [&mut kind.ttft_p99, &mut kind.goodput, &mut kind.shed].into_iter().for_each(nine_digits);
        }
        self
    }
}

/// What is no number (nothing was there to be measured) becomes 0.
fn nine_digits(value: &mut f64) {
    let finite = if value.is_finite() { *value } else { 0.0 };
    *value = format!("{finite:.8e}").parse().expect("a number that was written can be read");
}

/// Times to the first token, ms, ascending.
struct First(Vec<f64>);

impl First {
    fn of(records: &[&Record], ledger: &Ledger) -> Self {
        let ended = ledger.requests.iter().filter_map(|record| record.ended).max().unwrap_or_default();
        let wanted = records.iter().filter(|record| record.first_token.is_some() || record.outcome.is_none());
        let mut times: Vec<f64> = wanted
            .map(|record| record.first_token.unwrap_or(ended).since(record.arrived).as_secs_f64() * 1e3)
            .collect();
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    /// The time that this share of all does not exceed; 0 without any.
    fn at(&self, quantile: f64) -> f64 {
        let rank = (self.0.len() as f64 * quantile).ceil() as usize;
        self.0.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len().max(1) as f64
    }
}

fn share(records: &[&Record], of: impl Fn(&Record) -> bool) -> f64 {
    records.iter().filter(|record| of(record)).count() as f64 / records.len().max(1) as f64
}

fn is_good(record: &Record, slo: Slo) -> bool {
    let (Some(first), Some(ended)) = (record.first_token, record.ended) else { return false };
    let further = f64::from(record.output_tokens.saturating_sub(1)).max(1.0);
    record.is(Outcome::Served)
        && first.since(record.arrived).as_secs_f64() * 1e3 <= slo.first_token_ms
        && ended.since(first).as_secs_f64() * 1e3 / further <= slo.token_ms
}

fn is_shed(record: &Record) -> bool {
    [Outcome::Shed, Outcome::QueueFull, Outcome::Expired, Outcome::Evicted].iter().any(|&o| record.is(o))
}

/// Output tokens between two moments: an answer's tokens are spread evenly over its time.
fn tokens_within(ledger: &Ledger, from: Duration, to: Duration) -> f64 {
    let tokens = ledger.requests.iter().filter(|record| record.is(Outcome::Served)).filter_map(|record| {
        let (first, ended) = (record.first_token?.since_origin(), record.ended?.since_origin());
        let within = ended.min(to).saturating_sub(first.max(from)).as_secs_f64();
        let whole = ended.saturating_sub(first).as_secs_f64();
        let share = if whole > 0.0 { within / whole } else { f64::from(u8::from(first >= from && first < to)) };
        Some(f64::from(record.output_tokens) * share)
    });
    tokens.sum()
}

/// The class of each endpoint, in order.
fn classes(pods: &[PodClass]) -> impl Iterator<Item = usize> {
    pods.iter().enumerate().flat_map(|(class, pod)| std::iter::repeat_n(class, pod.count))
}

fn idle(ledger: &Ledger, basis: &Basis<'_>) -> f64 {
    let gpus = |class: usize| basis.pods[class].gpus as f64;
    let idle: f64 = classes(basis.pods).zip(&ledger.idle).map(|(class, idle)| gpus(class) * idle.as_secs_f64()).sum();
    let all: f64 = classes(basis.pods).map(gpus).sum();
    idle / (all * basis.length.as_secs_f64())
}

fn shares(records: &[&Record], pods: &[PodClass]) -> Vec<f64> {
    let class_of: Vec<usize> = classes(pods).collect();
    let placed = records.iter().filter_map(|record| record.endpoint);
    let mut counts = vec![0.0; pods.len()];
    placed.for_each(|endpoint| counts[class_of[endpoint]] += 1.0);
    let all: f64 = counts.iter().sum();
    counts.iter().map(|count| count / all.max(1.0)).collect()
}

fn imbalance(records: &[&Record], basis: &Basis<'_>) -> f64 {
    let capacities: Vec<f64> = classes(basis.pods).map(|class| basis.capacity_per_pod[class]).collect();
    let mut counts = vec![0.0; capacities.len()];
    records.iter().filter_map(|record| record.endpoint).for_each(|endpoint| counts[endpoint] += 1.0);
    let (placed, capacity) = (counts.iter().sum::<f64>(), capacities.iter().sum::<f64>());
    let relative = counts.iter().zip(&capacities).map(|(count, own)| count / placed.max(1.0) / (own / capacity));
    relative.fold(0.0, f64::max)
}
