//! The outside of a model server: which paths there are, and what each answers.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, StatusCode, request::Parts};
use serde_json::{Value, json};

use crate::{
    answer::{Body, answer, json_answer, ok_json},
    failure::{Dialect, Failure},
    fields::Fields,
    options::Face,
    page,
    sim::Sim,
};

mod audio;
mod chat;
mod chunk;
mod completions;
mod health;
mod images;
mod lora;
mod messages;
mod models;
mod native;
mod params;
mod pooling;
pub(crate) mod responses;
mod route;
mod tokens;

use route::Route;

/// A request whose body is read.
pub(crate) struct Call<'a> {
    pub(crate) face: Face,
    pub(crate) parts: &'a Parts,
    pub(crate) body: Bytes,
}

/// Serves one request.
pub(crate) async fn serve(sim: &Arc<Sim>, call: Call<'_>) -> Response<Body> {
    let path = call.parts.uri.path();
    let Some(route) = Route::find(sim.options.face, path) else {
        return Failure::unknown_path().answer(&sim.options, dialect(path));
    };
    if let Some(refusal) = unauthorized(sim, &call) {
        return refusal;
    }
    if !route.takes(&call.parts.method) {
        return Failure::wrong_method().answer(&sim.options, dialect(path));
    }
    match dispatch(sim, &route, &call).await {
        Ok(response) => response,
        Err(failure) => failure.answer(&sim.options, dialect(path)),
    }
}

async fn dispatch(sim: &Arc<Sim>, route: &Route, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    match route {
        Route::Health => Ok(health::health(sim).await),
        Route::Ping => Ok(answer(StatusCode::OK, "", Bytes::new())),
        Route::Version => Ok(ok_json(&json!({"version": sim.options.version.to_string()}))),
        Route::KvEventSources => health::kv_event_sources(sim),
        Route::Load => Ok(ok_json(&json!({"server_load": sim.driver.live()}))),
        Route::Metrics => page::answer(sim).await,
        Route::Info => Ok(health::tgi_info(sim)),
        Route::ServerInfo => Ok(health::sglang_info(sim)),
        Route::Models => Ok(models::list(sim)),
        Route::Model(id) => models::one(sim, id),
        Route::Chat => chat::serve(sim, call).await,
        Route::Completions => completions::serve(sim, call).await,
        Route::Responses => responses::serve(sim, call).await,
        Route::Response(id) => responses::get(sim, id),
        Route::CancelResponse(id) => responses::cancel(sim, id),
        Route::Messages => messages::serve(sim, call).await,
        Route::CountTokens => messages::count(sim, call),
        Route::Embeddings => pooling::embeddings(sim, call).await,
        Route::Pooling => pooling::pooling(sim, call).await,
        Route::Classify => pooling::classify(sim, call).await,
        Route::Score => pooling::score(sim, call).await,
        Route::Rerank => pooling::rerank(sim, call).await,
        Route::Tokenize => tokens::tokenize(sim, call),
        Route::Detokenize => tokens::detokenize(sim, call),
        Route::Audio => audio::serve(sim, call).await,
        Route::Images => images::serve(sim, call).await,
        Route::Invocations => invoke(sim, call).await,
        Route::LoadAdapter => lora::load(sim, call),
        Route::UnloadAdapter => lora::unload(sim, call),
        Route::Generate => native::generate(sim, call).await,
        Route::GenerateStream => native::generate_stream(sim, call).await,
    }
}

/// SageMaker's one path: the body's shape says what is asked.
async fn invoke(sim: &Arc<Sim>, call: &Call<'_>) -> Result<Response<Body>, Failure> {
    let body = call.json()?;
    if body.contains_key("messages") {
        return chat::serve(sim, call).await;
    }
    if body.contains_key("prompt") {
        return completions::serve(sim, call).await;
    }
    if body.contains_key("query") {
        return pooling::rerank(sim, call).await;
    }
    if body.contains_key("inputs") {
        return native::generate(sim, call).await;
    }
    pooling::embeddings(sim, call).await
}

