//! `spec.limits[]`: quotas of callers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format;

/// A quota. At least one of its numbers must be given.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// Names it in metrics and refusals. Unique in its list.
    ///
    /// Changed by platform teams.
    #[schemars(schema_with = "format::dns_label")]
    pub name: String,
    /// What tells callers apart: each value has the quota to itself.
    pub key: LimitKey,
    /// Models that it counts for. Absent: all.
    ///
    /// Changed by platform teams, to limit only what is scarce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 253)))]
    pub models: Option<Vec<String>>,
    /// Requests.
    ///
    /// Changed by platform teams, to stop runaway clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000), extend("x-unit" = "requests/min"))]
    pub requests_per_minute: Option<u64>,
    /// Tokens, prompts and answers together.
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
    /// Requests at the same time.
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
    /// A header's value.
    ///
    /// Changed by platform teams behind a proxy that names the caller.
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
