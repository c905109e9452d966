//! How many requests of a pool may be sent a second time.
//!
//! Retries help when one endpoint of many refuses; when all do, they multiply the load that made them refuse. So they are
//! paid for out of a budget that requests fill: a tenth of a retry each, and one per second so that a quiet pool may retry
//! at all. What is not used up is kept up to a small burst.
//!
//! Counted in whole billionths: nothing drifts, however long it runs.

use pool::Moment;

/// One retry.
const RETRY: u64 = 1_000_000_000;

/// What a request adds: 10 %.
const PER_REQUEST: u64 = RETRY / 10;

/// The most that is kept: ten retries.
const BURST_MAX: u64 = 10 * RETRY;

/// The budget of one pool. Full at first.
#[derive(Clone, Debug)]
pub struct RetryBudget {
    left: u64,
    /// Up to when time was paid in.
    paid_at: Moment,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { left: BURST_MAX, paid_at: Moment::ORIGIN }
    }
}

impl RetryBudget {
    /// A request is sent for the first time.
    pub fn request(&mut self, now: Moment) {
        self.pay_in(now, PER_REQUEST);
    }

    /// Takes one retry, if there is one.
    #[must_use = "a retry that was not granted must not be made"]
    pub fn take(&mut self, now: Moment) -> bool {
        self.pay_in(now, 0);
        let rest = self.left.checked_sub(RETRY);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    /// A retry was made without asking: what is left pays for it.
    pub fn charge(&mut self, now: Moment) {
        self.pay_in(now, 0);
        self.left = self.left.saturating_sub(RETRY);
    }

    /// One retry per second is one billionth per nanosecond.
    fn pay_in(&mut self, now: Moment, extra: u64) {
        let passed = u64::try_from(now.since(self.paid_at).as_nanos()).unwrap_or(u64::MAX);
        self.paid_at = self.paid_at.max(now);
        self.left = self.left.saturating_add(passed).saturating_add(extra).min(BURST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at_ms(ms: u64) -> Moment {
        Moment::ORIGIN + Duration::from_millis(ms)
    }

    #[test]
    fn a_full_budget_is_ten_and_a_second_or_ten_requests_make_one_more() {
        let mut budget = RetryBudget::default();
        let granted = |budget: &mut RetryBudget, now| (0..100).filter(|_| budget.take(now)).count();
        assert_eq!(granted(&mut budget, at_ms(0)), 10);
        assert_eq!(granted(&mut budget, at_ms(999)), 0);
        assert_eq!(granted(&mut budget, at_ms(1000)), 1);
        (0..9).for_each(|_| budget.request(at_ms(1000)));
        assert_eq!(granted(&mut budget, at_ms(1000)), 0);
        budget.request(at_ms(1000));
        assert_eq!(granted(&mut budget, at_ms(1000)), 1);
        assert_eq!(granted(&mut budget, at_ms(3_600_000)), 10, "an hour of silence keeps no more than the burst");
    }

    #[test]
    fn what_was_not_asked_for_is_paid_and_never_owed() {
        let mut budget = RetryBudget::default();
        (0..50).for_each(|_| budget.charge(at_ms(0)));
        assert!(!budget.take(at_ms(999)));
        assert!(budget.take(at_ms(1000)));
    }

    proptest! {
        #[test]
        fn retries_are_at_most_a_tenth_of_requests_one_per_second_and_the_burst(
            steps in prop::collection::vec((0u64..300, any::<bool>()), 1..400),
        ) {
            let mut budget = RetryBudget::default();
            let (mut ms, mut requests, mut granted) = (0, 0u64, 0u64);
            for (pause_ms, is_request) in steps {
                ms += pause_ms;
                if is_request {
                    budget.request(at_ms(ms));
                    requests += 1;
                } else {
                    granted += u64::from(budget.take(at_ms(ms)));
                }
                prop_assert!(granted * 1000 <= requests * 100 + ms + 10_000);
            }
        }
    }
}
