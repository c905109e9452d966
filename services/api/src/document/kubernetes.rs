//! What comes from Kubernetes itself: metadata, label selectors, `ConfigMap` and `Secret`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::format::{self, Format};

/// What every object carries. Open: Kubernetes adds fields of its own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Metadata {
    /// What the object is called. Unique among objects of its kind and namespace.
    ///
    /// Changed by whoever makes the object; other objects refer to it by this name.
    #[schemars(schema_with = "format::dns_subdomain")]
    pub name: String,
    /// Where it lives. In files, objects without one live where the configuration does, and objects of another
    /// namespace are left out with a notice.
    ///
    /// Changed by teams that share a cluster, to keep apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "format::dns_label")]
    pub namespace: Option<String>,
    /// What selectors look at.
    ///
    /// Changed by whoever sorts endpoints into pools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "format::labels")]
    pub labels: BTreeMap<String, String>,
    /// Notes of tools; not read.
    ///
    /// Changed by tools.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Which endpoints (pods, in a cluster) belong. All parts must hold; without any part it takes everything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must be there with exactly this value.
    ///
    /// Changed by whoever deploys the model, to name its pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "format::selected_labels")]
    pub match_labels: BTreeMap<String, String>,
    /// Further demands on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<MatchExpression>,
}

/// One demand on one label.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MatchExpression {
    /// The label it looks at.
    ///
    /// Changed by whoever deploys the model.
    #[schemars(schema_with = "format::label_key")]
    pub key: String,
    /// What is demanded of it.
    ///
    /// Changed by whoever deploys the model.
    pub operator: ExpressionOperator,
    /// The values that `In` and `NotIn` mean; the others take none.
    ///
    /// Changed by whoever deploys the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "label_values")]
    pub values: Vec<String>,
}

fn label_values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    format::list(Format::LabelValue, 256)
}

/// What a [`MatchExpression`] demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ExpressionOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// Adapters of a base model, when labelled `inference.networking.k8s.io/bbr-managed: "true"`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMap {
    /// `v1`.
    pub api_version: String,
    /// `ConfigMap`.
    pub kind: String,
    /// Name, namespace and labels.
    pub metadata: Metadata,
    /// `baseModel`, the `modelName` of a scheduler, and `adapters`, a YAML list written as a text.
    ///
    /// Changed by teams that publish adapters, without touching the gateway's configuration. Several may name one base.
    #[serde(default)]
    pub data: BTreeMap<String, String>,
    /// Not read.
    ///
    /// Changed by tools.
    #[serde(default)]
    pub binary_data: Option<Value>,
    /// Not read.
    ///
    /// Changed by tools.
    #[serde(default)]
    pub immutable: Option<bool>,
}

/// A certificate with its key, for `spec.tls.secretRef`, or clients' keys, for `spec.auth.apiKeys.secretRef`.
#[derive(Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Secret {
    /// `v1`.
    pub api_version: String,
    /// `Secret`.
    pub kind: String,
    /// Name, namespace and labels.
    pub metadata: Metadata,
    /// `kubernetes.io/tls` for a certificate, `Opaque` for keys.
    ///
    /// Changed by nobody: what refers to the Secret says which it must be.
    #[serde(default, rename = "type")]
    pub secret_type: Option<String>,
    /// `tls.crt` and `tls.key`, or one key for each client, in base64.
    ///
    /// Changed by whoever renews the certificate, or hands out keys.
    #[serde(default)]
    pub data: Option<Value>,
    /// The same, not in base64; of an entry in both, this one counts.
    ///
    /// Changed by whoever writes Secrets by hand.
    #[serde(default)]
    pub string_data: Option<Value>,
    /// Not read.
    ///
    /// Changed by tools.
    #[serde(default)]
    pub immutable: Option<bool>,
}

impl std::fmt::Debug for Secret {
    /// Without what is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}
