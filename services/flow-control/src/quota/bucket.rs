//! One key's account in one unit that is so many per minute.
//!
//! It is one number: when the account would be full again, on a time line on which one nanosecond is as many steps as
//! the rate, so that one unit is exactly a minute's nanoseconds long. On the usual time line a unit's length would have
//! to be rounded, and of 7 per minute the seventh would be refused or an eighth let in.

use std::{num::NonZeroU64, time::Duration};

use pool::Moment;

const MINUTE_NS: u128 = 60_000_000_000;

/// How far below empty an account goes, in minutes' amounts: an hour's, since answers may take many times what was
/// estimated and are to be paid for, and no more, since an engine may be wrong about what they took.
const DEBT_MINUTES_MAX: u128 = 60;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    /// Theoretical arrival time, in steps.
    full_at: u128,
}

/// A rate, and now on its time line.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    rate: NonZeroU64,
    now: u128,
}

impl At {
    pub(super) fn new(rate: NonZeroU64, now: Moment) -> Self {
        Self { rate, now: now.since_origin().as_nanos().saturating_mul(u128::from(rate.get())) }
    }

    fn rate(self) -> u128 {
        u128::from(self.rate.get())
    }

    /// A minute's amount.
    fn burst(self) -> u128 {
        self.rate() * MINUTE_NS
    }

    fn time(self, steps: u128) -> Duration {
        let nanos = steps.div_ceil(self.rate());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

fn steps(amount: u64) -> u128 {
    u128::from(amount) * MINUTE_NS
}

impl Bucket {
    /// What is taken and has not come back yet.
    fn taken(self, at: At) -> u128 {
        self.full_at.saturating_sub(at.now)
    }

    pub(super) fn is_full(self, at: At) -> bool {
        self.taken(at) == 0
    }

    /// Whole units at hand.
    pub(super) fn remaining(self, at: At) -> u64 {
        let units = at.burst().saturating_sub(self.taken(at)) / MINUTE_NS;
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    pub(super) fn full_in(self, at: At) -> Duration {
        at.time(self.taken(at))
    }

    /// Time until `amount` is at hand.
    pub(super) fn wait(self, amount: u64, at: At) -> Duration {
        at.time((self.taken(at).saturating_add(steps(amount))).saturating_sub(at.burst()))
    }

    /// Takes `amount`, whether it is at hand or not.
    pub(super) fn take(&mut self, amount: u64, at: At) {
        self.full_at = self.full_at.max(at.now).saturating_add(steps(amount));
    }

    /// Takes as much of `amount` as the bound of debts allows, and says how much that was.
    pub(super) fn debit(&mut self, amount: u64, at: At) -> u64 {
        let room = at.burst().saturating_mul(1 + DEBT_MINUTES_MAX).saturating_sub(self.taken(at)) / MINUTE_NS;
        let amount = u64::try_from(room).unwrap_or(u64::MAX).min(amount);
        self.take(amount, at);
        amount
    }

    /// Undoes a [`Bucket::take`] or [`Bucket::debit`] of `amount`. What time brought back meanwhile is not doubled: an
    /// account never holds more than a minute's amount.
    pub(super) fn give_back(&mut self, amount: u64) {
        self.full_at = self.full_at.saturating_sub(steps(amount));
    }

    /// The same account under another rate: what is missing is the same share of a minute.
    pub(super) fn convert(&mut self, from: At, to: At) {
        let taken = self.taken(from).saturating_mul(to.rate()) / from.rate();
        self.full_at = to.now.saturating_add(taken);
    }
}
