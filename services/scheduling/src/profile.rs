//! The weighted set of scorers that a pool is picked by, and the ranking it gives.

use crate::{
    Ask, Candidate, Scores, Weights,
    picker::{Place, Won, order},
    scorer::{Field, Scorer, ages},
};

/// The scorers' weights, with the room to rank in, which is kept from pick to pick.
#[derive(Debug, Default)]
pub struct Profile {
    weights: Weights,
    ages: Vec<u64>,
    places: Vec<Place>,
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

    /// Rates all candidates and lists the best `keep`, best first. `None` when there are no candidates.
    ///
    /// All are rated by their total alone; what each scorer said is worked out again for the few that are listed.
    pub fn rank<'a>(
        &'a mut self,
        ask: &'a Ask,
        candidates: &'a [Candidate],
        keep: usize,
    ) -> Option<(Won, impl ExactSizeIterator<Item = Ranked> + 'a)> {
        self.ages.clear();
        if self.weights.of(Scorer::Lru, ask.model) > 0 {
            ages(candidates, &mut self.ages);
        }
        let field = Field::over(candidates);
        let key = ask.head.filter(|_| self.weights.prefix > 0);
        self.places.clear();
        self.places.extend(candidates.iter().enumerate().map(|(at, candidate)| {
            let total = field.total(candidate, ask, self.weights, &self.ages);
            Place::new(at, total, candidate, key, ask.tie)
        }));
        let won = order(&mut self.places, key, keep)?;
        let Self { weights, ages, places } = &*self;
        let listed = places.iter().take(keep.max(1)).map(move |place| {
            let scores = field.rate(&candidates[place.candidate()], ask, *weights, ages);
            Ranked { candidate: place.candidate(), total: place.total(), scores }
        });
        Some((won, listed))
    }
}