impl Call<'_> {
    /// The body as a JSON object.
    pub(crate) fn json(&self) -> Result<serde_json::Map<String, Value>, Failure> {
        let content_type = self.parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = content_type.map(|text| text.split(';').next().unwrap_or(text).trim().to_ascii_lowercase());
        let is_json = match (self.face, media.as_deref()) {
            (_, Some("application/json")) => true,
            // The others take a missing content type for JSON.
            (Face::Sglang | Face::Tgi, None) => true,
            (Face::Sglang | Face::Tgi, Some(other)) => other.ends_with("+json"),
            (Face::Vllm, _) => false,
        };
        if !is_json {
            return Err(Failure::unsupported_content());
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(members)) => Ok(members),
            Ok(_) => Err(Failure::malformed("", "model_attributes_type", "Input should be a valid dictionary")),
            Err(error) => Err(Failure::not_json(&error)),
        }
    }

    /// A request header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Id of the answer: the client's request id, or a fresh one, behind `prefix`.
    pub(crate) fn answer_id(&self, sim: &Sim, prefix: &str) -> String {
        match self.header("x-request-id") {
            Some(id) => format!("{prefix}{id}"),
            None => format!("{prefix}{}", fresh_hex(sim)),
        }
    }
}

/// 32 hex digits that no other answer of this server has.
pub(crate) fn fresh_hex(sim: &Sim) -> String {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let nanos = sim.clock.unix_s().to_bits();
    let high = xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_le_bytes(), nanos);
    format!("{high:016x}{number:016x}")
}

/// The path's label in HTTP metrics.
pub(crate) fn handler(options: &crate::Options, path: &str) -> &'static str {
    Route::find(options.face, path).map_or("none", |route| route.handler(path))
}

/// Whose clients use this path.
pub(crate) fn dialect(path: &str) -> Dialect {
    match path {
        "/v1/messages" | "/v1/messages/count_tokens" => Dialect::Anthropic,
        _ if path.starts_with("/v1/responses") => Dialect::Responses,
        _ => Dialect::OpenAi,
    }
}

/// vLLM and SGLang guard only some prefixes; their 401 has a shape of its own.
fn unauthorized(sim: &Sim, call: &Call<'_>) -> Option<Response<Body>> {
    let key = sim.options.api_key.as_ref()?;
    let guarded = ["/v1", "/v2", "/inference", "/cohere"].iter().any(|p| call.parts.uri.path().starts_with(p));
    let wanted = format!("Bearer {key}");
    let known = call.header("authorization").is_some_and(|given| given == wanted);
    if !guarded || known || call.parts.method == Method::OPTIONS {
        return None;
    }
    Some(json_answer(StatusCode::UNAUTHORIZED, &json!({"error": "Unauthorized"})))
}

/// The model a request names, and how it will be named in the answer.
pub(crate) struct Asked {
    pub(crate) shown: String,
    pub(crate) adapter: Option<engine::AdapterId>,
}

impl Sim {
    /// Finds the model a body names, with each server's own strictness.
    pub(crate) fn model(&self, fields: Fields<'_>) -> Result<Asked, Failure> {
        let name = fields.string("model")?.filter(|name| !name.is_empty());
        self.model_named(name, fields.string("lora_path")?)
    }

    /// The same for a name from elsewhere than a JSON body.
    pub(crate) fn model_named(&self, name: Option<&str>, lora_path: Option<&str>) -> Result<Asked, Failure> {
        let own = self.options.shown_name();
        let shown = name.unwrap_or(own).to_owned();
        match self.options.face {
            Face::Tgi => Ok(Asked { shown: own.to_owned(), adapter: None }),
            Face::Sglang => {
                let suffix = name.and_then(|name| name.split_once(':')).map(|(_, adapter)| adapter);
                let adapter = suffix.or(lora_path).or(name).and_then(|adapter| self.adapters.find(adapter));
                Ok(Asked { shown, adapter })
            }
            Face::Vllm => {
                let served = name.is_none_or(|name| self.options.served_names.iter().any(|known| known == name));
                let adapter = if served { None } else { self.adapters.find(&shown) };
                if served || adapter.is_some() {
                    Ok(Asked { shown, adapter })
                } else {
                    Err(Failure::model_not_found(&shown))
                }
            }
        }
    }
}
