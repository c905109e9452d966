//! The metrics that are levels rather than events, brought up to date when a page is asked for.
//!
//! They are copies of what pools know anyway, so setting them as they change would be work on the request path that
//! nobody may ever read. A number that is not known has no series: a 0 would be a claim.

use std::{collections::BTreeMap, sync::Arc};

use dispatch::{Band, EndpointView, PoolView, Seen};
use pool::State;
use telemetry::{
    Metrics,
    catalog::{
        BODY_MEMORY, BUILD_INFO, CONFIG_GENERATION, CONFIG_VALID, ENDPOINT_ADAPTER_RESIDENT, ENDPOINT_KV_CACHE,
        ENDPOINT_RUNNING, ENDPOINT_SIGNAL_AGE, ENDPOINT_STATE, ENDPOINT_TTFT_ERROR, ENDPOINT_TYPICAL_TTFT,
        ENDPOINT_WAITING, IN_FLIGHT, LIMIT_KEYS, LIMIT_OPEN, Metric, OWN_SIGNALS_ONLY, PREFIX_INDEX_BYTES,
        PREFIX_INDEX_ENTRIES, PREFIX_INDEX_EVICTIONS, QUEUE_BYTES, QUEUE_DEPTH, SATURATION,
    },
};

use super::process;
use crate::{limits::Rule, pools::Waiting, world::World};

/// Brings every level up to date.
pub(super) fn refresh(world: &World) {
    let metrics = &world.metrics;
    for listed in &world.routes.load().pools {
        let view = listed.pool.view();
        pool_levels(metrics, &listed.pool.name, &view);
        queue_levels(metrics, &listed.pool.name, listed.pool.waiting());
        endpoint_levels(metrics, &listed.pool.name, &view, &listed.adapters);
    }
    limit_levels(metrics, &world.routes.load().limits);
    let config = world.config.load();
    metrics.gauge(&CONFIG_GENERATION, &[]).set(config.generation as f64);
    metrics.gauge(&CONFIG_VALID, &[]).set(flag(config.error.is_none()));
    metrics.gauge(&BODY_MEMORY, &[]).set(world.body_memory.held_bytes() as f64);
    metrics.gauge(&BUILD_INFO, &[env!("CARGO_PKG_VERSION")]).set(1.0);
    process::refresh(metrics, world.clock.started_unix_seconds());
}

/// The levels of limits, over all of one name.
fn limit_levels(metrics: &Metrics, limits: &[Arc<Rule>]) {
    let mut named: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for limit in limits {
        let (keys, open) = limit.levels();
        let sum = named.entry(limit.name()).or_default();
        *sum = (sum.0 + keys, sum.1 + open);
    }
    for (name, (keys, open)) in named {
        metrics.gauge(&LIMIT_KEYS, &[name]).set(keys as f64);
        metrics.gauge(&LIMIT_OPEN, &[name]).set(open as f64);
    }
}

fn pool_levels(metrics: &Metrics, pool: &str, view: &PoolView) {
    let set = |metric, value| metrics.gauge(metric, &[pool]).set(value);
    set(&SATURATION, view.saturation);
    set(&OWN_SIGNALS_ONLY, flag(rests_on_own_signals(view)));
    set(&PREFIX_INDEX_BYTES, view.index.bytes as f64);
    set(&PREFIX_INDEX_ENTRIES, view.index.entries as f64);
    metrics.counter(&PREFIX_INDEX_EVICTIONS, &[pool]).absolute(view.index.evictions);
}

/// Bands of which nobody waits have their zeros: that nobody waits is known.
pub(super) fn queue_levels(metrics: &Metrics, pool: &str, waiting: [Waiting; Band::COUNT]) {
    for band in Band::ALL {
        let (labels, Waiting { requests, bytes }) = ([pool, band.label()], waiting[band.index()]);
        metrics.gauge(&QUEUE_DEPTH, &labels).set(f64::from(requests));
        metrics.gauge(&QUEUE_BYTES, &labels).set(bytes as f64);
    }
}

/// Whether picks rest on own counts since all that could be picked is stale.
pub(crate) fn rests_on_own_signals(view: &PoolView) -> bool {
    let any = |state| view.endpoints.iter().any(|endpoint| endpoint.state == state);
    any(State::Stale) && !any(State::Ready) && !any(State::Starting)
}

/// The levels of each endpoint of a pool, or of what is left of one.
pub(super) fn endpoint_levels(metrics: &Metrics, pool: &str, view: &PoolView, adapters: &[Arc<str>]) {
    for (name, Lives { in_flight, newest }) in by_name(view) {
        let labels = [pool, name];
        metrics.gauge(&IN_FLIGHT, &labels).set(f64::from(in_flight));
        let [waiting, running, kv_cache] = [newest.waiting, newest.running, newest.kv_cache];
        level(metrics, &ENDPOINT_WAITING, labels, waiting.map(|seen| seen.value));
        level(metrics, &ENDPOINT_RUNNING, labels, running.map(|seen| seen.value));
        level(metrics, &ENDPOINT_KV_CACHE, labels, kv_cache.map(|seen| seen.value));
        let latency = newest.latency;
        level(metrics, &ENDPOINT_TYPICAL_TTFT, labels, latency.error.map(|_| latency.typical_ttft_s));
        level(metrics, &ENDPOINT_TTFT_ERROR, labels, latency.error);
        level(metrics, &ENDPOINT_SIGNAL_AGE, labels, youngest_age_s([waiting, running, kv_cache]));
        for state in State::ALL {
            metrics.gauge(&ENDPOINT_STATE, &[pool, name, state.as_str()]).set(flag(newest.state == state));
        }
        for adapter in adapters {
            let is_resident = newest.adapters.iter().any(|known| known.name == *adapter);
            metrics.gauge(&ENDPOINT_ADAPTER_RESIDENT, &[pool, name, adapter]).set(flag(is_resident));
        }
    }
}

/// The lives of one name: an endpoint that left may still have work while another came in its place.
struct Lives<'a> {
    /// Over all of them.
    in_flight: u32,
    /// Whose state and signals are shown.
    newest: &'a EndpointView,
}

fn by_name(view: &PoolView) -> BTreeMap<&str, Lives<'_>> {
    let mut named: BTreeMap<&str, Lives<'_>> = BTreeMap::new();
    // In the order in which they joined: the last of a name is the newest.
    for endpoint in &view.endpoints {
        let lives = named.entry(&endpoint.name).or_insert(Lives { in_flight: 0, newest: endpoint });
        lives.in_flight += endpoint.in_flight.requests;
        lives.newest = endpoint;
    }
    named
}

fn level(metrics: &Metrics, metric: &'static Metric, labels: [&str; 2], value: Option<f64>) {
    match value {
        Some(value) => metrics.gauge(metric, &labels).set(value),
        None => metrics.forget_gauge(metric, &labels),
    }
}

fn youngest_age_s(seen: [Option<Seen>; 3]) -> Option<f64> {
    seen.into_iter().flatten().map(|seen| seen.age).min().map(|age| age.as_secs_f64())
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}
