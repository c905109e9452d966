//! The time in `Retry-After`.

use std::{ops::RangeInclusive, time::Duration};

use pool::Moment;

use crate::{Band, Queue, drain_rate::WINDOW_S};

/// Seconds to wait that are ever named: whole ones, at least 1 by contract, and no more than a client would believe.
const RETRY_AFTER_S: RangeInclusive<f64> = 1.0..=60.0;

/// By how much of itself a time is moved at random, up or down: clients that were refused together should not come back
/// together.
const JITTER: f64 = 0.2;

impl<T> Queue<T> {
    /// When a request of this band could be served that came now: the time in which all who wait there and above, and
    /// `beyond` requests of elsewhere, will have been placed at the speed of the last ten seconds.
    pub fn served_in(&self, band: Band, beyond: f64, now: Moment) -> Duration {
        let seconds = if self.rate_per_s(band, now) > 0.0 {
            let at_or_above = Band::ALL.iter().filter(|&&other| other <= band);
            let (waiting, rate_per_s) = at_or_above.fold((beyond, 0.0), |(waiting, rate_per_s), &band| {
                (waiting + f64::from(self.waiting(band)), rate_per_s + self.rate_per_s(band, now))
            });
            waiting / rate_per_s
        } else {
            // None was placed within the whole window: it takes at least that long.
            WINDOW_S as f64
        };
        Duration::from_secs_f64(seconds.clamp(0.0, *RETRY_AFTER_S.end()))
    }
}

/// A time to wait as it is told a client: moved a little by the random number, in whole seconds within bounds.
pub fn retry_after_s(wait: Duration, random: u64) -> u32 {
    let moved = (random as f64 / u64::MAX as f64).mul_add(2.0 * JITTER, 1.0 - JITTER);
    let seconds = (wait.as_secs_f64() * moved).clamp(*RETRY_AFTER_S.start(), *RETRY_AFTER_S.end());
    // A hair above a whole second is that second.
    (seconds - 1e-6).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_within_bounds_and_spread() {
        let s = Duration::from_secs;
        assert_eq!([0, 1 << 63, u64::MAX].map(|random| retry_after_s(s(10), random)), [8, 10, 12]);
        assert_eq!([0, u64::MAX].map(|random| retry_after_s(Duration::ZERO, random)), [1, 1]);
        assert_eq!([0, u64::MAX].map(|random| retry_after_s(s(600), random)), [60, 60]);
    }
}
