//! A page's reading joined with what was known before.

use std::sync::Arc;

use pool::{Adapters, Load, Moment, Signal};

use crate::page::{Number, Reading};

/// The load as now known. What the page did not tell keeps its former value and its former time, and so grows old
/// alone; what it did tell is as of `began`.
pub(super) fn merge(former: &Load, reading: Reading, began: Moment) -> Load {
    let signal = |number: Number| Signal { value: number.value, at: began, source: number.source };
    let shared = |names: Vec<String>| names.into_iter().map(Arc::from).collect();
    let adapters = reading.adapters.map(|active| Adapters {
        running: shared(active.running),
        waiting: shared(active.waiting),
        slots: active.slots,
        at: began,
    });
    Load {
        waiting: reading.waiting.map(signal).or(former.waiting),
        running: reading.running.map(signal).or(former.running),
        kv_cache: reading.kv_cache.map(signal).or(former.kv_cache),
        ranks: if reading.ranks > 0 { reading.ranks } else { former.ranks },
        cache: reading.cache.or(former.cache),
        adapters: adapters.or_else(|| former.adapters.clone()),
        started_unix_s: reading.started_unix_s.or(former.started_unix_s),
    }
}
