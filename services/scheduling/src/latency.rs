//! How long an endpoint will take to a request's first token, learned from the answers that pass through.
//!
//! An engine's first token waits for what is queued before it, then for its own prompt. Both are sums of a few costs,
//! each of which is proportional to something known at the pick ([`Work`]) and none of which can be negative. So the
//! model is a short list of non-negative prices, fitted by weighted least squares to the first tokens seen so far. What
//! makes it fit for production is around that:
//!
//! - errors are taken relative to the prediction, so that a wait of ten seconds does not drown a hundred of 40 ms;
//! - an error far beyond the usual one counts only as far as [`CLIP`] times the usual one (Huber's rule), so that an
//!   outlier moves little; when such errors come in a row and all to one side, it is no outlier but a change: then they
//!   count in full and memory is short until predictions are right again;
//! - all endpoints together teach the pool's prices, and each endpoint its own *pace* against them. Few samples fix the
//!   pace, so a slower GPU is found out after a handful; with more samples its own prices take over;
//! - without new samples an endpoint's knowledge fades towards the pool's, so that one that was slow is tried again.
//!
//! Memory is fixed (some 700 bytes each), a sample costs a few hundred multiplications, a prediction seven; nothing here
//! allocates or knows the time.

mod fit;
mod work;

use std::time::Duration;

use fit::Fit;
pub use work::{Features, Work};

/// A sample's error counts up to so many times the usual error.
const CLIP: f64 = 2.5;

/// Samples that decide when errors are as usual; older ones fade.
const MEMORY_SAMPLES: f64 = 256.0;

/// Samples that decide when all errors lean to one side: the endpoint has changed.
const MEMORY_SAMPLES_CHANGED: f64 = 4.0;

/// Errors lean to one side when so much more of the last ones is there (1: all of them, and all beyond the clip): from
/// here a change is thought of, and there it is certain. Six outliers in a row get there, one in ten never.
const LEAN: std::ops::Range<f64> = 0.4..0.7;

/// Samples that decide whether errors lean.
const LEAN_SAMPLES: f64 = 8.0;

/// Samples' worth of belief in the prices of the pool, at the endpoint's pace.
const PRIOR_SAMPLES: f64 = 4.0;

/// Samples after which a prediction is half believed.
const HALF_BELIEVED: f64 = 6.0;

/// Samples remembered for an endpoint's pace.
const PACE_SAMPLES: f64 = 32.0;

/// The same when the endpoint has changed.
const PACE_SAMPLES_CHANGED: f64 = 3.0;

/// How long it takes for half of an endpoint's knowledge to fade when nothing is seen of it.
const HALF_LIFE: Duration = Duration::from_secs(120);

/// What a restart leaves of the samples: the same GPU as a rule, another cache and perhaps other settings.
const KEPT_BY_RESTART: f64 = 0.1;

/// Samples that decide what error is usual.
const USUAL_SAMPLES: f64 = 32.0;

/// Nothing is known better than this: steps of an engine end when they end.
const USUAL_ERROR_MIN: f64 = 0.03;

/// Shortest and longest first token that is believed and predicted, s.
const TTFT_S: std::ops::RangeInclusive<f64> = 0.0005..=3_600.0;

/// What any endpoint costs before anything was seen, s per unit of [`Features`]: a model of 8 to 30 billion parameters on
/// one recent GPU. Only its shape matters, and only until the first samples.
const FIRST_GUESS_S: [f64; Features::COUNT] = [0.02, 0.04, 0.04, 0.001, 0.000_2, 0.001, 0.02];

/// What a pool knows of first tokens, all endpoints taken together.
#[derive(Clone, Debug)]
pub struct PoolLatency {
    learner: Learner,
}

/// What is known of one endpoint's first tokens.
#[derive(Clone, Debug)]
pub struct EndpointLatency {
    learner: Learner,
    /// Logarithm of what the endpoint takes ÷ what the pool's prices say.
    pace_ln: f64,
    pace_samples: f64,
}

/// Prices with how good they are.
#[derive(Clone, Debug)]
struct Learner {
    fit: Fit,
    /// The usual |ln(actual ÷ predicted)|.
    usual_error: f64,
    /// To which side errors fall, −1 to 1.
    lean: f64,
    /// Fading sums of |actual − predicted| and of actual, s.
    missed_s: f64,
    actual_s: f64,
    seen: f64,
}

impl Default for PoolLatency {
    fn default() -> Self {
        Self { learner: Learner::new(FIRST_GUESS_S) }
    }
}

impl PoolLatency {
    /// A first token came so long after dispatch, at one of its endpoints.
    pub fn learn(&mut self, features: &Features, ttft: Duration) {
        if let Some(actual_s) = believable(ttft) {
            self.learner.learn(features, actual_s, &FIRST_GUESS_S);
        }
    }

    /// How far predictions of this pool's endpoints should be believed, 0–1. 0 before any sample.
    pub fn confidence(&self) -> f64 {
        self.learner.confidence()
    }
}

impl Default for EndpointLatency {
    fn default() -> Self {
        Self::new(&PoolLatency::default())
    }
}

impl EndpointLatency {
    /// An endpoint of which nothing is known but its pool.
    pub fn new(pool: &PoolLatency) -> Self {
        Self { learner: Learner::new(*pool.learner.fit.prices()), pace_ln: 0.0, pace_samples: 0.0 }
    }

    /// Seconds from dispatch to first token. Always finite and positive, and never less for more work.
    pub fn predict_s(&self, features: &Features) -> f64 {
        self.learner.predict_s(features)
    }

