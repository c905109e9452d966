//! `InferenceGatewayConfig`: the one document that makes a gateway.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Auth, FlowControl, Limit, Metadata, SchedulerSpec};
use crate::{
    duration::GatewayDuration,
    format::{self, Format},
};

/// Largest body that BBR may be asked to read, in bytes: 256 MiB.
const REQUEST_BODY_BYTES_MAX: u64 = 268_435_456;

/// A gateway in front of one or more models.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceGatewayConfig {
    /// `inference.sagemaker.aws.amazon.com/v1alpha1`.
    pub api_version: String,
    /// `InferenceGatewayConfig`.
    pub kind: String,
    /// Name, namespace and labels.
    pub metadata: Metadata,
    /// What the operator wants.
    pub spec: InferenceGatewayConfigSpec,
    /// Written by the controller; ignored when read from a file.
    ///
    /// Changed by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
}

/// What the operator wants.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InferenceGatewayConfigSpec {
    /// Body-based routing: which pool a request goes to is read from its body.
    pub bbr: BbrSpec,
    /// One entry per model.
    ///
    /// Changed by platform teams when a model is added or removed.
    #[schemars(length(min = 1, max = 100))]
    pub schedulers: Vec<SchedulerSpec>,
    /// HTTPS for clients. Absent: plain HTTP. Present without `acmArn` and `secretRef`: a certificate is issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<GatewayTls>,
    /// Who may send requests. Absent: everyone who reaches the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// What the gateway shows of itself.
    #[serde(default)]
    pub observability: Observability,
    /// For every pod that is made for this gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_defaults: Option<PodDefaults>,
    /// How requests travel.
    #[serde(default)]
    #[schemars(extend("x-ours" = true))]
    pub data_plane: DataPlane,
    /// How load is read from endpoints.
    #[serde(default)]
    #[schemars(extend("x-ours" = true))]
    pub signals: SignalsSpec,
    /// How long the gateway waits for an endpoint.
    #[serde(default)]
    #[schemars(extend("x-ours" = true))]
    pub timeouts: TimeoutsSpec,
    /// Who waits, and who is refused, when a pool is full.
    #[serde(default)]
    #[schemars(extend("x-ours" = true))]
    pub flow_control: FlowControl,
    /// Quotas of callers. Each that matches a request counts; the tightest wins.
    ///
    /// Changed by platform teams, to share a pool between callers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-ours" = true))]
    pub limits: Vec<Limit>,
}

/// Body-based routing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BbrSpec {
    /// Whether the body's `model` chooses the pool. Off, the only scheduler takes every request.
    ///
    /// Changed by operators with one model that want every request served, whatever model it names.
    pub enabled: bool,
    /// Copies of the router; in a cluster the gateway runs the largest of this and `schedulers[].replicas`.
    ///
    /// Changed by operators for more throughput or to survive the loss of more nodes.
    #[serde(default = "two_replicas")]
    #[schemars(range(min = 1, max = 1000), extend("x-unit" = "pods"))]
    pub replicas: u32,
    /// Takes requests that match no scheduler. Absent: they get a 404.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_backend: Option<DefaultBackend>,
    /// Largest request body that is read.
    ///
    /// Changed by operators that want less memory used per request, or whose clients send no large images.
    #[serde(default = "request_body_bytes_max")]
    #[schemars(range(min = 1, max = REQUEST_BODY_BYTES_MAX), extend("x-unit" = "bytes"))]
    pub max_request_body_bytes: u64,
}

pub(super) fn two_replicas() -> u32 {
    2
}

fn request_body_bytes_max() -> u64 {
    REQUEST_BODY_BYTES_MAX
}

/// Where requests go that match no scheduler.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DefaultBackend {
    /// In a file, the name of an `Endpoint`; in a cluster, of a Service.
    ///
    /// Changed by operators that keep another model server for everything else.
    #[schemars(schema_with = "format::dns_subdomain")]
    pub name: String,
    /// Its port, where the `Endpoint` names none.
    ///
    /// Changed when that server listens elsewhere.
    #[serde(default = "port_8000")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

impl DefaultBackend {
    /// Its port when none is given.
    pub const PORT: u16 = 8000;
}

pub(super) fn port_8000() -> u16 {
    DefaultBackend::PORT
}

/// HTTPS for clients.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayTls {
    /// A certificate in AWS Certificate Manager. Empty: issued by cert-manager and imported there.
    ///
    /// Changed by operators that have a certificate for their own domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub acm_arn: Option<String>,
    /// A `kubernetes.io/tls` Secret. Excludes `acmArn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-ours" = true))]
    pub secret_ref: Option<SecretRef>,
}

/// Names a Secret.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRef {
    /// Its `metadata.name`.
    ///
    /// Changed by operators that keep certificates or keys of their own, instead of what AWS or a provider issues.
    #[schemars(schema_with = "format::dns_subdomain")]
    pub name: String,
}

