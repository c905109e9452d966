//! What of a cluster is read: as little as decides, and no more than was granted.

use std::collections::{BTreeMap, BTreeSet};

use api::cluster::{ObjectKey, ObjectMeta};

use super::{Kind, kind::Resource};

/// One kind within a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watch {
    /// What.
    pub kind: Kind,
    /// Where.
    pub range: Range,
}

/// Where objects are read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Range {
    /// The whole cluster.
    All,
    /// One namespace.
    Namespace(String),
    /// Objects of a namespace with this label.
    Labelled {
        /// The namespace.
        namespace: String,
        /// The label's key.
        key: String,
        /// Its value.
        value: String,
    },
    /// One object. A role that names the object is enough.
    Named(ObjectKey),
}

/// All that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope(BTreeSet<Watch>);

impl Scope {
    /// Every kind in the whole cluster: for a controller.
    #[must_use]
    pub fn everything() -> Self {
        Kind::ALL.into_iter().map(|kind| Watch { kind, range: Range::All }).collect()
    }

    /// Adds a kind within a range.
    pub fn add(&mut self, kind: Kind, range: Range) {
        self.0.insert(Watch { kind, range });
    }

    /// Takes a kind out, whatever its range.
    #[must_use]
    pub fn without(mut self, kind: Kind) -> Self {
        self.0.retain(|watch| watch.kind != kind);
        self
    }

    /// Each watch once.
    pub fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.0.iter()
    }

    /// Whether this is among it.
    pub fn contains(&self, watch: &Watch) -> bool {
        self.0.contains(watch)
    }
}

impl FromIterator<Watch> for Scope {
    fn from_iter<T: IntoIterator<Item = Watch>>(watches: T) -> Self {
        Self(watches.into_iter().collect())
    }
}

impl Range {
    /// Whether an object is within.
    pub(super) fn holds(&self, metadata: &ObjectMeta) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => metadata.namespace == *namespace,
            Self::Labelled { namespace, key, value } => {
                metadata.namespace == *namespace && metadata.label(key) == Some(value)
            }
            Self::Named(key) => metadata.key() == *key,
        }
    }

    /// The path of a list, with a `?` and what selects at its end.
    pub(super) fn path(&self, kind: Kind, resource: Resource) -> String {
        let Resource { root, plural } = resource;
        let namespace = match self {
            Self::All => "",
            Self::Namespace(namespace) | Self::Labelled { namespace, .. } => namespace,
            Self::Named(key) => &key.namespace,
        };
        let mut path = root.to_owned();
        if !namespace.is_empty() && !kind.has_no_namespace() {
            path.push_str("/namespaces/");
            path.push_str(&encoded(namespace));
        }
        path.push('/');
        path.push_str(plural);
        path.push('?');
        match self {
            Self::All | Self::Namespace(_) => {}
            Self::Labelled { key, value, .. } => {
                path.push_str(&format!("labelSelector={}%3D{}&", encoded(key), encoded(value)));
            }
            Self::Named(key) => path.push_str(&format!("fieldSelector=metadata.name%3D{}&", encoded(&key.name))),
        }
        path
    }
}

/// Percent-encoded for a path or a query. Names of objects need none of it; a text that only claims to be one might.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// How many watches each kind has, for the log.
pub(super) fn counted(scope: &Scope) -> BTreeMap<Kind, usize> {
    let mut counts = BTreeMap::new();
    for watch in scope.iter() {
        *counts.entry(watch.kind).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_select_no_more_than_the_range() {
        let path = |kind: Kind, range: Range| range.path(kind, kind.resources()[0]);
        assert_eq!(path(Kind::Pod, Range::All), "/api/v1/pods?");
        assert_eq!(path(Kind::Pod, Range::Namespace("a".into())), "/api/v1/namespaces/a/pods?");
        assert_eq!(
            path(Kind::Secret, Range::Named(ObjectKey::new("a", "b/../c"))),
            "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Db%2F..%2Fc&"
        );
        let labelled = Range::Labelled { namespace: "a".into(), key: "x/y".into(), value: "true".into() };
        assert_eq!(path(Kind::ConfigMap, labelled), "/api/v1/namespaces/a/configmaps?labelSelector=x%2Fy%3Dtrue&");
        assert_eq!(
            path(Kind::GatewayClass, Range::Named(ObjectKey::new("", "ours"))),
            "/apis/gateway.networking.k8s.io/v1/gatewayclasses?fieldSelector=metadata.name%3Dours&"
        );
    }
}