    /// A first token came so long after dispatch.
    pub fn learn(&mut self, features: &Features, ttft: Duration, pool: &PoolLatency) {
        let Some(actual_s) = believable(ttft) else { return };
        let pace_ln = (actual_s / pool.learner.predict_s(features)).ln();
        let samples_max = PACE_SAMPLES + self.learner.changed() * (PACE_SAMPLES_CHANGED - PACE_SAMPLES);
        self.pace_samples = (self.pace_samples + 1.0).min(samples_max);
        let apart = pace_ln - self.pace_ln;
        self.pace_ln += apart * self.learner.share_that_counts(apart) / self.pace_samples;
        self.learner.learn(features, actual_s, &self.prior(pool));
    }

    /// So much time has passed without a call of [`EndpointLatency::learn`], or since the last call of this: knowledge
    /// fades, and what the pool has learned meanwhile is taken over as far as it is better.
    pub fn fade(&mut self, elapsed: Duration, pool: &PoolLatency) {
        self.keep((-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2(), pool);
    }

    /// Another process answers there.
    pub fn restarted(&mut self, pool: &PoolLatency) {
        self.keep(KEPT_BY_RESTART, pool);
    }

    /// How far its predictions should be believed, 0–1. 0 before any sample.
    pub fn confidence(&self) -> f64 {
        self.learner.confidence()
    }

    /// Mean error of its predictions ÷ mean time to first token, over some hundred samples. `None` before any.
    pub fn error(&self) -> Option<f64> {
        self.learner.error()
    }

    /// The usual |ln(actual ÷ predicted)|: by such a factor predictions of equals differ for no reason.
    pub fn usual_error(&self) -> f64 {
        self.learner.usual_error
    }

    fn keep(&mut self, share: f64, pool: &PoolLatency) {
        self.pace_ln *= share;
        self.pace_samples *= share;
        self.learner.fit.keep(share, Fit::SETTLED_SAMPLES);
        self.learner.fit.solve(&self.prior(pool), PRIOR_SAMPLES);
    }

    fn prior(&self, pool: &PoolLatency) -> [f64; Features::COUNT] {
        let pace = self.pace_ln.exp();
        pool.learner.fit.prices().map(|price| price * pace)
    }
}

impl Learner {
    fn new(prices: [f64; Features::COUNT]) -> Self {
        Self { fit: Fit::new(prices), usual_error: 1.0, lean: 0.0, missed_s: 0.0, actual_s: 0.0, seen: 0.0 }
    }

    fn predict_s(&self, features: &Features) -> f64 {
        self.fit.predict(features).clamp(*TTFT_S.start(), *TTFT_S.end())
    }

    fn learn(&mut self, features: &Features, actual_s: f64, prior: &[f64; Features::COUNT]) {
        let predicted_s = self.predict_s(features);
        let error = (actual_s / predicted_s).ln();
        let counts = self.share_that_counts(error);
        self.judge(error, actual_s - predicted_s, actual_s);
        let memory = MEMORY_SAMPLES + self.changed() * (MEMORY_SAMPLES_CHANGED - MEMORY_SAMPLES);
        // Relative to what was predicted, unless that is far off.
        let scale_s = predicted_s.clamp(actual_s / 2.0, actual_s * 2.0);
        self.fit.keep(1.0 - 1.0 / memory, memory);
        self.fit.add(features, actual_s, scale_s, counts);
        self.fit.solve(prior, PRIOR_SAMPLES);
    }

    /// How certain it is that what is predicted has changed, 0–1.
    fn changed(&self) -> f64 {
        ((self.lean.abs() - LEAN.start) / (LEAN.end - LEAN.start)).clamp(0.0, 1.0)
    }

    /// The share of such an error, or of the sample that has it, that counts.
    fn share_that_counts(&self, error: f64) -> f64 {
        let clipped = (CLIP * self.usual_error / error.abs()).min(1.0);
        clipped + (1.0 - clipped) * self.changed()
    }

    /// Takes an error into what is usual. One outlier moves this by a fixed factor at most.
    fn judge(&mut self, error: f64, missed_s: f64, actual_s: f64) {
        self.seen = (self.seen + 1.0).min(MEMORY_SAMPLES);
        let counts = self.share_that_counts(error);
        self.lean += ((error / (CLIP * self.usual_error)).clamp(-1.0, 1.0) - self.lean) / LEAN_SAMPLES;
        self.usual_error += (error.abs() * counts - self.usual_error) / self.seen.clamp(2.0, USUAL_SAMPLES);
        self.usual_error = self.usual_error.max(USUAL_ERROR_MIN);
        let kept = 1.0 - 1.0 / self.seen.max(2.0);
        self.missed_s = self.missed_s.mul_add(kept, missed_s.abs());
        self.actual_s = self.actual_s.mul_add(kept, actual_s);
    }

    fn confidence(&self) -> f64 {
        let samples = self.fit.samples();
        samples / (samples + HALF_BELIEVED) / (1.0 + self.error().unwrap_or(0.0))
    }

    fn error(&self) -> Option<f64> {
        (self.actual_s > 0.0).then(|| self.missed_s / self.actual_s)
    }
}

fn believable(ttft: Duration) -> Option<f64> {
    let seconds = ttft.as_secs_f64();
    (seconds > 0.0).then(|| seconds.clamp(*TTFT_S.start(), *TTFT_S.end()))
}

#[cfg(test)]
mod tests;
