//! What a data plane may read: its own account, and Roles for what is not for everybody.

use serde_json::{Value, json};

use super::{Marks, Owner, Plane, object};
use crate::kind::{Id, Kind};

/// The account of a data plane's pods.
#[must_use]
pub fn service_account(plane: &Plane) -> Value {
    plane.object(Kind::ServiceAccount)
}

/// In one namespace: the Role and its binding to a data plane's account.
///
/// ConfigMaps may be read as a whole, since any of them may list adapters; Secrets only by name.
#[must_use]
pub fn role(place: &Place<'_>, rules: &[Value]) -> [Value; 2] {
    let id = |kind| Id::new(kind, place.namespace, place.name);
    let mut role = object(&id(Kind::Role), place.marks, place.owner);
    role["rules"] = json!(rules);
    let mut binding = object(&id(Kind::RoleBinding), place.marks, place.owner);
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": place.name});
    binding["subjects"] =
        json!([{"kind": "ServiceAccount", "name": place.account, "namespace": place.account_namespace}]);
    [role, binding]
}

/// Where a Role is, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub account: &'a str,
    pub account_namespace: &'a str,
    pub marks: &'a Marks,
    pub owner: Option<&'a Owner>,
}

/// Every ConfigMap.
#[must_use]
pub fn config_maps() -> Value {
    json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]})
}

/// These Secrets and no others. A watch of one by its name needs no more.
#[must_use]
pub fn secrets(names: &[String]) -> Option<Value> {
    if names.is_empty() {
        return None;
    }
    Some(json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": names, "verbs": ["get", "list", "watch"],
    }))
}
