//! Requests in flight that may be ended for those of a higher band.
//!
//! Each request that waits gets one other ended for it, at most. An endpoint far beyond full has no room when one of its
//! requests has ended, nor when ten have: to go on until somebody fits would cost nearly all that runs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use flow_control::{Ask, Band};

use crate::{FlightId, Permit};

/// Requests being ended at one time, at most: each makes room only when it is over, and more may not be needed by then.
const PENDING_MAX: usize = 2;

/// A request's place among those that may be ended: lowest priority first, then newest, so that least work is lost.
type Turn = (i32, Reverse<FlightId>);

/// Sheddable requests without a byte of answer.
#[derive(Debug, Default)]
pub(crate) struct Evictable {
    /// By the slot of the endpoint where they are. No empty ones.
    in_flight: BTreeMap<u32, BTreeSet<Turn>>,
    /// Those that the owner was told to end.
    pending: BTreeSet<FlightId>,
    /// Those that have ended, and nobody was given a place since.
    unused: usize,
}

impl Evictable {
    /// A request was given a place at this endpoint.
    pub(crate) fn board(&mut self, slot: u32, ask: &Ask, permit: &Permit) {
        if ask.band() == Band::Sheddable {
            self.in_flight.entry(slot).or_default().insert(turn(ask, permit));
        }
    }

    /// A request goes to another endpoint.
    pub(crate) fn pass_on(&mut self, from: u32, to: u32, ask: &Ask, permit: &Permit) {
        if self.remove(from, turn(ask, permit)) {
            self.board(to, ask, permit);
        }
    }

    /// A request has a byte of its answer: it is not ended any more, even if the owner was told to.
    pub(crate) fn keep(&mut self, slot: u32, ask: &Ask, permit: &Permit) {
        if ask.band() == Band::Sheddable {
            self.remove(slot, turn(ask, permit));
            self.pending.remove(&permit.id());
        }
    }

    /// A request is over.
    pub(crate) fn end(&mut self, slot: u32, ask: &Ask, permit: &Permit) {
        if ask.band() == Band::Sheddable {
            self.remove(slot, turn(ask, permit));
            self.unused += usize::from(self.pending.remove(&permit.id()));
        }
    }

    /// A request that was to be ended goes on.
    pub(crate) fn forgo(&mut self, flight: FlightId) {
        self.pending.remove(&flight);
    }

    /// One that waited has a place now.
    pub(crate) fn used(&mut self, ask: &Ask) {
        if ask.band() != Band::Sheddable {
            self.unused = self.unused.saturating_sub(1);
        }
    }

    /// One more is about to wait beside `waiting`: what was ended for others that left is not held against it.
    pub(crate) fn joins(&mut self, waiting: usize) {
        self.unused = self.unused.min(waiting);
    }

    /// Whether one more may be ended when `waiting` requests need room.
    pub(crate) fn may_end(&self, waiting: usize) -> bool {
        !self.in_flight.is_empty() && self.pending.len() < PENDING_MAX && self.pending.len() + self.unused < waiting
    }

    /// Whose turn it is at each endpoint.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (u32, Turn)> {
        self.in_flight.iter().filter_map(|(&slot, turns)| Some((slot, *turns.first()?)))
    }

    /// Whose turn it is at this endpoint is being ended from now on.
    pub(crate) fn take(&mut self, slot: u32) -> Option<FlightId> {
        let turn = *self.in_flight.get(&slot)?.first()?;
        self.remove(slot, turn);
        let (_, Reverse(flight)) = turn;
        self.pending.insert(flight);
        Some(flight)
    }

    fn remove(&mut self, slot: u32, turn: Turn) -> bool {
        let Some(turns) = self.in_flight.get_mut(&slot) else { return false };
        let was_there = turns.remove(&turn);
        if turns.is_empty() {
            self.in_flight.remove(&slot);
        }
        was_there
    }
}

fn turn(ask: &Ask, permit: &Permit) -> Turn {
    (ask.priority, Reverse(permit.id()))
}
