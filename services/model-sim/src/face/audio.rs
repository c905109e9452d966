//! `/v1/audio/transcriptions` and `/translations`: a form with a file, answered with words.

use std::sync::Arc;

use http::{Response, StatusCode};
use memchr::memmem;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::Call;
use crate::{
    answer::{Body, Events, answer, event_stream, ok_json},
    failure::Failure,
    generation::{Ask, Generation},
    prompt::Prompt,
    sim::Sim,
    text::VOCABULARY,
};

/// Bytes of sound per second: 16 kHz, 16 bits, one channel.
const BYTES_PER_SECOND: usize = 32_000;
/// Whisper encodes 30 s at a time into this many positions.
const FRAME_TOKENS: usize = 1_500;
/// Words spoken in a second.
const TOKENS_PER_SECOND: f64 = 3.0;

/// One part of a form.
struct Part<'a> {
    name: String,
    data: &'a [u8],
}

pub(super) async fn serve(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let parts = parts(call)?;
    let text = |name: &str| {
        let part = parts.iter().find(|part| part.name == name);
        part.and_then(|part| std::str::from_utf8(part.data).ok()).map(str::trim)
    };
    let Some(file) = parts.iter().find(|part| part.name == "file") else {
        return Err(Failure::malformed("file", "missing", "Field required"));
    };
    let asked = sim.model_named(text("model").filter(|name| !name.is_empty()), None)?;
    let seconds = file.data.len() as f64 / BYTES_PER_SECOND as f64;
    let ask = Ask {
        prompt: prompt(file.data, text("prompt").unwrap_or_default()),
        adapter: asked.adapter,
        choices: 1,
        tokens_max: Some((seconds * TOKENS_PER_SECOND) as u32 + 8),
        ..Ask::default()
    };
    let mut generation = sim.generate(&ask)?;
    if text("stream").is_some_and(|flag| flag.eq_ignore_ascii_case("true")) {
        let (id, created) = (call.answer_id(sim, "trsc-"), sim.clock.unix());
        return Ok(event_stream(|events| stream(events, id, created, asked.shown, generation)));
    }
    let (words, _) = generation.finish().await.swap_remove(0);
    let usage = json!({"type": "duration", "seconds": seconds.ceil() as u64});
    match text("response_format").unwrap_or("json") {
        "json" => Ok(ok_json(&json!({"text": words, "usage": usage}))),
        "text" => Ok(answer(StatusCode::OK, "text/plain; charset=utf-8", words)),
        "verbose_json" => Ok(ok_json(&json!({
            "duration": format!("{seconds:.2}"), "language": text("language").unwrap_or("en"), "text": words,
            "segments": [], "words": null,
        }))),
        other => Err(Failure::invalid("response_format", format!("`{other}` is none of json, text, verbose_json."))),
    }
}

async fn stream(events: Events, id: String, created: u64, model: String, mut generation: Generation) {
    while let Some(delta) = generation.next().await {
        let reason = delta.end.as_ref().map_or(Value::Null, |end| json!(end.reason()));
        let chunk = json!({
            "id": id, "object": "transcription.chunk", "created": created, "model": model,
            "choices": [{"delta": {"content": delta.text}, "finish_reason": reason, "stop_reason": null}],
        });
        events.data(&chunk.to_string());
    }
    events.done();
}

/// Positions of encoded sound, which depend on all of it, then the prompt's text.
fn prompt(sound: &[u8], text: &str) -> Prompt {
    let mut prompt = Prompt::default();
    let seed = xxh3_64(sound);
    let frames = sound.len().div_ceil(BYTES_PER_SECOND * 30).clamp(1, 4);
    for position in 0..frames * FRAME_TOKENS {
        prompt.tokens.push((engine_mix(seed, position) % u64::from(VOCABULARY)) as u32);
    }
    prompt.text(text);
    prompt
}

fn engine_mix(seed: u64, position: usize) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(&position.to_le_bytes(), seed)
}

/// Splits a form into its parts.
fn parts<'a>(call: &'a Call<'_>) -> Result<Vec<Part<'a>>, Failure> {
    let wrong = |what: &str| Failure::malformed("", "multipart", what);
    let content_type = call.header("content-type").unwrap_or_default();
    let boundary = content_type.split(';').find_map(|item| {
        let (name, value) = item.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    });
    let Some(boundary) = boundary.filter(|_| content_type.starts_with("multipart/form-data")) else {
        return Err(wrong("There was an error parsing the body: no multipart form"));
    };
    let delimiter = format!("--{boundary}");
    let starts: Vec<usize> = memmem::find_iter(&call.body, delimiter.as_bytes()).collect();
    let closed = starts.last().is_some_and(|last| call.body[last + delimiter.len()..].starts_with(b"--"));
    if !closed {
        return Err(wrong("There was an error parsing the body: the form is not closed"));
    }
    let sections = starts.windows(2).map(|pair| &call.body[pair[0] + delimiter.len()..pair[1]]);
    sections
        .map(|section| part(section).ok_or_else(|| wrong("There was an error parsing the body: bad part")))
        .collect()
}

/// One part between its delimiters: line end, head, empty line, data, line end.
fn part(section: &[u8]) -> Option<Part<'_>> {
    let end = memmem::find(section, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&section[..end]).ok()?;
    let name = head.split(['\r', '\n', ';']).find_map(|item| item.trim().strip_prefix("name="))?;
    let data = section[end + 4..].strip_suffix(b"\r\n")?;
    Some(Part { name: name.trim_matches('"').to_owned(), data })
}
