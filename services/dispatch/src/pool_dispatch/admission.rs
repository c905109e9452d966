//! Who gets a place now, who waits, and who is refused.

use flow_control::{Ask, Band, Ticket};
use pool::Moment;

use super::PoolDispatch;
use crate::{Admitted, Decision, Freed, More, Permit, Refusal, Request};

impl PoolDispatch {
    /// Gives a request a place if it is its turn and there is room, else lets it wait if it may. `decision` is
    /// overwritten with the record of the pick. What this means to others (whoever gave way, or was found to have room)
    /// is added to `freed`.
    pub fn admit(
        &mut self,
        request: &Request<'_>,
        _ask: &Ask,
        now: Moment,
        decision: &mut Decision,
        _freed: &mut Vec<Freed>,
    ) -> Admitted {
        match self.dispatch(request, now, decision) {
            Ok(dispatched) => Admitted::Placed(dispatched),
            Err(refusal) => Admitted::Refused(refusal),
        }
    }

    /// Hands out the room there is to those who wait. Call it after every change that may have made room, as long as
    /// someone waits; also now and then (every 20 ms or so), for room that time alone makes.
    pub fn release(&mut self, _now: Moment, _freed: &mut Vec<Freed>) -> More {
        More::No
    }

    /// The request waits no longer: its client is gone. False: it does not wait any more, and its fate was or is in a
    /// [`Freed`].
    pub fn withdraw(&mut self, _ticket: Ticket) -> bool {
        false
    }

    /// The request's wait is over. Why it is refused; `None`: it does not wait any more, and its fate was or is in a
    /// [`Freed`].
    pub fn expire(&mut self, _ticket: Ticket, _now: Moment) -> Option<Refusal> {
        None
    }

    /// Whether anyone waits.
    pub fn has_waiting(&self) -> bool {
        false
    }

    /// Requests waiting in a band.
    pub fn waiting(&self, _band: Band) -> u32 {
        0
    }

    /// Bytes of bodies waiting in a band.
    pub fn waiting_bytes(&self, _band: Band) -> u64 {
        0
    }

    /// When the next wait is over.
    pub fn next_expiry(&self) -> Option<Moment> {
        None
    }

    /// So many tokens were generated for the request so far, since this was last said. Say it before completing: with
    /// [`Fairness::LeastAttainedService`](flow_control::Fairness::LeastAttainedService) its flow's next turn depends on
    /// it.
    pub fn generated(&mut self, _permit: &Permit, _tokens: u32, _now: Moment) {}
}
