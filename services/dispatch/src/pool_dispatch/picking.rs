//! The pick: survey the endpoints, drop those that cannot be chosen, rate the rest, and reserve the place, in one step.

use flow_control::Ask;
use pool::{EndpointId, Moment};
use scheduling::{BLOCK_TOKENS, Candidate, Features, Model, Ranked, Rejected, Residency, Scores, Tier};

use super::PoolDispatch;
use crate::{
    Basis, CANDIDATES_MAX, Decision, Dispatched, PickReason, QueueFull, RANKED_MAX, Refusal, Request,
    decision::Recorder,
    endpoint_state::{EndpointState, Presence},
    flights::{Flight, IN_FLIGHT_MAX},
    foresight::{self, Prompt},
    fullness::{self, Haste, Room, room},
    health::{Judged, Term},
    horizon::Horizon,
    load_now::{self, Fresh, Means},
    work::Stage,
};

/// One endpoint as the pick found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surveyed {
    slot: u32,
    tier: Tier,
    fresh: Fresh,
    rejected: Option<Rejected>,
}

/// Whether the room there is may be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Gate {
    /// When the least loaded endpoint is less full than this, 0–1, for one who can wait or not.
    Below(f64, Haste),
    /// Always, and without room too.
    Open,
}

impl Gate {
    /// Whether it is open when the least loaded endpoint is so full.
    pub(super) fn lets_pass(self, least_fullness: f64) -> bool {
        match self {
            Self::Below(limit, _) => least_fullness < limit,
            Self::Open => true,
        }
    }

    pub(super) fn haste(self) -> Haste {
        match self {
            Self::Below(_, haste) => haste,
            Self::Open => Haste::NowOrNever,
        }
    }
}

/// Why no place was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unplaced {
    /// There is no endpoint that could take the request, with room or without.
    NoEndpoint,
    /// None of those that could has room for it.
    NoRoom,
}

/// What the survey says of all endpoints together.
struct Outlook {
    /// The best tier that has an endpoint which may be asked.
    best: Option<Tier>,
    means: Means,
    /// Tokens that a request has to compute, as a rule.
    typical_tokens: f64,
}

/// Prompt tokens in `blocks` leading blocks.
pub(super) fn cached_tokens(blocks: u32, prompt_tokens: u32) -> u32 {
    blocks.saturating_mul(BLOCK_TOKENS).min(prompt_tokens)
}

impl PoolDispatch {
    /// Picks an endpoint and reserves a place there in one step, without waiting and without regard to who waits: for
    /// work that is not a client's. `decision` is overwritten with the record of it, also when the request is refused.
    ///
    /// # Errors
    /// [`Refusal::NoEndpoint`] when none could take it whatever its load, [`Refusal::Full`] when those that could are
    /// full.
    pub fn dispatch(
        &mut self,
        request: &Request<'_>,
        now: Moment,
        decision: &mut Decision,
    ) -> Result<Dispatched, Refusal> {
        let placed = self.pick(request, &Ask::default(), Gate::Below(1.0, Haste::NowOrNever), now, decision);
        placed.map_err(|unplaced| match unplaced {
            Unplaced::NoEndpoint => Refusal::NoEndpoint,
            Unplaced::NoRoom => Refusal::Full(QueueFull::NoWaiting),
        })
    }

    /// Picks an endpoint behind the gate and reserves a place there.
    pub(super) fn pick(
        &mut self,
        request: &Request<'_>,
        ask: &Ask,
        gate: Gate,
        now: Moment,
        decision: &mut Decision,
    ) -> Result<Dispatched, Unplaced> {
        self.index.tidy();
        self.index.matches(request.prefix, &mut self.scratch.matched);
        let horizon = Horizon::new(&self.settings, now);
        let outlook = self.survey(request, &horizon);
        let kept_back = self.gather(request, &outlook, gate, &horizon);
        let mut record = decision.begin(request.prefix.len() as u32, outlook.basis());
        let room = !self.scratch.candidates.is_empty() && self.flights.open_count() < IN_FLIGHT_MAX;
        if room {
            self.choose(request, &mut record, now);
        }
        self.note_rejected(&mut record, now);
        record.end();
        if !room {
            let unplaced = self.unplaced();
            decision.reason = match (unplaced, kept_back) {
                (Unplaced::NoEndpoint, _) => PickReason::NoEndpoint,
                (Unplaced::NoRoom, false) => PickReason::PoolFull,
                (Unplaced::NoRoom, true) => PickReason::BandFull,
            };
            return Err(unplaced);
        }
        Ok(self.reserve(request, ask, decision, now))
    }

