//! The value that does it all: members, counts, prefix memory and picks of one pool.

mod admission;
mod health;
mod members;
mod picking;
mod releasing;
mod viewing;

use std::collections::BTreeMap;

use flow_control::{Queue, RetryBudget};
use pool::{EndpointId, Moment, Observation};
use scheduling::{Candidate, Features, IndexStats, PoolLatency, PrefixIndex, Profile};

use crate::{
    Gone, Permit, Settings,
    endpoint_state::{EndpointState, Life, Presence},
    evictable::Evictable,
    flights::Flights,
    waiting::Held,
};
pub use health::{Ejected, HealthChange, NoRetry};
use picking::Surveyed;

/// Endpoints in one pool, at most.
pub(crate) const ENDPOINTS_MAX: usize = 10_000;

/// See the crate's text. Not shared: its owner calls it from one place at a time.
#[derive(Debug)]
pub struct PoolDispatch {
    settings: Settings,
    /// By slot. A slot is free again once its endpoint has left and its last request has ended.
    endpoints: Vec<Option<EndpointState>>,
    slots: BTreeMap<EndpointId, u32>,
    flights: Flights,
    index: PrefixIndex,
    profile: Profile,
    retry_budget: RetryBudget,
    queue: Queue<Held>,
    evictable: Evictable,
    latency: PoolLatency,
    typical: Typical,
    /// Picks made so far.
    picks: u64,
    scratch: Scratch,
}

/// What a request of this pool has to compute, as a rule: what others' requests are taken for.
#[derive(Clone, Copy, Debug, Default)]
struct Typical {
    uncached_tokens: f64,
}

impl Typical {
    /// Share of the mean that one request moves it by.
    const STEP: f64 = 1.0 / 64.0;

    fn note(&mut self, uncached_tokens: u32) {
        self.uncached_tokens += (f64::from(uncached_tokens) - self.uncached_tokens) * Self::STEP;
    }
}

/// Room to work in, kept from pick to pick so that none is asked for while picking.
#[derive(Debug, Default)]
struct Scratch {
    matched: Vec<u32>,
    surveyed: Vec<Surveyed>,
    candidates: Vec<Candidate>,
    /// What each candidate's prediction was made from.
    features: Vec<Features>,
}

impl PoolDispatch {
    /// A pool without endpoints.
    pub fn new(settings: Settings) -> Self {
        Self {
            endpoints: Vec::new(),
            slots: BTreeMap::new(),
            flights: Flights::default(),
            index: PrefixIndex::new(settings.prefix_budget_bytes),
            profile: Profile::new(settings.weights),
            retry_budget: RetryBudget::default(),
            queue: Queue::new(settings.flow),
            evictable: Evictable::default(),
            latency: PoolLatency::default(),
            typical: Typical::default(),
            picks: 0,
            scratch: Scratch::default(),
            settings,
        }
    }

    /// Changes the settings. Endpoints and counts stay, and so does prefix memory unless its budget changed.
    pub fn configure(&mut self, settings: Settings) {
        self.profile.set_weights(settings.weights);
        if settings.prefix_budget_bytes != self.settings.prefix_budget_bytes {
            self.index = PrefixIndex::new(settings.prefix_budget_bytes);
            for state in self.endpoints.iter_mut().flatten() {
                state.lane = match state.presence {
                    Presence::Serving | Presence::Draining => self.index.open(members::blocks_max(&state.load)),
                    Presence::Leaving => None,
                };
            }
        }
        self.queue.configure(settings.flow);
        self.settings = settings;
    }

    /// Takes in what a look at an endpoint found. Looks at endpoints that are gone are ignored.
    pub fn observe(&mut self, id: EndpointId, observation: Observation, now: Moment) {
        let Some(state) = self.slots.get(&id).and_then(|&slot| self.endpoints[slot as usize].as_mut()) else { return };
        let cache_before = state.load.cache;
        let life = state.observe(observation, &mut self.flights);
        match life {
            Life::Another => state.latency.restarted(&self.latency),
            Life::Same => state.fade(&self.latency, now),
        }
        if state.is_unreachable() && state.health.is_ejected() {
            // Nobody is there to be spared, and whoever comes next is to be used as soon as it listens.
            state.health.reinstate();
        }
        match (life, state.lane) {
            (Life::Another, Some(lane)) => {
                self.index.close(lane);
                state.lane = self.index.open(members::blocks_max(&state.load));
            }
            (Life::Same, Some(lane)) if state.load.cache != cache_before => {
                self.index.resize(lane, members::blocks_max(&state.load));
            }
            (Life::Same | Life::Another, _) => {}
        }
        self.index.tidy();
    }

