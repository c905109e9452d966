//! `/v1/chat/completions`.

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
    generation::{End, Generation},
    options::Face,
    prompt::Prompt,
    sim::Sim,
};

pub(super) async fn serve(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let messages = fields.required("messages", fields.list("messages")?)?;
    let streams = fields.flag("stream")?;
    let reports = params::usage_reports(fields, streams)?;
    let asked = sim.model(fields)?;
    let prompt = Prompt::chat(messages, fields.any("tools"))?;
    let ask = params::ask(call, fields, prompt, asked.adapter, &["max_completion_tokens", "max_tokens"])?;
    let mut generation = sim.generate(&ask)?;
    let prefix = match sim.options.face {
        Face::Vllm => "chatcmpl-",
        Face::Sglang | Face::Tgi => "",
    };
    let id = call.answer_id(sim, prefix);
    let shape = Shape::new(&sim.options, id, sim.clock.unix(), asked.shown, reports, sim.fingerprint());
    if streams {
        return Ok(event_stream(|events| stream(events, shape, generation)));
    }
    let choices = generation.finish().await;
    Ok(ok_json(&whole(&shape, &choices, &generation)))
}

async fn stream(events: Events, shape: Shape, mut generation: Generation) {
    while let Some(mut delta) = generation.next().await {
        let usage = generation.usage();
        if delta.first && shape.face != Face::Tgi {
            events.data(&shape.role(delta.choice, usage));
        }
        match (shape.face, delta.end.is_some()) {
            (Face::Sglang, true) => {
                if !delta.text.is_empty() {
                    let end = delta.end.take();
                    events.data(&shape.text(Kind::Chat, &delta, usage));
                    delta.end = end;
                }
                events.data(&shape.sglang_end(&delta, usage));
            }
            _ => events.data(&shape.text(Kind::Chat, &delta, usage)),
        }
    }
    if shape.reports != UsageReports::None {
        events.data(&shape.usage(Kind::Chat, generation.usage()));
    }
    events.done();
}

fn whole(shape: &Shape, choices: &[(String, End)], generation: &Generation) -> Value {
    let choice = |(index, (text, end)): (usize, &(String, End))| match shape.face {
        Face::Vllm => json!({
            "index": index,
            "message": {
                "role": "assistant", "content": text, "refusal": null, "annotations": null, "audio": null,
                "function_call": null, "tool_calls": [], "reasoning": null,
            },
            "logprobs": null,
            "finish_reason": end.reason(),
            "stop_reason": end.stop_json(),
            "token_ids": null,
        }),
        Face::Sglang => json!({
            "index": index,
            "message": {"role": "assistant", "content": text, "reasoning_content": null, "tool_calls": null},
            "logprobs": null,
            "finish_reason": end.reason(),
            "matched_stop": end.stop_json(),
        }),
        Face::Tgi => json!({
            "index": index,
            "message": {"role": "assistant", "content": text},
            "logprobs": null,
            "finish_reason": end.reason(),
        }),
    };
    let choices: Vec<Value> = choices.iter().enumerate().map(choice).collect();
    let mut answer = json!({
        "id": shape.id, "object": "chat.completion", "created": shape.created, "model": shape.model,
        "choices": choices, "usage": generation.usage().to_json(),
    });
    match shape.face {
        Face::Vllm => {
            answer["service_tier"] = Value::Null;
            answer["system_fingerprint"] = json!(shape.fingerprint);
            answer["prompt_logprobs"] = Value::Null;
            answer["prompt_token_ids"] = Value::Null;
            answer["kv_transfer_params"] = Value::Null;
        }
        Face::Sglang => answer["metadata"] = json!({"weight_version": "default"}),
        Face::Tgi => {
            answer["id"] = json!("");
            answer["system_fingerprint"] = json!(shape.fingerprint);
        }
    }
    answer
}
