//! `/v1/completions`: one prompt or many, each a text or token ids.

use std::sync::Arc;

use http::Response;
use serde_json::{Value, json};

use super::{
    Call,
    chunk::{Kind, Shape},
    params::{self, UsageReports},
};
use crate::{
    answer::{Body, Events, event_stream, ok_json},
    failure::Failure,
    fields::Fields,
    generation::{End, Generation, Usage},
    options::Face,
    prompt::prompts,
    sim::Sim,
};

/// Prompts of one request.
const PROMPTS_MAX: usize = 256;
/// The API's own default.
const TOKENS_DEFAULT: u32 = 16;

pub(super) async fn serve(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let prompts = prompts("prompt", fields.required("prompt", fields.any("prompt"))?)?;
    if prompts.is_empty() || prompts.len() > PROMPTS_MAX {
        return Err(Failure::invalid("prompt", format!("prompt must have 1 to {PROMPTS_MAX} entries.")));
    }
    let streams = fields.flag("stream")?;
    let reports = params::usage_reports(fields, streams)?;
    let asked = sim.model(fields)?;
    let mut generations = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let mut ask = params::ask(call, fields, prompt, asked.adapter, &["max_tokens"])?;
        ask.tokens_max = ask.tokens_max.or(Some(TOKENS_DEFAULT));
        generations.push(sim.generate(&ask)?);
    }
    let prefix = match sim.options.face {
        Face::Vllm => "cmpl-",
        Face::Sglang | Face::Tgi => "",
    };
    let id = call.answer_id(sim, prefix);
    let shape = Shape::new(&sim.options, id, sim.clock.unix(), asked.shown, reports, sim.fingerprint());
    if streams {
        return Ok(event_stream(|events| stream(events, shape, generations)));
    }
    let mut choices = Vec::new();
    let mut usage = Usage::default();
    for generation in &mut generations {
        choices.extend(generation.finish().await);
        usage = usage.plus(generation.usage());
    }
    Ok(ok_json(&whole(&shape, &choices, usage)))
}

/// Streams the prompts' answers one prompt after the other; all of them run in the engine meanwhile.
async fn stream(events: Events, shape: Shape, mut generations: Vec<Generation>) {
    let mut first_choice = 0;
    let mut usage = Usage::default();
    for generation in &mut generations {
        let mut choices = 0;
        while let Some(mut delta) = generation.next().await {
            choices = choices.max(delta.choice + 1);
            delta.choice += first_choice;
            events.data(&shape.text(Kind::Completion, &delta, usage.plus(generation.usage())));
        }
        first_choice += choices;
        usage = usage.plus(generation.usage());
    }
    if shape.reports != UsageReports::None {
        events.data(&shape.usage(Kind::Completion, usage));
    }
    events.done();
}

fn whole(shape: &Shape, choices: &[(String, End)], usage: Usage) -> Value {
    let choice = |(index, (text, end)): (usize, &(String, End))| match shape.face {
        Face::Vllm => json!({
            "index": index, "text": text, "logprobs": null, "finish_reason": end.reason(),
            "stop_reason": end.stop_json(), "token_ids": null, "prompt_logprobs": null, "prompt_token_ids": null,
        }),
        Face::Sglang => json!({
            "index": index, "text": text, "logprobs": null, "finish_reason": end.reason(),
            "matched_stop": end.stop_json(),
        }),
        Face::Tgi => json!({"index": index, "text": text, "logprobs": null, "finish_reason": end.reason()}),
    };
    let choices: Vec<Value> = choices.iter().enumerate().map(choice).collect();
    let mut answer = json!({
        "id": shape.id, "object": "text_completion", "created": shape.created, "model": shape.model,
        "choices": choices, "usage": usage.to_json(),
    });
    if shape.face == Face::Vllm {
        answer["service_tier"] = Value::Null;
        answer["system_fingerprint"] = json!(shape.fingerprint);
        answer["kv_transfer_params"] = Value::Null;
    }
    answer
}
