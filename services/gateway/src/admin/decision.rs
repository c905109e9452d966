//! `/api/v1/decisions/{request-id}`: the numbers of one pick put into words, and what came of it.

use std::sync::Arc;

use dispatch::{Considered, Score, Scorer};
use pool::EndpointId;
use serde::{Serialize, Serializer, ser::SerializeMap};
use utoipa::ToSchema;

use super::{
    pools::{Signal, Work},
    timestamp::Timestamp,
};
use crate::{clock::Clock, decisions::Entry};

/// Why a request went where it went.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Decision)]
pub(super) struct Decided {
    /// The request's `x-request-id`.
    request_id: String,
    /// When the endpoint was picked.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// The pool it was picked in.
    #[schema(value_type = String)]
    pool: Arc<str>,
    /// The model or adapter asked for.
    #[schema(value_type = String)]
    model: Arc<str>,
    /// The endpoints looked at: the best first, then those that could not be chosen.
    candidates: Vec<Candidate>,
    /// Further endpoints that were looked at and are not listed.
    omitted: usize,
    /// Names of the endpoints to try, in this order; empty for a refusal.
    picked: Vec<String>,
    /// `highest_score`, `only_candidate`, `tie_by_prefix`, `tie_by_least_recent`, `pool_full`, `band_full`,
    /// `others_wait` or `no_endpoint`.
    #[schema(value_type = String)]
    reason: &'static str,
    /// The same in a sentence, with its numbers.
    explanation: String,
    /// What the scores rest on: `reports` of the endpoints and own work, or own work alone (`own_work`,
    /// `own_work_while_starting`, `own_work_all_stale`).
    #[schema(value_type = String)]
    basis: &'static str,
    /// Blocks of 64 tokens in the prompt.
    prompt_blocks: u32,
    /// `ok`, `redirect`, `upstream_4xx`, `upstream_5xx`, `client_gone` or another reason of docs/errors.md; `null` while
    /// the request is open.
    #[schema(required, value_type = Option<String>)]
    outcome: Option<&'static str>,
    /// Status sent to the client, 499 if it had gone; `null` while the request is open.
    #[schema(required)]
    status: Option<u16>,
    /// The endpoint that answered, or was tried last.
    #[schema(required, value_type = Option<String>)]
    endpoint: Option<Arc<str>>,
    /// The band of priority, `critical`, `standard` or `sheddable`; `null` while the request is open.
    #[schema(required, value_type = Option<String>)]
    band: Option<&'static str>,
    /// Milliseconds from the end of the request's body to the place at an endpoint, or to the refusal: nearly all of it is
    /// waiting for room. `null` while the request is open.
    #[schema(required)]
    queue_ms: Option<f64>,
}

/// One endpoint in a pick.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Candidate)]
struct Candidate {
    /// Its name.
    #[schema(value_type = String)]
    endpoint: Arc<str>,
    /// Weighted sum of its scores; 0 when rejected.
    total: f64,
    /// What each scorer said, by its name; empty when rejected.
    #[schema(value_type = BTreeMap<String, ScorerScore>)]
    scores: Scores,
    /// What it was scored by.
    signals: Readings,
    /// This gateway's own requests there, before this one.
    in_flight: Work,
    /// Leading blocks of the prompt that it was sent before.
    matched_blocks: u32,
    /// How far its predicted time to first token is believed, 0 to 1; `null` when rejected. The time itself, in seconds, is
    /// the raw value of the score `predictedLatency`.
    #[schema(required)]
    prediction_confidence: Option<f64>,
    /// `full`, `backing_off`, `at_cap`, `slow_start`, `probing`, `ejected`, `stale`, `starting`, `draining`, `excluded` or
    /// `not_asked`; `null` when it could be chosen.
    #[schema(required, value_type = Option<String>)]
    rejected: Option<&'static str>,
}

/// What one scorer said of one endpoint.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Score)]
pub(super) struct ScorerScore {
    /// The number it looked at, in its own unit.
    raw: f64,
    /// Its rating; 1 is best.
    #[schema(minimum = 0, maximum = 1)]
    score: f64,
    /// What the rating counts.
    weight: u32,
}

/// In the order of [`Scorer::ALL`].
#[derive(Debug)]
struct Scores(Vec<(Scorer, ScorerScore)>);

/// What an endpoint had last said at the time of the pick. A reading that was too old is shown with its age, and was not
/// used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Readings)]
struct Readings {
    /// Requests queued in the engine.
    #[schema(required)]
    waiting: Option<Signal>,
    /// Requests in its running batch.
    #[schema(required)]
    running: Option<Signal>,
    /// Share of its KV cache held by live requests, 0 to 1.
    #[schema(required)]
    kv_cache: Option<Signal>,
    /// Waiting requests as they were counted: the report joined with own requests that it cannot have shown.
    waiting_used: f64,
}

impl Decided {
    pub(super) fn of(entry: &Entry, clock: &Clock) -> Self {
        let decision = &entry.decision;
        let after = entry.after.as_ref();
        Self {
            request_id: entry.request_id.to_string(),
            time: Timestamp(clock.wall(entry.at)),
            pool: Arc::clone(&entry.pool),
            model: Arc::clone(&entry.model),
            candidates: decision.candidates.iter().map(Candidate::of).collect(),
            omitted: decision.omitted,
            picked: decision.picked.iter().map(|id| name(*id, &decision.candidates)).collect(),
            reason: decision.reason.as_str(),
            explanation: decision.explain(),
            basis: decision.basis.as_str(),
            prompt_blocks: decision.blocks,
            outcome: after.map(|after| after.outcome),
            status: after.map(|after| after.status),
            endpoint: after.and_then(|after| after.endpoint.clone()),
            band: after.map(|after| after.band),
            queue_ms: after.map(|after| after.queue_ms),
        }
    }
}

/// The best candidates are always in the record, so each picked one has its name there.
fn name(id: EndpointId, candidates: &[Considered]) -> String {
    let listed = candidates.iter().find(|candidate| candidate.endpoint == id);
    listed.map_or_else(|| format!("endpoint {}", id.get()), |candidate| candidate.name.to_string())
}

impl Candidate {
    fn of(considered: &Considered) -> Self {
        let readings = &considered.readings;
        Self {
            endpoint: Arc::clone(&considered.name),
            total: considered.total,
            scores: Scores::of(considered),
            signals: Readings {
                waiting: readings.waiting.map(Signal::of),
                running: readings.running.map(Signal::of),
                kv_cache: readings.kv_cache.map(Signal::of),
                waiting_used: readings.waiting_used,
            },
            in_flight: Work::of(considered.in_flight),
            matched_blocks: considered.matched_blocks,
            prediction_confidence: considered.prediction_confidence,
            rejected: considered.rejected.map(|why| why.as_str()),
        }
    }
}

impl Scores {
    /// Scorers of weight 0 are shown too: that they did not count is part of the explanation.
    fn of(considered: &Considered) -> Self {
        if considered.rejected.is_some() {
            return Self(Vec::new());
        }
        let score = |Score { raw, score, weight }| ScorerScore { raw, score, weight };
        Self(Scorer::ALL.into_iter().zip(considered.scores.map(score)).collect())
    }
}

impl Serialize for Scores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (scorer, score) in &self.0 {
            map.serialize_entry(scorer.as_str(), score)?;
        }
        map.end()
    }
}
