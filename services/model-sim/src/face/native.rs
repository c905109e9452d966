//! `/generate` as SGLang and TGI have it, and TGI's `/generate_stream`.

use std::{sync::Arc, time::Instant};

use http::{HeaderValue, Response};
use serde_json::{Map, Value, json};

use super::{Call, params};
use crate::{
    answer::{Body, Events, event_stream, ok_json},
    failure::Failure,
    fields::Fields,
    generation::{Ask, Delta, End, Generation},
    options::Face,
    prompt::prompts,
    sim::Sim,
    text::token_id,
};

/// TGI's and SGLang's defaults.
const TGI_TOKENS_DEFAULT: u32 = 100;
const SGLANG_TOKENS_DEFAULT: u32 = 128;

pub(super) async fn generate(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    match sim.options.face {
        Face::Tgi if Fields(&body).flag("stream")? => generate_stream(sim, call).await,
        Face::Tgi => tgi(sim, call, &body).await,
        Face::Sglang | Face::Vllm => sglang(sim, call, &body).await,
    }
}

// === TGI ===

async fn tgi(sim: &Arc<Sim>, call: &Call<'_>, body: &Map<String, Value>) -> Result<Response<Body>, Failure> {
    let began = Instant::now();
    let mut generation = sim.generate(&tgi_ask(call, Fields(body))?)?;
    let (text, end) = generation.finish().await.swap_remove(0);
    let wants_details = body.get("parameters").and_then(|p| p.get("details")) == Some(&Value::Bool(true));
    let mut answer = json!({"generated_text": text});
    if wants_details {
        answer["details"] = tgi_details(&generation, &end);
    }
    let mut response = ok_json(&answer);
    let (usage, total_ms) = (generation.usage(), began.elapsed().as_millis());
    let headers = response.headers_mut();
    for (name, value) in [
        ("x-compute-type", "gpu".to_owned()),
        ("x-compute-time", format!("{:.3}", total_ms as f64 / 1e3)),
        ("x-prompt-tokens", usage.prompt.to_string()),
        ("x-generated-tokens", usage.completion.to_string()),
        ("x-total-time", total_ms.to_string()),
        ("x-inference-time", total_ms.to_string()),
        ("x-time-per-token", (total_ms / u128::from(usage.completion.max(1))).to_string()),
    ] {
        headers.insert(name, HeaderValue::from_str(&value).expect("numbers are header values"));
    }
    Ok(response)
}

pub(super) async fn generate_stream(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let generation = sim.generate(&tgi_ask(call, Fields(&body))?)?;
    Ok(event_stream(|events| tgi_stream(events, generation)))
}

async fn tgi_stream(events: Events, mut generation: Generation) {
    let (mut index, mut whole) = (0, String::new());
    while let Some(delta) = generation.next().await {
        index += 1;
        whole.push_str(&delta.text);
        let (text, details) = match &delta.end {
            Some(end) => (json!(whole), tgi_details(&generation, end)),
            None => (Value::Null, Value::Null),
        };
        let special = delta.text.is_empty();
        let token = json!({"id": token_id(&delta.text), "text": delta.text, "logprob": -0.5, "special": special});
        events.data(&json!({"index": index, "token": token, "generated_text": text, "details": details}).to_string());
    }
}

fn tgi_ask(call: &Call<'_>, fields: Fields<'_>) -> Result<Ask, Failure> {
    let inputs = fields.required("inputs", fields.string("inputs")?)?;
    let none = Map::new();
    let parameters = fields.object("parameters")?.unwrap_or(Fields(&none));
    let mut ask = params::ask(call, parameters, crate::prompt::Prompt::of_text(inputs), None, &["max_new_tokens"])?;
    ask.tokens_max = ask.tokens_max.or(Some(TGI_TOKENS_DEFAULT));
    ask.choices = 1;
    Ok(ask)
}

fn tgi_details(generation: &Generation, end: &End) -> Value {
    let reason = match end {
        End::Turn => "eos_token",
        End::StopString(_) => "stop_sequence",
        End::Limit => "length",
    };
    let usage = generation.usage();
    json!({
        "finish_reason": reason, "generated_tokens": usage.completion, "seed": null, "prefill": [], "tokens": [],
        "input_length": usage.prompt,
    })
}

// === SGLang ===

async fn sglang(sim: &Arc<Sim>, call: &Call<'_>, body: &Map<String, Value>) -> Result<Response<Body>, Failure> {
    let fields = Fields(body);
    let (name, input) = match (fields.any("text"), fields.any("input_ids")) {
        (Some(text), _) => ("text", text),
        (None, ids) => ("input_ids", fields.required("text", ids)?),
    };
    let prompts = prompts(name, input)?;
    let batched = input.as_array().is_some_and(|list| !list.first().is_some_and(Value::is_number));
    let none = Map::new();
    let sampling = fields.object("sampling_params")?.unwrap_or(Fields(&none));
    let adapter = fields.string("lora_path")?.and_then(|path| sim.adapters.find(path));
    let mut generations = Vec::new();
    for prompt in prompts {
        let mut ask = params::ask(call, sampling, prompt, adapter, &["max_new_tokens"])?;
        ask.tokens_max = ask.tokens_max.or(Some(SGLANG_TOKENS_DEFAULT));
        ask.choices = 1;
        generations.push(sim.generate(&ask)?);
    }
    let id = call.answer_id(sim, "");
    let began = Instant::now();
    if fields.flag("stream")? {
        return Ok(event_stream(|events| sglang_stream(events, id, generations, began)));
    }
    let mut answers = Vec::new();
    for generation in &mut generations {
        let (text, end) = generation.finish().await.swap_remove(0);
        answers.push(json!({"text": text, "meta_info": sglang_meta(&id, generation, Some(&end), began)}));
    }
    if answers.is_empty() {
        return Err(Failure::invalid(name, format!("{name} must not be empty.")));
    }
    Ok(ok_json(&if batched { Value::Array(answers) } else { answers.swap_remove(0) }))
}

/// SGLang repeats the whole text so far in every event.
async fn sglang_stream(events: Events, id: String, mut generations: Vec<Generation>, began: Instant) {
    for (index, generation) in generations.iter_mut().enumerate() {
        let mut whole = String::new();
        while let Some(Delta { text, end, .. }) = generation.next().await {
            whole.push_str(&text);
            let meta = sglang_meta(&id, generation, end.as_ref(), began);
            events.data(&json!({"text": whole, "meta_info": meta, "index": index}).to_string());
        }
    }
    events.done();
}

fn sglang_meta(id: &str, generation: &Generation, end: Option<&End>, began: Instant) -> Value {
    let usage = generation.usage();
    let reason = match end {
        None => Value::Null,
        Some(End::Limit) => json!({"type": "length", "length": usage.completion}),
        Some(end) => json!({"type": "stop", "matched": end.stop_json()}),
    };
    json!({
        "id": id, "finish_reason": reason, "prompt_tokens": usage.prompt, "weight_version": "default",
        "completion_tokens": usage.completion, "cached_tokens": usage.cached,
        "e2e_latency": began.elapsed().as_secs_f64(),
    })
}
