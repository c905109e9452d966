//! An error inside an answer that began with 200: whose fault it was.
//!
//! Engines say it in five dialects: a status as number, the same as text, a type in OpenAI's, Anthropic's or Python's
//! words, or nothing but a sentence. An endpoint must not be put aside for what a client asked of it, nor a client be
//! blamed for a crashed endpoint.

use crate::sse::StreamError;

/// What an error object says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ErrorNote {
    is_present: bool,
    code: Option<u16>,
    kind_code: Option<u16>,
    is_vague: bool,
}

impl ErrorNote {
    pub(super) fn present(&mut self) {
        self.is_present = true;
    }

    pub(super) fn is_present(&self) -> bool {
        self.is_present
    }

    /// A status, as engines put it into `code`. Numbers that are none are codes of some other kind.
    pub(super) fn code(&mut self, number: u64) {
        self.code = u16::try_from(number).ok().filter(|code| (400..600).contains(code)).or(self.code);
    }

    /// TGI's status, which is the same whatever happened.
    pub(super) fn vague_status(&mut self, number: u64) {
        self.code(number);
        self.is_vague = true;
    }

    /// A `type`, or a `code` that is text.
    pub(super) fn kind(&mut self, word: &[u8]) {
        match std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()) {
            Some(number) => self.code(number),
            None => self.kind_code = status_of(word).or(self.kind_code),
        }
    }

    /// The error, if there is one. Once a stream has brought content, a cause that is not told cannot be the request, which
    /// was accepted.
    pub(crate) fn read(&self, progress: Progress) -> Option<StreamError> {
        let code = self.code.or(self.kind_code);
        let is_clients = match code {
            // 424 is TGI's for a shard that failed; 408, 409 and 429 are about the moment, not about the request.
            Some(408 | 409 | 424 | 429 | 499) | None => false,
            Some(code) => code < 500,
        };
        let client_fault = is_clients && !(self.is_vague && progress == Progress::Begun);
        self.is_present.then_some(StreamError { code, client_fault })
    }
}

/// Whether a stream had brought content before its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Nothing,
    Begun,
}

fn status_of(kind: &[u8]) -> Option<u16> {
    let status = match kind {
        b"invalid_request_error" | b"BadRequestError" | b"Bad Request" | b"BadRequest" => 400,
        b"invalid_prompt" | b"context_length_exceeded" => 400,
        b"authentication_error" | b"AuthenticationError" | b"Unauthorized" => 401,
        b"permission_error" | b"PermissionDeniedError" | b"Forbidden" => 403,
        b"not_found_error" | b"NotFoundError" | b"Not Found" | b"model_not_found" => 404,
        b"request_too_large" => 413,
        b"UnprocessableEntityError" | b"validation" => 422,
        b"rate_limit_error" | b"RateLimitError" | b"rate_limit_exceeded" => 429,
        b"generation" | b"incomplete_generation" => 424,
        b"api_error" | b"server_error" | b"InternalServerError" | b"Internal Server Error" | b"internal" => 500,
        b"endpoint_broke" => 502,
        b"overloaded_error" | b"ServiceUnavailableError" | b"Service Unavailable" | b"overloaded" => 503,
        b"service_unavailable_error" => 503,
        b"timeout_error" => 504,
        _ => return None,
    };
    Some(status)
}
