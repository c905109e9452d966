//! What stands between a request and its first token, as numbers that cost time in proportion.

/// What is known at the pick of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Prompt tokens of this request that it has probably cached.
    pub cached_tokens: f64,
    /// Prompt tokens of this request that it has to compute.
    pub uncached_tokens: f64,
    /// Prompt tokens to compute before those.
    pub ahead_tokens: f64,
    /// Requests that run there.
    pub running: f64,
    /// Tokens that must leave its KV cache before this request fits.
    pub overflow_tokens: f64,
}

/// The same, in the units that prices are for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Features([f32; Features::COUNT]);

/// Largest value of one feature. Beyond every prompt and queue; keeps sums finite.
const FEATURE_MAX: f64 = 1e6;

impl Features {
    /// Numbers in it.
    pub const COUNT: usize = 7;

    /// In thousands of tokens, millions of token pairs (what attention costs: each token looks at all before it) and
    /// requests. What is not a number counts as 0.
    pub fn of(work: &Work) -> Self {
        let pairs = work.uncached_tokens * (work.cached_tokens + work.uncached_tokens / 2.0);
        let features = [
            1.0,
            work.uncached_tokens / 1e3,
            work.ahead_tokens / 1e3,
            pairs / 1e6,
            work.running,
            work.cached_tokens / 1e3,
            work.overflow_tokens / 1e3,
        ];
        let bounded = |feature: f64| if feature.is_nan() { 0.0 } else { feature.clamp(0.0, FEATURE_MAX) as f32 };
        Self(features.map(bounded))
    }

    pub(super) fn values(&self) -> [f64; Self::COUNT] {
        self.0.map(f64::from)
    }
}
