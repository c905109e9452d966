//! From a checked configuration to what is put in force: pools, routes, wanted endpoints. Nothing is changed here, so a
//! configuration that turns out unusable half way has touched nothing.

mod settings;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use api::{AppProtocol, Config, EndpointSpec, EngineType, Scheduler};
use discovery::{
    Engine,
    resolve::{MetricsAt, Want},
    scrape,
};
use dispatch::{PoolDispatch, Settings};
use http::HeaderValue;
use pool::Host;
use proxy::client::{Protocol, Timeouts};

use super::{
    certificates,
    endpoints::{Owner, identity, tls_client, tls_to},
    keys::Keys,
    rules::Rules,
};
use crate::{
    by_hand::{Backing, Picker},
    metrics::{ModelMetrics, QueueMetrics, RetryMetrics},
    pools::PoolHandle,
    routes::{Fallback, Listed, OTHER_MODEL, Objectives, Routes, Served},
    world::World,
};

/// The pool of `bbr.defaultBackend`, which no scheduler names.
pub(super) const DEFAULT_BACKEND_POOL: &str = "default-backend";

/// Something the configuration names that cannot be used here.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// TLS to an endpoint cannot be set up.
    #[error("Endpoint `{endpoint}`: spec.tls: {problem}")]
    Tls {
        /// The endpoint.
        endpoint: String,
        /// What is wrong.
        problem: String,
    },
    /// An endpoint's key cannot be read.
    #[error("Endpoint `{endpoint}`: spec.apiKey: {problem}")]
    Key {
        /// The endpoint.
        endpoint: String,
        /// What is wrong.
        problem: String,
    },
    /// The certificate for clients cannot be shown.
    #[error("spec.tls.secretRef: Secret `{secret}`: {problem}")]
    Certificate {
        /// The Secret.
        secret: String,
        /// What is wrong.
        problem: certificates::Problem,
    },
    /// A model's name cannot be sent as a header.
    #[error("spec.schedulers: the model name {0:?} holds characters that no HTTP header can carry")]
    ModelName(String),
}

/// What a configuration puts in force.
pub(super) struct Plan {
    pub(super) pools: BTreeMap<String, Arc<PoolHandle>>,
    pub(super) settings: Vec<(Arc<PoolHandle>, Settings)>,
    pub(super) routes: Routes,
    pub(super) rules: Rules,
    pub(super) owners: HashMap<u64, Owner>,
    pub(super) wants: Arc<[Want]>,
    pub(super) scraping: scrape::Settings,
    pub(super) warnings: Vec<String>,
}

impl Plan {
    pub(super) fn new(
        config: &Config,
        world: &World,
        existing: &BTreeMap<String, Arc<PoolHandle>>,
    ) -> Result<Self, Unusable> {
        let mut plan = Self {
            pools: BTreeMap::new(),
            settings: Vec::new(),
            routes: empty_routes(config, world),
            rules: Rules::new(config, world),
            owners: HashMap::new(),
            wants: Arc::default(),
            scraping: scrape::Settings { interval: config.signals.scrape_interval, ..scrape::Settings::default() },
            warnings: Vec::new(),
        };
        let mut wants = Vec::new();
        for scheduler in &config.schedulers {
            let settings = settings::of_scheduler(scheduler, config);
            let pool = plan.pool(&scheduler.name, settings, world, existing);
            plan.serve(scheduler, &pool, config, world)?;
            let mine = config.endpoints.iter().filter(|spec| scheduler.selector.matches(&spec.labels));
            for spec in mine {
                let place = Place::of(scheduler);
                wants.push(plan.want(spec, &pool, place)?);
            }
        }
        plan.add_default_backend(config, world, existing, &mut wants)?;
        plan.warn_of_idle_endpoints(config, &wants);
        plan.choose_fallback(config, world)?;
        plan.wants = wants.into();
        plan.routes.limits = plan.rules.all();
        Ok(plan)
    }

    fn pool(
        &mut self,
        name: &str,
        settings: Settings,
        world: &World,
        existing: &BTreeMap<String, Arc<PoolHandle>>,
    ) -> Arc<PoolHandle> {
        // One that was taken out and comes back while requests still wait or run there is the same: else they would be
        // forgotten, and their places given out twice.
        let known = existing.get(name).cloned().or_else(|| world.pools.at_work(name));
        let pool = known.unwrap_or_else(|| {
            let retries = RetryMetrics::new(&world.metrics, name.into());
            let queue = QueueMetrics::new(&world.metrics, name.into());
            PoolHandle::new(name.into(), PoolDispatch::new(settings.clone()), retries, queue, world.clock)
        });
        self.settings.push((Arc::clone(&pool), settings));
        self.pools.insert(name.to_owned(), Arc::clone(&pool));
        pool
    }

