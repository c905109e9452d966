//! The series of one family, gathered in any order and made into one number.
//!
//! One page may hold a series per data-parallel rank (`engine`, `dp_rank`), per tensor- or pipeline-parallel rank
//! (which all say the same), per model, and per priority beside a total. Counts are summed over the first kind, taken
//! once over the second, summed over models, and the total is preferred to the priorities. Nothing depends on the order
//! of lines: that is why series are kept and sorted instead of folded as they come.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Most samples of one family that are kept. 72 ranks with 8 tensor-parallel ranks and 6 priorities each fit; a family
/// with more counts as missing, since part of a sum is no sum.
const SAMPLES_MAX: usize = 4096;

/// Above this a count of requests, tokens or blocks is no count.
const COUNT_MAX: f64 = 1e15;

/// A share above 1 by rounding, or because blocks were reserved, is 1. Beyond this it is no share.
const SHARE_MAX: f64 = 1.05;

/// What tells one series of a family from another, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Data-parallel rank.
    rank: u64,
    /// Model within the server.
    model: u64,
    /// Priority; 0 = this is the total over priorities.
    priority: u64,
}

impl Key {
    /// Takes a label into account. The order of labels has no effect.
    pub(super) fn label(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"engine" | b"dp_rank" => self.rank = self.rank.wrapping_add(hash(name, value)),
            b"model_name" | b"model" | b"version" => self.model = self.model.wrapping_add(hash(name, value)),
            // SGLang writes the total as `priority=""`.
            b"priority" if !value.is_empty() => self.priority = hash(name, value).max(1),
            // tp_rank, pp_rank, moe_ep_rank: the same scheduler seen from another process. Unknown labels likewise.
            _ => {}
        }
    }
}

fn hash(name: &[u8], value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, value).hash(&mut hasher);
    hasher.finish()
}

/// The samples of one family.
#[derive(Debug, Default)]
pub(super) struct Tally {
    samples: Vec<(Key, f64)>,
    seen: Seen,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Never,
    /// At least one line, usable or not.
    Met,
    /// More samples than are kept.
    TooMany,
}

impl Tally {
    /// A line of the family was met, whether or not it can be used.
    pub(super) fn met(&mut self) {
        if self.seen == Seen::Never {
            self.seen = Seen::Met;
        }
    }

    pub(super) fn was_met(&self) -> bool {
        self.seen != Seen::Never
    }

    pub(super) fn add(&mut self, key: Key, value: f64) {
        if self.samples.len() == SAMPLES_MAX {
            self.seen = Seen::TooMany;
        } else {
            self.samples.push((key, value));
        }
    }

    /// A count over ranks and models; `None` when no sample can be used.
    pub(super) fn sum(&self) -> Option<f64> {
        let totals = self.totals();
        (!totals.is_empty())
            .then(|| totals.iter().map(|&(_, value)| value).sum::<f64>())
            .filter(|sum| *sum <= COUNT_MAX)
    }

    /// A share over ranks: their mean, at most 1.
    pub(super) fn mean(&self) -> Option<f64> {
        let totals = self.totals();
        let sum = totals.iter().map(|&(_, value)| value).sum::<f64>();
        (!totals.is_empty()).then(|| (sum / totals.len() as f64).min(1.0))
    }

    /// A property that every rank repeats.
    pub(super) fn greatest(&self) -> Option<f64> {
        self.totals().iter().map(|&(_, value)| value).reduce(f64::max)
    }

    /// Data-parallel ranks among the series.
    pub(super) fn ranks(&self) -> u32 {
        let mut ranks: Vec<u64> = self.totals().iter().map(|(key, _)| key.rank).collect();
        ranks.dedup();
        u32::try_from(ranks.len()).unwrap_or(u32::MAX)
    }

    /// One number per rank and model, sorted by rank: the greatest of equal series, the total before the priorities.
    fn totals(&self) -> Vec<(Key, f64)> {
        if self.seen == Seen::TooMany {
            return Vec::new();
        }
        let mut samples = self.samples.clone();
        samples.sort_by(|(a, x), (b, y)| a.cmp(b).then(y.total_cmp(x)));
        samples.dedup_by_key(|(key, _)| *key);
        let mut totals: Vec<(Key, f64)> = Vec::with_capacity(samples.len());
        for (key, value) in samples {
            match totals.last_mut() {
                Some((of, sum)) if (of.rank, of.model) == (key.rank, key.model) => {
                    // Priority 0 sorts first: once a total is there, priorities are its parts.
                    if of.priority != 0 {
                        *sum += value;
                    }
                }
                _ => totals.push((key, value)),
            }
        }
        totals
    }
}

/// A usable count, or `None`: NaN, infinite, negative and absurd readings are missing.
pub(super) fn count(value: f64) -> Option<f64> {
    (0.0..=COUNT_MAX).contains(&value).then_some(value)
}

/// A usable share, at most 1.
pub(super) fn share(value: f64) -> Option<f64> {
    (0.0..=SHARE_MAX).contains(&value).then(|| value.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(samples: &[(&[(&str, &str)], f64)]) -> Tally {
        let mut tally = Tally::default();
        for (labels, value) in samples {
            let mut key = Key::default();
            labels.iter().for_each(|(name, value)| key.label(name.as_bytes(), value.as_bytes()));
            tally.met();
            tally.add(key, *value);
        }
        tally
    }

    #[test]
    fn a_total_is_preferred_to_its_priorities() {
        let both = tally(&[(&[("priority", "1")], 2.0), (&[("priority", "")], 7.0), (&[("priority", "2")], 5.0)]);
        assert_eq!(both.sum(), Some(7.0));
        let parts = tally(&[(&[("priority", "1")], 2.0), (&[("priority", "2")], 5.0)]);
        assert_eq!(parts.sum(), Some(7.0));
        let ranks = tally(&[(&[("dp_rank", "0")], 2.0), (&[("dp_rank", "1"), ("priority", "2")], 5.0)]);
        assert_eq!((ranks.sum(), ranks.ranks()), (Some(7.0), 2));
    }

    #[test]
    fn a_family_with_more_samples_than_kept_is_missing() {
        let mut tally = tally(&[]);
        for _ in 0..=SAMPLES_MAX {
            tally.met();
            tally.add(Key::default(), 1.0);
        }
        assert_eq!((tally.sum(), tally.mean(), tally.ranks()), (None, None, 0));
        assert!(tally.was_met());
    }

    #[test]
    fn d13_what_is_no_count_or_share_is_missing() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1.7e308] {
            assert_eq!((count(bad), share(bad)), (None, None), "{bad}");
        }
        assert_eq!((share(1.001), share(40.0)), (Some(1.0), None));
    }
}
