//! Refusals, and how each server writes them.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    answer::{Body, json_answer},
    options::{Face, Options, Version},
};

/// Why a request is not served. Rendered late, because every server and API has its own shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    /// vLLM's `type`: a class name, or the HTTP phrase for what its HTTP layer refuses.
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    /// TGI's `error_type`.
    pub(crate) tgi_kind: &'static str,
}

/// Which API's clients read the refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
    /// SGLang answers this API alone in the nested shape.
    Responses,
}

impl Failure {
    fn new(status: StatusCode, kind: &'static str, message: String) -> Self {
        Self { status, kind, message, param: None, tgi_kind: "validation" }
    }

    /// A value the API does not take.
    pub(crate) fn invalid(param: &str, message: String) -> Self {
        Self { param: Some(param.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message) }
    }

    /// A body that does not have the API's shape.
    pub(crate) fn malformed(param: &str, kind: &str, message: &str) -> Self {
        let text =
            format!("1 validation error:\n  {{'type': '{kind}', 'loc': ('body', '{param}'), 'msg': '{message}'}}");
        Self { param: Some(param.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, "Bad Request", text) }
    }

    /// A body that is no JSON.
    pub(crate) fn not_json(error: &serde_json::Error) -> Self {
        let text = format!(
            "1 validation error:\n  {{'type': 'json_invalid', 'loc': ('body', {}), 'msg': 'JSON decode error'}}",
            error.column()
        );
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", text)
    }

    /// A body of another content type than the path takes.
    pub(crate) fn unsupported_content() -> Self {
        let text = "Unsupported Media Type: Only 'application/json' is allowed";
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", text.to_owned())
    }

    pub(crate) fn model_not_found(model: &str) -> Self {
        let text = format!("The model `{model}` does not exist.");
        Self { param: Some("model".to_owned()), ..Self::new(StatusCode::NOT_FOUND, "NotFoundError", text) }
    }

    /// Something else that was asked for by name and is not there.
    pub(crate) fn not_found(message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", message)
    }

    pub(crate) fn too_long(tokens: usize, max: u32) -> Self {
        let text = format!(
            "This model's maximum context length is {max} tokens. However, your request has {tokens} input tokens. \
             Please reduce the length of the input messages."
        );
        let failure = Self::new(StatusCode::BAD_REQUEST, "BadRequestError", text);
        Self { param: Some("input_tokens".to_owned()), ..failure }
    }

    pub(crate) fn unknown_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not Found", "Not Found".to_owned())
    }

    pub(crate) fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed", "Method Not Allowed".to_owned())
    }

    /// Adapter management refused.
    pub(crate) fn user_input(message: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidUserInput", message)
    }

    /// The queue is full: vLLM and SGLang say 503, TGI 429.
    pub(crate) fn queue_full(face: Face) -> Self {
        let (status, message) = match face {
            Face::Vllm => (StatusCode::SERVICE_UNAVAILABLE, "The request queue is full. Please try again later."),
            Face::Sglang => (StatusCode::SERVICE_UNAVAILABLE, "The request queue is full."),
            Face::Tgi => (StatusCode::TOO_MANY_REQUESTS, "Model is overloaded"),
        };
        Self { tgi_kind: "overloaded", ..Self::new(status, "Service Unavailable", message.to_owned()) }
    }

    /// A status made by a fault.
    pub(crate) fn injected(status: StatusCode) -> Self {
        let phrase = status.canonical_reason().unwrap_or("Error");
        let tgi_kind = match status.as_u16() {
            429 => "overloaded",
            424 => "generation",
            _ => "validation",
        };
        Self { tgi_kind, ..Self::new(status, phrase, format!("{phrase} (injected)")) }
    }

    /// The refusal as an HTTP answer.
    pub(crate) fn answer(&self, options: &Options, dialect: Dialect) -> Response<Body> {
        let status = match options.face {
            // TGI validates with 422 where the others say 400.
            Face::Tgi if self.status == StatusCode::BAD_REQUEST => StatusCode::UNPROCESSABLE_ENTITY,
            Face::Tgi | Face::Vllm | Face::Sglang => self.status,
        };
        json_answer(status, &self.to_json(options, dialect))
    }

    /// The refusal as a body.
    pub(crate) fn to_json(&self, options: &Options, dialect: Dialect) -> Value {
        let code = self.status.as_u16();
        let flat = json!({
            "object": "error", "message": self.message, "type": self.kind, "param": self.param, "code": code,
        });
        let nested = json!({"error": {
            "message": self.message, "type": self.kind, "param": self.param, "code": code,
        }});
        match (options.face, dialect) {
            (Face::Tgi, _) => json!({"error": self.message, "error_type": self.tgi_kind}),
            (_, Dialect::Anthropic) => {
                json!({"type": "error", "error": {"type": self.anthropic_kind(), "message": self.message}})
            }
            (Face::Vllm, _) if options.version < Version(0, 10, 1) => flat,
            (Face::Vllm, _) | (Face::Sglang, Dialect::Responses) => nested,
            (Face::Sglang, Dialect::OpenAi) => flat,
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status.as_u16() {
            503 => "overloaded_error",
            404 => "not_found_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        }
    }
}
