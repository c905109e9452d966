//! The documents that operators write, one struct per kind, each field declared here and nowhere else.
//!
//! A field's attributes are its bounds, its default and its unit; its comment's first paragraph says what it means and
//! the one that begins with "Changed" who would change it and why. `x-ours` marks an addition to the contract that
//! operators of SageMaker HyperPod know. Fields of Kubernetes' own types are kept as they are (`Value`): copying its
//! pod schemas would make the resource too large to apply.
//!
//! These structs are what was *written*; [`crate::Config`] is what it *means*.

mod auth;
mod endpoint;
mod flow_control;
mod gateway_config;
mod kubernetes;
mod limits;
mod objective;
mod scheduler;
mod status;

pub use auth::{ApiKeys, Auth, ClaimValueType, Jwt, Provider, RemoteJwks, RequiredClaim};
pub use endpoint::{ApiKey, Endpoint, EndpointDocumentSpec, ServerTls};
pub use flow_control::{
    BandClaim, BandName, Bands, CriticalBand, EndpointFullAt, Eviction, Fairness, FlowControl, Ordering, SheddableBand,
    StandardBand,
};
pub use gateway_config::{
    BbrSpec, DataPlane, DataPlaneMode, DefaultBackend, GatewayTls, InferenceGatewayConfig, InferenceGatewayConfigSpec,
    MetricsSpec, Observability, PodDefaults, SecretRef, SignalsSpec, TimeoutsSpec, UsageMode,
};
pub use kubernetes::{ConfigMap, ExpressionOperator, LabelSelector, MatchExpression, Metadata, Secret};
pub use limits::{Limit, LimitKey};
pub use objective::{
    InferenceModelRewrite, InferenceModelRewriteSpec, InferenceObjective, InferenceObjectiveSpec, ModelMatch,
    ModelMatchType, PoolRef, RewriteMatch, RewriteRule, RewriteTarget,
};
pub use scheduler::{AppProtocolName, ConfigMapRef, EngineName, PickerName, SchedulerSpec, WeightsSpec};
pub use status::{Condition, ConditionStatus, ConfigStatus, RolloutState, SchedulerStatus, TlsStatus};

use crate::schema::{self, Shape};

/// The kinds of documents that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    InferenceGatewayConfig,
    Endpoint,
    ConfigMap,
    Secret,
    InferenceObjective,
    InferenceModelRewrite,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::InferenceGatewayConfig,
        Self::Endpoint,
        Self::ConfigMap,
        Self::Secret,
        Self::InferenceObjective,
        Self::InferenceModelRewrite,
    ];

    /// `kind`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InferenceGatewayConfig => "InferenceGatewayConfig",
            Self::Endpoint => "Endpoint",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::InferenceObjective => "InferenceObjective",
            Self::InferenceModelRewrite => "InferenceModelRewrite",
        }
    }

    /// Every `apiVersion` that it is known by, the one to write first.
    pub(crate) const fn api_versions(self) -> &'static [&'static str] {
        match self {
            Self::InferenceGatewayConfig => &["inference.sagemaker.aws.amazon.com/v1alpha1"],
            Self::Endpoint => &["inference-gateway/v1alpha1"],
            Self::ConfigMap | Self::Secret => &["v1"],
            Self::InferenceObjective | Self::InferenceModelRewrite => {
                &["llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"]
            }
        }
    }

    /// What a document of it looks like.
    pub(crate) fn shape(self) -> Shape {
        match self {
            Self::InferenceGatewayConfig => schema::of::<InferenceGatewayConfig>(),
            Self::Endpoint => schema::of::<Endpoint>(),
            Self::ConfigMap => schema::of::<ConfigMap>(),
            Self::Secret => schema::of::<Secret>(),
            Self::InferenceObjective => schema::of::<InferenceObjective>(),
            Self::InferenceModelRewrite => schema::of::<InferenceModelRewrite>(),
        }
    }
}
