//! Where in this cluster a request goes: filters drop endpoints, scorers rate the rest from 0 to 1, the picker ranks
//! them, and the prefix index remembers which endpoint was sent which prompt.
//!
//! Every item here is a plain function or a plain value. Nothing in this crate knows the time, counts requests or keeps
//! an endpoint's life: that is `dispatch`, which turns what it knows into [`Candidate`]s and calls [`Profile::rank`].
//! The same candidates give the same ranking on every machine, so two gateways that know the same things agree.

mod candidate;
mod filter;
mod latency;
mod picker;
mod prefix_index;
mod profile;
mod rendezvous;
mod scorer;

pub use candidate::{Ask, Candidate, Model, Prediction, Residency};
pub use filter::{Rejected, Tier};
pub use latency::{EndpointLatency, Features, PoolLatency, Work};
pub use picker::Won;
pub use prefix_index::{BLOCK_TOKENS, IndexStats, Lane, PrefixIndex};
pub use profile::{Profile, Ranked};
pub use rendezvous::name_hash;
pub use scorer::{FADE_FROM_WAITING, FADE_TO_WAITING, PREFILL_STEP_TOKENS, QUEUE_SPAN, Score, Scorer, Scores, Weights};
