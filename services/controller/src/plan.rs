//! What is missing, too much, or different: the writes that lead from what is to what is wished for.
//!
//! Pure. Done one after the other, in the order given, they end in a picture for which no write is left; so it does not
//! matter where a controller is stopped. An object is taken back only if it is marked as ours, by the uid it was seen with.

mod gateways;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    net::IpAddr,
    sync::Arc,
};

use api::{
    cluster::{Gateway, ObjectKey},
    document::InferenceGatewayConfigSpec,
    names,
};
use serde_json::Value;

use crate::{
    difference::sealed,
    judge::{Judged, Verdict},
    kind::{Id, Kind},
    picture::{Picture, inside, number},
    wanted::{Plane, Settings, config::Asked, id_of},
};

/// On behalf of whom something is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// An InferenceGatewayConfig.
    Config(ObjectKey),
    /// A Gateway that somebody wrote.
    Gateway(ObjectKey),
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make an object that is not there, or not ours to know of.
    Create { id: Id, body: Value },
    /// Change ours.
    Change { id: Id, uid: String, body: Value },
    /// Leave a Deployment's replicas to an autoscaler, at what they are.
    LetGo { id: Id, replicas: i64 },
    /// Take ours back.
    Delete { id: Id, uid: String },
}

impl Action {
    /// What it is about.
    #[must_use]
    pub const fn id(&self) -> &Id {
        match self {
            Self::Create { id, .. } | Self::Change { id, .. } | Self::LetGo { id, .. } | Self::Delete { id, .. } => id,
        }
    }
}

/// How objects looked right after they were last written.
pub type Settled = BTreeMap<Id, u64>;

/// Annotation of a Deployment whose replicas are an autoscaler's.
pub const AUTOSCALED: &str = "inference.sagemaker.aws.amazon.com/autoscaled";

/// What is asked for, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Wishes<'a> {
    pub settings: &'a Settings,
    pub configs: &'a BTreeMap<ObjectKey, Judged>,
    /// ARNs of certificates imported for configs.
    pub imported: &'a BTreeMap<ObjectKey, String>,
}

/// Plans, and remembers for which configs there was nothing to do: with thousands of objects, working out again and again
/// that nothing is due costs more than all writes. What it remembers changes no plan.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    /// What each config looked like when nothing was due for it.
    quiet: BTreeMap<ObjectKey, Looks>,
}

/// Everything that a config's plan depends on, but for the process's own settings.
#[derive(Clone, Debug, PartialEq)]
struct Looks {
    spec: ByAddress<InferenceGatewayConfigSpec>,
    uid: String,
    pods: Vec<(IpAddr, bool)>,
    autoscaled: bool,
    imported: Option<String>,
    absent: BTreeSet<Kind>,
    /// Ids, uids and versions of its objects, hashed.
    owned: u64,
}

/// Equal when it is the very same value, which costs nothing to find out.
#[derive(Clone, Debug)]
struct ByAddress<T>(Arc<T>);

impl<T> PartialEq for ByAddress<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Planner {
    /// The writes that are due, by subject. Subjects that need none are listed with none.
    #[must_use]
    pub fn plan(&mut self, picture: &Picture, wishes: Wishes<'_>, settled: &Settled) -> BTreeMap<Subject, Vec<Action>> {
        let mut due = BTreeMap::new();
        let by_subject = owned_by_subject(picture);
        let nothing = BTreeSet::new();
        self.quiet.retain(|key, _| wishes.configs.contains_key(key));
        for (key, judged) in wishes.configs {
            let Verdict::InForce(spec) = &judged.verdict else { continue };
            let subject = Subject::Config(key.clone());
            let owned = by_subject.get(&subject).unwrap_or(&nothing);
            let looks = Looks::of(picture, wishes, key, judged, spec, owned);
            let actions = match self.quiet.get(key) == Some(&looks) {
                true => Vec::new(),
                false => of_config(picture, wishes, key, &looks, owned, settled),
            };
            if actions.is_empty() {
                self.quiet.insert(key.clone(), looks);
            } else {
                self.quiet.remove(key);
            }
            due.insert(subject, actions);
        }
        gateways::plan(picture, wishes, settled, &by_subject, &mut due);
        collect_garbage(picture, wishes, &by_subject, &mut due);
        due
    }
}

impl Looks {
    fn of(
        picture: &Picture,
        wishes: Wishes<'_>,
        key: &ObjectKey,
        judged: &Judged,
        spec: &Arc<InferenceGatewayConfigSpec>,
        owned: &BTreeSet<&Id>,
    ) -> Self {
        let gateway = ObjectKey::new(&wishes.settings.system_namespace, &key.name);
        let mut hasher = DefaultHasher::new();
        for id in owned {
            let seen = picture.ours(id).map(|seen| (seen.version, &seen.uid, seen.is_going));
            (id, seen).hash(&mut hasher);
        }
        Self {
            spec: ByAddress(Arc::clone(spec)),
            uid: judged.object.metadata.uid.clone(),
            pods: plane_pods(picture, wishes.settings, &gateway),
            autoscaled: picture.autoscaled.contains(&names::data_plane(&gateway.namespace, &gateway.name)),
            imported: wishes.imported.get(key).cloned(),
            absent: picture.absent.clone(),
            owned: hasher.finish(),
        }
    }
}

fn of_config(
    picture: &Picture,
    wishes: Wishes<'_>,
    key: &ObjectKey,
    looks: &Looks,
    owned: &BTreeSet<&Id>,
    settled: &Settled,
) -> Vec<Action> {
    let asked = Asked {
        settings: wishes.settings,
        key,
        uid: &looks.uid,
        spec: &looks.spec.0,
        pods: &looks.pods,
        autoscaled: looks.autoscaled,
        imported: looks.imported.as_deref(),
    };
    let gateway = ObjectKey::new(&wishes.settings.system_namespace, &key.name);
    let anchor = Plane::anchor(wishes.settings, &gateway, &asked.marks());
    let wanted = with_anchor(picture, anchor, |uid| asked.objects(uid));
    writes(picture, wanted, owned, settled)
}

