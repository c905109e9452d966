//! Takes the series of what is gone off the metrics page.
//!
//! A series outlives whoever counts on it, since a scrape must still see the last counts. So nobody else removes any:
//! this value is told what comes, looks at what there is every few seconds, and forgets what is there no longer and will
//! not count any more: an endpoint that left and has no request in flight, a pool that is not configured and has no work, a
//! model that is not served and that no request holds. What is merely idle is kept, whatever its age.
//!
//! It is swept by the task that also makes endpoints and pools, so that none can appear in the middle of a sweep and
//! have its first counts thrown away.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use dispatch::PoolView;
use telemetry::Metrics;

use super::page;
use crate::{
    metrics::ModelMetrics,
    pools::PoolHandle,
    routes::{Fallback, Routes, Served},
    world::World,
};

/// What was seen, and so may have to be forgotten.
#[derive(Default)]
pub struct Sweeper {
    pools: BTreeMap<Arc<str>, Seen>,
}

/// What was seen under the name of one pool.
#[derive(Default)]
struct Seen {
    standing: Standing,
    /// The pools that had the name. More than one when a pool was removed and one of its name came while it had work.
    lives: Vec<Weak<PoolHandle>>,
    endpoints: BTreeMap<Arc<str>, Trace>,
    models: BTreeMap<Arc<str>, Model>,
}

/// What was seen under the name of one model of a pool.
#[derive(Default)]
struct Model {
    standing: Standing,
    /// Requests hold these by the routes under which they came, so while one lives somebody may still count.
    lives: Vec<Weak<ModelMetrics>>,
}

/// Whether the configuration in force has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Removed,
    Configured,
}

/// What is left of an endpoint on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trace {
    /// Its series.
    Series,
    /// Nothing, unless a look at it that had begun before the sweep brought some of it back: it is forgotten once more.
    Swept,
}

impl Sweeper {
    /// Forgets what is gone. Call it every few seconds: an endpoint's series go with the first call after its last
    /// request, those of a removed pool likewise.
    pub fn sweep(&mut self, world: &World) {
        let metrics = &world.metrics;
        self.note(&world.routes.load());
        let mut present = BTreeMap::new();
        for (name, seen) in &mut self.pools {
            present.insert(Arc::clone(name), seen.present(name, metrics));
        }
        let anywhere: BTreeSet<Arc<str>> = present.values().flatten().cloned().collect();
        self.pools.retain(|name, seen| {
            let present = &present[name];
            seen.forget_models(name, metrics);
            seen.forget_endpoints(name, metrics, present, &anywhere);
            if seen.standing == Standing::Configured || !present.is_empty() || seen.has_waiting() {
                return true;
            }
            metrics.forget(&[("pool", name)]);
            // A request that was read under an older configuration may still come to it, and count.
            !seen.lives.is_empty()
        });
    }

    /// These pools have the endpoints that they have. To be told of every change: one that comes and goes between two
    /// sweeps was perhaps on a page, and would stay there for ever.
    pub fn note_members<'a>(&mut self, pools: impl Iterator<Item = &'a Arc<PoolHandle>>) {
        for pool in pools {
            let names = pool.endpoints().values().map(|endpoint| (Arc::clone(&endpoint.name), Trace::Series)).collect();
            self.note_pool(pool).endpoints.extend::<Vec<_>>(names);
        }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> impl Iterator<Item = &str> {
        self.pools.keys().map(|name| &**name)
    }

    /// Remembers what the configuration in force has. To be told of every one, likewise.
    pub fn note(&mut self, routes: &Routes) {
        for seen in self.pools.values_mut() {
            seen.standing = Standing::Removed;
            seen.models.values_mut().for_each(|model| model.standing = Standing::Removed);
        }
        for listed in &routes.pools {
            self.note_pool(&listed.pool);
        }
        let fallback = routes.fallback.iter().map(Fallback::served);
        let by_hand = routes.by_hand.iter().flat_map(|routes| routes.pools());
        for served in routes.models.values().chain(fallback).chain(&routes.only).chain(by_hand) {
            self.note_served(served);
        }
    }

    fn note_pool(&mut self, pool: &Arc<PoolHandle>) -> &mut Seen {
        let seen = self.pools.entry(Arc::clone(&pool.name)).or_default();
        seen.standing = Standing::Configured;
        remember(&mut seen.lives, pool);
        seen
    }

    fn note_served(&mut self, served: &Served) {
        let seen = self.note_pool(&served.pool);
        let model = seen.models.entry(Arc::clone(served.metrics.model())).or_default();
        model.standing = Standing::Configured;
        remember(&mut model.lives, &served.metrics);
    }
}

/// Drops the dead, and puts the newest life at the end.
fn remember<T>(lives: &mut Vec<Weak<T>>, newest: &Arc<T>) {
    lives.retain(|life| life.strong_count() > 0 && life.as_ptr() != Arc::as_ptr(newest));
    lives.push(Arc::downgrade(newest));
}

impl Seen {
    /// Names of the endpoints that are there, or that have work. What is left of a removed pool is brought up to date
    /// here, since it is on no list by which pages are made.
    fn present(&mut self, pool: &str, metrics: &Metrics) -> BTreeSet<Arc<str>> {
        self.lives.retain(|life| life.strong_count() > 0);
        let lives: Vec<_> = self.lives.iter().filter_map(Weak::upgrade).collect();
        let mut present = BTreeSet::new();
        for (index, life) in lives.iter().enumerate() {
            let is_configured = self.standing == Standing::Configured && index + 1 == lives.len();
            let mut view = life.view();
            if is_configured {
                present.extend(life.endpoints().values().map(|endpoint| Arc::clone(&endpoint.name)));
            } else {
                keep_working(&mut view);
            }
            present.extend(view.endpoints.iter().map(|endpoint| Arc::clone(&endpoint.name)));
            if self.standing == Standing::Removed {
                page::endpoint_levels(metrics, pool, &view, &[]);
                page::queue_levels(metrics, pool, life.waiting());
            }
        }
        for name in &present {
            self.endpoints.insert(Arc::clone(name), Trace::Series);
        }
        present
    }

    /// Whether requests wait in what is left of it.
    fn has_waiting(&self) -> bool {
        self.lives.iter().filter_map(Weak::upgrade).any(|life| life.has_waiting())
    }

    fn forget_endpoints(
        &mut self,
        pool: &str,
        metrics: &Metrics,
        present: &BTreeSet<Arc<str>>,
        anywhere: &BTreeSet<Arc<str>>,
    ) {
        self.endpoints.retain(|name, trace| {
            if present.contains(name) {
                return true;
            }
            if anywhere.contains(name) {
                metrics.forget(&[("pool", pool), ("endpoint", name)]);
            } else {
                // Some of its series do not name a pool, since one look at an endpoint serves all of its pools.
                metrics.forget(&[("endpoint", name)]);
            }
            std::mem::replace(trace, Trace::Swept) == Trace::Series
        });
    }

    fn forget_models(&mut self, pool: &str, metrics: &Metrics) {
        self.models.retain(|name, model| {
            if model.standing == Standing::Configured {
                return true;
            }
            model.lives.retain(|life| life.strong_count() > 0);
            metrics.forget(&[("pool", pool), ("adapter", name)]);
            if model.lives.is_empty() {
                metrics.forget(&[("pool", pool), ("model", name)]);
            }
            !model.lives.is_empty()
        });
    }
}

/// A pool that is not configured any more has endpoints only as far as they have work.
fn keep_working(view: &mut PoolView) {
    view.endpoints.retain(|endpoint| endpoint.in_flight.requests > 0);
}
