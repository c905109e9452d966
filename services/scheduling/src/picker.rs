//! Orders scored candidates, best first, and says how the first one won.
//!
//! Totals that differ by less than rounding noise tie. A tie is not broken at random: a cold prompt goes where every
//! gateway would send it (rendezvous), so that its next turn finds a warm cache whichever gateway it comes through;
//! a prompt that cannot be cached goes to whoever was chosen longest ago.

use std::cmp::Reverse;

use crate::{Candidate, rendezvous::draw};

/// Totals that differ by less are equal. Totals are sums of a few products of small integers and numbers in 0–1, so
/// rounding noise is near 1e-15, and no difference that means anything is this small.
const TIE_TOTAL: f64 = 1e-9;

/// How the chosen endpoint came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Won {
    /// There was no other candidate.
    OnlyCandidate,
    /// No other had its total.
    HighestScore,
    /// Others had the same total; it drew highest for this prompt's first blocks.
    TieByPrefix,
    /// Others had the same total; it was chosen longest ago.
    TieByLeastRecent,
}

/// Where a candidate stands. Smaller is better: total, then the tie-breaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    rank: (Reverse<i64>, u64, Reverse<u64>),
    total: f64,
    candidate: u32,
}

impl Place {
    /// Of the candidate `at` that place in the list, with this total. `key` stands for the prompt's first blocks.
    pub(crate) fn new(at: usize, total: f64, candidate: &Candidate, key: Option<u64>, tie: u64) -> Self {
        let longest_unused_first = if key.is_some() { 0 } else { candidate.last_picked };
        let drawn = draw(key.unwrap_or(tie), candidate.name_hash);
        Self { rank: (Reverse(step(total)), longest_unused_first, Reverse(drawn)), total, candidate: at as u32 }
    }

    pub(crate) fn candidate(&self) -> usize {
        self.candidate as usize
    }

    pub(crate) fn total(&self) -> f64 {
        self.total
    }
}

/// Puts the best `keep` first, in order. The rest stay unordered. `None` when there are none.
pub(crate) fn order(places: &mut [Place], key: Option<u64>, keep: usize) -> Option<Won> {
    let keep = keep.clamp(1, places.len().max(1));
    if keep < places.len() {
        places.select_nth_unstable_by_key(keep - 1, |p| p.rank);
    }
    places.get_mut(..keep)?.sort_unstable_by_key(|p| p.rank);
    let best = places.first()?.rank.0;
    let tied = places.iter().skip(1).any(|p| p.rank.0 == best);
    Some(match (places.len(), tied, key) {
        (1, _, _) => Won::OnlyCandidate,
        (_, false, _) => Won::HighestScore,
        (_, true, Some(_)) => Won::TieByPrefix,
        (_, true, None) => Won::TieByLeastRecent,
    })
}

/// Totals in steps of [`TIE_TOTAL`]: unlike "closer than", equality of steps is transitive, so the order is total.
fn step(total: f64) -> i64 {
    (total / TIE_TOTAL).round() as i64
}

#[cfg(test)]
mod tests;
