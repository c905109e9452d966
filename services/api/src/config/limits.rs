//! Quotas of callers, as programs need them.

use std::num::NonZeroU64;

/// A quota of callers. At least one of its numbers is given; `None`: not limited in that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Names it in metrics and refusals.
    pub name: String,
    /// What tells callers apart.
    pub key: LimitKey,
    /// Models that it counts for, by the names that clients use; `None`: all.
    pub models: Option<Vec<String>>,
    /// Requests per minute.
    pub requests_per_minute: Option<NonZeroU64>,
    /// Tokens of prompts and answers together, per minute.
    pub tokens_per_minute: Option<NonZeroU64>,
    /// Tokens of prompts, per minute.
    pub input_tokens_per_minute: Option<NonZeroU64>,
    /// Tokens of answers, per minute.
    pub output_tokens_per_minute: Option<NonZeroU64>,
    /// Requests at the same time.
    pub concurrent_requests: Option<NonZeroU64>,
}

/// What tells callers apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LimitKey {
    /// The value of this header, whose name is valid and in lower case.
    Header(String),
    /// The `Authorization` header.
    Authorization,
    /// A claim of the caller. Only with `auth`.
    Claim(String),
}
