//! Where looks at endpoints are booked: in the pool's dispatcher, in the failure counters, in the log when something
//! changed.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use discovery::scrape::{Cause, Families, Sink};
use parking_lot::Mutex;
use pool::{EndpointId, Observation};
use telemetry::catalog::{SCRAPE_FAILURES, SCRAPE_SAMPLES_SKIPPED};
use tokio::sync::Notify;

use super::{build::Looks, endpoints::Member};
use crate::{pools::PoolHandle, world::World};

/// Books what the scraper sees.
pub(super) struct SignalSink {
    world: Arc<World>,
    followed: Mutex<Followed>,
    round_over: Notify,
}

#[derive(Default)]
struct Followed {
    endpoints: HashMap<EndpointId, (Arc<PoolHandle>, Arc<str>)>,
    /// Endpoints of which nothing was seen yet.
    unseen: HashSet<EndpointId>,
}

impl SignalSink {
    pub(super) fn new(world: Arc<World>) -> Self {
        Self { world, followed: Mutex::default(), round_over: Notify::new() }
    }

    /// Books for these endpoints from now on.
    pub(super) fn follow(&self, members: &HashMap<EndpointId, Member>) {
        let mut followed = self.followed.lock();
        let looked_at = members.iter().filter(|(_, member)| member.looks == Looks::Often).map(|(id, _)| id);
        let new = looked_at.filter(|id| !followed.endpoints.contains_key(id)).copied().collect::<Vec<_>>();
        followed.unseen.retain(|id| members.contains_key(id));
        followed.unseen.extend(new);
        let entry =
            |(id, member): (&EndpointId, &Member)| (*id, (Arc::clone(&member.pool), Arc::clone(&member.handle.name)));
        followed.endpoints = members.iter().map(entry).collect();
    }

    /// Waits until something was seen of every endpoint, and there are endpoints.
    pub(super) async fn first_round(&self) {
        loop {
            let notified = self.round_over.notified();
            {
                let followed = self.followed.lock();
                if followed.unseen.is_empty() && !followed.endpoints.is_empty() {
                    return;
                }
            }
            notified.await;
        }
    }

    fn pool_of(&self, id: EndpointId) -> Option<(Arc<PoolHandle>, Arc<str>)> {
        self.followed.lock().endpoints.get(&id).cloned()
    }
}

impl Sink for SignalSink {
    fn observed(&self, id: EndpointId, observation: Observation) {
        // An endpoint that was removed while somebody looked at it is nobody's.
        let Some((pool, _)) = self.pool_of(id) else { return };
        pool.observe(id, observation);
        let mut followed = self.followed.lock();
        if followed.unseen.remove(&id) && followed.unseen.is_empty() {
            self.round_over.notify_waiters();
        }
    }

    fn failed(&self, id: EndpointId, cause: Cause) {
        if let Some((_, name)) = self.pool_of(id) {
            self.world.metrics.counter(&SCRAPE_FAILURES, &[&name, cause.label()]).increment(1);
        }
    }

    fn skipped(&self, id: EndpointId, samples: u32) {
        if let Some((_, name)) = self.pool_of(id) {
            self.world.metrics.counter(&SCRAPE_SAMPLES_SKIPPED, &[&name]).increment(u64::from(samples));
        }
    }

    fn families(&self, id: EndpointId, found: &Families) {
        if let Some((pool, name)) = self.pool_of(id) {
            let (found, missing): (Vec<_>, Vec<_>) = (found.found().collect(), found.missing().collect());
            tracing::info!(pool = &*pool.name, endpoint = &*name, ?found, ?missing, "metric families of an endpoint");
        }
    }
}
