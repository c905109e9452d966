//! A pool as the request path sees it: the pure dispatcher behind a short lock, and what is needed to reach each
//! endpoint.

mod health;
mod live;
mod waiters;

use std::{collections::HashMap, sync::Arc};

use arc_swap::{ArcSwap, ArcSwapOption};
use dispatch::{Admitted, Ask, Band, Decision, Dispatched, Permit, PoolDispatch, PoolView, Settings, Verdict};
use http::HeaderValue;
use parking_lot::Mutex;
use pool::{EndpointId, Moment, Observation};
use proxy::client::Destination;
use smallvec::SmallVec;
use telemetry::Counter;

use self::waiters::Waiters;
pub use self::{
    live::LivePools,
    waiters::{Evicted, Eviction, Fate, Refused, Wait},
};
use crate::{
    clock::Clock,
    extension::Conversation,
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
    state: Mutex<Guarded>,
    endpoints: ArcSwap<HashMap<EndpointId, Arc<EndpointHandle>>>,
}

/// What only one core at a time may change.
struct Guarded {
    dispatch: PoolDispatch,
    waiters: Waiters,
}

/// What becomes of a request that asks for a place.
pub enum Asked {
    /// It has one, since this moment.
    Placed(Lease, Moment),
    /// It waits.
    Waits(Wait),
    /// It is refused.
    Refused(Refused),
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
    /// Tokens known to have been generated; with least-attained-service fairness its flow's next turn depends on it.
    pub generated_tokens: u32,
    /// Whether it may be ended for a request of a higher band.
    pub eviction: Eviction,
    /// With another endpoint picker, which counts the request for as long as this lives.
    pub conversation: Option<Box<Conversation>>,
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
        let state = Mutex::new(Guarded { dispatch, waiters: Waiters::default() });
        Arc::new(Self { name, retries, queue, clock, state, endpoints: ArcSwap::default() })
    }

    /// Runs `change` on the dispatcher, at one moment, under its lock: keep it short. If requests wait, they then get
    /// what room there is.
    pub fn with<T>(self: &Arc<Self>, change: impl FnOnce(&mut PoolDispatch, Moment) -> T) -> T {
        self.change(|state, now| change(&mut state.dispatch, now))
    }

    /// Looks at the dispatcher, at one moment, under its lock.
    fn look<T>(&self, look: impl FnOnce(&PoolDispatch, Moment) -> T) -> T {
        let state = self.state.lock();
        look(&state.dispatch, self.clock.now())
    }

    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Guarded, Moment) -> T) -> T {
        // Time is read inside: two cores then never apply their changes against the order of their moments.
        let mut state = self.state.lock();
        let now = self.clock.now();
        let result = change(&mut state, now);
        if state.dispatch.has_waiting() {
            self.hand_out(state, now);
        }
        result
    }

    /// Changes what an operator can change.
    pub fn configure(self: &Arc<Self>, settings: Settings) {
        self.with(|dispatch, _| dispatch.configure(settings));
    }

    /// Puts other endpoints in force, handles and members in one step: whoever is picked can be reached.
    pub fn set_endpoints(
        self: &Arc<Self>,
        handles: HashMap<EndpointId, Arc<EndpointHandle>>,
        members: &[dispatch::Membership],
    ) {
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
    pub fn observe(self: &Arc<Self>, id: EndpointId, observation: Observation) {
        self.with(|dispatch, now| dispatch.observe(id, observation, now));
    }

    /// Asks for a place. If there is none yet and the request may wait, it does so from now on.
    pub fn admit(self: &Arc<Self>, request: &dispatch::Request<'_>, ask: &Ask, decision: &mut Decision) -> Asked {
        let mut freed = Vec::new();
        let mut state = self.state.lock();
        let now = self.clock.now();
        let admitted = state.dispatch.admit(request, ask, now, decision, &mut freed);
        let asked = match admitted {
            Admitted::Placed(dispatched) => {
                let lease = self.lease(&mut state, dispatched, ask.band());
                Asked::Placed(lease, now)
            }
            Admitted::Waiting(waiting) => self.let_wait(&mut state, waiting, ask.band(), now),
            Admitted::Refused(refusal) => Asked::Refused(state.refused(refusal, ask.band(), now)),
        };
        if !freed.is_empty() {
            let told = self.sort_out(&mut state, &mut freed, now);
            drop(state);
            if self.tell_waiters(told) {
                self.with(|_, _| ());
            }
        }
        asked
    }

    /// A place that was given out, with the means to reach it.
    fn lease(self: &Arc<Self>, state: &mut Guarded, dispatched: Dispatched, band: Band) -> Lease {
        let Dispatched { permit, ranked, .. } = dispatched;
        Lease {
            pool: Arc::clone(self),
            eviction: state.watch(&permit, band),
            permit: Some(permit),
            last_word: None,
            generated_tokens: 0,
            conversation: None,
            ranked,
            endpoints: self.endpoints.load_full(),
        }
    }

    /// The endpoints there are now.
    pub fn endpoints(&self) -> Arc<HashMap<EndpointId, Arc<EndpointHandle>>> {
        self.endpoints.load_full()
    }

    /// The accounts, for people.
    pub fn view(&self) -> PoolView {
        self.look(|dispatch, now| dispatch.snapshot(now))
    }

    /// What waits here, by [`Band::index`].
    pub fn waiting(&self) -> [Waiting; Band::COUNT] {
        self.look(|dispatch, _| {
            Band::ALL.map(|band| Waiting { requests: dispatch.waiting(band), bytes: dispatch.waiting_bytes(band) })
        })
    }

    /// Whether any request waits here.
    pub fn has_waiting(&self) -> bool {
        self.look(|dispatch, _| dispatch.has_waiting())
    }

    /// Whether any request waits here, or has a place.
    pub fn is_at_work(&self) -> bool {
        self.look(|dispatch, _| dispatch.has_waiting() || dispatch.in_flight() > 0)
    }

    /// Seconds after which a request of this band may find room, by how fast the pool gets done with its work.
    pub fn retry_after_s(&self, band: Band) -> u32 {
        self.look(|dispatch, now| dispatch.retry_after_s(band, fastrand::u64(..), now))
    }

    /// Whether a request would find an endpoint in a state to be used.
    pub fn is_usable(&self) -> bool {
        self.look(|dispatch, now| dispatch.is_any_ready(now))
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
            let change = self.pool.change(|state, now| {
                let dispatch = &mut state.dispatch;
                let change = self.last_word.and_then(|verdict| dispatch.report(&permit, verdict, now));
                if self.generated_tokens > 0 {
                    dispatch.generated(&permit, self.generated_tokens, now);
                }
                state.waiters.forget(permit.id());
                dispatch.complete(permit, now);
                change
            });
            self.pool.tell(change);
        }
    }
}
