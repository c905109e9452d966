//! `/tokenize` and `/detokenize`.
//!
//! Ids are hashes of pieces; what was tokenised here or is a word of the answers can be turned back.

use http::Response;
use serde_json::{Value, json};

use super::Call;
use crate::{
    answer::{Body, ok_json},
    failure::Failure,
    fields::Fields,
    options::Face,
    prompt::{Prompt, prompts},
    sim::Sim,
};

pub(super) fn tokenize(sim: &Sim, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    sim.model(fields)?;
    if sim.options.face == Face::Tgi {
        return tgi(sim, fields);
    }
    let prompt = match fields.list("messages")? {
        Some(messages) => Prompt::chat(messages, fields.any("tools"))?,
        None => {
            let text = fields.required("prompt", fields.string("prompt")?)?;
            sim.vocabulary.learn(text);
            Prompt::of_text(text)
        }
    };
    Ok(ok_json(&json!({
        "count": prompt.tokens.len(), "max_model_len": sim.context_tokens_max(), "tokens": prompt.tokens,
        "token_strs": null,
    })))
}

pub(super) fn detokenize(sim: &Sim, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    sim.model(fields)?;
    let tokens = Value::Array(fields.required("tokens", fields.list("tokens")?)?.to_vec());
    let text: String = match prompts("tokens", &tokens)?.first() {
        Some(prompt) => prompt.tokens.iter().map(|id| sim.vocabulary.text(*id)).collect(),
        None => String::new(),
    };
    let member = if sim.options.face == Face::Sglang { "text" } else { "prompt" };
    Ok(ok_json(&json!({member: text})))
}

fn tgi(sim: &Sim, fields: Fields<'_>) -> Result<Response<Body>, Failure> {
    let text = fields.required("inputs", fields.string("inputs")?)?;
    sim.vocabulary.learn(text);
    let mut at = 0;
    let tokens: Vec<Value> = crate::text::pieces(text)
        .map(|piece| {
            let start = at;
            at += piece.len();
            json!({"id": crate::text::token_id(piece), "text": piece, "start": start, "stop": at})
        })
        .collect();
    Ok(ok_json(&Value::Array(tokens)))
}