    /// Whether an endpoint of a ranked list still takes work: neither gone nor draining nor full.
    pub fn has_room(&self, id: EndpointId, now: Moment) -> bool {
        let state = self.slots.get(&id).and_then(|&slot| self.endpoints[slot as usize].as_ref());
        let horizon = &Horizon::new(&self.settings, now);
        state.filter(|s| s.presence == Presence::Serving).is_some_and(|state| {
            let fresh = Fresh::of(&state.load, horizon);
            matches!(room(state, state.tier(horizon), &fresh, &self.settings, Haste::NowOrNever, now), Room::Left(_))
        })
    }

    /// Looks at every endpoint once: who may be asked at all, the best tier there is, and the means of what is known.
    fn survey(&mut self, request: &Request<'_>, horizon: &Horizon) -> Outlook {
        let mut outlook = Outlook { best: None, means: Means::default(), typical_tokens: self.typical.uncached_tokens };
        self.scratch.surveyed.clear();
        for (slot, state) in self.endpoints.iter().enumerate() {
            let Some(state) = state.as_ref().filter(|s| s.presence != Presence::Leaving) else { continue };
            let tier = state.tier(horizon);
            let rejected = not_for(request, state, horizon.now);
            let mut fresh = Fresh::default();
            if tier == Tier::Ready {
                fresh = Fresh::of(&state.load, horizon);
            }
            if state.presence == Presence::Serving && !state.health.is_ejected() {
                outlook.means.add(&fresh);
            }
            if rejected.is_none() {
                outlook.best = Some(outlook.best.map_or(tier, |best| best.min(tier)));
            }
            self.scratch.surveyed.push(Surveyed { slot: slot as u32, tier, fresh, rejected });
        }
        outlook
    }

    /// Turns the endpoints of the best tier that have room into candidates. True when there are some and the gate keeps
    /// them back.
    fn gather(&mut self, request: &Request<'_>, outlook: &Outlook, gate: Gate, horizon: &Horizon) -> bool {
        let least = self.gather_with_room(request, outlook, gate.haste(), horizon);
        match gate {
            Gate::Below(limit, _) if least < limit => false,
            Gate::Below(..) => {
                let kept_back = !self.scratch.candidates.is_empty();
                self.scratch.candidates.clear();
                self.scratch.features.clear();
                for surveyed in self.scratch.surveyed.iter_mut().filter(|s| s.rejected.is_none()) {
                    surveyed.rejected = Some(Rejected::Reserved);
                }
                kept_back
            }
            Gate::Open if self.scratch.candidates.is_empty() => {
                self.gather_full(request, outlook, horizon);
                false
            }
            Gate::Open => false,
        }
    }

    /// The usual candidates. Returns the least fullness among them, 1 if there are none.
    fn gather_with_room(&mut self, request: &Request<'_>, outlook: &Outlook, haste: Haste, horizon: &Horizon) -> f64 {
        let mut least: f64 = 1.0;
        self.scratch.candidates.clear();
        self.scratch.features.clear();
        for surveyed in self.scratch.surveyed.iter_mut().filter(|s| s.rejected.is_none()) {
            let Some(state) = &self.endpoints[surveyed.slot as usize] else { continue };
            surveyed.rejected = if Some(surveyed.tier) == outlook.best {
                match room(state, surveyed.tier, &surveyed.fresh, &self.settings, haste, horizon.now) {
                    Room::Left(share) => {
                        least = least.min(share);
                        None
                    }
                    Room::None(why) => Some(why),
                }
            } else {
                surveyed.tier.rejection()
            };
            if surveyed.rejected.is_none() {
                let (candidate, features) =
                    candidate(surveyed, state, &self.scratch.matched, outlook, request, horizon);
                self.scratch.candidates.push(candidate);
                self.scratch.features.push(features);
            }
        }
        least
    }

