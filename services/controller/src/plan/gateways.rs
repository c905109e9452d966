//! Data planes of Gateways that somebody wrote.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    cluster::{Gateway, ObjectKey},
    names,
};
use routing::{Attached, GatewayState, Protocol};
use serde_json::Value;

use super::{Action, Settled, Subject, Wishes, with_anchor, writes};
use crate::{
    kind::Id,
    picture::Picture,
    wanted::{Door, Marks, Owner, Plane, PodShape, access, config::anchor_owner},
};

/// Pods of such a Gateway: one may go.
const REPLICAS: u32 = 2;

/// Whether a Gateway is of a class of ours.
pub(super) fn is_of_class(picture: &Picture, gateway: &Gateway) -> bool {
    let class = picture.objects.gateway_classes.get(&ObjectKey::new("", &gateway.spec.gateway_class_name));
    class.is_some_and(|class| class.spec.controller_name == names::CONTROLLER_NAME)
}

fn is_a_configs(gateway: &Gateway) -> bool {
    gateway.metadata.label(names::CONFIG_NAME_LABEL).is_some()
}

pub(super) fn plan(
    picture: &Picture,
    wishes: Wishes<'_>,
    settled: &Settled,
    owned: &BTreeMap<&Subject, BTreeSet<&Id>>,
    due: &mut BTreeMap<Subject, Vec<Action>>,
) {
    // Most clusters have none, and attaching all routes is work.
    if picture.objects.gateways.values().all(|gateway| is_a_configs(gateway)) {
        return;
    }
    let attached: Attached = routing::attach(&picture.objects, names::CONTROLLER_NAME);
    let nothing = BTreeSet::new();
    for (key, state) in &attached.gateways {
        let Some(gateway) = picture.objects.gateways.get(key) else { continue };
        if is_a_configs(gateway) || gateway.metadata.is_going() {
            continue;
        }
        let marks = Marks::of_gateway(key);
        let anchor = Plane::anchor(wishes.settings, key, &marks);
        let wanted = with_anchor(picture, anchor, |uid| {
            let plane = plane(picture, wishes, gateway, state, marks.clone(), uid);
            let mut objects = plane.objects();
            objects.extend(certificates(gateway, state, &plane));
            objects
        });
        // Labels hold names in their fitted form.
        let subject = Subject::Gateway(ObjectKey::new(&key.namespace, names::fitted(&key.name)));
        let owned = owned.get(&subject).unwrap_or(&nothing);
        due.insert(Subject::Gateway(key.clone()), writes(picture, wanted, owned, settled));
    }
}

fn plane(
    picture: &Picture,
    wishes: Wishes<'_>,
    gateway: &Gateway,
    state: &GatewayState,
    marks: Marks,
    anchor: &str,
) -> Plane {
    let key = gateway.key();
    let name = names::data_plane(&key.namespace, &key.name);
    Plane {
        settings: wishes.settings.clone(),
        gateway: key,
        owner: anchor_owner(&name, anchor),
        doors: doors(state),
        replicas: (!picture.autoscaled.contains(&name)).then_some(REPLICAS),
        name,
        marks,
        pods: PodShape { metrics: true, ..PodShape::default() },
        infrastructure: gateway.spec.infrastructure.clone().unwrap_or_default(),
    }
}

fn doors(state: &GatewayState) -> Vec<Door> {
    let open = state.listeners.iter().filter(|listener| listener.serves());
    open.filter_map(|listener| {
        let scheme = match listener.protocol? {
            Protocol::Http => "http",
            Protocol::Https => "https",
        };
        Some(Door { name: listener.name.clone(), port: listener.port, scheme })
    })
    .collect()
}

/// A Role in each namespace that holds certificates of the Gateway. Those outside its own namespace can have no owner;
/// the controller removes them.
fn certificates(gateway: &Gateway, state: &GatewayState, plane: &Plane) -> Vec<Value> {
    let mut by_namespace: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for secret in state.listeners.iter().flat_map(|listener| &listener.certificates) {
        by_namespace.entry(&secret.namespace).or_default().insert(&secret.name);
    }
    let owner = Owner {
        api_version: "gateway.networking.k8s.io/v1".into(),
        kind: "Gateway".into(),
        name: gateway.metadata.name.clone(),
        uid: gateway.metadata.uid.clone(),
    };
    let roles = by_namespace.into_iter().flat_map(|(namespace, secrets)| {
        let secrets: Vec<String> = secrets.into_iter().map(str::to_owned).collect();
        let place = access::Place {
            namespace,
            name: &plane.name,
            account: &plane.name,
            account_namespace: &plane.settings.system_namespace,
            marks: &plane.marks,
            owner: (namespace == gateway.metadata.namespace).then_some(&owner),
        };
        let rules: Vec<Value> = access::secrets(&secrets).into_iter().collect();
        access::role(&place, &rules)
    });
    roles.collect()
}