    fn serve(
        &mut self,
        scheduler: &Scheduler,
        pool: &Arc<PoolHandle>,
        config: &Config,
        world: &World,
    ) -> Result<(), Unusable> {
        let base: Arc<str> = scheduler.model_name.as_str().into();
        let mut listed = Listed { pool: Arc::clone(pool), models: vec![Arc::clone(&base)], adapters: Vec::new() };
        let about = About { scheduler: Some(scheduler), objectives: objectives(scheduler, config) };
        let own = served(pool, &base, None, &about, &self.rules, world)?;
        self.routes.models.insert(Arc::clone(&base), own);
        for adapter in &scheduler.lora_adapters {
            let adapter: Arc<str> = adapter.as_str().into();
            let served = served(pool, &base, Some(&adapter), &about, &self.rules, world)?;
            listed.models.push(Arc::clone(&adapter));
            listed.adapters.push(Arc::clone(&adapter));
            self.routes.models.insert(adapter, served);
        }
        self.routes.pools.push(listed);
        Ok(())
    }

    fn want(&mut self, spec: &EndpointSpec, pool: &Arc<PoolHandle>, place: Place) -> Result<Want, Unusable> {
        let host: Host = spec.address.parse().expect("addresses are checked when a configuration is loaded");
        let port = spec.port.unwrap_or(place.port);
        let tls = spec.tls.as_ref().map(tls_to);
        let tls_client = tls.as_ref().map(|tls| tls_client(spec, tls)).transpose()?;
        if let Some(source) = &spec.api_key {
            Keys::read(source).map_err(|problem| Unusable::Key { endpoint: spec.name.clone(), problem })?;
        }
        if spec.tls.as_ref().is_some_and(|tls| tls.insecure_skip_verify) {
            let warning =
                "its certificate is NOT checked (insecureSkipVerify): anyone on the way can read and change requests";
            self.warnings.push(format!("Endpoint `{}`: {warning}", spec.name));
        }
        let identity = identity(pool, spec, place);
        let owner =
            Owner { pool: Arc::clone(pool), protocol: place.protocol, tls: tls_client, key: spec.api_key.clone() };
        self.owners.insert(identity, owner);
        let metrics_path = spec.metrics_path.as_deref().unwrap_or(place.engine.metrics_path());
        let metrics_port = spec.metrics_port.or(place.engine.metrics_port()).unwrap_or(port);
        Ok(Want {
            name: spec.name.as_str().into(),
            host,
            port,
            metrics: MetricsAt { port: metrics_port, path: metrics_path.into() },
            tls,
            authorization: spec.api_key.as_ref().and_then(|source| Keys::read(source).ok()),
            engine: place.engine,
            identity,
        })
    }

    fn add_default_backend(
        &mut self,
        config: &Config,
        world: &World,
        existing: &BTreeMap<String, Arc<PoolHandle>>,
        wants: &mut Vec<Want>,
    ) -> Result<(), Unusable> {
        let Some(name) = &config.bbr.default_backend else { return Ok(()) };
        let spec = config.endpoints.iter().find(|spec| spec.name == *name);
        let spec = spec.expect("the default backend is checked to be an endpoint when a configuration is loaded");
        let settings = settings::of_default_backend(config);
        let pool = self.pool(DEFAULT_BACKEND_POOL, settings, world, existing);
        let place = Place { port: config.bbr.default_backend_port, protocol: Protocol::Http1, engine: Engine::None };
        wants.push(self.want(spec, &pool, place)?);
        let served = served(&pool, &OTHER_MODEL.into(), None, &About::default(), &self.rules, world)?;
        self.routes.pools.push(Listed { pool, models: Vec::new(), adapters: Vec::new() });
        self.routes.fallback = Some(Fallback::DefaultBackend(served));
        Ok(())
    }

    fn warn_of_idle_endpoints(&mut self, config: &Config, wants: &[Want]) {
        for spec in &config.endpoints {
            if !wants.iter().any(|want| *want.name == *spec.name) {
                let warning = "no scheduler's modelSelector matches its labels: it gets no requests";
                self.warnings.push(format!("Endpoint `{}`: {warning}", spec.name));
            }
        }
        for listed in &self.routes.pools {
            if !self.owners.values().any(|owner| Arc::ptr_eq(&owner.pool, &listed.pool)) {
                let mut warning = String::new();
                // Writing to a string cannot fail.
                let _ = write!(
                    warning,
                    "scheduler `{}`: no Endpoint has the labels of its modelSelector",
                    listed.pool.name
                );
                self.warnings.push(warning);
            }
        }
    }

