//! `lru`: spreads prompts that are cached nowhere, by giving them to the endpoint that was chosen longest ago.
//!
//! When any candidate holds a part of the prompt this says nothing (0.5 for all), so it never works against `prefix`.

use crate::Candidate;

/// Whether a prompt is cached anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coldness {
    /// No candidate holds its first block.
    Cold,
    /// Some candidate does.
    Warm,
}

/// When each candidate was last chosen, in order: what [`rate`] finds a candidate's rank in.
pub(crate) fn ages(candidates: &[Candidate], ages: &mut Vec<u64>) {
    ages.clear();
    ages.extend(candidates.iter().map(|c| c.last_picked));
    ages.sort_unstable();
}

/// Rank i of n is worth 1 − i/(n−1). Those never chosen share the first rank.
pub(super) fn rate(candidate: &Candidate, coldness: Coldness, ages: &[u64]) -> (f64, f64) {
    let rank = ages.partition_point(|&age| age < candidate.last_picked);
    let score = match coldness {
        Coldness::Warm => 0.5,
        Coldness::Cold if ages.len() < 2 => 1.0,
        Coldness::Cold => 1.0 - rank as f64 / (ages.len() - 1) as f64,
    };
    (rank as f64, score)
}
