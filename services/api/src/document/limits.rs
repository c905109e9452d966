//! `spec.limits[]`: quotas of callers.
//!
//! Every number per minute is a rate with a burst of one minute's amount: who was silent for a minute may send all of it
//! at once, and gets it back evenly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format;

/// A quota. At least one of its numbers must be given. Each copy of the gateway counts for itself.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// Names it in metrics and refusals. Unique in its list.
    ///
    /// Changed by platform teams.
    #[schemars(schema_with = "format::dns_label")]
    pub name: String,
    /// What tells callers apart: each value has the quota to itself, and all requests without one share one.
    pub key: LimitKey,
    /// Models that it counts for; a base model's name stands for its adapters, too. Absent: all.
    ///
    /// Changed by platform teams, to limit only what is scarce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)))]
    pub models: Option<Vec<String>>,
    /// Requests. One that is refused does not count, whatever refuses it.
    ///
    /// Changed by platform teams, to stop runaway clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000), extend("x-unit" = "requests/min"))]
    pub requests_per_minute: Option<u64>,
    /// Tokens, prompts and answers together. A request is charged an estimate when it comes (a quarter of the prompt's
    /// bytes, and `max_tokens` or 512), and what its usage says when it ends.
    ///
    /// Changed by platform teams, to share what GPUs can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64), extend("x-unit" = "tokens/min"))]
    pub tokens_per_minute: Option<u64>,
    /// Tokens of prompts.
    ///
    /// Changed by platform teams, to hold back long contexts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64), extend("x-unit" = "tokens/min"))]
    pub input_tokens_per_minute: Option<u64>,
    /// Tokens of answers.
    ///
    /// Changed by platform teams, to hold back long answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_u64), extend("x-unit" = "tokens/min"))]
    pub output_tokens_per_minute: Option<u64>,
    /// Requests at the same time, from when they are let in to the last byte of their answer; waiting ones count.
    ///
    /// Changed by platform teams, to keep one caller from filling a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000), extend("x-unit" = "requests"))]
    pub concurrent_requests: Option<u64>,
}

/// What tells callers apart: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LimitKey {
    /// A header's value; of several the last, which is the one that a proxy adds.
    ///
    /// Changed by platform teams behind a proxy that names the caller. Clients that reach the gateway otherwise can write
    /// what they like there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "format::header_name")]
    pub header: Option<String>,
    /// A claim of the token.
    ///
    /// Changed by platform teams with `auth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim: Option<String>,
    /// `true`: the `Authorization` header, hashed.
    ///
    /// Changed by platform teams whose callers have keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<bool>,
}
