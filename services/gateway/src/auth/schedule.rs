//! When a provider's keys are fetched: pure, so that its rules can be tried without waiting.
//!
//! They are fetched at once, then as often as the provider says (within bounds), and between that when a request brings a
//! token that the known keys do not check: keys may have rotated. Such wishes are one account for all requests of the process,
//! so that no stream of bad tokens becomes a stream of fetches. While fetches fail, wishes count for nothing: the next try is
//! due soon anyway, later each time, and a request that waited for it would wait in vain.

use std::time::Duration;

use pool::Moment;

/// Least time between two fetches that requests wish for.
pub(super) const WISH_EVERY: Duration = Duration::from_secs(10);
/// Time between fetches where the provider says nothing of it.
const REFRESH_DEFAULT: Duration = Duration::from_secs(300);
/// What a provider may say: not so often that we are a burden, not so seldom that a key it took back lives for a day.
const REFRESH_MIN: Duration = Duration::from_secs(60);
const REFRESH_MAX: Duration = Duration::from_secs(3600);
/// Time to the next try after the first failure; twice as long after each further one.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// When to fetch.
#[derive(Debug)]
pub(super) struct Schedule {
    /// When the next fetch is due by itself.
    due: Moment,
    /// Fetches that failed since the last good one.
    failures: u32,
    /// From when on a wish counts.
    wishes_from: Moment,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Wished,
    Fetching,
}

/// What becomes of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A fetch is coming whose end is worth waiting for.
    Wait,
    /// Nothing new is to be expected soon.
    Refused,
}

impl Schedule {
    /// The first fetch is due now.
    pub(super) fn new(now: Moment) -> Self {
        Self { due: now, failures: 0, wishes_from: now, phase: Phase::Idle }
    }

    /// A request could not be checked with the known keys.
    pub(super) fn wish(&mut self, now: Moment) -> Wish {
        if self.failures > 0 {
            return Wish::Refused;
        }
        match self.phase {
            Phase::Wished | Phase::Fetching => Wish::Wait,
            // One that is due by itself costs no wish.
            Phase::Idle if now >= self.due => Wish::Wait,
            Phase::Idle if now >= self.wishes_from => {
                self.wishes_from = now + WISH_EVERY;
                self.phase = Phase::Wished;
                Wish::Wait
            }
            Phase::Idle => Wish::Refused,
        }
    }

    /// How long until a fetch is due.
    pub(super) fn due_in(&self, now: Moment) -> Duration {
        match self.phase {
            Phase::Wished => Duration::ZERO,
            Phase::Idle | Phase::Fetching => self.due.since(now),
        }
    }

    /// A fetch begins.
    pub(super) fn began(&mut self) {
        self.phase = Phase::Fetching;
    }

    /// It brought keys, which the provider says are good for this long.
    pub(super) fn succeeded(&mut self, good_for: Option<Duration>, now: Moment) {
        let refresh = good_for.map_or(REFRESH_DEFAULT, |good_for| good_for.clamp(REFRESH_MIN, REFRESH_MAX));
        (self.phase, self.failures, self.due) = (Phase::Idle, 0, now + refresh);
    }

    /// It did not.
    pub(super) fn failed(&mut self, now: Moment) {
        let retry = RETRY_FIRST.saturating_mul(1 << self.failures.min(8)).min(RETRY_MAX);
        (self.phase, self.failures, self.due) = (Phase::Idle, self.failures.saturating_add(1), now + retry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn at_s(s: u64) -> Moment {
        at_ms(s * 1000)
    }

    /// Fetches of a provider that answers at once, with a wish every so often until then.
    fn fetches(
        schedule: &mut Schedule,
        wish_every_ms: u64,
        until_s: u64,
        answers: impl Fn(Moment) -> bool,
    ) -> Vec<u64> {
        let mut at = Vec::new();
        for ms in (0..until_s * 1000).step_by(10) {
            let now = at_ms(ms);
            if ms % wish_every_ms == 0 {
                schedule.wish(now);
            }
            if schedule.due_in(now) == Duration::ZERO {
                schedule.began();
                at.push(ms / 1000);
                if answers(now) { schedule.succeeded(None, now) } else { schedule.failed(now) }
            }
        }
        at
    }

    #[test]
    fn i01_the_first_unknown_key_is_asked_for_at_once() {
        let mut schedule = Schedule::new(at_s(0));
        assert_eq!(schedule.due_in(at_s(0)), Duration::ZERO);
        schedule.began();
        assert_eq!(schedule.wish(at_s(0)), Wish::Wait, "the first keys are on their way");
        schedule.succeeded(None, at_s(0));
        assert_eq!(schedule.due_in(at_s(1)), Duration::from_secs(299));
        assert_eq!(schedule.wish(at_s(1)), Wish::Wait);
        assert_eq!(schedule.due_in(at_s(1)), Duration::ZERO);
        schedule.began();
        schedule.succeeded(None, at_s(1));
        assert_eq!(schedule.wish(at_s(2)), Wish::Refused);
        assert_eq!(schedule.wish(at_s(11)), Wish::Wait);
    }

    #[test]
    fn i02_bad_tokens_do_not_become_a_stream_of_fetches() {
        let mut schedule = Schedule::new(at_s(0));
        let each_ten_seconds: Vec<u64> = [0].into_iter().chain((0..300).step_by(10)).collect();
        assert_eq!(fetches(&mut schedule, 10, 300, |_| true), each_ten_seconds);
        // A provider that is away: later each time, whatever is wished.
        let mut schedule = Schedule::new(at_s(0));
        assert_eq!(fetches(&mut schedule, 10, 300, |_| false), [0, 5, 15, 35, 75, 135, 195, 255]);
    }

    #[test]
    fn i04_what_was_away_is_found_again_within_a_minute() {
        for away_s in [1, 30, 100, 1000] {
            let mut schedule = Schedule::new(at_s(0));
            let back = at_s(away_s);
            let fetches = fetches(&mut schedule, 10, away_s + 61, |now| now >= back);
            assert!(fetches.iter().any(|at| at_s(*at) >= back), "{away_s} {fetches:?}");
        }
    }

    #[test]
    fn a_provider_says_within_bounds_how_long_its_keys_are_good() {
        for (said, refresh_s) in [(None, 300), (Some(0), 60), (Some(600), 600), (Some(31_536_000), 3600)] {
            let mut schedule = Schedule::new(at_s(0));
            schedule.succeeded(said.map(Duration::from_secs), at_s(0));
            assert_eq!(schedule.due_in(at_s(0)), Duration::from_secs(refresh_s));
        }
    }
}
