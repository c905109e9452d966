//! Requests in flight that may be ended for those of a higher band.

use std::{cmp::Reverse, collections::BTreeSet};

use flow_control::{Ask, Band};

use crate::{FlightId, Permit};

/// Requests being ended at one time, at most: each makes room only when it is over, and more may not be needed by then.
const PENDING_MAX: usize = 2;

/// Sheddable requests without a byte of answer. Lowest priority first, then newest: least work is lost.
#[derive(Debug, Default)]
pub(crate) struct Evictable {
    in_flight: BTreeSet<(i32, Reverse<FlightId>)>,
    /// Those that the owner was told to end.
    pending: BTreeSet<FlightId>,
}

impl Evictable {
    /// A request was given a place.
    pub(crate) fn board(&mut self, ask: &Ask, permit: &Permit) {
        if ask.band() == Band::Sheddable {
            self.in_flight.insert((ask.priority, Reverse(permit.id())));
        }
    }

    /// A request was answered, or is over.
    pub(crate) fn leave(&mut self, ask: &Ask, flight: FlightId) {
        if ask.band() == Band::Sheddable {
            self.in_flight.remove(&(ask.priority, Reverse(flight)));
            self.pending.remove(&flight);
        }
    }

    /// A request is not to be ended, as that would make no room. One that is being ended is not called back.
    pub(crate) fn spare(&mut self, ask: &Ask, flight: FlightId) {
        self.in_flight.remove(&(ask.priority, Reverse(flight)));
    }

    /// Whether nobody may be ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// A request that was to be ended goes on.
    pub(crate) fn forgo(&mut self, flight: FlightId) {
        self.pending.remove(&flight);
    }

    /// The next one to end, when `wanted` requests need room.
    pub(crate) fn next(&mut self, wanted: usize) -> Option<FlightId> {
        if self.pending.len() >= wanted.min(PENDING_MAX) {
            return None;
        }
        let (_, Reverse(flight)) = self.in_flight.pop_first()?;
        self.pending.insert(flight);
        Some(flight)
    }
}
