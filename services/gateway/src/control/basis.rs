//! Says aloud when a pool's picks rest on the gateway's own counts alone, and when they no longer do.
//!
//! Metrics and decisions say it too, to whoever asks; this is for whoever reads the log after an incident. It looks at
//! the pools once in a while instead of at each pick, since a pool without requests is worth the line as well, and a
//! pool that goes to and fro within one period is not worth two.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{admin::rests_on_own_signals, pools::PoolHandle};

/// Which pools are said to rest on own counts.
#[derive(Debug, Default)]
pub(super) struct Basis {
    said: BTreeSet<String>,
}

impl Basis {
    /// Says what changed since the last call.
    pub(super) fn look(&mut self, pools: &BTreeMap<String, Arc<PoolHandle>>) {
        self.said.retain(|pool| pools.contains_key(pool));
        for (pool, handle) in pools {
            let is_so = rests_on_own_signals(&handle.view());
            if is_so && self.said.insert(pool.clone()) {
                tracing::warn!(pool, "no endpoint has been read lately: picks rest on own requests in flight alone");
            } else if !is_so && self.said.remove(pool) {
                tracing::info!(pool, "reports of endpoints count again");
            }
        }
    }
}
