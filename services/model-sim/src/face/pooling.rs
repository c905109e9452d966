//! Embeddings, scores, rankings and classes: prompts that are computed and not continued.
//!
//! Numbers are hashes of the texts: the same text gives the same vector, and a document that repeats words of the query
//! ranks above one that does not.

use std::{collections::BTreeSet, sync::Arc};

use fastrand::Rng;
use http::Response;
use serde_json::{Value, json};

use super::Call;
use crate::{
    answer::{Body, ok_json},
    failure::Failure,
    fields::Fields,
    generation::Usage,
    prompt::{Prompt, prompts},
    sim::Sim,
};

/// Numbers in a vector unless `dimensions` asks for others.
const DIMENSIONS: u32 = 64;
const DIMENSIONS_MAX: u32 = 8_192;
/// Texts of one request.
const TEXTS_MAX: usize = 2_048;

pub(super) async fn embeddings(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    vectors(sim, call, "embedding", "embedding").await
}

pub(super) async fn pooling(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    vectors(sim, call, "pooling", "data").await
}

async fn vectors(sim: &Arc<Sim>, call: &Call<'_>, object: &str, member: &str) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let asked = sim.model(fields)?;
    let inputs = match fields.list("messages")? {
        Some(messages) => vec![Prompt::chat(messages, None)?],
        None => prompts("input", fields.required("input", fields.any("input"))?)?,
    };
    let base64 = fields.string("encoding_format")? == Some("base64");
    let dimensions = fields.count("dimensions", 1)?.unwrap_or(DIMENSIONS).min(DIMENSIONS_MAX);
    let usage = compute(sim, &inputs, asked.adapter).await?;
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, prompt)| {
            let vector = vector(prompt, dimensions);
            let shown = if base64 { json!(encode(&vector)) } else { json!(vector) };
            json!({"index": index, "object": object, member: shown})
        })
        .collect();
    Ok(ok_json(&json!({
        "id": call.answer_id(sim, "embd-"), "object": "list", "created": sim.clock.unix(), "model": asked.shown,
        "data": data, "usage": usage_json(usage),
    })))
}

pub(super) async fn classify(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let asked = sim.model(fields)?;
    let inputs = prompts("input", fields.required("input", fields.any("input"))?)?;
    let usage = compute(sim, &inputs, asked.adapter).await?;
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, prompt)| {
            let positive = Rng::with_seed(prompt.hash()).f64();
            let label = if positive >= 0.5 { "LABEL_1" } else { "LABEL_0" };
            json!({"index": index, "label": label, "probs": [1.0 - positive, positive], "num_classes": 2})
        })
        .collect();
    Ok(ok_json(&json!({
        "id": call.answer_id(sim, "classify-"), "object": "list", "created": sim.clock.unix(), "model": asked.shown,
        "data": data, "usage": usage_json(usage),
    })))
}

pub(super) async fn score(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let asked = sim.model(fields)?;
    let texts = |names: [&str; 3]| -> Result<Vec<Prompt>, Failure> {
        let name = names.into_iter().find(|name| fields.any(name).is_some()).unwrap_or(names[0]);
        prompts(name, fields.required(name, fields.any(name))?)
    };
    let queries = texts(["text_1", "queries", "query"])?;
    let documents = texts(["text_2", "items", "documents"])?;
    let query = |index: usize| if queries.len() == 1 { &queries[0] } else { &queries[index] };
    if queries.len() != 1 && queries.len() != documents.len() {
        return Err(Failure::invalid("text_1", "Input lengths must be either 1:1, 1:N or N:N".to_owned()));
    }
    let pairs: Vec<Prompt> = documents.iter().enumerate().map(|(i, document)| pair(query(i), document)).collect();
    let usage = compute(sim, &pairs, asked.adapter).await?;
    let data: Vec<Value> = documents
        .iter()
        .enumerate()
        .map(|(i, document)| json!({"index": i, "object": "score", "score": relevance(query(i), document)}))
        .collect();
    Ok(ok_json(&json!({
        "id": call.answer_id(sim, "score-"), "object": "list", "created": sim.clock.unix(), "model": asked.shown,
        "data": data, "usage": usage_json(usage),
    })))
}

