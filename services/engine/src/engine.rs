//! The engine: takes requests, runs steps, says what happened.
//!
//! Between two calls it is either idle or has one step in flight, whose batch was formed when the step began and whose
//! results appear when it ends. So a request that arrives during a step waits for its end, as on a real engine, and a
//! caller that is late with [`Engine::step`] loses no time on the engine's own time line.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use fastrand::Rng;
use pool::Moment;

use crate::{
    AdapterId, Batch, CacheChange, Event, EventKind, FinishReason, Histograms, Profile, Request, RequestId, Scheduling,
    Stats, SubmitError,
    blocks::{BlockPool, Readers},
};

mod admission;
mod batch;
mod foresight;
mod outcome;
mod sequence;

use sequence::Sequence;

/// Live requests an engine takes. Real queues are unbounded; a simulation that meets this one is misused.
const LIVE_MAX: usize = 65_536;
/// Steps that one call of [`Engine::step`] catches up; a later caller must call again, as `next_step_at` says.
const STEPS_PER_CALL_MAX: usize = 64;

/// One simulated engine: one data-parallel rank of one model server.
#[derive(Debug)]
pub struct Engine {
    profile: Profile,
    rng: Rng,
    blocks: BlockPool,
    readers: Readers,
    live: BTreeSet<RequestId>,
    /// Submitted, still in the API server, by the moment they reach the scheduler.
    arriving: BTreeMap<(Moment, u64), Sequence>,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    in_flight: Option<Step>,
    /// The batch after the one in flight, if it is formed ahead.
    prepared: Option<Batch>,
    serial: u64,
    events: Vec<Event>,
    stats: Stats,
    histograms: Histograms,
}

#[derive(Debug)]
struct Step {
    ends: Moment,
    prefill_tokens: u64,
}

impl Engine {
    /// An idle engine with an empty cache. Two with equal arguments and equal calls behave alike.
    pub fn new(profile: Profile, seed: u64) -> Self {
        let usable = profile.usable_blocks();
        Self {
            rng: Rng::with_seed(seed),
            blocks: BlockPool::new(usable),
            readers: Readers::new(usable),
            live: BTreeSet::new(),
            arriving: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            in_flight: None,
            prepared: None,
            serial: 0,
            events: Vec::new(),
            stats: Stats::default(),
            histograms: Histograms::new(&profile),
            profile,
        }
    }

    /// Takes a request. It reaches the queue after the API server's own time, and the batch at the end of a step.
    pub fn submit(&mut self, request: Request, now: Moment) -> Result<(), SubmitError> {
        self.check(&request)?;
        let queued = now + self.api_time(request.prompt_tokens);
        self.serial += 1;
        self.live.insert(request.id);
        self.arriving.insert((queued, self.serial), Sequence::new(request, self.serial, now, queued));
        Ok(())
    }

    /// Gives a request up: its client is gone. It has no further event; blocks it holds are free at the end of the
    /// step in flight. False when the request is not live (it may just have ended).
    pub fn abort(&mut self, id: RequestId, _now: Moment) -> bool {
        if !self.live.remove(&id) {
            return false;
        }
        if let Some(sequence) = self.running.iter_mut().find(|s| s.request.id == id) {
            sequence.aborted = true;
            return true;
        }
        self.waiting.retain(|s| s.request.id != id);
        self.arriving.retain(|_, s| s.request.id != id);
        self.stats.counters.count_finished(FinishReason::Abort);
        self.report();
        true
    }

    /// When [`Self::step`] has something to do; `None` while the engine is idle.
    pub fn next_step_at(&self) -> Option<Moment> {
        match &self.in_flight {
            Some(step) => Some(step.ends),
            None => self.arriving.first_key_value().map(|((queued, _), _)| *queued),
        }
    }

