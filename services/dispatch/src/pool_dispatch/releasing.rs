//! Hands out room to those who wait.

use std::mem;

use flow_control::{Ask, Band, Choice, Left, Look, Queue};
use pool::Moment;

use super::{
    PoolDispatch,
    picking::{Gate, not_for},
};
use crate::{
    Decision, Dispatched, Eviction, FlightId, Freed, More, Request,
    endpoint_state::EndpointState,
    fullness::{self, Haste},
    horizon::Horizon,
    load_now::Fresh,
    waiting::Held,
};

/// Requests that one call places or refuses, at most: others want the pool's lock, too.
pub(super) const RELEASED_MAX: usize = 32;

type Found = (Left<Held>, (Dispatched, Box<Decision>));

impl PoolDispatch {
    /// Hands out the room there is to those who wait. Call it after every change that may have made room, as long as
    /// someone waits; also now and then (every 20 ms or so), for room that time alone makes.
    pub fn release(&mut self, now: Moment, freed: &mut Vec<Freed>) -> More {
        for _ in 0..RELEASED_MAX {
            if !self.has_waiting() {
                return More::No;
            }
            match self.refuse_expired(now).or_else(|| self.place_next(now)) {
                Some(fate) => freed.push(fate),
                None => {
                    self.evict(now, freed);
                    return More::No;
                }
            }
        }
        More::Perhaps
    }

    /// Chooses requests in flight to be ended for those of a higher band that must wait.
    pub(super) fn evict(&mut self, now: Moment, freed: &mut Vec<Freed>) {
        match self.settings.eviction {
            Eviction::Never => return,
            Eviction::BeforeFirstByte => {}
        }
        let waiting = self.waiting_above_sheddable();
        while self.evictable.may_end(waiting) {
            let Some(flight) = self.victim(now) else { return };
            freed.push(Freed::Evict { flight });
        }
    }

    /// Of the lowest priority, the newest at the endpoint that is nearest to having room: spread over many, the same
    /// number of ends might make none.
    fn victim(&mut self, now: Moment) -> Option<FlightId> {
        let horizon = Horizon::new(&self.settings, now);
        let serves = |state: &&EndpointState| not_for(&Request::default(), state, now).is_none();
        let best = self.endpoints.iter().flatten().filter(serves).map(|state| state.tier(&horizon)).min()?;
        let candidates = self.evictable.turns().filter_map(|(slot, (priority, newest))| {
            let state = self.endpoints[slot as usize].as_ref().filter(serves)?;
            let tier = Some(state.tier(&horizon)).filter(|&tier| tier == best)?;
            let fresh = Fresh::of(&state.load, &horizon);
            let lacking = fullness::lacking(state, tier, &fresh, &self.settings, Haste::CanWait, now)?;
            Some((slot, priority, lacking, newest))
        });
        let (slot, ..) = candidates
            .min_by(|one, other| one.1.cmp(&other.1).then(one.2.total_cmp(&other.2)).then(one.3.cmp(&other.3)))?;
        self.evictable.take(slot)
    }

    /// Requests that wait and may have others ended for them.
    pub(super) fn waiting_above_sheddable(&self) -> usize {
        (self.waiting(Band::Critical) + self.waiting(Band::Standard)) as usize
    }

    fn refuse_expired(&mut self, now: Moment) -> Option<Freed> {
        let left = self.queue.leave_expired(now)?;
        Some(Freed::Refused { ticket: left.ticket, refusal: self.refusal_in_the_end(&left.waiting, now) })
    }

    fn place_next(&mut self, now: Moment) -> Option<Freed> {
        // Taken out so that it can be gone through while the pool is changed.
        let mut queue = mem::take(&mut self.queue);
        let found = self.find_next(&mut queue, now);
        self.queue = queue;
        let (left, (dispatched, decision)) = found?;
        self.placed(&left.ask, &dispatched, now);
        self.evictable.used(&left.ask);
        Some(Freed::Placed { ticket: left.ticket, dispatched, decision })
    }

    fn find_next(&mut self, queue: &mut Queue<Held>, now: Moment) -> Option<Found> {
        let least = self.least_fullness(&Request::default(), Haste::CanWait, now)?;
        for band in Band::ALL {
            if queue.waiting(band) == 0 {
                continue;
            }
            let gate = self.gate(band);
            // Closed for a band, it is closed for lower ones.
            if !gate.lets_pass(least) {
                return None;
            }
            let found = queue.next(band, |ask, held| self.look(ask, held, gate, now));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Looks for a place for one of those who wait.
    fn look(&mut self, ask: &Ask, held: &Held, gate: Gate, now: Moment) -> Look<(Dispatched, Box<Decision>)> {
        let request = held.request();
        // Without wishes there is room, as was just seen.
        let fits = match request.choice() {
            Choice::Any => true,
            Choice::Some => self.least_fullness(&request, gate.haste(), now).is_some_and(|least| gate.lets_pass(least)),
        };
        if !fits {
            return Look::NoRoom;
        }
        let mut decision = Box::new(Decision::for_endpoints(self.endpoints.len()));
        match self.pick(&request, ask, gate, now, &mut decision) {
            Ok(dispatched) => Look::Placed((dispatched, decision)),
            Err(_) => Look::NoRoom,
        }
    }
}
