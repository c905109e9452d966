//! The kinds that are read, and where the API server has them.

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `GatewayClass`.
    GatewayClass,
    /// `Gateway`.
    Gateway,
    /// `HTTPRoute`.
    HttpRoute,
    /// `ReferenceGrant`.
    ReferenceGrant,
    /// `InferencePool`.
    InferencePool,
    /// `Namespace`.
    Namespace,
    /// `Service`.
    Service,
    /// `EndpointSlice`.
    EndpointSlice,
    /// `Pod`.
    Pod,
    /// `Secret`.
    Secret,
    /// `ConfigMap`.
    ConfigMap,
    /// `InferenceGatewayConfig`.
    Config,
    /// `InferenceObjective`, of both groups.
    Objective,
    /// `InferenceModelRewrite`, of both groups.
    Rewrite,
}

/// Objects of one kind under one API group and version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    /// The path before `namespaces` or the plural.
    pub(super) root: &'static str,
    pub(super) plural: &'static str,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::GatewayClass,
        Self::Gateway,
        Self::HttpRoute,
        Self::ReferenceGrant,
        Self::InferencePool,
        Self::Namespace,
        Self::Service,
        Self::EndpointSlice,
        Self::Pod,
        Self::Secret,
        Self::ConfigMap,
        Self::Config,
        Self::Objective,
        Self::Rewrite,
    ];

    /// Where its objects are. An object of an earlier place wins over one of the same name in a later place.
    pub(super) const fn resources(self) -> &'static [Resource] {
        const OLD: &str = "/apis/inference.networking.x-k8s.io/v1alpha2";
        const NEW: &str = "/apis/llm-d.ai/v1alpha2";
        const GATEWAY_API: &str = "/apis/gateway.networking.k8s.io/v1";
        match self {
            Self::GatewayClass => &[Resource { root: GATEWAY_API, plural: "gatewayclasses" }],
            Self::Gateway => &[Resource { root: GATEWAY_API, plural: "gateways" }],
            Self::HttpRoute => &[Resource { root: GATEWAY_API, plural: "httproutes" }],
            // Every release that has `v1` serves this too.
            Self::ReferenceGrant => {
                &[Resource { root: "/apis/gateway.networking.k8s.io/v1beta1", plural: "referencegrants" }]
            }
            Self::InferencePool => {
                &[Resource { root: "/apis/inference.networking.k8s.io/v1", plural: "inferencepools" }]
            }
            Self::Namespace => &[Resource { root: "/api/v1", plural: "namespaces" }],
            Self::Service => &[Resource { root: "/api/v1", plural: "services" }],
            Self::EndpointSlice => &[Resource { root: "/apis/discovery.k8s.io/v1", plural: "endpointslices" }],
            Self::Pod => &[Resource { root: "/api/v1", plural: "pods" }],
            Self::Secret => &[Resource { root: "/api/v1", plural: "secrets" }],
            Self::ConfigMap => &[Resource { root: "/api/v1", plural: "configmaps" }],
            Self::Config => &[Resource {
                root: "/apis/inference.sagemaker.aws.amazon.com/v1alpha1",
                plural: "inferencegatewayconfigs",
            }],
            Self::Objective => &[
                Resource { root: NEW, plural: "inferenceobjectives" },
                Resource { root: OLD, plural: "inferenceobjectives" },
            ],
            Self::Rewrite => &[
                Resource { root: NEW, plural: "inferencemodelrewrites" },
                Resource { root: OLD, plural: "inferencemodelrewrites" },
            ],
        }
    }

    /// Whether its objects are of the whole cluster, in no namespace.
    pub(super) const fn has_no_namespace(self) -> bool {
        matches!(self, Self::GatewayClass | Self::Namespace)
    }
}
