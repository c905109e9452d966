//! What to do about a lease, decided without asking anybody.

use std::time::Duration;

use super::LEASE;

/// What stands in the Lease that matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Empty: it was given up.
    pub(super) holder: String,
    /// As the holder wrote it; only ever compared with itself.
    pub(super) renewed: String,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is ours: write a new time.
    Renew,
    /// It is nobody's: put our name there.
    Take,
    /// Another holds it.
    Wait,
}

/// Remembers since when a record has been as it is, by the clock of this process.
#[derive(Debug, Default)]
pub(super) struct Watchman {
    seen: Option<(Record, Duration)>,
}

impl Watchman {
    /// What to do about `record` at `now`, the age of this process. `None`: there is no Lease.
    pub(super) fn judge(&mut self, record: Option<Record>, ours: &str, now: Duration) -> Verdict {
        let Some(record) = record else { return Verdict::Take };
        if record.holder == ours {
            return Verdict::Renew;
        }
        if record.holder.is_empty() {
            return Verdict::Take;
        }
        match &self.seen {
            Some((seen, since)) if *seen == record => {
                if now.saturating_sub(*since) >= LEASE {
                    Verdict::Take
                } else {
                    Verdict::Wait
                }
            }
            Some(_) | None => {
                self.seen = Some((record, now));
                Verdict::Wait
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn record(holder: &str, renewed: &str) -> Option<Record> {
        Some(Record { holder: holder.into(), renewed: renewed.into() })
    }

    #[test]
    fn what_is_free_is_taken_and_what_is_ours_is_renewed() {
        let mut watchman = Watchman::default();
        assert_eq!(watchman.judge(None, "a", S), Verdict::Take);
        assert_eq!(watchman.judge(record("", "t0"), "a", S), Verdict::Take);
        assert_eq!(watchman.judge(record("a", "t0"), "a", S), Verdict::Renew);
    }

    #[test]
    fn a_record_that_changes_is_left_alone_and_a_still_one_is_taken_after_the_lease() {
        let mut watchman = Watchman::default();
        assert_eq!(watchman.judge(record("b", "t0"), "a", S), Verdict::Wait);
        assert_eq!(watchman.judge(record("b", "t1"), "a", S * 14), Verdict::Wait);
        assert_eq!(watchman.judge(record("b", "t1"), "a", S * 14 + LEASE - Duration::from_millis(1)), Verdict::Wait);
        assert_eq!(watchman.judge(record("b", "t1"), "a", S * 14 + LEASE), Verdict::Take);
    }

    #[test]
    fn another_copy_that_took_it_gets_its_time_too() {
        let mut watchman = Watchman::default();
        watchman.judge(record("b", "t0"), "a", S);
        assert_eq!(watchman.judge(record("c", "t0"), "a", S + LEASE), Verdict::Wait);
        assert_eq!(watchman.judge(record("c", "t0"), "a", S + LEASE * 2), Verdict::Take);
    }
}
