//! Routes written by hand: from a snapshot of a cluster to the pools behind them and whom each takes.
//!
//! One pool for each InferencePool, and one for each port of a Service, that a route on this Gateway names. They stay as
//! long as a route names them, whatever else changes; who serves in them is a matter of pods and slices (`staff`).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::SystemTime,
};

use api::cluster::{InferencePool, ObjectKey, Objects};
use discovery::Engine;
use dispatch::{FlowControl, HasPage, PoolDispatch, Settings, Weights};
use http::HeaderValue;
use proxy::client::Protocol;
use routing::{AppProtocol, Attached, Table, Target};
use serde_json::Value;

use super::{
    Control,
    build::{Looks, Place},
    pods, services,
    staff::{Candidate, Selecting, Whom},
};
use crate::{
    by_hand::{Backing, ForeignPicker, HandRoutes, OnFailure, Otherwise, Picker, Targets},
    extension::Link,
    limits::Matching,
    metrics::{ModelMetrics, QueueMetrics, RetryMetrics},
    pools::PoolHandle,
    routes::{Listed, OTHER_MODEL, Objectives, Routes, Served},
    world::{ConfigStatus, World},
};

/// Pools behind the routes of one Gateway, at most: each has a dispatcher, and series of its own. A route to one more is
/// answered with 500, and the log says so.
const POOLS_MAX: usize = 256;

/// Memory for the prefix indexes of all these pools together, in bytes.
const PREFIX_BYTES_MAX: usize = 256 << 20;
/// A pool's share at most, in bytes.
const PREFIX_BYTES_PER_POOL_MAX: usize = 32 << 20;

/// Longest body of an inference request that is read for what it says, in bytes, where no configuration says it.
const READ_BYTES_MAX: u64 = 256 << 20;

/// The port of a picker where its reference names none.
const PICKER_PORT: u16 = 9002;

/// What routes written by hand put in force.
#[derive(Default)]
pub(super) struct ByHand {
    /// By name.
    pub(super) pools: BTreeMap<String, Arc<PoolHandle>>,
    pub(super) settings: Vec<(Arc<PoolHandle>, Settings)>,
    pub(super) selecting: Vec<Selecting>,
    /// `None` if no route hangs on the Gateway, and the configuration takes every request.
    pub(super) routes: Option<Arc<HandRoutes>>,
    /// For people.
    pub(super) listed: Vec<Listed>,
    /// What backs each pool, by its name.
    behind: BTreeMap<String, Behind>,
    /// The ways to other endpoint pickers, by their Service and its port.
    links: BTreeMap<(ObjectKey, u16), Arc<Link>>,
}

/// What a pool's endpoints are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Behind {
    Pool(ObjectKey),
    Service(ObjectKey, u16),
}

impl ByHand {
    /// What hangs on `gateway`. `former` is what was in force before: its pools live on.
    pub(super) fn new(
        objects: &Objects,
        attached: &Attached,
        gateway: &ObjectKey,
        otherwise: Otherwise,
        world: &World,
        former: &Self,
    ) -> Self {
        let table = Table::of(objects, attached, gateway);
        if table.is_empty() && otherwise == Otherwise::Configs {
            return Self::default();
        }
        let wanted: BTreeSet<(Behind, Spoken)> =
            table.rules().flat_map(|rule| &rule.backends).filter_map(|backend| behind(&backend.target)).collect();
        if wanted.len() > POOLS_MAX {
            tracing::error!(
                pools = wanted.len(),
                POOLS_MAX,
                "routes name more pools than one Gateway may have: requests to the last ones are answered with 500"
            );
        }
        let pools = wanted.iter().filter(|(behind, _)| matches!(behind, Behind::Pool(_))).count().max(1);
        let prefix_budget_bytes = (PREFIX_BYTES_MAX / pools).min(PREFIX_BYTES_PER_POOL_MAX);
        let mut by_hand = Self::default();
        let mut targets = Targets::default();
        for (behind, spoken) in wanted.into_iter().take(POOLS_MAX) {
            match &behind {
                Behind::Pool(key) => {
                    let Some(pool) = objects.pools.get(key) else { continue };
                    let picker = by_hand.picker(pool, objects, former);
                    let flow_control = match &picker {
                        Picker::Ours => Settings::default().flow_control,
                        // Another picker lets requests wait itself, and what it says is done.
                        Picker::Foreign(_) => FlowControl::Off,
                    };
                    let settings = Settings { prefix_budget_bytes, flow_control, ..Settings::default() };
                    let place = Place { port: 0, protocol: of_pool(pool), engine: Engine::Auto, looks: Looks::Often };
                    let handle = by_hand.pool(&key.to_string(), behind.clone(), settings, place, world, former);
                    let objectives = objectives(objects, key);
                    let served = served(&handle, Backing::Models, picker, objectives, world);
                    targets.pools.insert(key.clone(), served);
                }
                Behind::Service(key, port) => {
                    let protocol = match spoken {
                        Spoken::Http1 => Protocol::Http1,
                        Spoken::H2c => Protocol::H2c,
                    };
                    let place = Place { port: *port, protocol, engine: Engine::None, looks: Looks::Never };
                    let name = format!("{key}:{port}");
                    let handle = by_hand.pool(&name, behind.clone(), of_service(), place, world, former);
                    let served = served(&handle, Backing::Anything, Picker::Ours, Arc::default(), world);
                    let app_protocol = match spoken {
                        Spoken::Http1 => AppProtocol::Http1,
                        Spoken::H2c => AppProtocol::H2c,
                    };
                    targets.services.entry(key.clone()).or_default().push((*port, app_protocol, served));
                }
            }
        }
        by_hand.routes = Some(Arc::new(HandRoutes::new(table, targets, otherwise)));
        by_hand
    }

