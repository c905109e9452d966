//! Orders scored candidates, best first, and says how the first one won.
//!
//! Totals that differ by less than rounding noise tie. A tie is not broken at random: a cold prompt goes where every
//! gateway would send it (rendezvous), so that its next turn finds a warm cache whichever gateway it comes through;
//! a prompt that cannot be cached goes to whoever was chosen longest ago.

use std::cmp::Reverse;

use crate::{Ask, Candidate, Ranked, Weights, rendezvous::draw};

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

/// Smaller is better: total, then the tie-breaks.
type Rank = (Reverse<i64>, u64, Reverse<u64>);

/// Puts the best `keep` first, in order. The rest stay unordered.
pub(crate) fn order(
    ranked: &mut [Ranked],
    candidates: &[Candidate],
    ask: &Ask,
    weights: Weights,
    keep: usize,
) -> Option<Won> {
    let key = ask.head.filter(|_| weights.prefix > 0);
    let rank = |r: &Ranked| -> Rank {
        let candidate = &candidates[r.candidate];
        let longest_unused_first = if key.is_some() { 0 } else { candidate.last_picked };
        (Reverse(step(r.total)), longest_unused_first, Reverse(draw(key.unwrap_or(ask.tie), candidate.name_hash)))
    };
    let keep = keep.clamp(1, ranked.len().max(1));
    if keep < ranked.len() {
        ranked.select_nth_unstable_by_key(keep - 1, rank);
    }
    ranked.get_mut(..keep)?.sort_unstable_by_key(rank);
    let best = step(ranked.first()?.total);
    let tied = ranked.iter().skip(1).any(|r| step(r.total) == best);
    Some(match (ranked.len(), tied, key) {
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
