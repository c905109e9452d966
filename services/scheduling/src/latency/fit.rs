//! Non-negative prices by weighted least squares, kept up to date sample by sample.
//!
//! Instead of the samples their second moments are kept, which is all that least squares needs. They fade, so that the
//! latest decide. The prices are then found by going through them one by one, each set to what is best given the others
//! and to 0 where that is negative; from the former prices a few rounds get there. Unlike the usual recursive form,
//! nothing here can grow when samples stop to differ, and whatever samples say nothing of stays where the prior has it.

use super::Features;

const N: usize = Features::COUNT;

/// Rounds per sample.
const ROUNDS: usize = 4;

/// The largest price, s per unit. A bound against overflow, not a belief.
const PRICE_MAX: f64 = 1e6;

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    prices: [f64; N],
    /// Σ weight · xᵢxⱼ ÷ scale².
    squares: [[f64; N]; N],
    /// Σ weight · xᵢy ÷ scale².
    products: [f64; N],
    /// Σ weight.
    samples: f64,
}

impl Fit {
    /// Samples that count at most when old ones fade by time alone.
    pub(super) const SETTLED_SAMPLES: f64 = 1e6;

    pub(super) fn new(prices: [f64; N]) -> Self {
        Self { prices, squares: [[0.0; N]; N], products: [0.0; N], samples: 0.0 }
    }

    pub(super) fn prices(&self) -> &[f64; N] {
        &self.prices
    }

    /// How many samples' worth is remembered.
    pub(super) fn samples(&self) -> f64 {
        self.samples
    }

    pub(super) fn predict(&self, features: &Features) -> f64 {
        self.prices.iter().zip(features.values()).map(|(price, value)| price * value).sum()
    }

    /// Keeps this share of all that is known, and no more than `samples_max` samples' worth.
    pub(super) fn keep(&mut self, share: f64, samples_max: f64) {
        let share = share.min(samples_max / self.samples.max(f64::MIN_POSITIVE));
        self.samples *= share;
        self.products.iter_mut().chain(self.squares.iter_mut().flatten()).for_each(|sum| *sum *= share);
    }

    /// A sample: what it took, in seconds; errors are relative to `scale_s`.
    pub(super) fn add(&mut self, features: &Features, actual_s: f64, scale_s: f64, weight: f64) {
        let values = features.values();
        let weight_by_scale = weight / (scale_s * scale_s);
        for (i, row) in self.squares.iter_mut().enumerate() {
            let scaled = weight_by_scale * values[i];
            self.products[i] += scaled * actual_s;
            row.iter_mut().zip(values).for_each(|(sum, value)| *sum += scaled * value);
        }
        self.samples += weight;
    }

    /// Finds the prices; each is drawn to its prior as by `prior_samples` samples that say it.
    pub(super) fn solve(&mut self, prior: &[f64; N], prior_samples: f64) {
        let pull = prior_samples / self.samples.max(f64::MIN_POSITIVE);
        for _ in 0..ROUNDS {
            for (i, row) in self.squares.iter().enumerate() {
                let own = row[i];
                let others: f64 = row.iter().zip(&self.prices).map(|(square, price)| square * price).sum();
                let unexplained = self.products[i] - (others - own * self.prices[i]);
                let best = (unexplained + own * pull * prior[i]) / (own + own * pull);
                let price = if best.is_finite() { best } else { prior[i] };
                self.prices[i] = price.clamp(0.0, PRICE_MAX);
            }
        }
    }
}