    /// Those that lack nothing but room, for a pool in which nobody waits for it.
    fn gather_full(&mut self, request: &Request<'_>, outlook: &Outlook, horizon: &Horizon) {
        for surveyed in self.scratch.surveyed.iter_mut().filter(|s| s.rejected.is_some_and(Rejected::is_full)) {
            let Some(state) = &self.endpoints[surveyed.slot as usize] else { continue };
            surveyed.rejected = None;
            let (candidate, features) = candidate(surveyed, state, &self.scratch.matched, outlook, request, horizon);
            self.scratch.candidates.push(candidate);
            self.scratch.features.push(features);
        }
    }

    /// No room when an endpoint lacked nothing else.
    fn unplaced(&self) -> Unplaced {
        let only_full = |s: &Surveyed| s.rejected.is_none_or(Rejected::is_full);
        if self.scratch.surveyed.iter().any(only_full) { Unplaced::NoRoom } else { Unplaced::NoEndpoint }
    }

    /// Ranks the candidates into the record.
    fn choose(&mut self, request: &Request<'_>, record: &mut Recorder<'_>, now: Moment) {
        let model = if request.adapter.is_some() { Model::Adapter } else { Model::Base };
        let ask = scheduling::Ask::new(request.prefix, model, request.tie);
        let candidates = &self.scratch.candidates;
        let Some((won, ranked)) = self.profile.rank(&ask, candidates, CANDIDATES_MAX) else { return };
        record.decision.reason = won.into();
        record.decision.omitted = candidates.len() - ranked.len();
        for Ranked { candidate, total, scores } in ranked {
            let candidate = &candidates[candidate];
            let Some(state) = &self.endpoints[candidate.slot as usize] else { continue };
            if record.decision.picked.len() < self.settings.ranked_max.clamp(1, RANKED_MAX) {
                record.decision.picked.push(state.endpoint.id);
            }
            if let Some(considered) = record.next(state) {
                considered.describe(state, candidate.matched_blocks, candidate.waiting, now);
                (considered.total, considered.scores, considered.rejected) = (total, scores, None);
                considered.prediction_confidence = Some(candidate.predicted.confidence);
            }
        }
    }

    fn note_rejected(&self, record: &mut Recorder<'_>, now: Moment) {
        for surveyed in self.scratch.surveyed.iter().filter(|s| s.rejected.is_some()) {
            let Some(state) = &self.endpoints[surveyed.slot as usize] else { continue };
            let matched_blocks = state.lane.map_or(0, |lane| self.scratch.matched[lane.index()]);
            if let Some(considered) = record.next(state) {
                considered.describe(state, matched_blocks, 0.0, now);
                (considered.total, considered.scores) = (0.0, Scores::default());
                considered.prediction_confidence = None;
                considered.rejected = surveyed.rejected;
            }
        }
    }

    /// Opens a flight to the first of the ranked list.
    fn reserve(&mut self, request: &Request<'_>, ask: &Ask, decision: &Decision, now: Moment) -> Dispatched {
        let first = decision.picked.first().expect("a pick with candidates has a first");
        let slot = *self.slots.get(first).expect("a candidate is a member");
        let lane = self.endpoints[slot as usize].as_ref().and_then(|state| state.lane);
        let held = lane.map_or(0, |lane| self.scratch.matched[lane.index()]);
        let cached_tokens = cached_tokens(held, request.prompt_tokens);
        let uncached_tokens = request.prompt_tokens - cached_tokens;
        let permit = self.flights.open(Flight {
            slot,
            stage: Stage::Since,
            dispatched_at: now,
            prompt_tokens: request.prompt_tokens,
            uncached_tokens,
            ahead_tokens: self.ahead_tokens(slot, uncached_tokens),
            prefill_place: 0,
            features: self.features_at(slot),
            answered: false,
            prefilled: false,
            adapter: None,
            term: Term::default(),
            judged: Judged::default(),
            ask: *ask,
        });
        self.typical.note(uncached_tokens);
        self.retry_budget.request(now);
        self.evictable.board(slot, ask, &permit);
        let index = self.flights.find(&permit).expect("the flight was just opened");
        self.place(index, request.adapter, request.prefix, held);
        Dispatched { permit, ranked: decision.picked.clone(), cached_tokens, uncached_tokens }
    }

