//! From a checked configuration to what is put in force: pools, routes, wanted endpoints. Nothing is changed here, so a
//! configuration that turns out unusable half way has touched nothing.

mod rewrites;
mod settings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{AppProtocol, Config, EngineType, Scheduler};
use discovery::{Engine, scrape};
use dispatch::{PoolDispatch, Settings};
use http::HeaderValue;
use proxy::client::{Protocol, Timeouts};

use super::{
    certificates,
    rules::Rules,
    staff::{Selecting, Staff, Supply, Whom},
};
use crate::{
    auth::Auth,
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
    /// Whom each pool takes.
    pub(super) selecting: Vec<Selecting>,
    /// Who that is now.
    pub(super) staff: Staff,
    pub(super) scraping: scrape::Settings,
}

impl Plan {
    pub(super) fn new(
        config: &Config,
        supply: &Supply,
        world: &World,
        existing: &BTreeMap<String, Arc<PoolHandle>>,
    ) -> Result<Self, Unusable> {
        let mut plan = Self {
            pools: BTreeMap::new(),
            settings: Vec::new(),
            routes: empty_routes(config, world),
            rules: Rules::new(config, world),
            selecting: Vec::new(),
            staff: Staff::default(),
            scraping: scrape::Settings { interval: config.signals.scrape_interval, ..scrape::Settings::default() },
        };
        for scheduler in &config.schedulers {
            let settings = settings::of_scheduler(scheduler, config);
            let pool = plan.pool(&scheduler.name, settings, world, existing);
            plan.serve(scheduler, &pool, config, world)?;
            let whom = Whom::Labelled(scheduler.selector.clone());
            plan.selecting.push(Selecting { pool, place: Place::of(scheduler), whom });
        }
        plan.add_default_backend(config, world, existing)?;
        plan.rewrite(config, world)?;
        plan.choose_fallback(config, world)?;
        plan.staff = Staff::new(&plan.selecting, supply)?;
        plan.routes.limits = plan.rules.all();
        plan.authenticate(config, world);
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
        let about = About::of(scheduler, objectives(scheduler, config));
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

    fn add_default_backend(
        &mut self,
        config: &Config,
        world: &World,
        existing: &BTreeMap<String, Arc<PoolHandle>>,
    ) -> Result<(), Unusable> {
        if config.bbr.default_backend.is_none() {
            return Ok(());
        }
        let settings = settings::of_default_backend(config);
        let pool = self.pool(DEFAULT_BACKEND_POOL, settings, world, existing);
        let port = config.bbr.default_backend_port;
        let place = Place { port, protocol: Protocol::Http1, engine: Engine::None, looks: Looks::Often };
        self.selecting.push(Selecting { pool: Arc::clone(&pool), place, whom: Whom::DefaultBackend });
        let about = About { band_claim: config.band_claim.clone().map(Arc::new), ..About::default() };
        let served = served(&pool, &OTHER_MODEL.into(), None, &about, &self.rules, world)?;
        self.routes.pools.push(Listed { pool, models: Vec::new(), adapters: Vec::new() });
        self.routes.fallback = Some(Fallback::DefaultBackend(served));
        Ok(())
    }

    fn authenticate(&mut self, config: &Config, world: &World) {
        let former = world.routes.load();
        if let Some((auth, notes)) = Auth::new(config, former.auth.as_deref(), world) {
            self.staff.warnings.extend(notes);
            self.routes.auth = Some(Arc::new(auth));
        }
    }

    /// With one pool, requests that name no model (or, without body-based routing, any model) go there.
    fn choose_fallback(&mut self, config: &Config, world: &World) -> Result<(), Unusable> {
        let [scheduler] = config.schedulers.as_slice() else { return Ok(()) };
        let base: Arc<str> = scheduler.model_name.as_str().into();
        let only = Arc::clone(&self.routes.models[&base]);
        if !config.bbr.enabled {
            let about = About::of(scheduler, Arc::clone(&only.objectives));
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
    pub(super) looks: Looks,
}

/// Whether endpoints are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// Again and again: their page, or their health.
    Often,
    /// Never: they are servers of any kind, and whoever lists them says that they serve.
    Never,
}

impl Place {
    fn of(scheduler: &Scheduler) -> Self {
        let protocol = match scheduler.protocol {
            AppProtocol::Http => Protocol::Http1,
            AppProtocol::H2c => Protocol::H2c,
        };
        Self { port: scheduler.target_port, protocol, engine: engine(scheduler.engine), looks: Looks::Often }
    }
}

fn empty_routes(config: &Config, world: &World) -> Routes {
    let now = world.clock.wall(world.clock.now());
    Routes {
        auth: None,
        models: BTreeMap::new(),
        fallback: None,
        only: None,
        pools: Vec::new(),
        by_hand: None,
        aliases: BTreeMap::new(),
        rewrites: Arc::default(),
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

/// What a configuration says of all models of a pool; of the default backend's little more than nothing.
#[derive(Default)]
struct About<'a> {
    scheduler: Option<&'a Scheduler>,
    objectives: Arc<Objectives>,
    band_claim: Option<Arc<api::BandClaim>>,
}

impl<'a> About<'a> {
    fn of(scheduler: &'a Scheduler, objectives: Arc<Objectives>) -> Self {
        Self { scheduler: Some(scheduler), objectives, band_claim: scheduler.band_claim.clone().map(Arc::new) }
    }
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
        band_claim: about.band_claim.clone(),
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