    fn pool(
        &mut self,
        name: &str,
        behind: Behind,
        settings: Settings,
        place: Place,
        world: &World,
        former: &Self,
    ) -> Arc<PoolHandle> {
        // As with a configuration's pools: one that comes back while requests still run there is the same.
        let known = former.pools.get(name).cloned().or_else(|| world.pools.at_work(name));
        let pool = known.unwrap_or_else(|| {
            let retries = RetryMetrics::new(&world.metrics, name.into());
            let queue = QueueMetrics::new(&world.metrics, name.into());
            PoolHandle::new(name.into(), PoolDispatch::new(settings.clone()), retries, queue, world.clock)
        });
        self.settings.push((Arc::clone(&pool), settings));
        self.selecting.push(Selecting { pool: Arc::clone(&pool), place, whom: Whom::ByHand(name.to_owned()) });
        self.listed.push(Listed { pool: Arc::clone(&pool), models: Vec::new(), adapters: Vec::new() });
        self.pools.insert(name.to_owned(), Arc::clone(&pool));
        self.behind.insert(name.to_owned(), behind);
        pool
    }

    /// Ourselves, if nobody else is named: a Service that this product made stands for us.
    fn picker(&mut self, pool: &InferencePool, objects: &Objects, former: &Self) -> Picker {
        let Some(reference) = &pool.spec.endpoint_picker_ref else { return Picker::Ours };
        let service = ObjectKey::new(&pool.metadata.namespace, &reference.name);
        let label = |key| objects.services.get(&service).and_then(|service| service.metadata.label(key));
        if label(api::names::MANAGED_BY_LABEL) == Some(api::names::MANAGED_BY) {
            return Picker::Ours;
        }
        let on_failure = match reference.failure_mode.as_deref() {
            Some("FailOpen") => OnFailure::PickOurselves,
            Some(_) | None => OnFailure::Refuse,
        };
        let place = (service, reference.port.map_or(PICKER_PORT, |port| port.number));
        let known = self.links.get(&place).or(former.links.get(&place)).cloned();
        let link = known.unwrap_or_else(|| Arc::new(Link::new()));
        link.follow(addresses(objects, &place.0, place.1));
        self.links.insert(place.clone(), Arc::clone(&link));
        let (service, port) = place;
        Picker::Foreign(Arc::new(ForeignPicker { service, port, on_failure, link }))
    }

    /// A configuration's routes with these beside them.
    pub(super) fn beside(&self, mut routes: Routes) -> Routes {
        routes.by_hand.clone_from(&self.routes);
        routes.pools.retain(|listed| !is_by_hand(&listed.pool.name));
        routes.pools.extend(self.listed.iter().cloned());
        routes
    }

    /// Who may serve in each pool now, by its name. Links to other pickers follow their Services.
    pub(super) fn supply(&self, objects: &Objects) -> BTreeMap<String, Vec<Candidate>> {
        for ((service, port), link) in &self.links {
            link.follow(addresses(objects, service, *port));
        }
        let candidates = |behind: &Behind| match behind {
            Behind::Pool(key) => objects.pools.get(key).map(|pool| members(objects, key, pool)).unwrap_or_default(),
            Behind::Service(key, port) => services::behind(objects, key, *port),
        };
        self.behind.iter().map(|(name, behind)| (name.clone(), candidates(behind))).collect()
    }
}

/// Pools of a configuration are called as its schedulers, whose names hold no slash.
fn is_by_hand(pool: &str) -> bool {
    pool.contains('/')
}

impl Control {
    /// Puts the routes in force that hang on the Gateway beside its configuration, or alone.
    pub(super) fn route_by_hand(
        &mut self,
        attached: &Attached,
        gateway: &ObjectKey,
        objects: &Objects,
        config: Option<&ObjectKey>,
    ) {
        let otherwise = if config.is_some() { Otherwise::Configs } else { Otherwise::Nobodys };
        let by_hand = ByHand::new(objects, attached, gateway, otherwise, &self.world, &self.by_hand);
        for (pool, settings) in &by_hand.settings {
            self.world.pools.note(pool);
            pool.configure(settings.clone());
        }
        self.pools.retain(|name, _| !is_by_hand(name));
        self.pools.extend(by_hand.pools.clone());
        self.by_hand = by_hand;
        if config.is_some() && self.config.is_none() {
            // Who may send requests is not known yet: a configuration that is put in force takes these routes with it.
            return;
        }
        let mut routes = self.by_hand.beside(Routes::clone(&self.world.routes.load()));
        if config.is_none() {
            routes.body_bytes_max = READ_BYTES_MAX;
        }
        self.sweeper.note(&routes);
        self.world.routes.store(Arc::new(routes));
        if config.is_none() && self.generation == 0 {
            self.in_force_without_a_configuration();
        }
    }

