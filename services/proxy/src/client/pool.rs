//! The connections of one core, by endpoint: which may be used again, and for how long.
//!
//! Last in, first out: the freshest connection is the least likely to be closing, and the surplus of a burst ages out. One
//! timer per core sweeps, and only while there is something to sweep. The lock is the core's own and thus uncontended; it
//! is taken twice per request and never held over an await.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync,
    time::{self, Instant},
};

use super::{IDLE_PER_ENDPOINT_MAX, http1::Link, http2::Multiplexed};

/// How often idle connections are looked through. With the 4 s they may idle, all are closed before uvicorn's 5 s.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Pools(Mutex<Lanes>);

#[derive(Default)]
struct Lanes {
    by_endpoint: HashMap<u64, Lane>,
    sweeping: bool,
}

/// All about one endpoint.
#[derive(Default)]
struct Lane {
    idle: Vec<Idle>,
    multiplexed: Vec<Arc<Multiplexed>>,
    /// Held while an HTTP/2 connection is opened, so that a burst onto a cold endpoint opens one and not a hundred.
    opening: Arc<sync::Mutex<()>>,
}

struct Idle {
    link: Box<Link>,
    expires_at: Instant,
}

impl Pools {
    /// The freshest idle connection that is still open, if any.
    pub(super) async fn take_idle(&self, id: u64) -> Option<Box<Link>> {
        loop {
            let mut idle = self.0.lock().by_endpoint.get_mut(&id)?.idle.pop()?;
            if idle.expires_at <= Instant::now() {
                continue;
            }
            if poll_fn(|cx| Poll::Ready(idle.link.is_usable(cx))).await {
                return Some(idle.link);
            }
        }
    }

    /// Makes the endpoint known before its first connection, so that a return after [`Self::forget`] finds no place.
    pub(super) fn enter(&self, id: u64) {
        self.0.lock().by_endpoint.entry(id).or_default();
    }

    /// A connection whose answer has ended cleanly comes back, unless its endpoint is gone or has enough.
    pub(super) fn put_idle(self: &Arc<Self>, id: u64, link: Box<Link>, for_at_most: Duration) {
        let mut lanes = self.0.lock();
        if let Some(lane) = lanes.by_endpoint.get_mut(&id)
            && lane.idle.len() < IDLE_PER_ENDPOINT_MAX
        {
            lane.idle.push(Idle { link, expires_at: Instant::now() + for_at_most });
            self.keep_swept(&mut lanes);
        }
    }

    /// An HTTP/2 connection with room for one more stream.
    pub(super) fn multiplexed(&self, id: u64) -> Option<Arc<Multiplexed>> {
        let mut lanes = self.0.lock();
        let lane = lanes.by_endpoint.get_mut(&id)?;
        lane.multiplexed.retain(|connection| !connection.is_dead());
        lane.multiplexed.iter().find(|connection| connection.has_room()).cloned()
    }

    pub(super) fn put_multiplexed(self: &Arc<Self>, id: u64, connection: Arc<Multiplexed>) {
        let mut lanes = self.0.lock();
        lanes.by_endpoint.entry(id).or_default().multiplexed.push(connection);
        self.keep_swept(&mut lanes);
    }

    pub(super) fn opening(&self, id: u64) -> Arc<sync::Mutex<()>> {
        Arc::clone(&self.0.lock().by_endpoint.entry(id).or_default().opening)
    }

    pub(super) fn forget(&self, id: u64) {
        let lane = self.0.lock().by_endpoint.remove(&id);
        // Closing sockets is the kernel's work: not under the lock.
        drop(lane);
    }

    pub(super) fn pooled(&self, id: u64) -> usize {
        self.0.lock().by_endpoint.get(&id).map_or(0, |lane| lane.idle.len() + lane.multiplexed.len())
    }

    fn keep_swept(self: &Arc<Self>, lanes: &mut Lanes) {
        if !lanes.sweeping {
            lanes.sweeping = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Whether there is something to come back for.
    fn sweep_once(&self, now: Instant) -> bool {
        let mut closing = Vec::new();
        let mut lanes = self.0.lock();
        for lane in lanes.by_endpoint.values_mut() {
            closing.extend(lane.idle.extract_if(.., |idle| idle.expires_at <= now));
            lane.multiplexed.retain(|connection| !connection.is_dead() && !connection.idled_out(now));
        }
        // A lane without connections may be one that was forgotten and entered again by a late request.
        lanes.by_endpoint.retain(|_, lane| {
            !lane.idle.is_empty() || !lane.multiplexed.is_empty() || Arc::strong_count(&lane.opening) > 1
        });
        lanes.sweeping = !lanes.by_endpoint.is_empty();
        lanes.sweeping
    }
}

async fn sweep(pools: Weak<Pools>) {
    loop {
        time::sleep(SWEEP_EVERY).await;
        let again = pools.upgrade().is_some_and(|pools| pools.sweep_once(Instant::now()));
        if !again {
            return;
        }
    }
}