/// The anchor, and once it is there, all that hangs on it.
fn with_anchor(picture: &Picture, anchor: Value, rest: impl FnOnce(&str) -> Vec<Value>) -> Vec<Value> {
    let seen = picture.ours(&id_of(&anchor)).filter(|seen| !seen.is_going);
    let mut wanted = vec![anchor];
    if let Some(seen) = seen {
        wanted.extend(rest(&seen.uid));
    }
    wanted
}

/// From what is there to what is wanted. While only the anchor is wanted, nothing is too much yet.
fn writes(picture: &Picture, wanted: Vec<Value>, owned: &BTreeSet<&Id>, settled: &Settled) -> Vec<Action> {
    let complete = wanted.len() > 1;
    let mut actions = Vec::new();
    let mut kept = BTreeSet::new();
    for body in wanted {
        let id = id_of(&body);
        kept.insert(id.clone());
        if !picture.absent.contains(&id.kind) {
            actions.extend(write(picture, id, body, settled));
        }
    }
    let rank = |action: &Action| Kind::ALL.iter().position(|kind| *kind == action.id().kind);
    actions.sort_by_key(rank);
    if complete {
        let surplus = owned.iter().filter(|id| !kept.contains(**id));
        actions.extend(surplus.filter_map(|id| delete(picture, id)));
    }
    actions
}

fn write(picture: &Picture, id: Id, mut body: Value, settled: &Settled) -> Vec<Action> {
    let autoscaled = id.kind == Kind::Deployment && body["spec"]["replicas"].is_null();
    if autoscaled {
        body["metadata"]["annotations"][AUTOSCALED] = Value::String("true".into());
    }
    let wish = sealed(body);
    let Some(seen) = picture.ours(&id) else {
        return vec![Action::Create { id, body: wish.object }];
    };
    // What is going will be gone in a moment, and then be made anew.
    if seen.is_going || seen.meets(&wish, settled.get(&id).copied()) {
        return Vec::new();
    }
    let mut actions = Vec::new();
    if let Some(object) = seen.object().filter(|_| autoscaled) {
        let let_go = object.pointer("/metadata/annotations").is_some_and(|it| it.get(AUTOSCALED).is_some());
        if !let_go {
            actions.push(Action::LetGo { id: id.clone(), replicas: number(&object, "/spec/replicas") });
        }
    }
    actions.push(Action::Change { uid: seen.uid.clone().into(), id, body: wish.object });
    actions
}

fn delete(picture: &Picture, id: &Id) -> Option<Action> {
    let seen = picture.ours(id).filter(|seen| !seen.is_going)?;
    Some(Action::Delete { id: id.clone(), uid: seen.uid.clone().into() })
}

/// Ours, by whom they were made for.
fn owned_by_subject(picture: &Picture) -> BTreeMap<&Subject, BTreeSet<&Id>> {
    let mut by_subject: BTreeMap<&Subject, BTreeSet<&Id>> = BTreeMap::new();
    for (id, seen) in &picture.owned {
        by_subject.entry(&seen.subject).or_default().insert(id);
    }
    by_subject
}

/// Of subjects that are gone, what nothing else would remove: Kubernetes removes what has an owner.
fn collect_garbage(
    picture: &Picture,
    wishes: Wishes<'_>,
    by_subject: &BTreeMap<&Subject, BTreeSet<&Id>>,
    due: &mut BTreeMap<Subject, Vec<Action>>,
) {
    // Labels hold names in their fitted form.
    let fitted = |key: &ObjectKey| ObjectKey::new(&key.namespace, names::fitted(&key.name));
    let configs: BTreeSet<ObjectKey> = wishes.configs.keys().map(fitted).collect();
    let ours = |gateway: &Gateway| gateways::is_of_class(picture, gateway) && !gateway.metadata.is_going();
    let gateways = picture.objects.gateways.values().filter(|gateway| ours(gateway));
    let gateways: BTreeSet<ObjectKey> = gateways.map(|gateway| fitted(&gateway.key())).collect();
    for (subject, owned) in by_subject {
        let is_there = match subject {
            Subject::Config(key) => configs.contains(key),
            Subject::Gateway(key) => gateways.contains(key),
        };
        if is_there {
            continue;
        }
        let ownerless = |id: &&&Id| picture.ours(id).is_some_and(|seen| !seen.has_owner);
        let actions: Vec<Action> = owned.iter().filter(ownerless).filter_map(|id| delete(picture, id)).collect();
        if !actions.is_empty() {
            due.insert((*subject).clone(), actions);
        }
    }
}

/// Pods of a Gateway's data plane that have an address, each with whether it serves.
fn plane_pods(picture: &Picture, settings: &Settings, gateway: &ObjectKey) -> Vec<(IpAddr, bool)> {
    let name = names::fitted(&gateway.name);
    let mut pods: Vec<(IpAddr, bool)> = inside(&picture.objects.pods, &settings.system_namespace)
        .filter(|pod| {
            let metadata = &pod.metadata;
            metadata.label(names::GATEWAY_NAME_LABEL) == Some(&name)
                && metadata.label(names::GATEWAY_NAMESPACE_LABEL) == Some(&gateway.namespace)
                && !pod.has_ended()
        })
        .filter_map(|pod| Some((pod.ip()?, pod.serves())))
        .collect();
    pods.sort_unstable();
    pods
}
