//! Every pool that somebody still holds, whether the configuration in force has it or not.
//!
//! A pool that was taken out of the configuration lives on in its requests. Those that wait there are to get their places
//! all the same, and to be told when the process ends.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::PoolHandle;

/// How often waiting requests get the room that time alone has made: a pause or an ejection that is over, a report that
/// is believed no more.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// See the module's text.
#[derive(Default)]
pub struct LivePools(Mutex<Vec<Weak<PoolHandle>>>);

impl LivePools {
    /// There is such a pool.
    pub fn note(&self, pool: &Arc<PoolHandle>) {
        let mut pools = self.0.lock();
        pools.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(pool));
        pools.push(Arc::downgrade(pool));
    }

    /// The pool of this name in which requests run or wait; the newest if there are several.
    pub fn at_work(&self, name: &str) -> Option<Arc<PoolHandle>> {
        let pools = self.0.lock();
        pools.iter().rev().filter_map(Weak::upgrade).find(|pool| *pool.name == *name && pool.is_at_work())
    }

    /// Hands out room that time alone has made, for as long as the process lives.
    pub async fn pump(&self) {
        let mut due = interval(LOOK_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            due.tick().await;
            for pool in self.all() {
                pool.with(|_, _| ());
            }
        }
    }

    /// From now on nobody waits: the process shuts down.
    pub fn close(&self) {
        for pool in self.all() {
            pool.close();
        }
    }

    fn all(&self) -> Vec<Arc<PoolHandle>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
