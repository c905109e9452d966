//! The handles of the request path, looked up when a pool or a model appears and kept.

mod queue;

use std::sync::{Arc, OnceLock};

use dispatch::Failure;
use flow_control::Band;
use protocol::{Reason, Usage};
use telemetry::{
    Counter, Histogram, Metrics,
    catalog::{
        EJECTIONS, INTER_TOKEN, REQUEST_DURATION, REQUESTS, RETRIES, TIME_TO_FIRST_TOKEN, TOKENS, USAGE_MISSING,
    },
};

pub use self::queue::QueueMetrics;

/// How a request ended. Exactly one per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 2xx, complete and without an error event.
    Ok,
    /// 3xx of an endpoint.
    Redirect,
    /// 4xx of an endpoint, or an error event that blames the client.
    Upstream4xx,
    /// 5xx of an endpoint, or an error event that blames the endpoint.
    Upstream5xx,
    /// One of ours.
    Refused(Reason),
}

/// Outcomes that are no reason.
const ENDPOINTS_OUTCOMES: usize = 4;
const OUTCOMES: usize = ENDPOINTS_OUTCOMES + Reason::ALL.len();

/// Counters by [`Outcome::index`].
type Outcomes = [OnceLock<Counter>; OUTCOMES];

impl Outcome {
    /// The word for metrics, logs and decisions.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Redirect => "redirect",
            Self::Upstream4xx => "upstream_4xx",
            Self::Upstream5xx => "upstream_5xx",
            Self::Refused(reason) => reason.label(),
        }
    }

    /// What a complete answer with this status is.
    pub const fn of_status(status: u16) -> Self {
        match status {
            ..=299 => Self::Ok,
            300..=399 => Self::Redirect,
            400..=499 => Self::Upstream4xx,
            500.. => Self::Upstream5xx,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Ok => 0,
            Self::Redirect => 1,
            Self::Upstream4xx => 2,
            Self::Upstream5xx => 3,
            Self::Refused(reason) => ENDPOINTS_OUTCOMES + reason as usize,
        }
    }
}

/// The series of one model of one pool. Counters of outcomes are made when they first happen, so that a page holds no
/// rows of zeros for every reason and adapter.
pub struct ModelMetrics {
    metrics: Metrics,
    pool: Arc<str>,
    model: Arc<str>,
    requests: [OnceLock<Box<Outcomes>>; Band::COUNT],
    duration: OnceLock<Histogram>,
    first_token: OnceLock<Histogram>,
    inter_token: OnceLock<Histogram>,
    tokens: OnceLock<[Counter; 3]>,
    usage_missing: OnceLock<Counter>,
}

impl ModelMetrics {
    /// Handles for this pool and model; no series appears before its first use.
    pub fn new(metrics: &Metrics, pool: Arc<str>, model: Arc<str>) -> Self {
        Self {
            metrics: metrics.clone(),
            pool,
            model,
            requests: [const { OnceLock::new() }; Band::COUNT],
            duration: OnceLock::new(),
            first_token: OnceLock::new(),
            inter_token: OnceLock::new(),
            tokens: OnceLock::new(),
            usage_missing: OnceLock::new(),
        }
    }

    /// The model's name as it stands in the label.
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// Counts a request of this band that ended so, `duration_s` after its head.
    pub fn ended(&self, band: Band, outcome: Outcome, duration_s: f64) {
        let outcomes = self.requests[band.index()].get_or_init(|| Box::new([const { OnceLock::new() }; OUTCOMES]));
        let labels = [&*self.pool, &*self.model, band.label(), outcome.label()];
        let counter = outcomes[outcome.index()].get_or_init(|| self.metrics.counter(&REQUESTS, &labels));
        counter.increment(1);
        self.histogram(&self.duration, &REQUEST_DURATION).record(duration_s);
    }

    /// Counts what a streamed answer's content events said about time.
    pub fn streamed(&self, first_token_s: f64, inter_token_s: Option<f64>) {
        self.histogram(&self.first_token, &TIME_TO_FIRST_TOKEN).record(first_token_s);
        if let Some(seconds) = inter_token_s {
            self.histogram(&self.inter_token, &INTER_TOKEN).record(seconds);
        }
    }

