//! When requests come: Gamma-distributed times between them, whose coefficient of variation is the burstiness.
//!
//! 1 is Poisson. Real services are near it (Azure conversations: 1.09) or far above (Azure code completion: 13; the
//! clients of ServeGen's m-small, weighted by their rates: 3.6).

use std::time::Duration;

use fastrand::Rng;

/// Draws the times between requests.
#[derive(Clone, Debug)]
pub struct Arrivals {
    shape: f64,
    scale_s: f64,
}

impl Arrivals {
    pub fn new(rate_per_s: f64, cv: f64) -> Self {
        let shape = 1.0 / (cv * cv);
        Self { shape, scale_s: 1.0 / (rate_per_s * shape) }
    }

    /// Time to the next one.
    pub fn gap(&self, rng: &mut Rng) -> Duration {
        Duration::from_secs_f64(gamma(self.shape, rng) * self.scale_s)
    }
}

/// A Gamma variate of scale 1 (Marsaglia and Tsang 2000; below shape 1 by their boost).
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    if shape < 1.0 {
        let boost = (1.0 - rng.f64()).powf(1.0 / shape);
        return gamma(shape + 1.0, rng) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// A standard normal variate (Box and Muller, one of the pair).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_stated_rate_and_variation() {
        for (cv, tolerance) in [(0.5, 0.02), (1.0, 0.02), (1.09, 0.02), (3.6, 0.06), (13.0, 0.2)] {
            let mut rng = Rng::with_seed(11);
            let arrivals = Arrivals::new(20.0, cv);
            let gaps: Vec<f64> = (0..400_000).map(|_| arrivals.gap(&mut rng).as_secs_f64()).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            assert!((mean * 20.0 - 1.0).abs() < tolerance, "cv {cv}: mean {mean}");
            assert!((variance.sqrt() / mean / cv - 1.0).abs() < tolerance, "cv {cv}: {}", variance.sqrt() / mean);
        }
    }
}