pub(super) async fn rerank(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    let fields = Fields(&body);
    let asked = sim.model(fields)?;
    let query = Prompt::of_text(fields.required("query", fields.string("query")?)?);
    let documents = fields.required("documents", fields.list("documents")?)?;
    let texts: Vec<&str> = documents.iter().map(document_text).collect::<Result<_, _>>()?;
    let top = fields.count("top_n", 0)?.filter(|top| *top > 0).unwrap_or(u32::MAX) as usize;
    let prompts: Vec<Prompt> = texts.iter().map(|text| Prompt::of_text(text)).collect();
    let pairs: Vec<Prompt> = prompts.iter().map(|document| pair(&query, document)).collect();
    let usage = compute(sim, &pairs, asked.adapter).await?;
    let mut ranked: Vec<(usize, f64)> = prompts.iter().map(|d| relevance(&query, d)).enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    let results: Vec<Value> = ranked
        .into_iter()
        .take(top)
        .map(|(index, score)| {
            let document = json!({"text": texts[index], "multi_modal": null});
            json!({"index": index, "document": document, "relevance_score": score})
        })
        .collect();
    let usage = json!({"prompt_tokens": usage.prompt, "total_tokens": usage.prompt});
    let id = call.answer_id(sim, "rerank-");
    Ok(ok_json(&json!({"id": id, "model": asked.shown, "usage": usage, "results": results})))
}

fn document_text(document: &Value) -> Result<&str, Failure> {
    let text = document.as_str().or_else(|| document.get("text").and_then(Value::as_str));
    text.ok_or_else(|| Failure::malformed("documents", "string_type", "Input should be a valid string"))
}

async fn compute(sim: &Arc<Sim>, inputs: &[Prompt], adapter: Option<engine::AdapterId>) -> Result<Usage, Failure> {
    if inputs.is_empty() || inputs.len() > TEXTS_MAX {
        return Err(Failure::invalid("input", format!("input must have 1 to {TEXTS_MAX} entries.")));
    }
    let mut usage = Usage::default();
    let mut running = tokio::task::JoinSet::new();
    for input in inputs {
        let (sim, input) = (sim.clone(), input.clone());
        // A set aborts its tasks when it is dropped, and they their requests: a client that leaves takes all along.
        running.spawn(async move { sim.prefill(&input, adapter).await });
    }
    while let Some(done) = running.join_next().await {
        usage = usage.plus(done.expect("computing a prompt does not panic")?);
    }
    Ok(usage)
}

/// A vector of length one.
fn vector(prompt: &Prompt, dimensions: u32) -> Vec<f32> {
    let mut rng = Rng::with_seed(prompt.hash());
    let raw: Vec<f64> = (0..dimensions).map(|_| rng.f64() * 2.0 - 1.0).collect();
    let length = raw.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    raw.into_iter().map(|x| (x / length) as f32).collect()
}

fn pair(query: &Prompt, document: &Prompt) -> Prompt {
    Prompt { tokens: query.tokens.iter().chain(&document.tokens).copied().collect(), salt: None }
}

/// Share of the query's tokens that the document has, moved a little by their hash so that ties are rare.
fn relevance(query: &Prompt, document: &Prompt) -> f64 {
    let words: BTreeSet<u32> = document.tokens.iter().copied().collect();
    let shared = query.tokens.iter().filter(|token| words.contains(token)).count() as f64;
    let share = shared / query.tokens.len().max(1) as f64;
    0.05 + 0.85 * share + 0.1 * Rng::with_seed(pair(query, document).hash()).f64()
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt, "total_tokens": usage.prompt, "completion_tokens": 0,
        "prompt_tokens_details": null, "completion_tokens_details": null,
    })
}

/// Little-endian floats in base64.
fn encode(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    base64(&bytes)
}

/// RFC 4648 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (word >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit > chunk.len() { '=' } else { char::from(ALPHABET[index]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn documents_with_the_querys_words_rank_higher() {
        let query = Prompt::of_text("stone bridge");
        assert!(relevance(&query, &Prompt::of_text("a stone bridge")) > relevance(&query, &Prompt::of_text("milk")));
    }
}
