//! `spec.schedulers[]`: one model, its endpoints, and how one of them is chosen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FlowControl, LabelSelector, Limit, gateway_config};
use crate::{
    duration::GatewayDuration,
    format::{self, Format},
};

/// One model.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulerSpec {
    /// Names the pool, in metrics and logs too, and in a cluster the InferencePool, the route and `<name>-epp`.
    ///
    /// Changed by platform teams; a new name is a new pool with new series.
    #[schemars(schema_with = "format::dns_label")]
    pub name: String,
    /// Which endpoints (pods, in a cluster) serve the model.
    pub model_selector: LabelSelector,
    /// The `model` that requests name. Unique among schedulers.
    ///
    /// Changed together with the model server's `--served-model-name`.
    #[schemars(schema_with = "format::header_text")]
    pub model_name: String,
    /// Port of endpoints that name none.
    ///
    /// Changed when the model server listens elsewhere.
    #[serde(default = "gateway_config::port_8000")]
    #[schemars(range(min = 1, max = 65535))]
    pub target_port: u16,
    /// What the endpoints speak.
    ///
    /// Changed for model servers behind HTTP/2.
    #[serde(default)]
    pub app_protocol: AppProtocolName,
    /// The family of the picker.
    ///
    /// Changed by operators that moved from the reference endpoint picker and want its set of scorers.
    #[serde(default)]
    pub scheduler: PickerName,
    /// Which metric names the endpoints publish.
    ///
    /// Changed for model servers other than vLLM.
    #[serde(default)]
    pub engine_type: EngineName,
    /// What a choice is made of. Excludes `configMapRef`. Without it the picker's own profile counts: for `epp` the
    /// defaults below, for `llm-d` these with `prefix: 6` and `predictedLatency: 8`. With it, what is left out has its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsSpec>,
    /// An `EndpointPickerConfig` in a ConfigMap. Excludes `weights`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapRef>,
    /// Copies of the picker; in a cluster the gateway runs the largest of these and `bbr.replicas`.
    ///
    /// Changed by operators for availability.
    #[serde(default = "gateway_config::two_replicas")]
    #[schemars(range(min = 1, max = 1000), extend("x-unit" = "pods"))]
    pub replicas: u32,
    /// Environment variables of the pods.
    ///
    /// Changed by operators, to pass settings of their network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Value>,
    /// Environment variables of the pods from ConfigMaps and Secrets.
    ///
    /// Changed by operators, to pass endpoints' keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<Value>,
    /// LoRA adapters of this model, besides those that ConfigMaps name.
    ///
    /// Changed by platform teams when an adapter is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "adapters")]
    pub lora_adapters: Vec<String>,
    /// Longest life of a request, its wait for room and the whole answer included. Absent or `0s`: no such limit.
    ///
    /// Changed by operators of interactive services, to free what nobody waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_timeout: Option<GatewayDuration>,
    /// How much is logged about this pool: 0 (errors only) to 5 (everything). Absent: as the process logs.
    ///
    /// Changed by operators that look for the reason of a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 5))]
    pub log_level: Option<u8>,
    /// As `spec.flowControl`, for this pool; what is not given here is taken from there, field by field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<FlowControl>", extend("x-ours" = true))]
    pub flow_control: Option<Value>,
    /// As `spec.limits`, for requests of this pool, besides those.
    ///
    /// Changed by platform teams, to share one model between callers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-ours" = true))]
    pub limits: Vec<Limit>,
}

fn adapters(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    format::list(Format::HeaderText, 50)
}

/// What the endpoints speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AppProtocolName {
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "http")]
    Http,
    /// HTTP/2 with prior knowledge.
    #[serde(rename = "kubernetes.io/h2c")]
    H2c,
}

/// The family of the picker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PickerName {
    /// All scorers.
    #[default]
    #[serde(rename = "llm-d")]
    LlmD,
    /// All scorers but `lru`.
    #[serde(rename = "epp")]
    Epp,
}

/// Which metric names the endpoints publish. Those marked (ours) are additions to the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    /// vLLM.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
    /// Hugging Face text-generation-inference (ours).
    Tgi,
    /// TensorRT-LLM's `trtllm-serve` (ours).
    Trtllm,
    /// Triton with the TensorRT-LLM back end (ours).
    Triton,
    /// llama.cpp's server (ours).
    Llamacpp,
    /// The first known name on the page decides (ours).
    Auto,
    /// No metrics page: active health and own in-flight work only (ours).
    None,
}

/// Weight of each scorer; 0 turns it off. Only their ratios count.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct WeightsSpec {
    /// Requests that wait at the endpoint.
    ///
    /// Changed to higher by operators that want even load before cache hits.
    #[schemars(range(max = 1_000_000))]
    pub queue: u32,
    /// Use of the endpoint's KV cache.
    ///
    /// Changed to higher by operators of long contexts.
    #[schemars(range(max = 1_000_000))]
    pub kv_cache: u32,
    /// How much of the prompt's beginning the endpoint has cached already.
    ///
    /// Changed to 0 by operators whose prompts share nothing.
    #[schemars(range(max = 1_000_000))]
    pub prefix: u32,
    /// Whether the request's adapter is loaded already.
    ///
    /// Changed to 0 by operators whose endpoints hold every adapter.
    #[schemars(range(max = 1_000_000))]
    pub lora_affinity: u32,
    /// Requests that run at the endpoint.
    ///
    /// Changed from 0 by operators of engines that publish no queue.
    #[schemars(range(max = 1_000_000))]
    pub running_requests: u32,
    /// Predicted time to the request's first token, learned from the answers that pass through.
    ///
    /// Changed to 0 by operators that want the plain choice by load and cache, to higher by those of mixed GPUs.
    #[schemars(range(max = 1_000_000))]
    pub predicted_latency: u32,
    /// Least recently used first, for prompts that no endpoint has cached. Only with `scheduler: llm-d`. Absent: 0.
    ///
    /// Changed from 0 by operators that want new prefixes spread evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000))]
    pub lru: Option<u32>,
}

/// What `predictedLatency` counts in the profile of `llm-d`: more than all that it takes into account, too, so that these
/// decide among endpoints of about the same prediction, and never send a request to an endpoint several times as slow.
const PREDICTED_LATENCY: u32 = 8;

/// What `prefix` counts beside it. A warm endpoint keeps what it has cached while its prediction is up to four times the
/// soonest: that is what keeps a batch with one prefix together, and each prefix on few endpoints.
const PREFIX_BESIDE_IT: u32 = 6;

impl WeightsSpec {
    /// What counts where nothing is set.
    pub fn of_profile(picker: PickerName) -> Self {
        match picker {
            PickerName::LlmD => {
                Self { prefix: PREFIX_BESIDE_IT, predicted_latency: PREDICTED_LATENCY, ..Self::default() }
            }
            PickerName::Epp => Self::default(),
        }
    }
}

impl Default for WeightsSpec {
    fn default() -> Self {
        Self {
            queue: 2,
            kv_cache: 2,
            prefix: 3,
            lora_affinity: 3,
            running_requests: 0,
            predicted_latency: 0,
            lru: None,
        }
    }
}

/// Names a key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapRef {
    /// Its `metadata.name`.
    ///
    /// Changed by operators that bring an `EndpointPickerConfig` of the reference picker.
    #[schemars(schema_with = "format::dns_subdomain")]
    pub name: String,
    /// The key in its `data`.
    ///
    /// Changed when that ConfigMap holds several.
    #[serde(default = "default_plugins")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

fn default_plugins() -> String {
    "default-plugins.yaml".into()
}
