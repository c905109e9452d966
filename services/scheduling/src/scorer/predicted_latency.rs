//! `predictedLatency`: where this request's first token is expected soonest.
//!
//! The rating is the soonest time ÷ this one's: twice as long is worth half, at 40 ms as at 4 s. Times that differ by less
//! than predictions are usually off are the same, or two equal endpoints would be told apart by noise, and all that is
//! calm would go to one of them. As long as nothing was learned all are rated alike; then belief grows with confidence.

use crate::{Candidate, Prediction};

/// Seconds that make no difference: what a network and the end of a step move a first token by.
const SAME_S: f64 = 0.003;

/// Above such an error predictions are as good as none; below, their difference still says something.
const SAME_SHARE_MAX: f64 = 0.5;

#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    same_as_soonest_s: f64,
    confidence: f64,
}

impl Field {
    pub(super) fn over(candidates: &[Candidate]) -> Self {
        let none = Prediction { ttft_s: f64::INFINITY, confidence: 0.0, usual_error: 0.0 };
        let sooner =
            |best: Prediction, c: &Candidate| if c.predicted.ttft_s < best.ttft_s { c.predicted } else { best };
        let soonest = candidates.iter().fold(none, sooner);
        let confidence = candidates.iter().map(|c| c.predicted.confidence).fold(0.0, f64::max);
        let same_share = soonest.usual_error.clamp(0.0, SAME_SHARE_MAX);
        Self { same_as_soonest_s: soonest.ttft_s * (1.0 + same_share) + SAME_S, confidence: confidence.clamp(0.0, 1.0) }
    }

    pub(super) fn rate(&self, candidate: &Candidate) -> (f64, f64) {
        let ttft_s = candidate.predicted.ttft_s;
        let share = (self.same_as_soonest_s / ttft_s).min(1.0);
        (ttft_s, 1.0 - self.confidence * (1.0 - share))
    }
}
