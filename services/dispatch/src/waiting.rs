//! What becomes of a request that asks for a place and may have to wait for it.

use flow_control::{Choice, Ticket};
use pool::{EndpointId, Moment};
use smallvec::SmallVec;

use crate::{Decision, Dispatched, FlightId, Refusal, Request};

/// The answer to [`PoolDispatch::admit`](crate::PoolDispatch::admit).
#[derive(Debug)]
#[must_use = "a place that is not given back counts as in flight for ever"]
pub enum Admitted {
    /// It has a place.
    Placed(Dispatched),
    /// It waits: until [`PoolDispatch::release`](crate::PoolDispatch::release) names its ticket, or its owner takes it
    /// out.
    Waiting(Waiting),
    /// It is refused.
    Refused(Refusal),
}

/// One request's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Names it.
    pub ticket: Ticket,
    /// When its wait is over. The owner keeps the time, see [`PoolDispatch::expire`](crate::PoolDispatch::expire); a
    /// release after it refuses the request, too.
    pub expires_at: Moment,
}

/// What the owner of a pool is to do, as a result of what changed. Nothing here is said twice.
#[derive(Debug)]
#[must_use = "a request that is not told waits for ever"]
pub enum Freed {
    /// A waiting request has a place.
    Placed {
        /// The request.
        ticket: Ticket,
        /// Its place.
        dispatched: Dispatched,
        /// The record of the pick.
        decision: Box<Decision>,
    },
    /// A waiting request waits no longer and has no place.
    Refused {
        /// The request.
        ticket: Ticket,
        /// Why.
        refusal: Refusal,
    },
    /// A request in flight should be ended, unless it was answered meanwhile, so that one of a higher band gets its
    /// place: which it does once the owner has completed it.
    Evict {
        /// The request: [`Permit::id`](crate::Permit::id).
        flight: FlightId,
    },
}

/// Whether another call at once would do more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "whoever still waits has to be looked at again"]
pub enum More {
    /// The bound of one call was reached: let others have the lock, and call again.
    Perhaps,
    /// Nothing more fits now.
    No,
}

/// What is kept of a [`Request`] while it waits. Its prompt's hashes are a thirtieth of its body, which is bounded.
#[derive(Debug)]
pub(crate) struct Held {
    prefix: Box<[u64]>,
    prompt_tokens: u32,
    adapter: Option<Box<str>>,
    tie: u64,
    exclude: SmallVec<[EndpointId; 2]>,
    only: Option<EndpointId>,
}

impl Held {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self {
            prefix: request.prefix.into(),
            prompt_tokens: request.prompt_tokens,
            adapter: request.adapter.map(Into::into),
            tie: request.tie,
            exclude: SmallVec::from_slice(request.exclude),
            only: request.only,
        }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        Request {
            prefix: &self.prefix,
            prompt_tokens: self.prompt_tokens,
            adapter: self.adapter.as_deref(),
            tie: self.tie,
            exclude: &self.exclude,
            only: self.only,
        }
    }
}

impl Request<'_> {
    /// Whether any endpoint will do.
    pub(crate) fn choice(&self) -> Choice {
        if self.only.is_none() && self.exclude.is_empty() { Choice::Any } else { Choice::Some }
    }
}
