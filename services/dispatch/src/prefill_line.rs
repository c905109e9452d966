//! How much of the prompts that were sent to an endpoint it still has to compute, as of now.
//!
//! Engines compute prompts in the order in which they came. So a first token, or the end of an answer, says that all that
//! was sent before is computed too, also for answers that come as a whole and show nothing in between. Between two such
//! signs work goes on at the speed seen; but some of it is always taken to be left, or an engine that hangs would soon
//! look idle.

use pool::Moment;

/// Share of what is left at the last sign that is not taken off by time alone.
const LEFT_MIN: f64 = 0.25;

/// See the module's text. Counts run on from the endpoint's first request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefillLine {
    sent_tokens: u64,
    computed_tokens: u64,
    /// The last sign.
    since: Moment,
}

impl PrefillLine {
    pub(crate) const EMPTY: Self = Self { sent_tokens: 0, computed_tokens: 0, since: Moment::ORIGIN };

    /// A request with so many tokens to compute is sent. Returns its place: what must be computed before its first token.
    pub(crate) fn send(&mut self, uncached_tokens: u32, now: Moment) -> u64 {
        if self.sent_tokens == self.computed_tokens {
            self.since = now;
        }
        self.sent_tokens += u64::from(uncached_tokens);
        self.sent_tokens
    }

    /// The prompt at this place is computed.
    pub(crate) fn computed(&mut self, place: u64, now: Moment) {
        if place > self.computed_tokens {
            self.computed_tokens = place;
            self.since = now;
        }
    }

    /// Tokens still to be computed of `own_tokens`, which have shown no sign yet.
    pub(crate) fn left(&self, own_tokens: u64, tokens_per_s: Option<f64>, now: Moment) -> f64 {
        let left = own_tokens.min(self.sent_tokens - self.computed_tokens) as f64;
        let lately = now.since(self.since).as_secs_f64() * tokens_per_s.unwrap_or(0.0);
        (left - lately).max(left * LEFT_MIN)
    }
}
