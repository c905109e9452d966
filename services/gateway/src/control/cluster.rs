//! Control by a cluster: one Gateway, and all that decides what it does.
//!
//! Each snapshot is taken as a whole. Pods that come and go change who serves and nothing else; anything else is loaded
//! anew, and put in force if it says something else than before. An object that is wrong never takes away what was right:
//! the configuration in force stays, and of what hangs on it (adapters, objectives, rewrites) the last good version of
//! each object counts, since one team's mistake must not stop another's change.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use api::{
    Loaded, Violations,
    cluster::{Gateway, Kept, ObjectKey, Objects},
    names,
};
use discovery::cluster::{Client, Limits, Saved, Scope, follow};
use proxy::serve::Serving;
use routing::{Attached, attach};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Control, StartError,
    doors::{self, Door, Speaking},
    pods, scope, services,
    staff::{Staff, Supply},
    usable::{self, Listeners},
};

/// A cluster that is followed.
pub struct Cluster {
    /// Its API server.
    pub client: Client,
    /// Whose data plane this is.
    pub gateway: ObjectKey,
    /// Where the last known state is kept, if anywhere.
    pub saved: Option<Saved>,
    /// Who serves on the listeners of the Gateway.
    pub serving: Arc<Serving>,
    /// The address that listeners are bound to.
    pub bind: IpAddr,
}

/// What is seen of the cluster.
pub(super) struct View {
    gateway: ObjectKey,
    scope: watch::Sender<Scope>,
    told: watch::Receiver<Option<Arc<Objects>>>,
    doors: watch::Sender<Vec<Door>>,
    /// What each listener of the Gateway speaks.
    speaking: Speaking,
    /// The snapshot in force.
    seen: Option<Arc<Objects>>,
    attached: Attached,
    /// Objects that hang on the configuration, each in its last good version.
    good: Satellites,
    /// What was said last of a Gateway that is not there.
    missing: bool,
}

/// What hangs on a configuration and may be wrong by itself.
#[derive(Clone, Default)]
struct Satellites(BTreeMap<String, Satellite>);

#[derive(Clone)]
enum Satellite {
    ConfigMap(ObjectKey, Arc<api::cluster::ConfigMap>),
    Objective(ObjectKey, Arc<api::cluster::Object<serde_json::Value>>),
    Rewrite(ObjectKey, Arc<api::cluster::Object<serde_json::Value>>),
}

impl Cluster {
    pub(super) fn begin(self, background: &mut JoinSet<()>) -> View {
        let seed = self.seed();
        let (scope, scoped) = watch::channel(scope::of(&self.gateway, &seed));
        let (tell, told) = watch::channel(None);
        if let Some(saved) = self.saved {
            background.spawn(saved.keep(tell.subscribe()));
        }
        let tell = move |objects| _ = tell.send_replace(Some(objects));
        background.spawn(follow(self.client, Limits::default(), scoped, seed, tell));
        let (doors, wanted) = watch::channel(Vec::new());
        background.spawn(doors::keep(self.serving, self.bind, wanted));
        View {
            gateway: self.gateway,
            scope,
            told,
            doors,
            speaking: Speaking::default(),
            seen: None,
            attached: Attached::default(),
            good: Satellites::default(),
            missing: false,
        }
    }

    /// The state that an earlier run kept, or nothing.
    fn seed(&self) -> Arc<Objects> {
        let read = self.saved.as_ref().map_or(Ok(None), Saved::read);
        match read {
            Ok(Some(objects)) => {
                tracing::info!("there is a last known state of the cluster, for the case that its API server is away");
                Arc::new(objects)
            }
            Ok(None) => Arc::default(),
            Err(error) => {
                tracing::warn!(%error, "the last known state of the cluster cannot be used");
                Arc::default()
            }
        }
    }
}

impl View {
    /// The next snapshot.
    pub(super) async fn next(&mut self) -> Arc<Objects> {
        loop {
            if self.told.changed().await.is_err() {
                return std::future::pending().await;
            }
            if let Some(objects) = self.told.borrow_and_update().clone() {
                return objects;
            }
        }
    }

