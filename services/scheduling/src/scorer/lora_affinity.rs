//! `loraAffinity`: for requests of an adapter, where it is loaded; else where most room for it is.
//!
//! Loading an adapter costs an engine a transfer, and one that is pushed out for it costs the next request another. The
//! classes are kept apart by fixed steps; inside "has room" the freer endpoint is the better one.

use crate::{Ask, Candidate, Model, Residency};

/// An endpoint that has the adapter waiting is worth more than one that has neither room nor the adapter: what is
/// waiting will be loaded.
const QUEUED: f64 = 0.6;

/// An endpoint with all its slots free; the less is free, the closer to [`QUEUED`].
const ALL_FREE: f64 = 0.8;

pub(super) fn rate(candidate: &Candidate, ask: &Ask) -> (f64, f64) {
    let score = match (ask.model, candidate.residency) {
        (Model::Base, _) | (Model::Adapter, Residency::Absent) => 0.0,
        (Model::Adapter, Residency::Loaded) => 1.0,
        (Model::Adapter, Residency::Room { free_share }) => QUEUED + (ALL_FREE - QUEUED) * free_share.clamp(0.0, 1.0),
        (Model::Adapter, Residency::Queued) => QUEUED,
    };
    (score, score)
}
