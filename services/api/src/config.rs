//! The one value that programs run on: what the operator wants, checked and with every default filled in.
//!
//! Why it is apart from the documents: a document has optional fields, texts and cross references; a program wants
//! none of them. A `Config` exists only when every rule held, so nobody behind this point checks again, and no
//! `Option` here means "default": `None` always means "no such limit" or "not asked for", as each field says.
//!
//! It refuses to hold anything that only shapes pods (replicas, environment, pod defaults): see [`crate::Loaded::notices`].

mod auth;
mod flow_control;
mod limits;
mod rewrite;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

pub use self::auth::{ApiKeys, Auth, BandClaim, ClaimHolds, Hidden, Jwt, KeyPair, RequiredClaim, Tls};
pub use self::flow_control::{
    Band, Bands, EndpointFull, Eviction, Fairness, FlowBand, FlowControl, Objective, Ordering,
};
pub use self::limits::{Limit, LimitKey};
pub use self::rewrite::{Rewrite, RewriteTarget};
pub use crate::selector::{Operator, Requirement, Selector};

/// Everything a gateway process needs to know to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `metadata.name` of the `InferenceGatewayConfig`.
    pub name: String,
    /// `metadata.namespace`, else `default`.
    pub namespace: String,
    /// Body-based routing.
    pub bbr: Bbr,
    /// One per model, in the order of the document; 1 to 100, names and models unique.
    pub schedulers: Vec<Scheduler>,
    /// The endpoints that documents name, sorted by name. In a cluster there are none: pods take their place.
    pub endpoints: Vec<EndpointSpec>,
    /// Adapter to base model, merged from every scheduler and every adapter `ConfigMap`. Never a scheduler's model.
    pub adapters: BTreeMap<String, String>,
    /// Paths forwarded besides the inference paths, each starting with `/`, without a query.
    pub extra_paths: Vec<String>,
    /// Silence of an event stream after which its client gets a comment; `None` = it gets none.
    pub stream_keep_alive: Option<Duration>,
    /// How often load is read, and how long a reading counts.
    pub signals: Signals,
    /// How long the gateway waits for an endpoint.
    pub timeouts: Timeouts,
    /// Flow control of the pool that no scheduler names, the default backend's.
    pub flow_control: FlowControl,
    /// Priorities that requests may name, sorted by pool and name, each pair once.
    pub objectives: Vec<Objective>,
    /// Which models requests are sent to in place of those that they name: rules for one model before those for every
    /// model, and of each the first counts.
    pub rewrites: Vec<Rewrite>,
    /// Whether `/metrics` answers.
    pub metrics_enabled: bool,
    /// Quotas that count for requests of every pool. Names are unique.
    pub limits: Vec<Limit>,
    /// Whether endpoints are asked for the usage of streamed answers.
    pub usage: Usage,
    /// HTTPS for clients; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// Who may send requests; `None`: everyone who reaches the gateway.
    pub auth: Option<Auth>,
    /// Which claim chooses the band of requests to the default backend. Only with `auth`.
    pub band_claim: Option<BandClaim>,
}

/// Body-based routing: which pool a request goes to is read from its body.
#[derive(Clone, Debug, PartialEq)]
pub struct Bbr {
    /// Off: the only scheduler takes everything.
    pub enabled: bool,
    /// Name of the endpoint that takes what no scheduler matches; `None`: such requests get a 404.
    pub default_backend: Option<String>,
    /// Port of that endpoint where its own document names none.
    pub default_backend_port: u16,
    /// Largest request body, in bytes.
    pub max_request_body_bytes: u64,
}

