//! How fast an endpoint computes prompts, as seen from here: between the dispatch of a request and its first token it
//! computed that prompt and what was before it.
//!
//! It is learned from streamed answers alone, since nobody sees when others begin. Short waits say little (they are the
//! network's and the server's), so each sample weighs as long as it took. With another gateway at the same endpoint the
//! speed is this one's share of it.

use std::time::Duration;

/// What a sample keeps of its weight with each further one: the last twenty or so decide.
const KEPT: f64 = 0.95;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrefillSpeed {
    tokens: f64,
    seconds: f64,
}

impl PrefillSpeed {
    /// A first token came `after` the dispatch of a request that found so many prompt tokens to be computed, its own
    /// among them.
    pub(crate) fn note(&mut self, tokens: u64, after: Duration) {
        self.tokens = self.tokens.mul_add(KEPT, tokens as f64);
        self.seconds = self.seconds.mul_add(KEPT, after.as_secs_f64());
    }

    /// Prompt tokens per second. `None`: nothing was seen.
    pub(crate) fn tokens_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0 && self.tokens > 0.0).then(|| self.tokens / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_decide_and_old_ones_fade() {
        let mut speed = PrefillSpeed::default();
        assert_eq!(speed.tokens_per_s(), None);
        speed.note(100, Duration::from_millis(20));
        assert_eq!(speed.tokens_per_s(), Some(5_000.0));
        for _ in 0..5 {
            speed.note(50_000, Duration::from_secs(1));
        }
        assert!(speed.tokens_per_s().unwrap() > 49_000.0);
        for _ in 0..100 {
            speed.note(20_000, Duration::from_secs(1));
        }
        assert!((speed.tokens_per_s().unwrap() - 20_000.0).abs() < 300.0);
    }
}
