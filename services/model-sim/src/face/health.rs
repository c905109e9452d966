//! Probes and self-descriptions.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::{
    answer::{Body, answer, ok_json},
    failure::Failure,
    options::{Face, Version},
    prompt::Prompt,
    sim::Sim,
};

/// SGLang's health check polls for its one-token answer once a second.
const SGLANG_POLL: Duration = Duration::from_secs(1);

/// 200 and nothing; SGLang generates a token for it first.
pub(super) async fn health(sim: &Sim) -> Response<Body> {
    if sim.options.face == Face::Sglang {
        let prompt = Prompt::of_text(".");
        let (probed, ()) = tokio::join!(sim.prefill(&prompt, None), tokio::time::sleep(sim.clock.real(SGLANG_POLL)));
        if probed.is_err() {
            return answer(StatusCode::SERVICE_UNAVAILABLE, "", Bytes::new());
        }
    }
    answer(StatusCode::OK, "", Bytes::new())
}

/// vLLM's `/kv_event_sources`: how each rank publishes, by rank. It came with 0.31.
pub(super) fn kv_event_sources(sim: &Sim) -> Result<Response<Body>, Failure> {
    if sim.options.version < Version(0, 31, 0) {
        return Err(Failure::unknown_path());
    }
    let mut ranks = Map::new();
    for (rank, source) in sim.kv_event_sources.iter().enumerate() {
        let config = sim.options.kv_events.clone().unwrap_or_default();
        let shown = json!({
            "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": source.endpoint,
            "replay_endpoint": source.replay_endpoint, "buffer_steps": config.buffer_steps, "hwm": config.hwm,
            "max_queue_size": config.max_queue_size, "topic": config.topic,
        });
        ranks.insert(rank.to_string(), shown);
    }
    Ok(ok_json(&Value::Object(ranks)))
}

/// TGI's `/info`.
pub(super) fn tgi_info(sim: &Sim) -> Response<Body> {
    let max = sim.context_tokens_max();
    ok_json(&json!({
        "model_id": sim.options.model, "model_sha": null, "model_pipeline_tag": "text-generation",
        "max_concurrent_requests": sim.options.concurrent_requests_max, "max_best_of": 2, "max_stop_sequences": 4,
        "max_input_tokens": max - 1, "max_total_tokens": max, "validation_workers": 2,
        "max_client_batch_size": 4, "router": "text-generation-router", "version": sim.options.version.to_string(),
        "sha": null, "docker_label": null,
    }))
}

/// SGLang's `/server_info`.
pub(super) fn sglang_info(sim: &Sim) -> Response<Body> {
    let profile = &sim.options.profile;
    ok_json(&json!({
        "model_path": sim.options.model, "served_model_name": sim.options.shown_name(),
        "version": sim.options.version.to_string(), "page_size": 1, "dp_size": sim.options.ranks,
        "context_length": sim.context_tokens_max(),
        "max_total_num_tokens": profile.usable_blocks() * profile.block_tokens,
        "max_running_requests": profile.max_seqs, "chunked_prefill_size": profile.max_batched_tokens,
        "schedule_policy": "fcfs", "decode_log_interval": 40,
    }))
}
