//! How long things may take, and how much there may be.

use std::time::Duration;

/// Most watches of one scope: each holds a connection.
pub(super) const WATCHES_MAX: usize = 512;

/// Most objects that one watch follows.
pub(super) const OBJECTS_MAX: usize = 100_000;

/// Longest page of a list, in bytes.
pub(super) const PAGE_BYTES_MAX: usize = 64 << 20;

/// Longest event, in bytes. The API server keeps no object above 1.5 MiB; status and old values come on top.
pub(super) const EVENT_BYTES_MAX: usize = 8 << 20;

/// Reports of watches that wait to be taken in; beyond it, watches wait.
pub(super) const REPORTS_MAX: usize = 256;

/// Times of the watches. The defaults are for use; tests take shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest wait for the head of an answer, and for a whole page of a list.
    pub answer_max: Duration,
    /// The server is asked to end each watch after a time between this one
    pub watch_min: Duration,
    /// and this one, in whole seconds. Then everything is listed again.
    pub watch_max: Duration,
    /// A watch that the server has not ended so long after it should have is given up.
    pub overdue_max: Duration,
    /// Wait after a first failure; doubled for each further one.
    pub retry_min: Duration,
    /// Longest wait after failures.
    pub retry_max: Duration,
    /// Changes of pods within this time are told as one.
    pub pods_settle: Duration,
    /// Changes of anything else within this time are told as one.
    pub settle: Duration,
    /// How long the telling waits for watches that have never been answered. After that their part comes from the seed.
    pub pending_max: Duration,
    /// How long objects are kept that the API server says, suddenly, it does not have or does not show: a server that
    /// starts says so for a moment.
    pub absent_after: Duration,
    /// Objects in a page of a list.
    pub page_objects: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answer_max: Duration::from_secs(10),
            watch_min: Duration::from_secs(30),
            watch_max: Duration::from_secs(45),
            overdue_max: Duration::from_secs(5),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(10),
            pods_settle: Duration::from_millis(20),
            settle: Duration::from_millis(100),
            pending_max: Duration::from_secs(2),
            absent_after: Duration::from_secs(30),
            page_objects: 500,
        }
    }
}

impl Limits {
    /// Oldest that anything told can be while new connections to the API server are answered within
    /// [`Limits::answer_max`]: a watch that fell silent right after it began, and the list that follows.
    #[must_use]
    pub fn stale_max(&self) -> Duration {
        self.watch_max + self.overdue_max + self.retry_min + self.answer_max
    }
}
