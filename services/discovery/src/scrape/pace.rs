//! When to look again.

use std::time::Duration;

use fastrand::Rng;

/// Back-off goes no further: an endpoint that is back must be seen within about a second.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Spread of the interval to either side, so that looks at many endpoints do not fall together.
const JITTER: f64 = 0.1;

/// From the start of one look to the start of the next, after `failures` failed looks in a row.
pub(super) fn pause(interval: Duration, failures: u32, rng: &mut Rng) -> Duration {
    let backed_off = interval.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX.max(interval));
    backed_off.mul_f64(1.0 + JITTER * (2.0 * rng.f64() - 1.0))
}

/// After the very first look: anywhere within the interval, since endpoints of one configuration start together.
pub(super) fn first_pause(interval: Duration, rng: &mut Rng) -> Duration {
    interval.mul_f64(0.1 + 0.9 * rng.f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses() {
        let mut rng = Rng::with_seed(7);
        let ms = Duration::from_millis;
        for (interval, failures, expected) in [
            (ms(200), 0, ms(200)),
            (ms(200), 1, ms(400)),
            (ms(200), 2, ms(800)),
            (ms(200), 3, ms(1000)),
            (ms(200), u32::MAX, ms(1000)),
            (ms(5000), 9, ms(5000)),
        ] {
            for _ in 0..100 {
                let pause = pause(interval, failures, &mut rng);
                assert!(pause >= expected.mul_f64(0.899) && pause <= expected.mul_f64(1.101), "{pause:?} {expected:?}");
            }
        }
    }
}
