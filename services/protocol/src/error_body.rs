//! The gateway's own errors in the words that a client's library understands.
//!
//! OpenAI's and Anthropic's libraries turn these objects into typed exceptions, so shape and types are theirs, and the
//! reason stands in `code`. The text is for the person who reads the exception: it must say what to do. What the log
//! should know (addresses, causes) does not belong into it.

use bytes::Bytes;
use serde::Serialize;

use crate::path::Dialect;
use crate::reason::Reason;

/// Text of the answer when no pool serves the model. Operators and their scripts know it word for word.
pub const NO_MATCHING_MODEL: &str =
    "no matching model: set the model in the request body or the x-gateway-model-name header";

/// An error of the gateway, ready to be written.
#[derive(Clone, Copy, Debug)]
pub struct ErrorBody<'a> {
    pub reason: Reason,
    /// What is wrong and what to do about it.
    pub message: &'a str,
    /// The member of the request that is to blame, if one is.
    pub param: Option<&'a str>,
}

impl ErrorBody<'_> {
    /// The body of an answer, `application/json`.
    pub fn to_json(&self, dialect: Dialect) -> Bytes {
        match dialect {
            Dialect::OpenAi | Dialect::Responses => encode(&OpenAi { error: self.openai() }),
            Dialect::Anthropic => encode(&self.anthropic()),
        }
    }

    /// An event that ends a stream which has begun, whole with its blank line.
    pub fn to_sse_event(&self, dialect: Dialect) -> Bytes {
        let (name, data) = match dialect {
            Dialect::OpenAi => ("", self.to_json(dialect)),
            Dialect::Anthropic => ("event: error\n", self.to_json(dialect)),
            Dialect::Responses => ("event: error\n", encode(&self.responses_event())),
        };
        [name.as_bytes(), b"data: ", &data, b"\n\n"].concat().into()
    }

    fn openai(&self) -> OpenAiError<'_> {
        let row = self.reason.row();
        OpenAiError { message: self.message, r#type: row.openai_type, param: self.param, code: row.label }
    }

    fn anthropic(&self) -> Anthropic<'_> {
        let row = self.reason.row();
        let error = AnthropicError { r#type: row.anthropic_type, message: self.message, code: row.label };
        Anthropic { r#type: "error", error }
    }

    /// The Responses API has an error event of its own with flat members; the libraries raise an exception only for a
    /// member `error`, so the event has both.
    fn responses_event(&self) -> ResponsesEvent<'_> {
        let (error, code) = (self.openai(), self.reason.label());
        ResponsesEvent { r#type: "error", code, message: self.message, param: self.param, sequence_number: 0, error }
    }
}

#[derive(Serialize)]
struct OpenAi<'a> {
    error: OpenAiError<'a>,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: &'a str,
}

#[derive(Serialize)]
struct Anthropic<'a> {
    r#type: &'a str,
    error: AnthropicError<'a>,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    r#type: &'a str,
    message: &'a str,
    code: &'a str,
}

#[derive(Serialize)]
struct ResponsesEvent<'a> {
    r#type: &'a str,
    code: &'a str,
    message: &'a str,
    param: Option<&'a str>,
    sequence_number: u32,
    error: OpenAiError<'a>,
}

fn encode(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("structs of strings always serialise").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn no_model() -> ErrorBody<'static> {
        ErrorBody { reason: Reason::ModelNotFound, message: NO_MATCHING_MODEL, param: Some("model") }
    }

    #[test]
    fn openai_shape() {
        let body: Value = serde_json::from_slice(&no_model().to_json(Dialect::OpenAi)).unwrap();
        assert_eq!(
            body,
            json!({"error": {
                "message": "no matching model: set the model in the request body or the x-gateway-model-name header",
                "type": "not_found_error", "param": "model", "code": "model_not_found"}})
        );
        let plain = ErrorBody { reason: Reason::QueueFull, message: "a \"quoted\"\nword", param: None };
        let body: Value = serde_json::from_slice(&plain.to_json(Dialect::Responses)).unwrap();
        assert_eq!(body["error"]["param"], Value::Null);
        assert_eq!(body["error"]["message"], "a \"quoted\"\nword");
    }

    #[test]
    fn anthropic_shape() {
        let body: Value = serde_json::from_slice(&no_model().to_json(Dialect::Anthropic)).unwrap();
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], "not_found_error");
        assert_eq!(body["error"]["code"], "model_not_found");
    }

    #[test]
    fn events_are_whole_and_on_one_line() {
        let broke = ErrorBody { reason: Reason::EndpointBroke, message: "cut\nshort", param: None };
        for (dialect, name) in
            [(Dialect::OpenAi, ""), (Dialect::Anthropic, "event: error\n"), (Dialect::Responses, "event: error\n")]
        {
            let event = broke.to_sse_event(dialect);
            let text = std::str::from_utf8(&event).unwrap();
            let data = text.strip_prefix(name).unwrap().strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
            assert!(!data.contains('\n'));
            let data: Value = serde_json::from_str(data).unwrap();
            assert_eq!(data["error"]["message"], "cut\nshort");
            assert_eq!(data["error"]["code"], "endpoint_broke");
        }
    }

    #[test]
    fn our_own_error_events_are_read_as_errors() {
        for (api, dialect) in [
            (crate::Api::ChatCompletions, Dialect::OpenAi),
            (crate::Api::Messages, Dialect::Anthropic),
            (crate::Api::Responses, Dialect::Responses),
        ] {
            let broke = ErrorBody { reason: Reason::EndpointBroke, message: "cut short", param: None };
            let mut reader = crate::sse::Reader::new(api);
            reader.feed(&broke.to_sse_event(dialect));
            let end = reader.finish();
            assert!(end.error.is_some_and(|error| !error.client_fault), "{dialect:?}");
            assert!(end.at_event_boundary);
        }
    }
}