    /// After a failed try: the request goes to another endpoint of its ranked list, and everything it counts goes with
    /// it. It is unanswered again.
    ///
    /// # Errors
    /// [`Gone`] when that endpoint takes no new work, or none now since it is ejected; then nothing has changed.
    pub fn pass_on(&mut self, permit: &Permit, to: EndpointId, prefix: &[u64], now: Moment) -> Result<(), Gone> {
        let index = self.flights.find(permit).ok_or(Gone)?;
        let to_slot = *self.slots.get(&to).ok_or(Gone)?;
        let target = self.endpoints[to_slot as usize].as_ref().ok_or(Gone)?;
        if target.presence != Presence::Serving || target.health.closed(now).is_some() {
            return Err(Gone);
        }
        let held = target.lane.map_or(0, |lane| self.index.held(lane, prefix));
        let from_slot = self.flights.get(index).slot;
        let adapter = self.flights.get(index).adapter.clone();
        if let Some(from) = &mut self.endpoints[from_slot as usize] {
            from.depart(index, &mut self.flights);
        }
        let flight = self.flights.get_mut(index);
        self.evictable.pass_on(from_slot, to_slot, &flight.ask, permit);
        flight.slot = to_slot;
        flight.dispatched_at = now;
        flight.uncached_tokens = flight.prompt_tokens - picking::cached_tokens(held, flight.prompt_tokens);
        (flight.answered, flight.prefilled, flight.ahead_tokens) = (false, false, 0);
        // Part of its time went elsewhere, and nobody looked at what it meets here.
        flight.features = None;
        self.place(index, adapter.as_deref(), prefix, held);
        self.forget_if_left(from_slot);
        Ok(())
    }

    /// The first byte of the answer's content arrived. Not its head: streaming engines send that before any work.
    pub fn answered(&mut self, permit: &Permit, _now: Moment) {
        self.keep(permit);
        self.change(permit, |state, index, flights| {
            state.change(index, flights, |flight| flight.answered = true);
            if let Some(name) = flights.get(index).adapter.as_deref() {
                state.adapters.served(name);
            }
        });
    }

    /// The first token arrived: the prompt is computed. Not for an answer that comes as a whole: when its prompt had been
    /// computed is not seen.
    pub fn prefilled(&mut self, permit: &Permit, now: Moment) {
        let Some(index) = self.flights.find(permit) else { return };
        if let Some(state) = &mut self.endpoints[self.flights.get(index).slot as usize] {
            state.prefilled(index, &mut self.flights, &mut self.latency, now);
        }
    }

    /// The request is over, whatever became of it.
    pub fn complete(&mut self, permit: Permit, now: Moment) {
        let Some(index) = self.flights.find(&permit) else { return };
        let slot = self.flights.get(index).slot;
        self.evictable.end(slot, &self.flights.get(index).ask, &permit);
        if let Some(state) = &mut self.endpoints[slot as usize] {
            state.depart(index, &mut self.flights);
            state.finished(self.flights.get(index), now);
            state.ended.note(self.flights.get(index), now);
        }
        self.flights.close(index);
        self.forget_if_left(slot);
    }

    /// The endpoint asked for a pause (429 or 503): it counts as full until then. The caller bounds the time.
    pub fn backpressure(&mut self, id: EndpointId, until: Moment) {
        if let Some(state) = self.slots.get(&id).and_then(|&slot| self.endpoints[slot as usize].as_mut()) {
            state.backing_off_until = state.backing_off_until.max(until);
        }
    }

    /// Where a request is now.
    pub fn endpoint_of(&self, permit: &Permit) -> Option<EndpointId> {
        let slot = self.flights.get(self.flights.find(permit)?).slot;
        Some(self.endpoints[slot as usize].as_ref()?.endpoint.id)
    }

    /// How full the prefix memory is.
    pub fn index_stats(&self) -> IndexStats {
        self.index.stats()
    }

    fn change(&mut self, permit: &Permit, change: impl FnOnce(&mut EndpointState, u32, &mut Flights)) {
        let Some(index) = self.flights.find(permit) else { return };
        let slot = self.flights.get(index).slot;
        if let Some(state) = &mut self.endpoints[slot as usize] {
            change(state, index, &mut self.flights);
        }
    }
}

#[cfg(test)]
mod tests;
