//! What the request path tells the dispatcher about endpoints' health, and what it tells the operator of what follows.

use std::{sync::Arc, time::Duration};

use dispatch::{HealthChange, NoRetry, Verdict};
use pool::EndpointId;

use super::{Lease, PoolHandle};

impl Lease {
    /// What the try says of the endpoint where the place is now. The first final word of a try counts, and neutral ones
    /// need not be said.
    pub fn report(&self, verdict: Verdict) {
        let permit = self.permit.as_ref().expect("a lease holds its permit until it is dropped");
        let change = self.pool.with(|dispatch, now| dispatch.report(permit, verdict, now));
        self.pool.tell(change);
    }

    /// The answer came to its proper end. Booked as the place is given back, so that it costs no step of its own.
    pub fn succeeded(&mut self) {
        self.last_word = Some(Verdict::Success);
    }

    /// The endpoint where the place is refused for want of room: it counts as full for so long.
    pub fn hold_off(&self, pause: Duration) {
        let permit = self.permit.as_ref().expect("a lease holds its permit until it is dropped");
        self.pool.with(|dispatch, now| {
            if let Some(endpoint) = dispatch.endpoint_of(permit) {
                dispatch.backpressure(endpoint, now + pause);
            }
        });
    }

    /// Moves the place to the first of `among` that has room, if the pool's retry budget allows.
    ///
    /// # Errors
    /// Says why not; the place is then where it was.
    pub fn retry(&self, among: &[EndpointId], prefix: &[u64]) -> Result<EndpointId, NoRetry> {
        let permit = self.permit.as_ref().expect("a lease holds its permit until it is dropped");
        self.pool.with(|dispatch, now| dispatch.retry(permit, among, prefix, now))
    }
}

impl PoolHandle {
    /// A request was sent twice to one endpoint: it comes out of the budget of retries.
    pub fn charge_retry(self: &Arc<Self>) {
        self.with(|dispatch, now| dispatch.charge_retry(now));
    }

    /// One line and one count for each change, and none for each request.
    pub(super) fn tell(&self, change: Option<HealthChange>) {
        match change {
            None => {}
            Some(HealthChange::Ejected(ejected)) => {
                self.retries.ejected(ejected.cause);
                tracing::warn!(
                    pool = &*self.name,
                    endpoint = &*ejected.name,
                    cause = ejected.cause.as_str(),
                    why = ejected.by.as_str(),
                    pause_s = ejected.pause.as_secs(),
                    "endpoint is ejected: no requests for it until its pause is over and a probe succeeds"
                );
            }
            Some(HealthChange::Returned { name, .. }) => {
                tracing::info!(pool = &*self.name, endpoint = &*name, "endpoint is back after its ejection");
            }
        }
    }
}
