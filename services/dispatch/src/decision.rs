//! The record of one pick: every number it was made from. Text is made only when someone asks
//! ([`Decision::explain`]), so keeping a record costs a copy and no formatting.

use std::{sync::Arc, time::Duration};

use pool::{EndpointId, Moment};
use scheduling::{Rejected, Scores, Won};
use smallvec::SmallVec;

use crate::endpoint_state::EndpointState;

/// Endpoints kept in one record. Of a larger pool the best are kept and the rest counted.
pub const CANDIDATES_MAX: usize = 64;

/// One pick. The same value can be handed to [`PoolDispatch::dispatch`](crate::PoolDispatch::dispatch) again and again:
/// its memory is reused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The endpoints looked at: candidates best first, then those that were none. At most [`CANDIDATES_MAX`].
    pub candidates: Vec<Considered>,
    /// Further endpoints that were looked at and are not listed.
    pub omitted: usize,
    /// The ranked list that was given out; empty for a refusal.
    pub picked: SmallVec<[EndpointId; 4]>,
    /// How it ended.
    pub reason: PickReason,
    /// What the scores rest on.
    pub basis: Basis,
    /// Blocks in the prompt's chain.
    pub blocks: u32,
}

/// How a pick ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PickReason {
    /// No endpoint could take the request.
    #[default]
    NoEndpoint,
    /// Every endpoint was full.
    PoolFull,
    /// What room there was is kept for higher bands.
    BandFull,
    /// Others that go first were waiting: nobody looked for room.
    OthersWait,
    /// One endpoint could take it.
    OnlyCandidate,
    /// One endpoint had a higher score than all others.
    HighestScore,
    /// Several had the highest score; the prompt's first blocks decided, as they would in every gateway.
    TieByPrefix,
    /// Several had the highest score; the one chosen longest ago came first.
    TieByLeastRecent,
}

impl PickReason {
    /// The word used in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoEndpoint => "no_endpoint",
            Self::PoolFull => "pool_full",
            Self::BandFull => "band_full",
            Self::OthersWait => "others_wait",
            Self::OnlyCandidate => "only_candidate",
            Self::HighestScore => "highest_score",
            Self::TieByPrefix => "tie_by_prefix",
            Self::TieByLeastRecent => "tie_by_least_recent",
        }
    }
}

impl From<Won> for PickReason {
    fn from(won: Won) -> Self {
        match won {
            Won::OnlyCandidate => Self::OnlyCandidate,
            Won::HighestScore => Self::HighestScore,
            Won::TieByPrefix => Self::TieByPrefix,
            Won::TieByLeastRecent => Self::TieByLeastRecent,
        }
    }
}

/// What a pick's scores rest on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// Fresh reports of at least one endpoint, and own work.
    #[default]
    Reports,
    /// Own work alone: the endpoints serve and report nothing.
    OwnWork,
    /// Own work alone: no endpoint has been read yet.
    OwnWorkWhileStarting,
    /// Own work alone: every endpoint's report is too old, or it was last seen unreachable.
    OwnWorkAllStale,
}

impl Basis {
    /// The word used in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reports => "reports",
            Self::OwnWork => "own_work",
            Self::OwnWorkWhileStarting => "own_work_while_starting",
            Self::OwnWorkAllStale => "own_work_all_stale",
        }
    }
}

/// One endpoint in a pick.
#[derive(Clone, Debug, PartialEq)]
pub struct Considered {
    /// Which life of it.
    pub endpoint: EndpointId,
    /// Its name.
    pub name: Arc<str>,
    /// Weighted sum of its scores; 0 when rejected.
    pub total: f64,
    /// What each scorer said, in the order of [`Scorer::ALL`](crate::Scorer::ALL); all 0 when rejected.
    pub scores: Scores,
    /// What it was scored by.
    pub readings: Readings,
    /// Own work there before this request.
    pub in_flight: InFlight,
    /// Leading blocks of the prompt that it was sent before.
    pub matched_blocks: u32,
    /// How far its predicted time to first token should be believed, 0–1; `None` when rejected.
    pub prediction_confidence: Option<f64>,
    /// Why it was no candidate.
    pub rejected: Option<Rejected>,
}

/// What an endpoint last said, and what was made of it. Readings that are too old are shown here with their age, and
/// were not used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Readings {
    /// Requests waiting, as used: the report joined with own work. 0 when rejected.
    pub waiting_used: f64,
    /// Requests waiting, as reported.
    pub waiting: Option<Seen>,
    /// Requests running, as reported.
    pub running: Option<Seen>,
    /// Share of the KV cache in use, as reported.
    pub kv_cache: Option<Seen>,
}

/// One reported number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The number.
    pub value: f64,
    /// How long ago the look that found it began.
    pub age: Duration,
    /// The metric family it was read from.
    pub source: &'static str,
}

/// Own work at one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Requests from pick to last byte.
    pub requests: u32,
    /// Those among them without a byte of answer yet.
    pub unanswered: u32,
    /// Prompt tokens that are neither cached there nor computed yet.
    pub prompt_tokens: u64,
}

impl Decision {
    /// An empty record with memory for a pool of this size, asked for once.
    pub(crate) fn for_endpoints(endpoints: usize) -> Self {
        Self { candidates: Vec::with_capacity(endpoints.min(CANDIDATES_MAX)), ..Self::default() }
    }

    /// Begins a new record over the old one, whose memory is written over piece by piece.
    pub(crate) fn begin(&mut self, blocks: u32, basis: Basis) -> Recorder<'_> {
        self.omitted = 0;
        self.picked.clear();
        self.reason = PickReason::NoEndpoint;
        self.basis = basis;
        self.blocks = blocks;
        Recorder { decision: self, listed: 0 }
    }
}

/// Writes one record. Ends with [`Recorder::end`].
pub(crate) struct Recorder<'a> {
    pub(crate) decision: &'a mut Decision,
    listed: usize,
}

impl Recorder<'_> {
    /// The place of the next endpoint in the record, with whatever an earlier record left there; `None`, and the
    /// endpoint is only counted, when the record is full.
    pub(crate) fn next(&mut self, state: &EndpointState) -> Option<&mut Considered> {
        if self.listed == CANDIDATES_MAX {
            self.decision.omitted += 1;
            return None;
        }
        self.listed += 1;
        if self.decision.candidates.len() < self.listed {
            self.decision.candidates.push(Considered {
                endpoint: state.endpoint.id,
                name: state.endpoint.name.clone(),
                total: 0.0,
                scores: Scores::default(),
                readings: Readings::default(),
                in_flight: InFlight::default(),
                matched_blocks: 0,
                prediction_confidence: None,
                rejected: None,
            });
        }
        self.decision.candidates.get_mut(self.listed - 1)
    }

    /// Cuts off what is left of an earlier, longer record.
    pub(crate) fn end(self) {
        self.decision.candidates.truncate(self.listed);
    }
}

impl Considered {
    /// What is the same for candidates and for those that were none.
    pub(crate) fn describe(&mut self, state: &EndpointState, matched_blocks: u32, waiting_used: f64, now: Moment) {
        let load = &state.load;
        self.endpoint = state.endpoint.id;
        if !Arc::ptr_eq(&self.name, &state.endpoint.name) {
            self.name = state.endpoint.name.clone();
        }
        self.readings = Readings {
            waiting_used,
            waiting: EndpointState::seen(load.waiting, now),
            running: EndpointState::seen(load.running, now),
            kv_cache: EndpointState::seen(load.kv_cache, now),
        };
        self.in_flight = state.own.in_flight();
        self.matched_blocks = matched_blocks;
    }
}