    /// Prompt tokens that an endpoint computes before the first token of a request sent there now, as far as is known.
    fn ahead_tokens(&self, slot: u32, uncached_tokens: u32) -> u64 {
        let surveyed = self.scratch.surveyed.iter().find(|surveyed| surveyed.slot == slot);
        let state = self.endpoints[slot as usize].as_ref();
        let ahead = surveyed.zip(state).and_then(|(surveyed, state)| fullness::tokens_ahead(state, &surveyed.fresh));
        ahead.map_or(0, |ahead| ahead + u64::from(uncached_tokens))
    }

    /// What the prediction for an endpoint was made from in this pick.
    fn features_at(&self, slot: u32) -> Option<Features> {
        let at = self.scratch.candidates.iter().position(|candidate| candidate.slot == slot)?;
        self.scratch.features.get(at).copied()
    }

    /// Counts a flight at the endpoint it names, and remembers its prompt there.
    pub(super) fn place(&mut self, index: u32, adapter: Option<&str>, prefix: &[u64], held: u32) {
        let slot = self.flights.get(index).slot;
        let Some(state) = &mut self.endpoints[slot as usize] else { return };
        state.board(index, adapter, &mut self.flights);
        self.picks += 1;
        state.last_picked = self.picks;
        state.picks += 1;
        if let Some(lane) = state.lane {
            self.index.record(lane, prefix, held);
        }
    }
}

impl Outlook {
    fn basis(&self) -> Basis {
        match self.best {
            Some(Tier::Ready) if !self.means.any() => Basis::OwnWork,
            Some(Tier::Ready) | None => Basis::Reports,
            Some(Tier::Starting) => Basis::OwnWorkWhileStarting,
            Some(Tier::Stale) => Basis::OwnWorkAllStale,
        }
    }

    /// Below the best tier nothing reported is believed, and own work stands alone.
    fn fill(&self, fresh: Fresh) -> Fresh {
        match self.best {
            Some(Tier::Ready) => self.means.fill(fresh),
            Some(Tier::Starting | Tier::Stale) | None => Fresh::default(),
        }
    }
}

/// Why an endpoint cannot be asked for this request, whatever its load.
pub(super) fn not_for(request: &Request<'_>, state: &EndpointState, now: Moment) -> Option<Rejected> {
    let id = state.endpoint.id;
    if state.presence != Presence::Serving {
        return Some(Rejected::Draining);
    }
    if request.only.is_some_and(|only| only != id) {
        return Some(Rejected::NotAsked);
    }
    if request.exclude.contains(&id) {
        return Some(Rejected::Excluded);
    }
    state.health.closed(now)
}

fn candidate(
    surveyed: &Surveyed,
    state: &EndpointState,
    matched: &[u32],
    outlook: &Outlook,
    request: &Request<'_>,
    horizon: &Horizon,
) -> (Candidate, Features) {
    let filled = &outlook.fill(surveyed.fresh);
    let (own, since) = (&state.own, state.own.at(Stage::Since));
    let residency = request.adapter.map_or(Residency::Absent, |name| {
        state.adapters.residency(name, state.adapter_report(horizon, filled.running))
    });
    let matched_blocks = state.lane.map_or(0, |lane| matched[lane.index()]);
    let cached_tokens = cached_tokens(matched_blocks, request.prompt_tokens);
    let prompt = Prompt { cached_tokens, uncached_tokens: request.prompt_tokens - cached_tokens };
    let features = Features::of(&foresight::work(state, filled, prompt, outlook.typical_tokens, horizon.now));
    let candidate = Candidate {
        slot: surveyed.slot,
        name_hash: state.name_hash,
        waiting: load_now::waiting(own, filled),
        answered_since: since.requests - since.unanswered,
        uncached_tokens: own.total().uncached_tokens,
        running: load_now::running(own, filled),
        kv_cache: load_now::kv_cache(own, filled, &state.load),
        matched_blocks,
        residency,
        last_picked: state.last_picked,
        predicted: state.predict(&features),
    };
    (candidate, features)
}
