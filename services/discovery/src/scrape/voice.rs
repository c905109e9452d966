//! What of an endpoint's ups and downs is said aloud.
//!
//! Looks happen five times a second; a line for each would bury everything else. A change is worth a line, and an
//! endpoint that changes all the time is worth one every few seconds.

use std::time::Duration;

use pool::Moment;

/// Shortest time between two lines about one thing of one endpoint.
pub(super) const QUIET: Duration = Duration::from_secs(10);

/// Remembers what was said last about one thing.
#[derive(Debug)]
pub(super) struct Voice<T> {
    said: Option<(T, Moment)>,
}

impl<T> Default for Voice<T> {
    fn default() -> Self {
        Self { said: None }
    }
}

impl<T: PartialEq + Copy> Voice<T> {
    /// Whether nothing was ever said.
    pub(super) fn is_silent(&self) -> bool {
        self.said.is_none()
    }

    /// Whether `state` is to be said now: it is not what was said last, and that was a while ago.
    pub(super) fn speaks(&mut self, state: T, now: Moment) -> bool {
        let news = match &self.said {
            None => true,
            Some((said, at)) => *said != state && now.since(*at) >= QUIET,
        };
        if news {
            self.said = Some((state, now));
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d12_only_changes_are_said_and_not_every_one() {
        let mut voice = Voice::default();
        let at = |s| Moment::ORIGIN + Duration::from_secs(s);
        let said: Vec<bool> = [(1, 0), (1, 1), (2, 2), (1, 3), (2, 11), (2, 30), (1, 31)]
            .map(|(state, s)| voice.speaks(state, at(s)))
            .into();
        assert_eq!(said, [true, false, false, false, true, false, true]);
    }
}
