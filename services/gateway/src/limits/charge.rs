//! What one request holds of its caller's quotas, from its admission to its end.

use std::time::Duration;

use flow_control::quota::{End, Hold, Tokens};
use pool::Moment;
use smallvec::SmallVec;

use super::{Standing, USUAL};

/// Streamed tokens beyond the estimate are charged at most this often: soon enough that a runaway answer keeps its
/// caller's next request out, seldom enough to cost nothing per token.
const DEBIT_EVERY: Duration = Duration::from_secs(1);

/// Holds under every rule that counts for a request. Whatever becomes of the request, they end once: with
/// [`Charge::end`], or, if it is dropped without a word, as if the request had not been served.
pub struct Charge {
    standing: Standing,
    holds: SmallVec<[Hold; USUAL]>,
    estimate: Tokens,
    /// Tokens of the answer that are charged now.
    output: u64,
    /// When more of them may be charged.
    next_debit: Moment,
    /// The last moment that was told; for an end without a word.
    seen: Moment,
}

impl Charge {
    pub(super) fn new(standing: Standing, holds: SmallVec<[Hold; USUAL]>, estimate: Tokens, now: Moment) -> Self {
        let output = estimate.output;
        Self { standing, holds, estimate, output, next_debit: now + DEBIT_EVERY, seen: now }
    }

    /// What was charged at first.
    pub fn estimate(&self) -> Tokens {
        self.estimate
    }

    /// So many content events of the answer have passed.
    pub fn produced(&mut self, events: u64, now: Moment) {
        self.seen = now;
        if events > self.output && now >= self.next_debit {
            (self.output, self.next_debit) = (events, now + DEBIT_EVERY);
            let tokens = Tokens { output: events, ..self.estimate };
            for (hold, (rule, key)) in self.holds.iter_mut().zip(&self.standing.0) {
                rule.lock(*key).settle(hold, tokens, now);
            }
        }
    }

    /// The request is over.
    pub fn end(mut self, end: End, now: Moment) {
        self.release(end, now);
    }

    fn release(&mut self, end: End, now: Moment) {
        for (hold, (rule, key)) in self.holds.drain(..).zip(&self.standing.0) {
            rule.lock(*key).end(hold, end, now);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release(End::NotServed, self.seen);
    }
}