/// One model's pool and how its endpoints are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduler {
    /// Names the pool.
    pub name: String,
    /// Which endpoints belong to it.
    pub selector: Selector,
    /// The body's `model` that it serves.
    pub model_name: String,
    /// Port of endpoints that name none.
    pub target_port: u16,
    /// What its endpoints speak.
    pub protocol: AppProtocol,
    /// Which metric names its endpoints publish.
    pub engine: EngineType,
    /// The family of the picker.
    pub picker: PickerProfile,
    /// What a choice is made of.
    pub weights: Weights,
    /// Every adapter of this model, sorted, each once: its own list and the adapter `ConfigMap`s of its model.
    pub lora_adapters: Vec<String>,
    /// Longest life of a request; `None`: no such limit.
    pub route_timeout: Option<Duration>,
    /// 0 (errors) to 5 (everything); `None`: as the process logs.
    pub log_level: Option<u8>,
    /// Who waits when it is full: `spec.flowControl`, and over it what the scheduler itself says, field by field.
    pub flow_control: FlowControl,
    /// Which claim chooses the band of its requests. Only with `auth`.
    pub band_claim: Option<BandClaim>,
    /// Quotas that count for its requests, besides [`Config::limits`]. Names are unique among them.
    pub limits: Vec<Limit>,
}

/// How requests are written to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppProtocol {
    /// HTTP/1.1.
    Http,
    /// HTTP/2 in plain text with prior knowledge (`kubernetes.io/h2c`); over TLS, HTTP/2.
    H2c,
}

/// Which metric names are read. No default here: documents decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineType {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Hugging Face text-generation-inference.
    Tgi,
    /// `trtllm-serve`.
    Trtllm,
    /// Triton with the TensorRT-LLM back end.
    Triton,
    /// llama.cpp's server.
    Llamacpp,
    /// The first known name on the page decides.
    Auto,
    /// No metrics page: active health and own in-flight work only.
    None,
}

/// `spec.schedulers[].scheduler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PickerProfile {
    /// `llm-d`, the default.
    LlmD,
    /// `epp`: the same scorers without `lru`.
    Epp,
}

/// Weight of each scorer; 0 turns it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Weights {
    /// Requests that wait.
    pub queue: u32,
    /// Use of the KV cache.
    pub kv_cache: u32,
    /// Shared prompt prefix that is cached already.
    pub prefix: u32,
    /// Adapter that is loaded already.
    pub lora_affinity: u32,
    /// Requests that run.
    pub running_requests: u32,
    /// Least recently used.
    pub lru: u32,
    /// Predicted time to first token.
    pub predicted_latency: u32,
}

/// Whether endpoints are asked for the usage of streamed answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// When the client asks for it.
    AsAsked,
    /// Always; a client that did not ask does not see it.
    Always,
}

/// How often load is read, and how long a reading counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// Time from one reading of an endpoint to the next. Never zero.
    pub scrape_interval: Duration,
    /// Older readings are stale. Longer than the interval.
    pub stale_after: Duration,
}

/// How long the gateway waits for an endpoint. `None`: for ever (`0s` in the document).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Option<Duration>,
    /// For the first byte of the answer, from when the request was sent.
    pub first_byte: Option<Duration>,
    /// Between two pieces of an answer's body.
    pub stream_idle: Option<Duration>,
}

/// An endpoint that a document names.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSpec {
    /// `metadata.name`; unique.
    pub name: String,
    /// `metadata.labels`, what selectors look at.
    pub labels: BTreeMap<String, String>,
    /// IP address (IPv6 without brackets) or DNS name in lower case.
    pub address: String,
    /// Serving port; `None`: the scheduler's `target_port`, or the default backend's port.
    pub port: Option<u16>,
    /// Path of the metrics page; `None`: where its engine has it (`/metrics`; `/prometheus/metrics` for `trtllm`).
    pub metrics_path: Option<String>,
    /// Port of the metrics page; `None`: the serving port (8002 for `triton`).
    pub metrics_port: Option<u16>,
    /// HTTPS to the endpoint.
    pub tls: Option<EndpointTls>,
    /// A key of its own, sent as `Authorization: Bearer` in place of the client's.
    pub api_key: Option<ApiKeySource>,
}

/// How an endpoint's certificate is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointTls {
    /// PEM file of the authorities to trust; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Name in the certificate and in SNI; `None`: the address.
    pub server_name: Option<String>,
    /// Take any certificate: anyone on the way can read and change requests. Said loudly at start.
    pub insecure_skip_verify: bool,
}

/// Where an endpoint's key is read from. The key itself is never in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiKeySource {
    /// Environment variable of the gateway's process.
    Env(String),
    /// File, read anew when it changes; surrounding white space does not count.
    File(PathBuf),
}
