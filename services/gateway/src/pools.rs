//! A pool as the request path sees it: the pure dispatcher behind a short lock, and what is needed to reach each
//! endpoint.

mod health;

use std::{collections::HashMap, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};
use dispatch::{Band, Decision, Dispatched, Permit, PoolDispatch, PoolView, Refusal, Verdict};
use http::HeaderValue;
use parking_lot::Mutex;
use pool::{EndpointId, Moment, Observation, State};
use proxy::client::Destination;
use smallvec::SmallVec;
use telemetry::Counter;

use crate::{
    clock::Clock,
    metrics::{QueueMetrics, RetryMetrics},
};

/// One pool for as long as its scheduler is configured, whatever else changes.
pub struct PoolHandle {
    /// The scheduler's name.
    pub name: Arc<str>,
    /// Further tries, and ejections.
    pub retries: RetryMetrics,
    /// What became of those that waited.
    pub queue: QueueMetrics,
    clock: Clock,
    dispatch: Mutex<PoolDispatch>,
    endpoints: ArcSwap<HashMap<EndpointId, Arc<EndpointHandle>>>,
}

/// What waits in one band of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Requests.
    pub requests: u32,
    /// Their bodies.
    pub bytes: u64,
}

/// What is needed to send a request to an endpoint.
pub struct EndpointHandle {
    /// Its name, for logs and metrics.
    pub name: Arc<str>,
    /// How to connect.
    pub destination: Arc<Destination>,
    /// `Authorization` of its own, sent in place of the client's. Changes when its file does.
    pub authorization: Arc<ArcSwapOption<HeaderValue>>,
    /// How often it was chosen first.
    pub picks: Counter,
}

/// A place on an endpoint, from the pick to the last byte. Dropping it completes the request in the pool's accounts.
pub struct Lease {
    pool: Arc<PoolHandle>,
    permit: Option<Permit>,
    /// What is still to be said of the endpoint.
    last_word: Option<Verdict>,
    /// Best first; the first is where the place is.
    pub ranked: SmallVec<[EndpointId; 4]>,
    /// As they were at the pick: one that leaves a moment later is still sent what it was picked for.
    endpoints: Arc<HashMap<EndpointId, Arc<EndpointHandle>>>,
}

impl PoolHandle {
    /// A pool without endpoints.
    pub fn new(
        name: Arc<str>,
        dispatch: PoolDispatch,
        retries: RetryMetrics,
        queue: QueueMetrics,
        clock: Clock,
    ) -> Arc<Self> {
        Arc::new(Self { name, retries, queue, clock, dispatch: Mutex::new(dispatch), endpoints: ArcSwap::default() })
    }

    /// Runs `change` on the dispatcher, at one moment, under its lock. Keep it short.
    pub fn with<T>(&self, change: impl FnOnce(&mut PoolDispatch, Moment) -> T) -> T {
        // Time is read inside: two cores then never apply their changes against the order of their moments.
        let mut dispatch = self.dispatch.lock();
        let now = self.clock.now();
        change(&mut dispatch, now)
    }

    /// Puts other endpoints in force, handles and members in one step: whoever is picked can be reached.
    pub fn set_endpoints(&self, handles: HashMap<EndpointId, Arc<EndpointHandle>>, members: &[dispatch::Membership]) {
        let reinstated = self.with(|dispatch, now| {
            self.endpoints.store(Arc::new(handles));
            let reconciled = dispatch.set_endpoints(members, now);
            reconciled.reinstated
        });
        if reinstated > 0 {
            tracing::info!(pool = &*self.name, reinstated, "ejected endpoints are back: too few others are left");
        }
    }

    /// Books what was seen of an endpoint.
    pub fn observe(&self, id: EndpointId, observation: Observation) {
        self.with(|dispatch, now| dispatch.observe(id, observation, now));
    }

    /// Reserves a place and says where, in one step.
    ///
    /// # Errors
    /// When no endpoint can be used or all are full.
    pub fn dispatch(
        self: &Arc<Self>,
        request: &dispatch::Request<'_>,
        decision: &mut Decision,
    ) -> Result<(Lease, Moment), (Refusal, u32)> {
        let (outcome, now, retry_after_s, endpoints) = self.with(|dispatch, now| {
            let outcome = dispatch.dispatch(request, now, decision);
            let retry_after_s = if outcome.is_err() {
                dispatch.retry_after_s(dispatch::Band::Standard, fastrand::u64(..), now)
            } else {
                0
            };
            (outcome, now, retry_after_s, self.endpoints.load_full())
        });
        let Dispatched { permit, ranked, .. } = outcome.map_err(|refusal| (refusal, retry_after_s))?;
        Ok((Lease { pool: Arc::clone(self), permit: Some(permit), last_word: None, ranked, endpoints }, now))
    }

    /// The endpoints there are now.
    pub fn endpoints(&self) -> Arc<HashMap<EndpointId, Arc<EndpointHandle>>> {
        self.endpoints.load_full()
    }

    /// The accounts, for people.
    pub fn view(&self) -> PoolView {
        self.with(|dispatch, now| dispatch.snapshot(now))
    }

    /// What waits here, by [`Band::index`].
    pub fn waiting(&self) -> [Waiting; Band::COUNT] {
        self.with(|dispatch, _| {
            Band::ALL.map(|band| Waiting { requests: dispatch.waiting(band), bytes: dispatch.waiting_bytes(band) })
        })
    }

    /// Whether a request would find an endpoint in a state to be used.
    pub fn is_usable(&self) -> bool {
        self.view().endpoints.iter().any(|endpoint| matches!(endpoint.state, State::Ready))
    }
}

/// What the first content of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The first token of a stream.
    Streamed,
    /// The answer, or a piece of it: when its prompt had been computed is not seen.
    Whole,
}

impl Lease {
    /// How to reach an endpoint of the list.
    pub fn endpoint(&self, id: EndpointId) -> Option<Arc<EndpointHandle>> {
        self.endpoints.get(&id).cloned()
    }

    /// Moves the place to the next of the list. False when that endpoint has left meanwhile.
    pub fn pass_on(&self, to: EndpointId, prefix: &[u64]) -> bool {
        let permit = self.permit.as_ref().expect("a lease holds its permit until it is dropped");
        self.pool.with(|dispatch, now| dispatch.pass_on(permit, to, prefix, now)).is_ok()
    }

    /// The first content of an answer came: the request waits no longer, and if it is a stream's, its prompt has just been
    /// computed. The head of a streamed answer says neither, since engines send it while the request is still queued.
    /// `verdict` is what that says of the endpoint, if anything.
    pub fn answered(&self, content: Content, verdict: Option<Verdict>) {
        let permit = self.permit.as_ref().expect("a lease holds its permit until it is dropped");
        let change = self.pool.with(|dispatch, now| {
            dispatch.answered(permit, now);
            match content {
                Content::Streamed => dispatch.prefilled(permit, now),
                Content::Whole => {}
            }
            verdict.and_then(|verdict| dispatch.report(permit, verdict, now))
        });
        self.pool.tell(change);
    }

    /// The pool it is of.
    pub fn pool(&self) -> &Arc<PoolHandle> {
        &self.pool
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let change = self.pool.with(|dispatch, now| {
                let change = self.last_word.and_then(|verdict| dispatch.report(&permit, verdict, now));
                dispatch.complete(permit, now);
                change
            });
            self.pool.tell(change);
        }
    }
}
