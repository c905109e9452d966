//! `prefix`: the share of the prompt that the endpoint was sent before, and so has in its cache, as far as we know.
//!
//! A match is worth the prefill it saves, and no more: behind a long enough queue the saving comes too late. So the
//! rating fades with the number of requests that wait there beyond the least loaded candidate, and a hot prefix spills
//! over to a second endpoint, which is then warm too.

use super::lru::Coldness;
use crate::{Ask, Candidate};

/// Requests waiting beyond the least loaded candidate up to which a match counts in full.
pub const FADE_FROM_WAITING: f64 = 12.0;

/// Requests waiting beyond the least loaded candidate from which a match counts nothing.
pub const FADE_TO_WAITING: f64 = 16.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    least_waiting: f64,
    longest_match: u32,
}

impl Field {
    pub(super) fn over(candidates: &[Candidate]) -> Self {
        Self {
            least_waiting: candidates.iter().map(|c| c.waiting).fold(f64::INFINITY, f64::min),
            longest_match: candidates.iter().map(|c| c.matched_blocks).max().unwrap_or(0),
        }
    }

    pub(super) fn rate(&self, candidate: &Candidate, ask: &Ask) -> (f64, f64) {
        if ask.blocks == 0 {
            return (0.0, 0.0);
        }
        let share = f64::from(candidate.matched_blocks) / f64::from(ask.blocks);
        let beyond = candidate.waiting - self.least_waiting;
        let kept = (FADE_TO_WAITING - beyond) / (FADE_TO_WAITING - FADE_FROM_WAITING);
        (share, share * kept.clamp(0.0, 1.0))
    }

    pub(super) fn coldness(&self) -> Coldness {
        if self.longest_match == 0 { Coldness::Cold } else { Coldness::Warm }
    }
}
