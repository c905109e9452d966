//! Percentiles of one pass, medians over passes.

use serde::Serialize;

/// A figure over all passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// `None` without a value. Of an even number, the median is the mean of the middle two.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, least, most })
    }
}

/// The smallest value that at least `share` (0–1) of all values do not exceed (nearest rank); 0 without values.
/// Sorts `values`.
pub fn percentile(values: &mut [u64], share: f64) -> u64 {
    values.sort_unstable();
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut values, 0.5), 50);
        assert_eq!(percentile(&mut values, 0.99), 99);
        assert_eq!(percentile(&mut values, 1.0), 100);
        assert_eq!(percentile(&mut values, 0.0), 1);
        assert_eq!(percentile(&mut [7], 0.99), 7);
        assert_eq!(percentile(&mut [], 0.5), 0);
    }

    #[test]
    fn the_median_is_robust_against_one_bad_pass() {
        let spread = Spread::of(&[50.0, 51.0, 900.0, 49.0, 52.0]).unwrap();
        assert_eq!(spread, Spread { median: 51.0, least: 49.0, most: 900.0 });
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(&[]), None);
    }
}
