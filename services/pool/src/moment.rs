//! Time as a value. Decisions never ask for the time: they are told.

use std::{fmt, ops::Add, time::Duration};

/// A point on one process's own time line: nanoseconds since an origin which only the adapter that makes moments
/// knows (process start, or the start of a simulation). Moments of two processes are not comparable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The origin of the time line.
    pub const ORIGIN: Self = Self(0);

    /// The moment `elapsed` after the origin; saturates after 584 years.
    pub fn from_origin(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time passed since the origin.
    pub fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Time from `earlier` to `self`; zero when `earlier` is in fact later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self::from_origin(self.since_origin().saturating_add(later))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:?}", self.since_origin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_moment_is_never_a_negative_time_ago() {
        let (early, late) = (Moment::ORIGIN + Duration::from_secs(1), Moment::ORIGIN + Duration::from_secs(3));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn adding_saturates() {
        assert!(Moment::from_origin(Duration::MAX) + Duration::from_secs(1) >= Moment::from_origin(Duration::MAX));
    }
}