/// What the gateway shows of itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Observability {
    /// Prometheus metrics.
    pub metrics: MetricsSpec,
}

/// Prometheus metrics.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct MetricsSpec {
    /// Whether `/metrics` answers.
    ///
    /// Changed by operators whose rules forbid a metrics page.
    pub enabled: bool,
}

impl Default for MetricsSpec {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// For every pod that is made for this gateway; Kubernetes' own types, taken as they are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PodDefaults {
    /// CPU and memory.
    ///
    /// Changed by cluster administrators, to fit their nodes.
    pub resources: Option<Value>,
    /// Which nodes.
    ///
    /// Changed by cluster administrators, to keep gateways off GPU nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Which taints are borne.
    ///
    /// Changed by cluster administrators with tainted nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Value>,
    /// Near or far from which pods.
    ///
    /// Changed by cluster administrators, to spread gateways over zones.
    pub affinity: Option<Value>,
    /// Labels of the pods.
    ///
    /// Changed by cluster administrators, for their inventory.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    ///
    /// Changed by cluster administrators, for their tools.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Environment variables.
    ///
    /// Changed by operators, to pass settings of their network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Value>,
    /// Environment variables from ConfigMaps and Secrets.
    ///
    /// Changed by operators, to pass endpoints' keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<Value>,
}

/// How requests travel.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DataPlane {
    /// Who carries the requests.
    ///
    /// Changed by operators that must keep Envoy Gateway in the path.
    pub mode: DataPlaneMode,
    /// Paths forwarded besides the inference paths. Each is matched whole.
    ///
    /// Changed by operators whose engine has an inference path of its own. Beware: engines take administration (sleep,
    /// adapter loading, weight updates) on the same port.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "extra_paths")]
    pub extra_paths: Vec<String>,
    /// Silence of a streamed answer after which a comment line is sent to the client, between two events and never before
    /// the answer has begun; `0s`: none is sent. Clients skip such lines.
    ///
    /// Changed by operators behind load balancers or proxies that cut silent connections (an AWS load balancer: after
    /// 60 s), to a third of that time, so that long prompts are not cut off while they are computed.
    #[schemars(extend("x-at-most" = "10m"))]
    pub stream_keep_alive: GatewayDuration,
    /// Whether endpoints are asked for the usage of streamed answers.
    ///
    /// Changed to `always` by operators that bill or limit tokens: engines send no usage with a stream unless asked, and
    /// tokens are then counted by events, which is near but not exact. The gateway then adds the wish to the body of chat
    /// and text completions, and hides the extra event from clients that did not ask for it.
    pub usage: UsageMode,
}

fn extra_paths(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    format::list(Format::UrlPath, 64)
}

/// Who carries the requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DataPlaneMode {
    /// The gateway itself: one process, one hop.
    #[default]
    Native,
    /// Envoy Gateway, which asks the gateway where to send each request.
    Envoy,
}

/// Whether endpoints are asked for the usage of streamed answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UsageMode {
    /// When the client asks. Bodies are never changed.
    #[default]
    AsAsked,
    /// Always.
    Always,
}

/// How load is read from endpoints.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SignalsSpec {
    /// From one reading of an endpoint's metrics to the next.
    ///
    /// Changed by operators of very many endpoints, to longer, for less work.
    #[schemars(extend("x-at-least" = "20ms", "x-at-most" = "60s"))]
    pub scrape_interval: GatewayDuration,
    /// Older readings do not count, and their endpoint is left out while others are fresher. Longer than
    /// `scrapeInterval`.
    ///
    /// Changed together with `scrapeInterval`.
    #[schemars(extend("x-at-least" = "50ms", "x-at-most" = "10m"))]
    pub stale_after: GatewayDuration,
}

impl Default for SignalsSpec {
    fn default() -> Self {
        Self { scrape_interval: GatewayDuration::from_ms(200), stale_after: GatewayDuration::from_s(2) }
    }
}

/// How long the gateway waits for an endpoint; `0s`: for ever.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TimeoutsSpec {
    /// For a connection.
    ///
    /// Changed by operators whose endpoints are far away.
    #[schemars(extend("x-at-most" = "10m"))]
    pub connect: GatewayDuration,
    /// For the first byte of an answer, from when the request was sent.
    ///
    /// Changed by operators of interactive services, to shorter; of batch services with long queues, to longer.
    #[schemars(extend("x-at-most" = "24h"))]
    pub first_byte: GatewayDuration,
    /// Between two pieces of an answer.
    ///
    /// Changed by operators of interactive services, to notice a stuck engine sooner.
    #[schemars(extend("x-at-most" = "24h"))]
    pub stream_idle: GatewayDuration,
}

impl Default for TimeoutsSpec {
    fn default() -> Self {
        Self {
            connect: GatewayDuration::from_s(1),
            first_byte: GatewayDuration::from_s(600),
            stream_idle: GatewayDuration::from_s(600),
        }
    }
}
