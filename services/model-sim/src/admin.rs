//! `/sim/…`: faults, what was seen, what the engine is doing. For tests and demonstrations; no real server has it.

use http::{Method, Response, StatusCode, request::Parts};
use serde_json::json;

use crate::{
    answer::{Body, json_answer, ok_json},
    faults::Faults,
    sim::Sim,
};

/// Where it lives.
pub(crate) const PREFIX: &str = "/sim/";

/// Answers one request under [`PREFIX`].
pub(crate) fn answer(sim: &Sim, parts: &Parts, body: &[u8]) -> Response<Body> {
    match (&parts.method, parts.uri.path()) {
        (&Method::GET, "/sim/faults") => ok_json(&json!(sim.faults.get())),
        (&Method::PUT, "/sim/faults") => match Faults::parse(body) {
            Ok(faults) => {
                sim.set_faults(faults);
                ok_json(&json!(sim.faults.get()))
            }
            Err(error) => json_answer(StatusCode::BAD_REQUEST, &json!({"error": error.to_string()})),
        },
        (&Method::DELETE, "/sim/faults") => {
            sim.set_faults(Faults::default());
            ok_json(&json!(sim.faults.get()))
        }
        (&Method::GET, "/sim/requests") => ok_json(&json!({"requests": sim.journal.list()})),
        (&Method::GET, "/sim/state") => ok_json(&state(sim)),
        (&Method::POST, "/sim/reset") => {
            sim.set_faults(Faults::default());
            sim.journal.clear();
            ok_json(&json!({}))
        }
        _ => json_answer(
            StatusCode::NOT_FOUND,
            &json!({"error": "there are GET|PUT|DELETE /sim/faults, GET /sim/requests, GET /sim/state, POST /sim/reset"}),
        ),
    }
}

impl Sim {
    /// Replaces all faults and tells who must act at once.
    pub(crate) fn set_faults(&self, faults: Faults) {
        self.freeze_page(faults.metrics);
        self.faults.set(faults);
        self.faults_changed.send_replace(());
    }
}

fn state(sim: &Sim) -> serde_json::Value {
    let mut ranks = Vec::new();
    sim.driver.for_each_rank(|rank, held| {
        let stats = held.engine.stats();
        let (gauges, counters) = (&stats.gauges, &stats.counters);
        ranks.push(json!({
            "rank": rank,
            "live": held.engine.live(),
            "running": gauges.running,
            "waiting": gauges.waiting,
            "waiting_deferred": gauges.waiting_deferred,
            "kv_usage": gauges.kv_usage,
            "kv_blocks_used": gauges.kv_blocks_used,
            "kv_blocks_cached_free": gauges.kv_blocks_cached_free,
            "adapters_running": sim.adapters.names(&gauges.adapters_running),
            "adapters_waiting": sim.adapters.names(&gauges.adapters_waiting),
            "steps": counters.steps,
            "prefix_query_tokens": counters.prefix_queries,
            "prefix_hit_tokens": counters.prefix_hits,
            "preemptions": counters.preemptions,
            "prompt_tokens": counters.prompt_tokens,
            "generation_tokens": counters.generation_tokens,
            "finished_stop": counters.finished_stop,
            "finished_length": counters.finished_length,
            "finished_abort": counters.finished_abort,
        }));
    });
    json!({
        "engine": format!("{:?}", sim.options.face).to_lowercase(),
        "version": sim.options.version.to_string(),
        "profile": sim.options.profile.name,
        "time_scale": sim.options.time_scale,
        "ranks": ranks,
    })
}
