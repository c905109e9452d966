//! A histogram with fixed bounds: a handful of atomics, no memory growth and no upkeep task, whatever the traffic.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::HistogramFn;

/// Observations sorted by upper bound.
#[derive(Debug)]
pub(crate) struct Buckets {
    bounds: &'static [f64],
    /// One more than the bounds: the last one is +Inf.
    counts: Box<[AtomicU64]>,
    sum_bits: AtomicU64,
}

/// A consistent-enough copy for a page: the count is the sum of the buckets, so `_count` always equals `+Inf`.
pub(crate) struct Reading {
    pub(crate) bounds: &'static [f64],
    /// Cumulative, one more than the bounds.
    pub(crate) cumulative: Vec<u64>,
    pub(crate) sum: f64,
}

impl Buckets {
    pub(crate) fn new(bounds: &'static [f64]) -> Arc<Self> {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { bounds, counts, sum_bits: AtomicU64::new(0.0_f64.to_bits()) })
    }

    pub(crate) fn read(&self) -> Reading {
        let mut total = 0;
        let cumulative = self.counts.iter().map(|count| {
            total += count.load(Ordering::Relaxed);
            total
        });
        Reading {
            bounds: self.bounds,
            cumulative: cumulative.collect(),
            sum: f64::from_bits(self.sum_bits.load(Ordering::Relaxed)),
        }
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |bits: u64| Some((f64::from_bits(bits) + value).to_bits());
        // Never fails: the closure always gives a value.
        let _ = self.sum_bits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_counts_there_and_what_is_no_number_counts_nowhere() {
        let buckets = Buckets::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 2.0, 9.0, f64::NAN, f64::INFINITY] {
            buckets.record(value);
        }
        let reading = buckets.read();
        assert_eq!(reading.cumulative, [2, 4, 5]);
        assert_eq!(reading.sum, 14.0);
    }
}
