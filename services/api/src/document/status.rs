//! `status` of an `InferenceGatewayConfig`: what the controller tells of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the controller tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ConfigStatus {
    /// The generation of the object that all of this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`, `Ready`, `GatewayProgrammed`, `BBRReady`, and `AdmissionBlocked`, which is False when all is well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
    /// One entry for each of the specification.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub schedulers: Vec<SchedulerStatus>,
    /// How many of the schedulers have endpoints that serve, as in `2/3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-ours" = true))]
    pub ready_schedulers: Option<String>,
    /// Where requests are sent to: of the load balancer where there is one, else of the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), extend("x-ours" = true))]
    pub address: Option<String>,
    /// The certificate that was issued, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsStatus>,
}

/// One statement, as all of Kubernetes makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub kind: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word for programs.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// Why, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` changed last, in RFC 3339.
    #[schemars(length(max = 64))]
    pub last_transition_time: String,
    /// The generation of the object that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can say.
    #[default]
    Unknown,
}

/// What is told of one scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulerStatus {
    /// Its name.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whether it is ready, and whether it has endpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
    /// The family of the picker in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub current_scheduler: Option<String>,
    /// How far its picker is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_state: Option<RolloutState>,
}

/// How far something is rolled out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum RolloutState {
    /// Not begun.
    Pending,
    /// Under way.
    Progressing,
    /// Done.
    Available,
    /// Less runs than should.
    Degraded,
}

/// A certificate that was issued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TlsStatus {
    /// Where AWS Certificate Manager has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub acm_arn: Option<String>,
    /// Since when it is valid, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub issued_at: Option<String>,
    /// The names in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 253)))]
    pub dns_names: Vec<String>,
}
