//! What answers say of endpoints, and what follows for the pool: who is taken out, who comes back, and which request may
//! be tried again elsewhere.
//!
//! At most half of the serving members are out at a time, so that a fault of the whole pool (or of this gateway's network)
//! never leaves it without endpoints; and never the last one of those that are known well.

use std::{sync::Arc, time::Duration};

use pool::{EndpointId, Moment};

use super::PoolDispatch;
use crate::{
    EjectedBy, Failure, HasPage, Permit, Verdict,
    endpoint_state::{EndpointState, Presence},
    health::Finding,
    horizon::Horizon,
};

/// What a verdict changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// An endpoint was taken out.
    Ejected(Ejected),
    /// An endpoint's probe succeeded: it is given work again, little at first.
    Returned {
        /// Which life of it.
        endpoint: EndpointId,
        /// Its name.
        name: Arc<str>,
    },
}

/// An endpoint that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejected {
    /// Which life of it.
    pub endpoint: EndpointId,
    /// Its name.
    pub name: Arc<str>,
    /// Its last failure.
    pub cause: Failure,
    /// By which rule.
    pub by: EjectedBy,
    /// For how long, before one request is let through as a probe.
    pub pause: Duration,
}

/// Why a request is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRetry {
    /// No other endpoint of its list has room.
    #[error("no other endpoint has room")]
    NoRoom,
    /// The pool has used up its budget.
    #[error("the pool's retry budget is used up")]
    OverBudget,
}

impl PoolDispatch {
    /// What a try says of the endpoint where the request is now. Each try has one last word ([`Verdict::Begun`] comes
    /// before it), and what was sent there before its last ejection has none. A try whose client left has no verdict.
    pub fn report(&mut self, permit: &Permit, verdict: Verdict, now: Moment) -> Option<HealthChange> {
        let index = self.flights.find(permit)?;
        let flight = self.flights.get_mut(index);
        let slot = flight.slot;
        let state = self.endpoints[slot as usize].as_mut()?;
        // Looks say so, too: it is the last resort already, and an ejection would outlast its return.
        let is_known = state.is_unreachable() && verdict == Verdict::Failure(Failure::Connect);
        let is_its_business = self.settings.has_page == HasPage::Unasked
            && matches!(verdict, Verdict::Failure(cause) if cause != Failure::Connect);
        let verdict = if is_known || is_its_business { Verdict::Neutral } else { verdict };
        let finding = state.health.judge(flight.term, &mut flight.judged, verdict, now);
        let (endpoint, name) = (state.endpoint.id, &state.endpoint.name);
        match (finding, verdict) {
            (Finding::Returned, _) => Some(HealthChange::Returned { endpoint, name: Arc::clone(name) }),
            (Finding::Failing(by), Verdict::Failure(cause)) if self.may_eject(slot, now) => {
                let state = self.endpoints[slot as usize].as_mut()?;
                let (name, pause) = (Arc::clone(&state.endpoint.name), state.health.eject(now));
                Some(HealthChange::Ejected(Ejected { endpoint, name, cause, by, pause }))
            }
            (Finding::Nothing | Finding::Failing(_), _) => None,
        }
    }

    /// After an endpoint refused a try (429 or 503): the request goes to the first of `among` that has room, if the
    /// budget allows. As with [`PoolDispatch::pass_on`], everything it counts goes with it.
    ///
    /// # Errors
    /// Says why not; then nothing has changed.
    pub fn retry(
        &mut self,
        permit: &Permit,
        among: &[EndpointId],
        prefix: &[u64],
        now: Moment,
    ) -> Result<EndpointId, NoRetry> {
        let with_room = among.iter().copied().find(|&id| self.has_room(id, now)).ok_or(NoRetry::NoRoom)?;
        if !self.retry_budget.take(now) {
            return Err(NoRetry::OverBudget);
        }
        self.pass_on(permit, with_room, prefix, now).map(|()| with_room).map_err(|_| NoRetry::NoRoom)
    }

    /// A request was sent to its endpoint a second time, on a fresh connection: it comes out of the same budget.
    pub fn charge_retry(&mut self, now: Moment) {
        self.retry_budget.charge(now);
    }

    /// Takes back those whose pause is over soonest, as long as more than half are out. Returns how many.
    pub(super) fn reinstate_beyond_half(&mut self) -> usize {
        let mut reinstated = 0;
        loop {
            let (serving, ejected) = self.serving_and_ejected();
            if ejected <= serving / 2 {
                return reinstated;
            }
            let serving = self.endpoints.iter_mut().flatten().filter(|s| s.presence == Presence::Serving);
            let soonest = serving.filter(|s| s.health.is_ejected()).min_by_key(|s| s.health.ejected_until());
            let Some(state) = soonest else { return reinstated };
            state.health.reinstate();
            reinstated += 1;
        }
    }

    fn may_eject(&self, slot: u32, now: Moment) -> bool {
        let Some(state) = self.endpoints[slot as usize].as_ref().filter(|s| s.presence == Presence::Serving) else {
            return false;
        };
        // A probe that fails takes out nobody who was not out.
        if state.health.is_ejected() {
            return true;
        }
        let (serving, ejected) = self.serving_and_ejected();
        let horizon = Horizon::new(&self.settings, now);
        let as_good = |other: &EndpointState| {
            other.endpoint.id != state.endpoint.id
                && other.presence == Presence::Serving
                && !other.health.is_ejected()
                && other.tier(&horizon) <= state.tier(&horizon)
        };
        ejected < serving / 2 && self.endpoints.iter().flatten().any(as_good)
    }

    fn serving_and_ejected(&self) -> (usize, usize) {
        let serving = || self.endpoints.iter().flatten().filter(|s| s.presence == Presence::Serving);
        (serving().count(), serving().filter(|s| s.health.is_ejected()).count())
    }
}
