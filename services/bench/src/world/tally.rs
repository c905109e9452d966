//! Counts of values in buckets that each are a hundredth wide: millions of values in a few kilobytes, percentiles within
//! 1 %.

use serde::{Deserialize, Serialize};

/// Upper end of a bucket ÷ that of the one before.
const STEP: f64 = 1.01;
/// Values below fall into the first bucket.
const LEAST: f64 = 1e-3;

/// See the module's text. Values are of any unit, above 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    counts: Vec<u64>,
    total: u64,
}

impl Tally {
    pub fn add(&mut self, value: f64) {
        let bucket = ((value.max(LEAST) / LEAST).ln() / STEP.ln()).round() as usize;
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
    }

    /// The value that this share of all does not exceed, within 1 %. NaN without values.
    pub fn at(&self, quantile: f64) -> f64 {
        let rank = ((self.total as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return LEAST * STEP.powi(bucket as i32);
            }
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_hundredth() {
        let mut tally = Tally::default();
        (1..=10_000).for_each(|value| tally.add(f64::from(value) / 10.0));
        for (quantile, expected) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            assert!((tally.at(quantile) / expected - 1.0).abs() < 0.011, "{quantile}: {}", tally.at(quantile));
        }
        assert!(Tally::default().at(0.5).is_nan());
    }
}
