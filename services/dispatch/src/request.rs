//! What goes into a pick and what comes out.

use flow_control::QueueFull;
use pool::{Endpoint, EndpointId};
use smallvec::SmallVec;

use crate::Permit;

/// One request, as far as a pick can use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// Chained hashes of the prompt's blocks, [`BLOCK_TOKENS`](crate::BLOCK_TOKENS) tokens each: each stands for all
    /// before it too, and is seeded with whatever keeps cache entries apart (model or adapter, salt). Empty for a prompt
    /// shorter than a block.
    pub prefix: &'a [u64],
    /// Tokens in the prompt, estimated.
    pub prompt_tokens: u32,
    /// The LoRA adapter asked for.
    pub adapter: Option<&'a str>,
    /// Breaks ties among endpoints that were never chosen: a random number, or 0 for the same choice everywhere.
    pub tie: u64,
    /// Endpoints that this request has tried already.
    pub exclude: &'a [EndpointId],
    /// The one endpoint it must go to.
    pub only: Option<EndpointId>,
}

/// A request that was given a place.
#[derive(Debug)]
pub struct Dispatched {
    /// Holds the place. Give it back with [`PoolDispatch::complete`](crate::PoolDispatch::complete), whatever happened.
    pub permit: Permit,
    /// Where to send it, best first. The place is at the first; before using another, see
    /// [`PoolDispatch::pass_on`](crate::PoolDispatch::pass_on).
    pub ranked: SmallVec<[EndpointId; 4]>,
    /// Prompt tokens that the first probably has cached.
    pub cached_tokens: u32,
    /// Prompt tokens that it probably has to compute.
    pub uncached_tokens: u32,
}

/// Why a request was given no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no endpoint that could take it, with room or without.
    #[error("no endpoint can take the request")]
    NoEndpoint,
    /// There are endpoints, each has as much work as it may have, and the request may not wait (any longer).
    #[error("every endpoint is full: {0}")]
    Full(QueueFull),
    /// The same, for a request of the band that is refused first and does not wait.
    #[error("every endpoint is full, and requests of this priority are refused first")]
    Shed,
    /// It waited as long as it may.
    #[error("no endpoint had room within the longest wait")]
    Expired,
}

/// The endpoint takes no new work any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint is gone, draining or ejected")]
pub struct Gone;

/// An endpoint as a member of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Whether it takes new work.
    pub standing: Standing,
}

/// Whether a member takes new work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Serving,
    /// It finishes what it has.
    Draining,
}

/// What [`PoolDispatch::set_endpoints`](crate::PoolDispatch::set_endpoints) changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Endpoints that joined.
    pub joined: usize,
    /// Endpoints that left, with work in flight or without.
    pub left: usize,
    /// Endpoints beyond the bound of a pool, which were not taken in.
    pub refused: usize,
    /// Ejected endpoints taken back, since too few others are left.
    pub reinstated: usize,
}
