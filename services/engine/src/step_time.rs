//! How long one step takes.
//!
//! `T = max(d0, a + cp·P) + ca·A + cd·B + ck·K`: reading the weights or computing the prefill, whichever is longer,
//! plus attention over prefill chunks, plus a cost per decoding sequence, plus reading their KV. K counts a block that
//! several sequences share **once**: counted per sequence the model runs away from measurements at high sharing.

use std::{f64::consts::TAU, time::Duration};

use fastrand::Rng;

/// Parameters of the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// a: fixed cost of a step that computes prefill, ms.
    pub prefill_base_ms: f64,
    /// cp: per prefill token, µs.
    pub prefill_token_us: f64,
    /// ca: per million token pairs of prefill attention, ms.
    pub attention_mpair_ms: f64,
    /// d0 and cd: weights and sequences.
    pub decode: DecodeTime,
    /// ck: per thousand distinct KV tokens read by decodes, µs.
    pub kv_ktoken_us: f64,
    /// Sigma of the lognormal jitter on each step; its mean is 1.
    pub jitter_sigma: f64,
}

/// The part of a step's time that depends on how many sequences decode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecodeTime {
    /// `d0 + cd·B`.
    Line {
        /// d0: reading the weights once, ms.
        floor_ms: f64,
        /// cd: per decoding sequence, µs.
        sequence_us: f64,
    },
    /// `d0 + cd·B` by batch size in ms, ascending, interpolated, extended with its last slope.
    Table(&'static [(u32, f64)]),
}

/// What one step computes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch {
    /// P: prefill tokens.
    pub prefill_tokens: u64,
    /// A × 1e6: token pairs of prefill attention, `Σ chunk·(context before + chunk/2)`.
    pub attention_pairs: f64,
    /// B: sequences that decode one token.
    pub decodes: u32,
    /// K × 1e3: distinct KV tokens those decodes read.
    pub kv_tokens: u64,
}

impl Batch {
    /// Whether it computes nothing.
    pub fn is_empty(&self) -> bool {
        self.prefill_tokens == 0 && self.decodes == 0
    }
}

/// Middle of the measured 5–8 %.
const JITTER_SIGMA: f64 = 0.065;

impl StepTime {
    /// From the table's columns: d0 ms, a ms, cp µs, ca ms, cd µs, ck µs.
    pub const fn new(d0: f64, a: f64, cp: f64, ca: f64, cd: f64, ck: f64) -> Self {
        Self {
            prefill_base_ms: a,
            prefill_token_us: cp,
            attention_mpair_ms: ca,
            decode: DecodeTime::Line { floor_ms: d0, sequence_us: cd },
            kv_ktoken_us: ck,
            jitter_sigma: JITTER_SIGMA,
        }
    }

    /// Time of a step without jitter, ms.
    pub fn mean_ms(&self, batch: &Batch) -> f64 {
        let floor = self.decode.floor_ms();
        let prefill = match batch.prefill_tokens {
            0 => 0.0,
            tokens => self.prefill_base_ms + self.prefill_token_us * tokens as f64 / 1e3,
        };
        floor.max(prefill)
            + self.attention_mpair_ms * batch.attention_pairs / 1e6
            + self.decode.above_floor_ms(batch.decodes)
            + self.kv_ktoken_us * batch.kv_tokens as f64 / 1e6
    }

    /// Time of a step, jittered by `rng`.
    pub fn sample(&self, batch: &Batch, rng: &mut Rng) -> Duration {
        let jitter = (self.jitter_sigma * normal(rng) - self.jitter_sigma.powi(2) / 2.0).exp();
        Duration::from_secs_f64(self.mean_ms(batch) * jitter / 1e3)
    }
}

impl DecodeTime {
    fn floor_ms(self) -> f64 {
        match self {
            Self::Line { floor_ms, .. } => floor_ms,
            Self::Table(rows) => rows.first().map_or(0.0, |row| row.1),
        }
    }

    fn above_floor_ms(self, decodes: u32) -> f64 {
        match self {
            Self::Line { sequence_us, .. } => sequence_us * f64::from(decodes) / 1e3,
            Self::Table(rows) => interpolate(rows, decodes) - self.floor_ms(),
        }
    }
}