    /// A Gateway written by hand has no configuration to wait for: its routes are all there is.
    fn in_force_without_a_configuration(&mut self) {
        self.generation = 1;
        self.world.config.store(Arc::new(ConfigStatus {
            generation: self.generation,
            source: self.source.clone(),
            loaded_at: SystemTime::now(),
            error: None,
            metrics_enabled: true,
        }));
        tracing::info!("a Gateway written by hand: its routes are in force");
    }
}

/// What is spoken to a Service; of a pool its object says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spoken {
    Http1,
    H2c,
}

fn behind(target: &Target) -> Option<(Behind, Spoken)> {
    match target {
        Target::Pool(key) => Some((Behind::Pool(key.clone()), Spoken::Http1)),
        Target::Service { key, port, protocol } => {
            let spoken = match protocol {
                AppProtocol::Http1 => Spoken::Http1,
                AppProtocol::H2c => Spoken::H2c,
            };
            Some((Behind::Service(key.clone(), *port), spoken))
        }
        Target::Invalid(_) => None,
    }
}

fn of_pool(pool: &InferencePool) -> Protocol {
    match pool.spec.app_protocol.as_deref() {
        Some("kubernetes.io/h2c") => Protocol::H2c,
        Some(_) | None => Protocol::Http1,
    }
}

/// Nothing is known of the servers but own work: the one with the least of it is next, and nobody waits.
fn of_service() -> Settings {
    let nothing = Weights {
        queue: 0,
        kv_cache: 0,
        prefix: 0,
        lora_affinity: 0,
        running_requests: 1,
        lru: 0,
        predicted_latency: 0,
    };
    Settings {
        weights: nothing,
        has_page: HasPage::Unasked,
        flow_control: FlowControl::Off,
        prefix_budget_bytes: 0,
        ..Settings::default()
    }
}

/// Where a picker can be asked. One outside of the cluster (a Service of type `ExternalName`) never is.
fn addresses(objects: &Objects, service: &ObjectKey, port: u16) -> Vec<SocketAddr> {
    if objects.services.get(service).is_none_or(|service| service.spec.kind == "ExternalName") {
        return Vec::new();
    }
    let behind = services::behind(objects, service, port).into_iter();
    behind.filter_map(|it| Some(SocketAddr::new(it.spec.address.parse().ok()?, it.spec.port?))).collect()
}

/// Priorities of the objectives that name this pool.
fn objectives(objects: &Objects, pool: &ObjectKey) -> Arc<Objectives> {
    let mine = objects.objectives.iter().filter(|(key, objective)| {
        key.namespace == pool.namespace && objective.spec["poolRef"]["name"].as_str() == Some(&*pool.name)
    });
    let priority = |spec: &Value| spec["priority"].as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
    Arc::new(mine.map(|(key, objective)| (key.name.as_str().into(), priority(&objective.spec))).collect())
}

fn served(
    pool: &Arc<PoolHandle>,
    backing: Backing,
    picker: Picker,
    objectives: Arc<Objectives>,
    world: &World,
) -> Arc<Served> {
    let model: Arc<str> = OTHER_MODEL.into();
    Arc::new(Served {
        pool: Arc::clone(pool),
        base: Arc::clone(&model),
        adapter: None,
        model_header: HeaderValue::from_static(OTHER_MODEL),
        base_header: HeaderValue::from_static(OTHER_MODEL),
        log_level: 0,
        route_timeout: None,
        limits: Matching::default(),
        band_claim: None,
        objectives,
        backing,
        picker,
        metrics: Arc::new(ModelMetrics::new(&world.metrics, Arc::clone(&pool.name), Arc::clone(&model))),
        model,
    })
}

/// The pods of a pool, once for each of its ports.
fn members(objects: &Objects, key: &ObjectKey, pool: &InferencePool) -> Vec<Candidate> {
    let labels = &pool.spec.selector.match_labels;
    let is_mine =
        |candidate: &Candidate| labels.iter().all(|(name, value)| candidate.spec.labels.get(name) == Some(value));
    let pods: Vec<_> = pods::serving(objects, &key.namespace).into_iter().filter(is_mine).collect();
    let ports = &pool.spec.target_ports;
    let at = |pod: &Candidate, port: u16| {
        let mut candidate = pod.clone();
        candidate.spec.port = Some(port);
        if ports.len() > 1 {
            candidate.spec.name = format!("{}:{port}", pod.spec.name);
        }
        candidate
    };
    pods.iter().flat_map(|pod| ports.iter().map(|port| at(pod, port.number))).collect()
}
