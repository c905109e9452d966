//! Scaled real time: the one place where the engine's time line meets the machine's clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pool::Moment;

/// Maps real time to the engine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    /// Unix time of the origin, seconds.
    origin_unix_s: f64,
    /// Real seconds per engine second.
    scale: f64,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start(scale: f64) -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: Instant::now(), origin_unix_s: unix.as_secs_f64(), scale }
    }

    /// Now, on the engine's time line.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_origin(self.origin.elapsed().div_f64(self.scale))
    }

    /// When it will be `moment`.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        self.origin + moment.since_origin().mul_f64(self.scale)
    }

    /// How long an engine-time span takes in real time.
    pub(crate) fn real(&self, engine: Duration) -> Duration {
        engine.mul_f64(self.scale)
    }

    /// Real time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Unix time, seconds. Runs with the monotonic clock, so it never steps back.
    pub(crate) fn unix_s(&self) -> f64 {
        self.origin_unix_s + self.elapsed().as_secs_f64()
    }

    /// Unix time of the start, seconds.
    pub(crate) fn started_unix_s(&self) -> f64 {
        self.origin_unix_s
    }

    /// Unix time, whole seconds, as `created` fields have it.
    pub(crate) fn unix(&self) -> u64 {
        self.unix_s() as u64
    }
}