    /// With one pool, requests that name no model (or, without body-based routing, any model) go there.
    fn choose_fallback(&mut self, config: &Config, world: &World) -> Result<(), Unusable> {
        let [scheduler] = config.schedulers.as_slice() else { return Ok(()) };
        let base: Arc<str> = scheduler.model_name.as_str().into();
        let only = Arc::clone(&self.routes.models[&base]);
        if !config.bbr.enabled {
            let about = About { scheduler: Some(scheduler), objectives: Arc::clone(&only.objectives) };
            let any = served(&only.pool, &OTHER_MODEL.into(), None, &about, &self.rules, world)?;
            self.routes.fallback = Some(Fallback::OnlyPool(any));
        }
        self.routes.only = Some(only);
        Ok(())
    }
}

/// What a scheduler says of its endpoints.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    pub(super) engine: Engine,
}

impl Place {
    fn of(scheduler: &Scheduler) -> Self {
        let protocol = match scheduler.protocol {
            AppProtocol::Http => Protocol::Http1,
            AppProtocol::H2c => Protocol::H2c,
        };
        Self { port: scheduler.target_port, protocol, engine: engine(scheduler.engine) }
    }
}

fn empty_routes(config: &Config, world: &World) -> Routes {
    let now = world.clock.wall(world.clock.now());
    Routes {
        models: BTreeMap::new(),
        fallback: None,
        only: None,
        pools: Vec::new(),
        by_hand: None,
        body_based: config.bbr.enabled,
        extra_paths: config.extra_paths.clone(),
        stream_keep_alive: config.stream_keep_alive,
        body_bytes_max: config.bbr.max_request_body_bytes,
        limits: Vec::new(),
        usage: config.usage,
        timeouts: Timeouts {
            connect: config.timeouts.connect,
            first_byte: config.timeouts.first_byte,
            stream_idle: config.timeouts.stream_idle,
            ..Timeouts::default()
        },
        since_unix_s: now.duration_since(std::time::UNIX_EPOCH).as_ref().map_or(0, Duration::as_secs),
    }
}

/// What a configuration says of all models of a pool; nothing for the default backend.
#[derive(Default)]
struct About<'a> {
    scheduler: Option<&'a Scheduler>,
    objectives: Arc<Objectives>,
}

fn objectives(scheduler: &Scheduler, config: &Config) -> Arc<Objectives> {
    let mine = config.objectives.iter().filter(|objective| objective.pool == scheduler.name);
    Arc::new(mine.map(|objective| (objective.name.as_str().into(), objective.priority)).collect())
}

fn served(
    pool: &Arc<PoolHandle>,
    base: &Arc<str>,
    adapter: Option<&Arc<str>>,
    about: &About<'_>,
    rules: &Rules,
    world: &World,
) -> Result<Arc<Served>, Unusable> {
    let scheduler = about.scheduler;
    let model = adapter.unwrap_or(base);
    let header = |name: &Arc<str>| HeaderValue::from_str(name).map_err(|_| Unusable::ModelName(name.to_string()));
    Ok(Arc::new(Served {
        pool: Arc::clone(pool),
        model: Arc::clone(model),
        base: Arc::clone(base),
        adapter: adapter.cloned(),
        model_header: header(model)?,
        base_header: header(base)?,
        log_level: scheduler.and_then(|scheduler| scheduler.log_level).unwrap_or(0),
        route_timeout: scheduler.and_then(|scheduler| scheduler.route_timeout),
        limits: rules.matching(scheduler, model),
        objectives: Arc::clone(&about.objectives),
        backing: Backing::Models,
        picker: Picker::Ours,
        metrics: Arc::new(ModelMetrics::new(&world.metrics, Arc::clone(&pool.name), Arc::clone(model))),
    }))
}

const fn engine(engine: EngineType) -> Engine {
    match engine {
        EngineType::Vllm => Engine::Vllm,
        EngineType::Sglang => Engine::Sglang,
        EngineType::Tgi => Engine::Tgi,
        EngineType::Trtllm => Engine::Trtllm,
        EngineType::Triton => Engine::Triton,
        EngineType::Llamacpp => Engine::Llamacpp,
        EngineType::Auto => Engine::Auto,
        EngineType::None => Engine::None,
    }
}