    /// Whether only endpoints have changed since the snapshot in force.
    fn is_same_but_endpoints(&self, now: &Objects) -> bool {
        let Some(then) = &self.seen else { return false };
        same(&then.gateway_classes, &now.gateway_classes)
            && same(&then.gateways, &now.gateways)
            && same(&then.routes, &now.routes)
            && same(&then.grants, &now.grants)
            && same(&then.pools, &now.pools)
            && same(&then.namespaces, &now.namespaces)
            && same(&then.services, &now.services)
            && same(&then.secrets, &now.secrets)
            && same(&then.config_maps, &now.config_maps)
            && same(&then.configs, &now.configs)
            && same(&then.objectives, &now.objectives)
            && same(&then.rewrites, &now.rewrites)
    }
}

/// Whether two maps hold the very same objects. Equal ones that were read twice may count as different: that costs a look.
fn same<T>(then: &Kept<T>, now: &Kept<T>) -> bool {
    let mut both = then.iter().zip(now);
    then.len() == now.len() && both.all(|((a, then), (b, now))| a == b && Arc::ptr_eq(then, now))
}

impl Control {
    /// Takes a snapshot in.
    pub(super) fn objects_changed(&mut self, view: &mut View, objects: &Arc<Objects>) {
        let scope = scope::of(&view.gateway, objects);
        if *view.scope.borrow() != scope {
            // Something is named that was not read so far. Each change of the scope is answered by a snapshot.
            view.scope.send_replace(scope);
            return;
        }
        let Some(gateway) = objects.gateways.get(&view.gateway) else {
            if !std::mem::replace(&mut view.missing, true) {
                tracing::warn!(gateway = %view.gateway, "there is no such Gateway: what was known of it stays in force");
            }
            return;
        };
        view.missing = false;
        let config = config_of(gateway);
        if !view.is_same_but_endpoints(objects) {
            view.attached = attach(objects, names::CONTROLLER_NAME);
            if let Some(key) = &config {
                self.load(view, objects, key);
            }
            self.route_by_hand(&view.attached, &view.gateway, objects, config.as_ref());
            let state = view.attached.gateways.get(&view.gateway);
            let now = view.speaking.follow(state, objects, &mut self.certificates, &self.world.metrics);
            view.doors.send_if_modified(|doors| std::mem::replace(doors, now.clone()) != now);
        }
        self.supply(objects, config.as_ref());
        view.seen = Some(Arc::clone(objects));
    }

    /// Loads the configuration and puts it in force if it is another one.
    fn load(&mut self, view: &mut View, objects: &Objects, key: &ObjectKey) {
        match load_what_is_good(objects, key, &mut view.good) {
            Ok((loaded, wrong)) => {
                if self.config.as_ref() != Some(&loaded.config)
                    && let Err(error) = self.apply_cluster(loaded, objects, key)
                {
                    return self.refuse(error.to_string(), String::new());
                }
                match wrong {
                    Some(violations) => self.refuse_violations(&violations),
                    None => self.accept(),
                }
            }
            Err(violations) => self.refuse_violations(&violations),
        }
    }

    fn apply_cluster(&mut self, loaded: Loaded, objects: &Objects, key: &ObjectKey) -> Result<(), StartError> {
        usable::all_usable(&loaded.config, Listeners::Gateways).map_err(StartError::Unusable)?;
        let supply = supply(objects, Some(key), Some(&loaded.config));
        self.apply(loaded, &supply)
    }

    /// Puts those in force who serve now.
    fn supply(&mut self, objects: &Objects, config: Option<&ObjectKey>) {
        let mut supply = supply(objects, config, self.config.as_ref());
        supply.by_hand = self.by_hand.supply(objects);
        match Staff::new(self.selecting.iter().chain(&self.by_hand.selecting), &supply) {
            Ok(staff) if staff.wants == *self.wants.borrow() => {}
            Ok(staff) => self.staff(staff),
            Err(unusable) => tracing::error!(error = %unusable, "endpoints of a cluster cannot be used: report this"),
        }
    }
}

/// All that may serve.
fn supply(objects: &Objects, key: Option<&ObjectKey>, config: Option<&api::Config>) -> Supply {
    let (Some(key), Some(config)) = (key, config) else { return Supply::default() };
    let backend = config.bbr.default_backend.as_ref();
    let backend = backend.map(|name| (ObjectKey::new(&key.namespace, name), config.bbr.default_backend_port));
    Supply {
        candidates: pods::serving(objects, &key.namespace),
        default_backend: backend.map(|(service, port)| services::behind(objects, &service, port)).unwrap_or_default(),
        by_hand: BTreeMap::new(),
    }
}

