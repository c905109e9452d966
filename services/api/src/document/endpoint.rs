//! `Endpoint`: a model server that no cluster tells of. An addition of this product, for files only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Metadata;
use crate::format;

/// A model server, where a cluster would have a pod.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    /// `inference-gateway/v1alpha1`.
    pub api_version: String,
    /// `Endpoint`.
    pub kind: String,
    /// Its name, and the labels that `schedulers[].modelSelector` looks at.
    pub metadata: Metadata,
    /// Where it is.
    pub spec: EndpointDocumentSpec,
}

/// Where a model server is.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointDocumentSpec {
    /// IP address or DNS name. Each address of a name is one endpoint; the name is looked up again as it expires.
    ///
    /// Changed when the model server moves.
    #[schemars(schema_with = "format::host")]
    pub address: String,
    /// Its port. Absent: the scheduler's `targetPort`.
    ///
    /// Changed when the model server listens elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Path of its metrics page. Absent: where its engine has it (`/metrics`; `/prometheus/metrics` for `trtllm`).
    ///
    /// Changed when a proxy moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "format::url_path")]
    pub metrics_path: Option<String>,
    /// Port of its metrics page. Absent: `port` (8002 for `triton`).
    ///
    /// Changed when metrics have a port of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub metrics_port: Option<u16>,
    /// HTTPS to it. Absent: plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
    /// A key of its own, sent as Bearer token instead of the client's `Authorization`. Exactly one of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKey>,
}

/// How its certificate is checked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ServerTls {
    /// PEM file of the authorities to trust. Absent: those of the system.
    ///
    /// Changed for certificates of an authority of one's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "format::file_path")]
    pub ca_file: Option<String>,
    /// Name in the certificate. Absent: the address.
    ///
    /// Changed when the address is an IP and the certificate is for a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "format::host")]
    pub server_name: Option<String>,
    /// Take any certificate. Anyone on the way can then read and change requests.
    ///
    /// Changed for a test on one's own machine, never else.
    pub insecure_skip_verify: bool,
}

/// Where the key is. Never the key itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApiKey {
    /// An environment variable of the gateway.
    ///
    /// Changed by operators of hosted model servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "format::env_name")]
    pub env: Option<String>,
    /// A file, read anew when it changes.
    ///
    /// Changed by operators that rotate keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "format::file_path")]
    pub file: Option<String>,
}
