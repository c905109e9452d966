//! `/v1/models`: the base model under each of its names, then one card per loaded adapter.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    answer::{Body, json_answer, ok_json},
    failure::Failure,
    options::Face,
    sim::Sim,
};

pub(super) fn list(sim: &Sim) -> Response<Body> {
    ok_json(&json!({"object": "list", "data": cards(sim)}))
}

pub(super) fn one(sim: &Sim, id: &str) -> Result<Response<Body>, Failure> {
    if let Some(card) = cards(sim).into_iter().find(|card| card["id"] == id) {
        return Ok(ok_json(&card));
    }
    match sim.options.face {
        Face::Vllm | Face::Tgi => Err(Failure::model_not_found(id)),
        Face::Sglang => Ok(json_answer(
            StatusCode::NOT_FOUND,
            &json!({"error": {
                "message": format!("The model '{id}' does not exist"), "type": "invalid_request_error",
                "param": "model", "code": "model_not_found",
            }}),
        )),
    }
}

fn cards(sim: &Sim) -> Vec<Value> {
    let options = &sim.options;
    let (base, now) = (options.shown_name(), sim.clock.unix());
    let adapters = sim.adapters.loaded();
    match options.face {
        Face::Vllm => {
            let own = options
                .served_names
                .iter()
                .map(|name| vllm_card(sim, name, &options.model, Value::Null, json!(sim.context_tokens_max())));
            let lora = adapters.iter().map(|a| vllm_card(sim, &a.name, &a.path, json!(base), Value::Null));
            own.chain(lora).collect()
        }
        Face::Sglang => {
            let card = |id: &str, root: &str, parent: Value, max: Value| {
                json!({
                    "id": id, "object": "model", "created": now, "owned_by": "sglang", "root": root,
                    "parent": parent, "max_model_len": max,
                })
            };
            let own = std::iter::once(card(base, base, Value::Null, json!(sim.context_tokens_max())));
            own.chain(adapters.iter().map(|a| card(&a.name, &a.path, json!(base), Value::Null))).collect()
        }
        Face::Tgi => vec![json!({"id": base, "object": "model", "created": 0, "owned_by": base})],
    }
}

fn vllm_card(sim: &Sim, id: &str, root: &str, parent: Value, max_model_len: Value) -> Value {
    let now = sim.clock.unix();
    json!({
        "id": id, "object": "model", "created": now, "owned_by": "vllm", "root": root, "parent": parent,
        "max_model_len": max_model_len,
        "permission": [{
            "id": format!("modelperm-{}", super::fresh_hex(sim)), "object": "model_permission", "created": now,
            "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
            "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false, "organization": "*",
            "group": null, "is_blocking": false,
        }],
    })
}