/// Linear between rows, flat below the first, with the last slope above the last.
fn interpolate(rows: &[(u32, f64)], x: u32) -> f64 {
    let Some(&first) = rows.first() else { return 0.0 };
    let above = rows.iter().position(|row| row.0 >= x).unwrap_or(rows.len() - 1);
    let (Some(&low), Some(&high)) = (rows.get(above.wrapping_sub(1)), rows.get(above)) else { return first.1 };
    let slope = (high.1 - low.1) / f64::from(high.0 - low.0);
    low.1 + slope * (f64::from(x) - f64::from(low.0))
}

/// Standard normal deviate (Box–Muller, one of the pair).
fn normal(rng: &mut Rng) -> f64 {
    // 1 - u lies in (0, 1]: its logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    radius * (TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    /// Published prefill and decode times that the table must give back, ms.
    #[test]
    fn the_table_gives_the_published_times() {
        let rows: [(&str, [f64; 3], [f64; 4]); 9] = [
            ("llama-3.1-8b-a10g", [171.0, 703.0, 3281.0], [33.0, 38.0, 53.0, 72.0]),
            ("llama-3.1-8b-h100", [14.0, 45.0, 191.0], [6.3, 7.0, 9.5, 12.9]),
            ("qwen3-32b-2xh100", [34.0, 105.0, 443.0], [10.7, 11.6, 14.6, 18.5]),
            ("qwen3-32b-4xh100", [23.0, 67.0, 269.0], [7.0, 7.7, 9.6, 12.2]),
            ("qwen3-32b-4xa10g", [446.0, 1788.0, 7623.0], [41.0, 51.0, 82.0, 124.0]),
            ("qwen3-32b-8xa10g", [521.0, 2076.0, 8539.0], [25.0, 38.0, 79.0, 135.0]),
            ("llama-3.1-70b-4xh100", [40.0, 130.0, 520.0], [11.8, 12.5, 14.8, 17.8]),
            ("llama-3.1-70b-8xh100", [28.0, 88.0, 340.0], [8.2, 8.7, 10.4, 12.5]),
            ("qwen3-235b-a22b-fp8-8xh100", [50.0, 85.0, 277.0], [18.0, 24.0, 34.0, 38.0]),
        ];
        for (name, prefill, decode) in rows {
            let profile = Profile::named(name).unwrap();
            for (tokens, want) in [512_u32, 2048, 8192].into_iter().zip(prefill) {
                let got = whole_prefill_ms(&profile, tokens);
                assert!((got / want - 1.0).abs() < 0.06, "{name} prefill {tokens}: {got} for {want}");
            }
            for (batch, want) in [1_u32, 16, 64, 128].into_iter().zip(decode) {
                let step = Batch { decodes: batch, kv_tokens: u64::from(batch) * 1024, ..Batch::default() };
                let got = profile.step.mean_ms(&step);
                assert!((got / want - 1.0).abs() < 0.08, "{name} decode {batch}: {got} for {want}");
            }
        }
    }

    fn whole_prefill_ms(profile: &Profile, tokens: u32) -> f64 {
        let (mut done, mut total) = (0, 0.0);
        while done < tokens {
            let chunk = (tokens - done).min(profile.max_batched_tokens);
            let pairs = f64::from(chunk) * (f64::from(done) + f64::from(chunk) / 2.0);
            let step = Batch { prefill_tokens: u64::from(chunk), attention_pairs: pairs, ..Batch::default() };
            total += profile.step.mean_ms(&step);
            done += chunk;
        }
        total
    }

    #[test]
    fn tables_are_interpolated_and_extended() {
        let rows: &[(u32, f64)] = &[(1, 10.0), (2, 20.0), (4, 30.0)];
        for (x, want) in [(0, 10.0), (1, 10.0), (2, 20.0), (3, 25.0), (4, 30.0), (6, 40.0)] {
            assert!((interpolate(rows, x) - want).abs() < 1e-9, "{x}");
        }
    }

    #[test]
    fn jitter_has_mean_one_and_the_stated_width() {
        let step = StepTime::new(10.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        let mut rng = Rng::with_seed(7);
        let samples: Vec<f64> =
            (0..20_000).map(|_| step.sample(&Batch::default(), &mut rng).as_secs_f64() * 100.0).collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        let width = (samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / samples.len() as f64).sqrt();
        assert!((mean - 1.0).abs() < 0.003, "{mean}");
        assert!((width - JITTER_SIGMA).abs() < 0.003, "{width}");
    }
}
