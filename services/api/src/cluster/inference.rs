//! The inference extension: `InferencePool` of `inference.networking.k8s.io/v1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Object;

/// A pool as declared.
pub type InferencePool = Object<InferencePoolSpec, PoolStatus>;

/// What belongs to a pool, and who picks in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InferencePoolSpec {
    pub selector: PoolSelector,
    pub target_ports: Vec<TargetPort>,
    /// `http` (the default) or `kubernetes.io/h2c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_picker_ref: Option<PickerRef>,
}

/// Which pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolSelector {
    pub match_labels: BTreeMap<String, String>,
}

/// Each pod is one endpoint per target port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetPort {
    pub number: u16,
}

/// Who picks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PickerRef {
    pub group: String,
    /// `Service` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PickerPort>,
    /// `FailClose` (the default) or `FailOpen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_mode: Option<String>,
}

/// The picker's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PickerPort {
    pub number: u16,
}

/// What gateways say of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PoolStatus {
    /// One entry per Gateway, kept whole: those of other controllers are not ours to change.
    pub parents: Vec<Value>,
}
