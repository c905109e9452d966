//! The one place where this program reads the time: decisions are told it as a [`Moment`]. It is the clock by which timers
//! run, so that tests can stop both.

use std::time::{SystemTime, UNIX_EPOCH};

use pool::Moment;
use tokio::time::Instant;

/// The process's time line, and where it lies on the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: SystemTime,
}

impl Clock {
    /// A time line that begins now.
    pub fn start() -> Self {
        Self { origin: Instant::now(), wall: SystemTime::now() }
    }

    /// Now, on the process's time line.
    pub fn now(&self) -> Moment {
        Moment::from_origin(self.origin.elapsed())
    }

    /// What the wall clock showed at `moment`, as seen from the start of the process: it never jumps.
    pub fn wall(&self, moment: Moment) -> SystemTime {
        self.wall + moment.since_origin()
    }

    /// When the process started, in seconds since 1970.
    pub fn started_unix_seconds(&self) -> f64 {
        self.wall.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    }
}