/// The configuration that a Gateway was made for; `None` for one that was written by hand.
pub(super) fn config_of(gateway: &Gateway) -> Option<ObjectKey> {
    let label = |key| gateway.metadata.label(key);
    if label(names::MANAGED_BY_LABEL) != Some(names::MANAGED_BY) {
        return None;
    }
    Some(ObjectKey::new(label(names::CONFIG_NAMESPACE_LABEL)?, label(names::CONFIG_NAME_LABEL)?))
}

/// Loads a configuration. Where only what hangs on it is wrong, the last good version of that counts, or none, and what is
/// wrong is returned too.
fn load_what_is_good(
    objects: &Objects,
    key: &ObjectKey,
    good: &mut Satellites,
) -> Result<(Loaded, Option<Violations>), Violations> {
    let all = Satellites::of(objects, key);
    let mut tried = all.clone();
    let mut first = None;
    // Each turn takes at least one satellite back to its last good version or out, so this ends.
    loop {
        match api::load_from_cluster(&tried.within(objects, key), key) {
            Ok(loaded) => {
                let left_out = Violations(loaded.left_out.clone());
                if !left_out.0.is_empty() {
                    let took_back = tried.take_back(&left_out, good);
                    first.get_or_insert(left_out);
                    if took_back {
                        continue;
                    }
                }
                *good = tried;
                return Ok((loaded, first));
            }
            Err(violations) => {
                let took_back = tried.take_back(&violations, good);
                first.get_or_insert_with(|| violations.clone());
                if !took_back {
                    return Err(first.unwrap_or(violations));
                }
            }
        }
    }
}

impl Satellites {
    fn of(objects: &Objects, config: &ObjectKey) -> Self {
        let inside = |key: &ObjectKey| key.namespace == config.namespace;
        let maps = objects.config_maps.iter().map(|(key, it)| Satellite::ConfigMap(key.clone(), Arc::clone(it)));
        let objectives = objects.objectives.iter().map(|(key, it)| Satellite::Objective(key.clone(), Arc::clone(it)));
        let rewrites = objects.rewrites.iter().map(|(key, it)| Satellite::Rewrite(key.clone(), Arc::clone(it)));
        let all = maps.chain(objectives).chain(rewrites).filter(|it| inside(it.key()));
        Self(all.map(|it| (it.source(), it)).collect())
    }

    /// The snapshot with these in place of those that it has.
    fn within(&self, objects: &Objects, config: &ObjectKey) -> Objects {
        let mut objects = objects.clone();
        objects.config_maps.retain(|key, _| key.namespace != config.namespace);
        objects.objectives.retain(|key, _| key.namespace != config.namespace);
        objects.rewrites.retain(|key, _| key.namespace != config.namespace);
        for satellite in self.0.values().cloned() {
            match satellite {
                Satellite::ConfigMap(key, it) => _ = objects.config_maps.insert(key, it),
                Satellite::Objective(key, it) => _ = objects.objectives.insert(key, it),
                Satellite::Rewrite(key, it) => _ = objects.rewrites.insert(key, it),
            }
        }
        objects
    }

    /// Goes back to what was good where something is wrong. Returns whether there was anything to go back from.
    fn take_back(&mut self, violations: &Violations, good: &Self) -> bool {
        let mut took_back = false;
        for violation in &violations.0 {
            let Some(wrong) = self.0.remove(&violation.source) else { continue };
            took_back = true;
            match good.0.get(&violation.source) {
                Some(former) if !former.is(&wrong) => _ = self.0.insert(violation.source.clone(), former.clone()),
                Some(_) | None => {}
            }
        }
        took_back
    }
}

impl Satellite {
    fn key(&self) -> &ObjectKey {
        match self {
            Self::ConfigMap(key, _) | Self::Objective(key, _) | Self::Rewrite(key, _) => key,
        }
    }

    /// What violations call it.
    fn source(&self) -> String {
        let kind = match self {
            Self::ConfigMap(..) => "ConfigMap",
            Self::Objective(..) => "InferenceObjective",
            Self::Rewrite(..) => "InferenceModelRewrite",
        };
        format!("{kind} {}", self.key())
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ConfigMap(_, a), Self::ConfigMap(_, b)) => a == b,
            (Self::Objective(_, a), Self::Objective(_, b)) | (Self::Rewrite(_, a), Self::Rewrite(_, b)) => a == b,
            (Self::ConfigMap(..) | Self::Objective(..) | Self::Rewrite(..), _) => false,
        }
    }
}
