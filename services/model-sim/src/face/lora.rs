//! Loading and unloading adapters at run time.

use http::{Response, StatusCode};
use serde_json::json;

use super::Call;
use crate::{
    answer::{Body, answer, ok_json},
    failure::Failure,
    fields::Fields,
    options::{Adapter, Face},
    sim::Sim,
};

pub(super) fn load(sim: &Sim, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let name = fields.string("lora_name")?.unwrap_or_default();
    let path = fields.string("lora_path")?.unwrap_or_default();
    if name.is_empty() || path.is_empty() {
        return Err(Failure::user_input("Both 'lora_name' and 'lora_path' must be provided.".to_owned()));
    }
    sim.adapters.load(Adapter { name: name.to_owned(), path: path.to_owned() })?;
    Ok(success(sim, name, "added"))
}

pub(super) fn unload(sim: &Sim, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let name = Fields(&body).string("lora_name")?.unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(Failure::user_input("'lora_name' must be provided.".to_owned()));
    }
    sim.adapters.unload(&name)?;
    Ok(success(sim, &name, "removed"))
}

fn success(sim: &Sim, name: &str, done: &str) -> Response<Body> {
    match sim.options.face {
        Face::Vllm | Face::Tgi => {
            let text = format!("Success: LoRA adapter '{name}' {done} successfully.");
            answer(StatusCode::OK, "text/plain; charset=utf-8", text)
        }
        Face::Sglang => {
            let loaded: serde_json::Map<_, _> =
                sim.adapters.loaded().into_iter().map(|adapter| (adapter.name, json!(adapter.path))).collect();
            ok_json(&json!({"success": true, "error_message": "", "loaded_adapters": loaded}))
        }
    }
}
