//! The kinds of objects that the controller makes, and where one is.

use std::fmt;

use kube::{api::ApiResource, core::GroupVersionKind};

/// A kind that the controller writes, or reads as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ConfigMap,
    ServiceAccount,
    Role,
    RoleBinding,
    Service,
    EndpointSlice,
    Deployment,
    PodDisruptionBudget,
    NetworkPolicy,
    Ingress,
    Gateway,
    HttpRoute,
    ReferenceGrant,
    InferencePool,
    Issuer,
    Certificate,
}

impl Kind {
    /// Every kind, in the order in which objects are made: who is referred to comes first.
    pub const ALL: [Self; 16] = [
        Self::ConfigMap,
        Self::ServiceAccount,
        Self::Role,
        Self::RoleBinding,
        Self::Issuer,
        Self::Certificate,
        Self::ReferenceGrant,
        Self::Gateway,
        Self::Service,
        Self::EndpointSlice,
        Self::Deployment,
        Self::PodDisruptionBudget,
        Self::NetworkPolicy,
        Self::InferencePool,
        Self::HttpRoute,
        Self::Ingress,
    ];

    /// Group, version, name and plural.
    const fn row(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::ConfigMap => ("", "v1", "ConfigMap", "configmaps"),
            Self::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Self::Role => ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
            Self::Service => ("", "v1", "Service", "services"),
            Self::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::PodDisruptionBudget => ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            Self::NetworkPolicy => ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
            Self::Ingress => ("networking.k8s.io", "v1", "Ingress", "ingresses"),
            Self::Gateway => ("gateway.networking.k8s.io", "v1", "Gateway", "gateways"),
            Self::HttpRoute => ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
            Self::ReferenceGrant => ("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant", "referencegrants"),
            Self::InferencePool => ("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools"),
            Self::Issuer => ("cert-manager.io", "v1", "Issuer", "issuers"),
            Self::Certificate => ("cert-manager.io", "v1", "Certificate", "certificates"),
        }
    }

    /// `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().2
    }

    /// `apiVersion`.
    #[must_use]
    pub fn api_version(self) -> String {
        let (group, version, ..) = self.row();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }

    /// As the client names it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = self.row();
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Whether it is made in the system namespace only, and so is read there only.
    #[must_use]
    pub const fn is_of_system(self) -> bool {
        matches!(
            self,
            Self::ConfigMap
                | Self::ServiceAccount
                | Self::Deployment
                | Self::PodDisruptionBudget
                | Self::NetworkPolicy
                | Self::Ingress
                | Self::Issuer
                | Self::Certificate
        )
    }

    /// Whether anything is read in its status.
    #[must_use]
    pub const fn has_telling_status(self) -> bool {
        matches!(self, Self::Deployment | Self::Service | Self::Certificate | Self::Ingress)
    }
}

/// One object of a kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl Id {
    /// The object `name` of `kind` in `namespace`.
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}