    /// Counts an answer's tokens, or that it did not say.
    pub fn used(&self, usage: Option<Usage>) {
        let Some(usage) = usage else {
            let missing = || self.metrics.counter(&USAGE_MISSING, &[&self.pool, &self.model]);
            self.usage_missing.get_or_init(missing).increment(1);
            return;
        };
        let [prompt, cached, completion] = self.tokens.get_or_init(|| {
            ["prompt", "cached", "completion"]
                .map(|kind| self.metrics.counter(&TOKENS, &[&self.pool, &self.model, kind]))
        });
        prompt.increment(usage.prompt_tokens);
        cached.increment(usage.cached_tokens);
        completion.increment(usage.completion_tokens);
    }

    fn histogram<'a>(
        &self,
        cell: &'a OnceLock<Histogram>,
        metric: &'static telemetry::catalog::Metric,
    ) -> &'a Histogram {
        cell.get_or_init(|| self.metrics.histogram(metric, &[&self.pool, &self.model]))
    }
}

/// Further tries of one pool, and ejections from it, by cause.
pub struct RetryMetrics {
    metrics: Metrics,
    pool: Arc<str>,
    connect: OnceLock<Counter>,
    reused_closed: OnceLock<Counter>,
    overloaded: OnceLock<Counter>,
    ejected: [OnceLock<Counter>; Failure::ALL.len()],
}

impl RetryMetrics {
    /// Handles for this pool; no series appears before its first use.
    pub fn new(metrics: &Metrics, pool: Arc<str>) -> Self {
        Self {
            metrics: metrics.clone(),
            pool,
            connect: OnceLock::new(),
            reused_closed: OnceLock::new(),
            overloaded: OnceLock::new(),
            ejected: [const { OnceLock::new() }; Failure::ALL.len()],
        }
    }

    /// The next endpoint was tried, since one before it could not be connected to.
    pub fn connect(&self) {
        self.connect.get_or_init(|| self.metrics.counter(&RETRIES, &[&self.pool, "connect"])).increment(1);
    }

    /// A fresh connection was tried, since the reused one had been closed.
    pub fn reused_closed(&self) {
        let counter = || self.metrics.counter(&RETRIES, &[&self.pool, "reused_closed"]);
        self.reused_closed.get_or_init(counter).increment(1);
    }

    /// The next endpoint was tried, since one before it answered 429 or 503.
    pub fn overloaded(&self) {
        self.overloaded.get_or_init(|| self.metrics.counter(&RETRIES, &[&self.pool, "overloaded"])).increment(1);
    }

    /// An endpoint was ejected.
    pub fn ejected(&self, cause: Failure) {
        let counter = || self.metrics.counter(&EJECTIONS, &[&self.pool, cause.as_str()]);
        self.ejected[cause as usize].get_or_init(counter).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_outcome_has_a_place_and_a_word_of_its_own() {
        let own = [Outcome::Ok, Outcome::Redirect, Outcome::Upstream4xx, Outcome::Upstream5xx];
        let all: Vec<_> = own.into_iter().chain(Reason::ALL.into_iter().map(Outcome::Refused)).collect();
        let places: BTreeSet<_> = all.iter().map(|outcome| outcome.index()).collect();
        let words: BTreeSet<_> = all.iter().map(|outcome| outcome.label()).collect();
        assert_eq!((places.len(), words.len()), (all.len(), all.len()));
        assert_eq!(places.last(), Some(&(all.len() - 1)));
    }

    #[test]
    fn counts_appear_with_their_first_use() {
        let metrics = Metrics::default();
        let model = ModelMetrics::new(&metrics, "p".into(), "m".into());
        assert_eq!(metrics.render(telemetry::Format::Text), "");
        model.ended(Band::Critical, Outcome::Ok, 0.1);
        model.used(Some(Usage { prompt_tokens: 9, cached_tokens: 4, completion_tokens: 2 }));
        model.used(None);
        let page = metrics.render(telemetry::Format::Text);
        for line in [
            r#"inference_gateway_requests_total{pool="p",model="m",band="critical",outcome="ok"} 1"#,
            r#"inference_gateway_tokens_total{pool="p",model="m",kind="prompt"} 9"#,
            r#"inference_gateway_tokens_total{pool="p",model="m",kind="cached"} 4"#,
            r#"inference_gateway_usage_missing_total{pool="p",model="m"} 1"#,
        ] {
            assert!(page.contains(line), "{line} not in\n{page}");
        }
    }
}
