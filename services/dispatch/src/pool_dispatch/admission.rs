//! Who gets a place now, who waits, and who is refused.

use flow_control::{Ask, Band, Ticket};
use pool::Moment;

use super::{
    PoolDispatch,
    picking::{Gate, Unplaced},
};
use crate::{
    Admitted, Basis, Decision, Dispatched, Eviction, FlightId, FlowControl, Freed, Permit, PickReason, QueueFull,
    Refusal, Request,
    fullness::Haste,
    waiting::{Held, Waiting},
};

impl PoolDispatch {
    /// Gives a request a place if it is its turn and there is room, else lets it wait if it may. `decision` is
    /// overwritten with the record of the pick. What this means to others (whoever gave way, or was found to have room)
    /// is added to `freed`.
    pub fn admit(
        &mut self,
        request: &Request<'_>,
        ask: &Ask,
        now: Moment,
        decision: &mut Decision,
        freed: &mut Vec<Freed>,
    ) -> Admitted {
        if self.has_waiting() {
            // What time alone has made room for goes to those who wait. What this call does not reach waits on.
            let _ = self.release(now, freed);
        }
        if self.queue.goes_after_others(ask) {
            decision.begin(request.prefix.len() as u32, Basis::Reports).end();
            if self.least_fullness(request, Haste::NowOrNever, now).is_none() {
                return Admitted::Refused(Refusal::NoEndpoint);
            }
            decision.reason = PickReason::OthersWait;
            return self.wait(request, ask, now, freed);
        }
        match self.pick(request, ask, self.gate(ask.band()), now, decision) {
            Ok(dispatched) => {
                self.placed(ask, &dispatched, now);
                Admitted::Placed(dispatched)
            }
            Err(Unplaced::NoEndpoint) => Admitted::Refused(Refusal::NoEndpoint),
            Err(Unplaced::NoRoom) => self.wait(request, ask, now, freed),
        }
    }

    /// The request waits no longer: its client is gone. False: it does not wait any more, and its fate was or is in a
    /// [`Freed`].
    pub fn withdraw(&mut self, ticket: Ticket) -> bool {
        self.queue.leave(ticket).is_some()
    }

    /// The request's wait is over. Why it is refused; `None`: it does not wait any more, and its fate was or is in a
    /// [`Freed`].
    pub fn expire(&mut self, ticket: Ticket, now: Moment) -> Option<Refusal> {
        let left = self.queue.leave(ticket)?;
        Some(self.refusal_in_the_end(&left.waiting, now))
    }

    /// Whether anyone waits.
    pub fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Requests waiting in a band.
    pub fn waiting(&self, band: Band) -> u32 {
        self.queue.waiting(band)
    }

    /// Bytes of bodies waiting in a band.
    pub fn waiting_bytes(&self, band: Band) -> u64 {
        self.queue.waiting_bytes(band)
    }

    /// When the next wait is over.
    pub fn next_expiry(&self) -> Option<Moment> {
        self.queue.next_expiry()
    }

    /// A byte of a request's answer goes to its client: it is not ended for others any more.
    pub fn keep(&mut self, permit: &Permit) {
        if let Some(index) = self.flights.find(permit) {
            let flight = self.flights.get(index);
            self.evictable.keep(flight.slot, &flight.ask, permit);
        }
    }

    /// The owner cannot end this request, as [`Freed::Evict`] asked.
    pub fn forgo(&mut self, flight: FlightId) {
        self.evictable.forgo(flight);
    }

    /// Whether requests in flight are ended for those of a higher band.
    pub fn eviction(&self) -> Eviction {
        self.settings.eviction
    }

    /// So many tokens were generated for the request so far, since this was last said. Say it before completing: with
    /// [`Fairness::LeastAttainedService`](flow_control::Fairness::LeastAttainedService) its flow's next turn depends on
    /// it.
    pub fn generated(&mut self, permit: &Permit, tokens: u32, now: Moment) {
        if let Some(index) = self.flights.find(permit) {
            self.queue.served(self.flights.get(index).ask.flow, u64::from(tokens), now);
        }
    }

    /// The gate that a band's requests pass.
    pub(super) fn gate(&self, band: Band) -> Gate {
        match self.settings.flow_control {
            FlowControl::On => {
                let settings = self.settings.flow.band(band);
                let haste = if settings.max_wait.is_zero() { Haste::NowOrNever } else { Haste::CanWait };
                Gate::Below(settings.max_saturation, haste)
            }
            FlowControl::Off => Gate::Open,
        }
    }

    /// Books a place that was given out.
    pub(super) fn placed(&mut self, ask: &Ask, dispatched: &Dispatched, now: Moment) {
        self.queue.placed(ask, now);
        // At least one, so that flows with nothing to compute take turns, too.
        self.queue.served(ask.flow, u64::from(dispatched.uncached_tokens.max(1)), now);
    }

    /// Why a request is refused whose wait is over.
    pub(super) fn refusal_in_the_end(&self, held: &Held, now: Moment) -> Refusal {
        match self.least_fullness(&held.request(), Haste::NowOrNever, now) {
            Some(_) => Refusal::Expired,
            None => Refusal::NoEndpoint,
        }
    }

    fn wait(&mut self, request: &Request<'_>, ask: &Ask, now: Moment, freed: &mut Vec<Freed>) -> Admitted {
        if ask.wait_until.is_some_and(|until| until <= now) {
            return Admitted::Refused(Refusal::Expired);
        }
        self.evictable.joins(self.waiting_above_sheddable());
        match self.queue.join(ask, request.choice(), || Held::of(request), now) {
            Ok(joined) => {
                freed.extend(
                    joined.pushed_out.into_iter().map(|left| Freed::Refused {
                        ticket: left.ticket,
                        refusal: Refusal::Full(QueueFull::PushedOut),
                    }),
                );
                self.evict(now, freed);
                Admitted::Waiting(Waiting { ticket: joined.ticket, expires_at: joined.expires_at })
            }
            Err(QueueFull::NoWaiting) if ask.band() == Band::Sheddable => Admitted::Refused(Refusal::Shed),
            Err(why) => Admitted::Refused(Refusal::Full(why)),
        }
    }
}
