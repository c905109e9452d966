//! Waiting for what can be observed.

use std::time::{Duration, Instant};

/// How long anything that should happen soon may take on a loaded machine.
const SOON: Duration = Duration::from_secs(10);

/// Asks again and again until there is a value.
///
/// # Panics
/// When there is none within `limit`.
pub fn eventually<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = ask() {
            return value;
        }
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// [`eventually`], for conditions that should hold soon.
///
/// # Panics
/// When it does not hold within ten seconds.
pub fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, SOON, || holds().then_some(()));
}
