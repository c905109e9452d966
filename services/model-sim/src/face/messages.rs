//! `/v1/messages` and its token count: Anthropic's API as vLLM and SGLang show it.

use std::sync::Arc;

use http::Response;
use serde_json::json;

use super::{Call, params};
use crate::{
    answer::{Body, Events, event_stream, ok_json},
    failure::Failure,
    fields::Fields,
    generation::{End, Generation},
    prompt::Prompt,
    sim::Sim,
};

pub(super) async fn serve(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    fields.required("max_tokens", fields.count("max_tokens", 1)?)?;
    let streams = fields.flag("stream")?;
    let asked = sim.model(fields)?;
    let mut ask = params::ask(call, fields, prompt(fields)?, asked.adapter, &["max_tokens"])?;
    ask.choices = 1;
    ask.stop = fields.strings("stop_sequences")?;
    let mut generation = sim.generate(&ask)?;
    let id = call.answer_id(sim, "msg_");
    if streams {
        return Ok(event_stream(|events| stream(events, id, asked.shown, generation)));
    }
    let (text, end) = generation.finish().await.swap_remove(0);
    let usage = generation.usage();
    Ok(ok_json(&json!({
        "id": id, "type": "message", "role": "assistant", "content": [{"type": "text", "text": text}],
        "model": asked.shown, "stop_reason": stop_reason(&end), "stop_sequence": end.stop_json(),
        "usage": {
            "input_tokens": usage.prompt - usage.cached, "output_tokens": usage.completion,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": usage.cached,
        },
    })))
}

pub(super) fn count(sim: &Sim, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    sim.model(fields)?;
    Ok(ok_json(&json!({"input_tokens": prompt(fields)?.tokens.len()})))
}

/// The system text and the messages as one chat.
fn prompt(fields: Fields<'_>) -> Result<Prompt, Failure> {
    let messages = fields.required("messages", fields.list("messages")?)?;
    let chat = match fields.any("system") {
        None => messages.to_vec(),
        Some(system) => {
            let first = json!({"role": "system", "content": system});
            std::iter::once(first).chain(messages.iter().cloned()).collect()
        }
    };
    Prompt::chat(&chat, fields.any("tools"))
}

async fn stream(events: Events, id: String, model: String, mut generation: Generation) {
    let mut end = End::Limit;
    let mut begun = false;
    while let Some(delta) = generation.next().await {
        if !std::mem::replace(&mut begun, true) {
            begin(&events, &id, &model, &generation);
        }
        if !delta.text.is_empty() {
            let event = json!({
                "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": delta.text},
            });
            events.named("content_block_delta", &event);
        }
        end = delta.end.unwrap_or(end);
    }
    let usage = generation.usage();
    events.named("content_block_stop", &json!({"type": "content_block_stop", "index": 0}));
    let last = json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(&end), "stop_sequence": end.stop_json()},
        "usage": {
            "input_tokens": usage.prompt - usage.cached, "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.completion,
        },
    });
    events.named("message_delta", &last);
    events.named("message_stop", &json!({"type": "message_stop"}));
}

fn begin(events: &Events, id: &str, model: &str, generation: &Generation) {
    let usage = generation.usage();
    let start = json!({"type": "message_start", "message": {
        "id": id, "type": "message", "role": "assistant", "content": [], "model": model, "stop_reason": null,
        "stop_sequence": null,
        "usage": {
            "input_tokens": usage.prompt - usage.cached, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached, "output_tokens": 0,
        },
    }});
    events.named("message_start", &start);
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    events.named("content_block_start", &block);
}

fn stop_reason(end: &End) -> &'static str {
    match end {
        End::Turn => "end_turn",
        End::StopString(_) => "stop_sequence",
        End::Limit => "max_tokens",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_system_text_is_the_first_turn() {
        let body: Value = json!({"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]});
        let with = prompt(Fields(body.as_object().unwrap())).unwrap();
        let chat = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
        assert_eq!(with, Prompt::chat(chat.as_array().unwrap(), None).unwrap());
    }
}
