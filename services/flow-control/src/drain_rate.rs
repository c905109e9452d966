//! How fast a pool takes requests on, over the last seconds. Seconds in which none was placed count as such, so the rate
//! falls to 0 by time and not by the next request. Once requests wait, placements follow completions, so this is the speed
//! at which a queue is worked off.

use std::time::Duration;

use pool::Moment;

/// Seconds looked back.
pub(crate) const WINDOW_S: u64 = 10;

/// Placements of the last [`WINDOW_S`] seconds, one count per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainRate {
    counts: [u32; WINDOW_S as usize],
    /// The second that was counted last.
    latest_s: u64,
}

impl DrainRate {
    /// One request was given a place.
    pub(crate) fn count(&mut self, now: Moment) {
        let now_s = now.since_origin().as_secs();
        let passed = now_s.saturating_sub(self.latest_s).min(WINDOW_S);
        for back in 0..passed {
            self.counts[Self::bucket(now_s - back)] = 0;
        }
        self.latest_s = self.latest_s.max(now_s);
        let count = &mut self.counts[Self::bucket(self.latest_s)];
        *count = count.saturating_add(1);
    }

    /// Placements per second, over the window that ends now.
    pub(crate) fn per_s(&self, now: Moment) -> f64 {
        let now_s = now.since_origin().as_secs().max(self.latest_s);
        let first_s = (now_s + 1).saturating_sub(WINDOW_S);
        let placed: u64 = (first_s..=self.latest_s).map(|s| u64::from(self.counts[Self::bucket(s)])).sum();
        // The current second is not over: the window is what has really passed, never less than one second.
        let window = now.since_origin().saturating_sub(Duration::from_secs(first_s)).as_secs_f64().max(1.0);
        placed as f64 / window
    }

    fn bucket(second: u64) -> usize {
        (second % WINDOW_S) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn e09_the_rate_decays_by_time_not_by_the_next_request() {
        let mut rate = DrainRate::default();
        for i in 0..100 {
            rate.count(at(i * 100));
        }
        assert!((rate.per_s(at(10_000)) - 10.0).abs() < 1.2, "{}", rate.per_s(at(10_000)));
        assert!(rate.per_s(at(15_000)) < 6.0);
        assert_eq!(rate.per_s(at(60_000)), 0.0);
        rate.count(at(60_000));
        assert!(rate.per_s(at(60_000)) < 0.2, "the former window must not come back");
    }

    #[test]
    fn a_clock_that_steps_back_loses_nothing() {
        let mut rate = DrainRate::default();
        rate.count(at(5_000));
        rate.count(at(4_999));
        assert!(rate.per_s(at(5_000)) > 0.3);
    }
}
