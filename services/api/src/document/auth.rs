//! `spec.auth`: who may send requests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretRef;
use crate::{duration::GatewayDuration, format};

/// Who may send requests: with both ways given, either of them suffices.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Auth {
    /// By a JSON Web Token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwt: Option<Jwt>,
    /// By a key of the operator's own making.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-ours" = true))]
    pub api_keys: Option<ApiKeys>,
}

/// Keys of the operator's own making.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiKeys {
    /// A Secret with one entry per client: the entry's name is the client's, its value the client's key.
    pub secret_ref: SecretRef,
}

/// Tokens.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Jwt {
    /// Whose tokens. At least one of `audiences` and `requiredClaims` must be given.
    pub provider: Provider,
    /// How far the clocks of the issuer and the gateway may differ: a token is taken this long before it begins and after it
    /// ends.
    ///
    /// Changed by platform teams whose hosts keep exact time, to less.
    #[serde(default = "clock_skew")]
    #[schemars(extend("x-at-most" = "5m", "x-ours" = true))]
    pub clock_skew: GatewayDuration,
}

fn clock_skew() -> GatewayDuration {
    GatewayDuration::from_s(60)
}

/// Whose tokens are taken, and which of them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provider {
    /// What it is called in logs.
    ///
    /// Changed by platform teams.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// What a token's `iss` must be.
    ///
    /// Changed by platform teams with another identity provider.
    #[schemars(schema_with = "format::https_url")]
    pub issuer: String,
    /// Where its keys are.
    #[serde(rename = "remoteJWKS")]
    pub remote_jwks: RemoteJwks,
    /// One of these must be among a token's `aud`.
    ///
    /// Changed by platform teams, to tell apart tokens made for other services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 1024)))]
    pub audiences: Vec<String>,
    /// All of these must hold; tokens that fail one are refused.
    ///
    /// Changed by platform teams, to admit only some groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub required_claims: Vec<RequiredClaim>,
}

/// Where a provider's keys are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoteJwks {
    /// A JSON Web Key Set.
    ///
    /// Changed by platform teams with another identity provider.
    #[schemars(schema_with = "format::https_url")]
    pub uri: String,
}

/// A claim that a token must have.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequiredClaim {
    /// The claim's name.
    ///
    /// Changed by platform teams.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// What the claim holds.
    ///
    /// Changed when the claim is a list, such as groups.
    #[serde(default)]
    pub value_type: ClaimValueType,
    /// One of these must be it, or be in it.
    ///
    /// Changed by platform teams.
    #[schemars(length(min = 1, max = 128), inner(length(min = 1, max = 1024)))]
    pub values: Vec<String>,
}

/// What a claim holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ClaimValueType {
    /// One text.
    #[default]
    String,
    /// A list of texts.
    StringArray,
}
