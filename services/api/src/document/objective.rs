//! `InferenceObjective` and `InferenceModelRewrite`, as the Gateway API inference extension defines them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Metadata;
use crate::format;

/// The priority of requests that name it by header.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceObjective {
    /// `llm-d.ai/v1alpha2`, or `inference.networking.x-k8s.io/v1alpha2`.
    pub api_version: String,
    /// `InferenceObjective`.
    pub kind: String,
    /// Its name is what requests send in `x-gateway-inference-objective`.
    pub metadata: Metadata,
    /// What it says.
    pub spec: InferenceObjectiveSpec,
    /// Ignored.
    ///
    /// Changed by controllers.
    #[serde(default)]
    pub status: Option<Value>,
}

/// What an objective says.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceObjectiveSpec {
    /// Above 0 is critical, 0 standard, below 0 sheddable. Higher goes first inside a band.
    ///
    /// Changed by platform teams, to say whose requests matter most.
    #[serde(default)]
    pub priority: i32,
    /// The pool it is for.
    pub pool_ref: PoolRef,
}

/// Names a pool.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolRef {
    /// API group of the pool.
    ///
    /// Changed by nobody: there is one.
    #[serde(default = "pool_group")]
    pub group: String,
    /// Kind of the pool.
    ///
    /// Changed by nobody: there is one.
    #[serde(default = "pool_kind")]
    pub kind: String,
    /// The scheduler's name.
    ///
    /// Changed by platform teams.
    #[schemars(schema_with = "format::dns_subdomain")]
    pub name: String,
}

/// The API group of pools now, and before.
const POOL_GROUPS: [&str; 2] = ["inference.networking.k8s.io", "inference.networking.x-k8s.io"];
const POOL_KIND: &str = "InferencePool";

fn pool_group() -> String {
    POOL_GROUPS[0].into()
}

fn pool_kind() -> String {
    POOL_KIND.into()
}

impl PoolRef {
    /// Whether a reference with this group and kind, each `None` where none is given, is to an `InferencePool`.
    pub(crate) fn is_inference_pool(group: Option<&str>, kind: Option<&str>) -> bool {
        group.is_none_or(|group| POOL_GROUPS.contains(&group)) && kind.is_none_or(|kind| kind == POOL_KIND)
    }
}

/// Sends requests for one model to another, by weight.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceModelRewrite {
    /// `llm-d.ai/v1alpha2`, or `inference.networking.x-k8s.io/v1alpha2`.
    pub api_version: String,
    /// `InferenceModelRewrite`.
    pub kind: String,
    /// Name, namespace and labels.
    pub metadata: Metadata,
    /// What it says.
    pub spec: InferenceModelRewriteSpec,
    /// Ignored.
    ///
    /// Changed by controllers.
    #[serde(default)]
    pub status: Option<Value>,
}

/// What a rewrite says.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceModelRewriteSpec {
    /// The pool it is for.
    pub pool_ref: PoolRef,
    /// The first rule that matches counts.
    #[schemars(length(min = 1, max = 100))]
    pub rules: Vec<RewriteRule>,
}

/// Which requests, and to which models.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RewriteRule {
    /// One of these must match. Empty: every request.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub matches: Vec<RewriteMatch>,
    /// Models to send them to.
    #[schemars(length(min = 1, max = 100))]
    pub targets: Vec<RewriteTarget>,
}

/// Which requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RewriteMatch {
    /// By the model that they name.
    pub model: ModelMatch,
}

/// A model's name.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelMatch {
    /// How names are compared.
    ///
    /// Changed by nobody: there is one way.
    #[serde(default, rename = "type")]
    pub match_type: ModelMatchType,
    /// The name.
    ///
    /// Changed by platform teams.
    #[schemars(schema_with = "format::header_text")]
    pub value: String,
}

/// How names are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ModelMatchType {
    /// Whole.
    #[default]
    Exact,
}

/// A model that requests are sent to.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RewriteTarget {
    /// Its share of the requests, among the weights of the rule. All targets of a rule have one, or none.
    ///
    /// Changed by platform teams during a rollout.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub weight: Option<u32>,
    /// The name that is put in the request.
    ///
    /// Changed by platform teams.
    #[schemars(schema_with = "format::header_text")]
    pub model_rewrite: String,
}
