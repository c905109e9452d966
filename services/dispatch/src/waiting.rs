//! What becomes of a request that asks for a place and may have to wait for it.

use flow_control::Ticket;
use pool::Moment;

use crate::{Decision, Dispatched, FlightId, Refusal};

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
