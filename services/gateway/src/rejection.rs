//! A request that is not served: the reason, what the client is told, and what the operator is told.

use std::borrow::Cow;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use protocol::{
    ErrorBody, Reason,
    headers::{DROPPED_REASON, PICKERS_DROPPED_REASON},
    path::Dialect,
};

use crate::{limits::RateLimits, record::Record};

/// Seconds named in `Retry-After` when nothing was measured that would say more.
pub const RETRY_AFTER_S: u32 = 1;

/// What a client is told whose request is refused because the process shuts down.
pub const DRAINING: &str = "this gateway is shutting down: send the request again, it will reach another";

/// What is wrong with a request, or with the world at this moment.
#[derive(Debug)]
pub struct Rejection {
    /// From the closed list; status, error type and label follow from it.
    pub reason: Reason,
    /// For the client: what is wrong and what to do. Never an address, never a path of ours.
    pub message: Cow<'static, str>,
    /// The member of the request that is at fault.
    pub param: Option<&'static str>,
    /// For the log: what really happened.
    pub detail: Option<Box<str>>,
    /// Whole seconds for `Retry-After`, where the reason calls for one.
    pub retry_after_s: u32,
    /// Methods for `Allow`, when the path is known and the method is not.
    pub allow: Option<&'static str>,
    /// `WWW-Authenticate`, when the sender is not let in.
    pub challenge: Option<Box<HeaderValue>>,
    /// `x-should-retry`: what follows from the reason, or less.
    pub should_retry: Option<&'static str>,
    /// What the caller has left, if limits count for it.
    pub rate_limits: Option<Box<RateLimits>>,
}

/// A rejection together with the record that it ends.
pub struct Refused {
    /// What to say.
    pub rejection: Rejection,
    /// Whom it is said of.
    pub record: Box<Record>,
}

impl Rejection {
    /// A rejection with nothing but its reason and words for the client.
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            message: message.into(),
            param: None,
            detail: None,
            retry_after_s: RETRY_AFTER_S,
            allow: None,
            challenge: None,
            should_retry: reason.should_retry(),
            rate_limits: None,
        }
    }

    /// Names the member at fault.
    #[must_use]
    pub fn param(mut self, param: &'static str) -> Self {
        self.param = Some(param);
        self
    }

    /// Adds what only the operator should read.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Box<str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds when to come back.
    #[must_use]
    pub fn retry_after_s(mut self, seconds: u32) -> Self {
        self.retry_after_s = seconds.max(1);
        self
    }

    /// Adds how to be let in.
    #[must_use]
    pub fn challenge(mut self, challenge: &str) -> Self {
        self.challenge = HeaderValue::from_str(challenge).ok().map(Box::new);
        self
    }

    /// Tells libraries not to send the same again by themselves.
    #[must_use]
    pub fn pointless(mut self) -> Self {
        self.should_retry = Some("false");
        self
    }

    /// Ends the request of `record` with this.
    pub fn of(self, record: Box<Record>) -> Refused {
        Refused { rejection: self, record }
    }

    /// The answer to the client.
    pub fn respond(&self, dialect: Dialect) -> Response<Bytes> {
        let body = ErrorBody { reason: self.reason, message: &self.message, param: self.param }.to_json(dialect);
        let length = HeaderValue::from(body.len());
        let mut response = Response::new(body);
        // The log alone knows 499; nobody reads this answer.
        let unread = self.reason == Reason::ClientGone;
        *response.status_mut() = if unread { StatusCode::BAD_REQUEST } else { self.reason.status() };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, length);
        if self.reason.has_retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(self.retry_after_s.max(1)));
            headers.insert(DROPPED_REASON, HeaderValue::from_static(self.reason.label()));
        }
        if let Some(word) = self.reason.dropped() {
            headers.insert(PICKERS_DROPPED_REASON, HeaderValue::from_static(word));
        }
        if let Some(limits) = &self.rate_limits {
            limits.write(headers);
        }
        if let Some(verdict) = self.should_retry {
            headers.insert(protocol::headers::SHOULD_RETRY, HeaderValue::from_static(verdict));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        if let Some(challenge) = &self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::clone(challenge));
        }
        if self.reason.closes_connection() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
