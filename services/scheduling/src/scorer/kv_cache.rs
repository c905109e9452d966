//! `kvCache`: how much of the KV cache is free. A straight line, since a cache in use costs nobody anything until it is
//! full, and the fuller one fills up first.

use crate::Candidate;

pub(super) fn rate(candidate: &Candidate) -> (f64, f64) {
    (candidate.kv_cache, 1.0 - candidate.kv_cache)
}
