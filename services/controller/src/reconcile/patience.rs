//! How long a subject that failed is left alone.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::{act::NotWritten, plan::Subject};

/// Wait after a first failure; doubled for each further one.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Longest wait: what stands in the way may be removed by a person at any time.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Subjects whose last writes failed.
#[derive(Debug, Default)]
pub(super) struct Patience(BTreeMap<Subject, Failure>);

#[derive(Debug)]
struct Failure {
    wait: Duration,
    until: Instant,
    error: NotWritten,
}

impl Patience {
    /// What became of a subject's writes.
    pub(super) fn record(&mut self, subject: Subject, error: Option<NotWritten>, now: Instant) {
        // Without the lease nothing was tried; with it, it is tried at once.
        let Some(error) = error.filter(|error| *error != NotWritten::NotLeading) else {
            self.0.remove(&subject);
            return;
        };
        let wait = self.0.get(&subject).map_or(WAIT_MIN, |before| (before.wait * 2).min(WAIT_MAX));
        self.0.insert(subject, Failure { wait, until: now + wait, error });
    }

    /// Whether it may be tried.
    pub(super) fn is_due(&self, subject: &Subject, now: Instant) -> bool {
        self.0.get(subject).is_none_or(|failure| failure.until <= now)
    }

    /// When the next one may be tried.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().map(|failure| failure.until).min()
    }

    /// What stands in its way that a person can remove.
    pub(super) fn trouble(&self, subject: &Subject) -> Vec<String> {
        let error = self.0.get(subject).map(|failure| &failure.error);
        match error {
            Some(error @ (NotWritten::Foreign(_) | NotWritten::Refused { .. })) => vec![error.to_string()],
            // Passing: the next try is soon.
            Some(NotWritten::NotLeading | NotWritten::Conflict(_) | NotWritten::Unavailable { .. }) | None => {
                Vec::new()
            }
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.0.len()
    }

    /// Forgets subjects that are gone.
    pub(super) fn keep(&mut self, is_there: impl Fn(&Subject) -> bool) {
        self.0.retain(|subject, _| is_there(subject));
    }
}

#[cfg(test)]
mod tests {
    use api::cluster::ObjectKey;

    use super::*;

    #[test]
    fn failures_are_tried_again_later_and_later_and_success_forgets() {
        let subject = || Subject::Config(ObjectKey::new("a", "b"));
        let (mut patience, start) = (Patience::default(), Instant::now());
        let error = || Some(NotWritten::Foreign("x".into()));
        patience.record(subject(), error(), start);
        assert!(!patience.is_due(&subject(), start) && patience.is_due(&subject(), start + WAIT_MIN));
        for _ in 0..20 {
            patience.record(subject(), error(), start);
        }
        assert!(!patience.is_due(&subject(), start + WAIT_MAX - Duration::from_millis(1)));
        assert!(patience.is_due(&subject(), start + WAIT_MAX));
        assert_eq!(patience.trouble(&subject()).len(), 1);
        patience.record(subject(), None, start);
        assert!(patience.is_due(&subject(), start) && patience.waiting() == 0);
    }
}
