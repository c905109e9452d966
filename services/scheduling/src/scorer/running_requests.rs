//! `runningRequests`: how many requests are in flight, whoever sent them.
//!
//! Relative to the busiest candidate once there is real work, and to a fixed step below that: of three requests on one
//! endpoint and two on another little follows.

use crate::Candidate;

/// Requests below which differences are not blown up to the full scale.
const SCALE_MIN: f64 = 16.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    fewest: f64,
    scale: f64,
}

impl Field {
    pub(super) fn over(candidates: &[Candidate]) -> Self {
        let fewest = candidates.iter().map(|c| c.running).fold(f64::INFINITY, f64::min);
        let most = candidates.iter().map(|c| c.running).fold(0.0, f64::max);
        Self { fewest, scale: most.max(SCALE_MIN) }
    }

    pub(super) fn rate(&self, candidate: &Candidate) -> (f64, f64) {
        (candidate.running, 1.0 - (candidate.running - self.fewest) / self.scale)
    }
}
