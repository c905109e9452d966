//! Ends of the pipeline: what becomes of a request that has a place.

pub mod forward;
mod pause;
mod tries;
pub(crate) mod verdict;
