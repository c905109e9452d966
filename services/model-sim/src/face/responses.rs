//! `/v1/responses`: answers as items, their events, and the last few answers kept for later reading.

use std::{collections::VecDeque, sync::Arc};

use http::Response;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Call, params};
use crate::{
    answer::{Body, Events, event_stream, ok_json},
    failure::Failure,
    fields::Fields,
    generation::{End, Generation},
    prompt::Prompt,
    sim::Sim,
};

/// Answers that can be read again.
#[derive(Debug, Default)]
pub(crate) struct Stored(Mutex<VecDeque<Value>>);

/// Answers kept.
const STORED_MAX: usize = 256;

/// What all states of one answer share.
#[derive(Clone, Debug)]
struct Shape {
    id: String,
    item: String,
    created: u64,
    model: String,
    instructions: Value,
    metadata: Value,
    tokens_max: Option<u32>,
    stored: bool,
}

impl Stored {
    fn keep(&self, answer: &Value) {
        let mut kept = self.0.lock();
        if kept.len() == STORED_MAX {
            kept.pop_front();
        }
        kept.push_back(answer.clone());
    }

    fn find(&self, id: &str) -> Result<Value, Failure> {
        let kept = self.0.lock();
        let found = kept.iter().find(|answer| answer["id"] == id).cloned();
        found.ok_or_else(|| Failure::not_found(format!("Response with id '{id}' not found.")))
    }
}

pub(super) fn get(sim: &Sim, id: &str) -> Result<Response<Body>, Failure> {
    Ok(ok_json(&sim.responses.find(id)?))
}

pub(super) fn cancel(sim: &Sim, id: &str) -> Result<Response<Body>, Failure> {
    sim.responses.find(id)?;
    Err(Failure::invalid("response_id", "Cannot cancel a synchronous response.".to_owned()))
}

pub(super) async fn serve(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let input = fields.required("input", fields.any("input"))?;
    let streams = fields.flag("stream")?;
    let asked = sim.model(fields)?;
    let prompt = prompt(sim, fields, input)?;
    let mut ask = params::ask(call, fields, prompt, asked.adapter, &["max_output_tokens"])?;
    ask.choices = 1;
    let mut generation = sim.generate(&ask)?;
    let shape = Shape {
        id: call.answer_id(sim, "resp_"),
        item: format!("msg_{}", super::fresh_hex(sim)),
        created: sim.clock.unix(),
        model: asked.shown,
        instructions: fields.any("instructions").cloned().unwrap_or(Value::Null),
        metadata: fields.any("metadata").cloned().unwrap_or_else(|| json!({})),
        tokens_max: ask.tokens_max,
        stored: fields.any("store").is_none_or(|store| store != &Value::Bool(false)),
    };
    if streams {
        let sim = sim.clone();
        return Ok(event_stream(|events| stream(events, sim, shape, generation)));
    }
    let (text, end) = generation.finish().await.swap_remove(0);
    let answer = shape.complete(&text, &end, &generation);
    sim.keep(&shape, &answer);
    Ok(ok_json(&answer))
}

/// Instructions, a former answer, then the input as a chat.
fn prompt(sim: &Sim, fields: Fields<'_>, input: &Value) -> Result<Prompt, Failure> {
    let mut prompt = Prompt::default();
    if let Some(instructions) = fields.string("instructions")? {
        prompt.turn("system", |prompt| prompt.text(instructions));
    }
    if let Some(tools) = fields.any("tools") {
        prompt.turn("tools", |prompt| prompt.text(&tools.to_string()));
    }
    if let Some(before) = fields.string("previous_response_id")? {
        let before = sim.responses.find(before)?;
        prompt.turn("assistant", |prompt| prompt.content(&before["output"][0]["content"]));
    }
    match input {
        Value::String(text) => prompt.turn("user", |prompt| prompt.text(text)),
        Value::Array(items) => {
            for item in items {
                let role = item.get("role").and_then(Value::as_str).unwrap_or("user");
                prompt.turn(role, |prompt| match item.get("content") {
                    Some(content) => prompt.content(content),
                    None => prompt.text(&item.to_string()),
                });
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(Failure::malformed("input", "type_error", "Input should be a string or a list"));
        }
    }
    prompt.answer_head();
    Ok(prompt)
}

async fn stream(events: Events, sim: Arc<Sim>, shape: Shape, mut generation: Generation) {
    let mut number = 0_u64;
    let mut send = |kind: &str, mut event: Value| {
        event["type"] = json!(kind);
        event["sequence_number"] = json!(number);
        number += 1;
        events.named(kind, &event);
    };
    let begun = shape.answer("in_progress", json!([]), &Value::Null);
    send("response.created", json!({"response": begun}));
    send("response.in_progress", json!({"response": begun}));
    let item = |status: &str, content: Value| json!({"id": shape.item, "type": "message", "status": status, "role": "assistant", "content": content});
    let place = || json!({"item_id": shape.item, "output_index": 0, "content_index": 0});
    send("response.output_item.added", json!({"output_index": 0, "item": item("in_progress", json!([]))}));
    let mut added = place();
    added["part"] = part("");
    send("response.content_part.added", added);
    let (mut text, mut end) = (String::new(), End::Limit);
    while let Some(delta) = generation.next().await {
        if !delta.text.is_empty() {
            let mut event = place();
            event["delta"] = json!(delta.text);
            event["logprobs"] = json!([]);
            send("response.output_text.delta", event);
        }
        text.push_str(&delta.text);
        end = delta.end.unwrap_or(end);
    }
    let mut done = place();
    done["text"] = json!(text);
    done["logprobs"] = json!([]);
    send("response.output_text.done", done);
    let mut done = place();
    done["part"] = part(&text);
    send("response.content_part.done", done);
    send("response.output_item.done", json!({"output_index": 0, "item": item("completed", json!([part(&text)]))}));
    let answer = shape.complete(&text, &end, &generation);
    sim.keep(&shape, &answer);
    let kind = if answer["status"] == "completed" { "response.completed" } else { "response.incomplete" };
    send(kind, json!({"response": answer}));
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

impl Sim {
    fn keep(&self, shape: &Shape, answer: &Value) {
        if shape.stored {
            self.responses.keep(answer);
        }
    }
}

impl Shape {
    fn complete(&self, text: &str, end: &End, generation: &Generation) -> Value {
        let status = match end {
            End::Turn | End::StopString(_) => "completed",
            End::Limit => "incomplete",
        };
        let item = json!([{
            "id": self.item, "type": "message", "status": status, "role": "assistant", "content": [part(text)],
        }]);
        let usage = generation.usage();
        let usage = json!({
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt + usage.completion,
        });
        self.answer(status, item, &usage)
    }

    fn answer(&self, status: &str, output: Value, usage: &Value) -> Value {
        let incomplete = if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "error": null,
            "incomplete_details": incomplete, "instructions": self.instructions, "metadata": self.metadata,
            "model": self.model, "output": output, "parallel_tool_calls": true, "temperature": 1.0,
            "tool_choice": "auto", "tools": [], "top_p": 1.0, "background": false,
            "max_output_tokens": self.tokens_max, "previous_response_id": null, "prompt": null, "reasoning": null,
            "service_tier": "auto", "text": null, "truncation": "disabled", "usage": usage, "user": null,
        })
    }
}
