//! The weighted set of scorers that a pool is picked by, and the ranking it gives.

use crate::{
    Ask, Candidate, Scores, Weights,
    picker::{Won, order},
    scorer::{Field, Scorer, ages},
};

/// The scorers' weights, with the room to rank in, which is kept from pick to pick.
#[derive(Debug, Default)]
pub struct Profile {
    weights: Weights,
    ages: Vec<u64>,
    ranked: Vec<Ranked>,
}

/// One candidate with what became of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Its place in the slice that was ranked.
    pub candidate: usize,
    /// Weighted sum of its scores.
    pub total: f64,
    /// What each scorer said.
    pub scores: Scores,
}

impl Profile {
    /// With these weights.
    pub fn new(weights: Weights) -> Self {
        Self { weights, ..Self::default() }
    }

    /// The weights in force.
    pub fn weights(&self) -> Weights {
        self.weights
    }

    /// From now on with these weights.
    pub fn set_weights(&mut self, weights: Weights) {
        self.weights = weights;
    }

    /// Rates and ranks. The first `keep` of the result are the best, best first; the rest are in no order. `None`
    /// when there are no candidates.
    pub fn rank(&mut self, ask: &Ask, candidates: &[Candidate], keep: usize) -> Option<(Won, &[Ranked])> {
        self.ages.clear();
        if self.weights.of(Scorer::Lru, ask.model) > 0 {
            ages(candidates, &mut self.ages);
        }
        let field = Field::over(candidates);
        self.ranked.clear();
        self.ranked.extend(candidates.iter().enumerate().map(|(candidate, c)| {
            let scores = field.rate(c, ask, self.weights, &self.ages);
            let total = scores.iter().map(|s| f64::from(s.weight) * s.score).sum();
            Ranked { candidate, total, scores }
        }));
        let won = order(&mut self.ranked, candidates, ask, self.weights, keep)?;
        Some((won, &self.ranked))
    }
}