    /// Runs the engine up to `now` and says what happened, in order of time. Calling it too early changes nothing.
    pub fn step(&mut self, now: Moment) -> &[Event] {
        self.events.clear();
        for _ in 0..STEPS_PER_CALL_MAX {
            let Some(at) = self.next_step_at().filter(|at| *at <= now) else { break };
            if let Some(step) = self.in_flight.take() {
                self.end_step(&step);
            }
            self.begin_step(at);
        }
        &self.events
    }

    /// Gauges and counters, as a metrics page would show them.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Histograms, as a metrics page would show them.
    pub fn histograms(&self) -> &Histograms {
        &self.histograms
    }

    /// From now on, keeps what becomes findable in the prefix cache and what is lost from it.
    pub fn record_cache_changes(&mut self) {
        self.blocks.record();
    }

    /// What changed in the prefix cache since the last call, in order. Call it after each [`Self::step`]: beyond a bound
    /// further changes are lost, as [`Self::cache_changes_lost`] says.
    pub fn take_cache_changes(&mut self) -> Vec<CacheChange> {
        self.blocks.take_changes()
    }

    /// Changes that were recorded by nobody because nobody took those before them.
    pub fn cache_changes_lost(&self) -> u64 {
        self.blocks.changes_lost()
    }

    /// What this engine runs on.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Requests submitted and neither ended nor aborted.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        let tokens = u64::from(request.prompt_tokens) + u64::from(request.output_tokens);
        let max = self.profile.context_tokens_max();
        match () {
            () if request.prompt_tokens == 0 => Err(SubmitError::EmptyPrompt),
            () if tokens > u64::from(max) => Err(SubmitError::TooLong { tokens, max }),
            () if self.live.contains(&request.id) => Err(SubmitError::IdInUse(request.id)),
            () if self.live.len() >= LIVE_MAX => Err(SubmitError::Full { max: LIVE_MAX }),
            () => Ok(()),
        }
    }

    fn api_time(&mut self, prompt_tokens: u32) -> Duration {
        let api = self.profile.api;
        let spread = 1.0 + api.spread * (2.0 * self.rng.f64() - 1.0);
        Duration::from_secs_f64((api.base_us + api.per_token_us * f64::from(prompt_tokens)) * spread / 1e6)
    }

    fn begin_step(&mut self, at: Moment) {
        self.admit_arrivals(at);
        let batch = self.prepared.take().unwrap_or_else(|| self.form_batch(at));
        if !batch.is_empty() {
            let ends = at + self.profile.step.sample(&batch, &mut self.rng);
            self.in_flight = Some(Step { ends, prefill_tokens: batch.prefill_tokens });
            if self.profile.scheduling == Scheduling::Ahead {
                self.prepared = Some(self.form_batch(at)).filter(|next| !next.is_empty());
            }
        }
        debug_assert!(
            self.in_flight.is_some() || (self.waiting.is_empty() && self.running.is_empty()),
            "an engine with work always has a step to run"
        );
    }

    /// Sets the gauges to what is true now.
    fn report(&mut self) {
        let adapters = |all: &mut dyn Iterator<Item = &Sequence>| -> Vec<AdapterId> {
            all.filter_map(|s| s.adapter()).collect::<BTreeSet<_>>().into_iter().collect()
        };
        let gauges = &mut self.stats.gauges;
        gauges.running = self.running.len() as u32;
        gauges.waiting = self.waiting.len() as u32;
        gauges.waiting_deferred = self.waiting.iter().filter(|s| s.deferred).count() as u32;
        gauges.kv_blocks_used = self.blocks.used();
        gauges.kv_usage = f64::from(self.blocks.used()) / f64::from(self.blocks.total().max(1));
        gauges.kv_blocks_cached_free = self.blocks.cached_free();
        gauges.adapters_running = adapters(&mut self.running.iter());
        gauges.adapters_waiting = adapters(&mut self.waiting.iter());
    }

    fn emit(&mut self, id: RequestId, at: Moment, kind: EventKind) {
        self.events.push(Event { id, at, kind });
    }
}

#[cfg(test)]
mod tests;
