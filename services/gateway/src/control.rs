//! Keeps what the request path reads true: configuration from files, endpoints behind names, signals of endpoints.
//!
//! One task owns all of it and is the only writer of routes; sources report to it, so a config change and an endpoint
//! change can never be applied over each other. A configuration is put in force whole or not at all.

mod basis;
mod build;
mod certificates;
mod endpoints;
mod keys;
mod rules;
mod sink;
mod usable;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::{Loaded, Source, Violations};
use discovery::{
    files::{self, ReadError},
    resolve::{Found, Resolver, Want},
    scrape::{self, Scraper},
};
use pool::EndpointId;
use proxy::{client::Clients, cores::Core};
use telemetry::catalog::{CONFIG_GENERATION, CONFIG_VALID, CONNECTIONS};
use tokio::sync::watch;

use self::{
    basis::Basis, build::Plan, certificates::Certificates, endpoints::Owner, keys::Keys, sink::SignalSink,
    usable::Listeners,
};
use crate::{
    admin::Sweeper,
    pools::{EndpointHandle, PoolHandle},
    world::{ConfigError, ConfigStatus, World},
};

/// How often files are looked at; with the time a change takes to settle this stays below a second.
const FILES_EVERY: Duration = Duration::from_millis(250);
/// How often key files are read again.
const KEYS_EVERY: Duration = Duration::from_secs(1);
/// How often series of removed endpoints are looked for; the promise is a minute.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How often pools are asked whether any of their endpoints is still read.
const BASIS_EVERY: Duration = Duration::from_secs(1);
/// Longest time the process is not ready for want of a first look at every endpoint.
const FIRST_ROUND_MAX: Duration = Duration::from_secs(2);

/// Why the process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The files cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The configuration is refused; every violation stands on its own line.
    #[error("{0}")]
    Invalid(Violations),
    /// Things that the configuration names, such as certificate files, cannot be used; each stands on its own line.
    #[error("{0}")]
    Unusable(usable::Missing),
}

/// Reads and checks a configuration.
///
/// # Errors
/// When it cannot be read, or with every violation.
pub fn load(path: &std::path::Path) -> Result<(Vec<Source>, Loaded), StartError> {
    let sources = files::read(path)?;
    let loaded = api::load(&sources).map_err(StartError::Invalid)?;
    Ok((sources, loaded))
}

/// Whether everything that a configuration names is there, as it must be to start with it.
///
/// # Errors
/// Says all that is not.
pub fn check(loaded: &Loaded) -> Result<(), StartError> {
    usable::all_usable(&loaded.config, Listeners::Ours).map_err(StartError::Unusable)
}

/// The connections of each core, for telling them of endpoints that left.
pub type CoreClients = Vec<(Core, Clients)>;

/// The owner of everything that changes.
pub struct Control {
    world: Arc<World>,
    source: PathBuf,
    cores: CoreClients,
    sink: Arc<SignalSink>,
    keys: Keys,
    pools: BTreeMap<String, Arc<PoolHandle>>,
    /// Whose each endpoint is, by its identity: of the configuration in force, and of the former one until the resolver
    /// has caught up.
    owners: HashMap<u64, Owner>,
    /// Identities of the configuration in force.
    wanted: HashSet<u64>,
    found: Arc<[Found]>,
    handles: HashMap<EndpointId, Arc<EndpointHandle>>,
    wants: watch::Sender<Arc<[Want]>>,
    endpoints: watch::Sender<Arc<[Found]>>,
    settings: watch::Sender<scrape::Settings>,
    sweeper: Sweeper,
    certificates: Certificates,
    generation: u64,
}

impl Control {
    /// Puts the first configuration in force. Call [`Control::run`] to keep it true.
    ///
    /// # Errors
    /// When something it names cannot be used.
    pub fn start(world: Arc<World>, source: PathBuf, cores: CoreClients, loaded: Loaded) -> Result<Self, StartError> {
        let mut control = Self {
            sink: Arc::new(SignalSink::new(Arc::clone(&world))),
            world,
            source,
            cores,
            keys: Keys::default(),
            pools: BTreeMap::new(),
            owners: HashMap::new(),
            wanted: HashSet::new(),
            found: Arc::default(),
            handles: HashMap::new(),
            wants: watch::Sender::new(Arc::default()),
            endpoints: watch::Sender::new(Arc::default()),
            settings: watch::Sender::new(scrape::Settings::default()),
            sweeper: Sweeper::default(),
            certificates: Certificates::default(),
            generation: 0,
        };
        control.apply(loaded)?;
        Ok(control)
    }

    /// Follows files, names and endpoints until dropped. `known` are the texts in force.
    pub async fn run(mut self, known: Vec<Source>) {
        // Only the newest report of each kind counts, so a report that nobody has read yet is replaced, never queued.
        let (files_told, mut files) = watch::channel(None);
        let (found_told, mut found) = watch::channel(Arc::default());
        let clock = self.world.clock;
        let scraper = Scraper::new(Arc::clone(&self.sink) as Arc<dyn scrape::Sink>, Arc::new(move || clock.now()));
        let scraping = scraper.run(self.settings.subscribe(), self.endpoints.subscribe());
        let resolving = Resolver::system().run(self.wants.subscribe(), move |now| _ = found_told.send_replace(now));
        let tell_files = move |now| _ = files_told.send_replace(Some(Arc::new(now)));
        let watching = files::watch(self.source.clone(), known, FILES_EVERY, tell_files);
        let mut background = tokio::task::JoinSet::new();
        background.spawn(scraping);
        background.spawn(resolving);
        background.spawn(watching);
        let mut keys = tokio::time::interval(KEYS_EVERY);
        let mut sweep = tokio::time::interval(SWEEP_EVERY);
        let mut basis_due = tokio::time::interval(BASIS_EVERY);
        let mut basis = Basis::default();
        let first_round_over = tokio::time::sleep(FIRST_ROUND_MAX);
        tokio::pin!(first_round_over);
        loop {
            tokio::select! {
                Ok(()) = files.changed() => {
                    let now = files.borrow_and_update().clone();
                    self.files_changed(now.as_deref());
                }
                Ok(()) = found.changed() => {
                    let now = found.borrow_and_update().clone();
                    self.found_changed(now);
                }
                _ = keys.tick() => {
                    self.keys.refresh();
                    self.count_connections();
                }
                _ = sweep.tick() => self.sweeper.sweep(&self.world),
                _ = basis_due.tick() => basis.look(&self.pools),
                () = self.sink.first_round(), if !self.world.readiness.has_started() => self.world.readiness.start(),
                () = &mut first_round_over, if !self.world.readiness.has_started() => self.world.readiness.start(),
                Some(ended) = background.join_next() => {
                    tracing::error!(?ended, "a part that follows the world has ended: report this");
                }
            }
        }
    }

    fn files_changed(&mut self, now: Option<&Result<Vec<Source>, ReadError>>) {
        match now {
            Some(Ok(sources)) => match api::load(sources) {
                Ok(loaded) => {
                    if let Err(error) = self.apply(loaded) {
                        self.refuse(error.to_string(), String::new());
                    }
                }
                Err(violations) => {
                    let path = violations.0.first().map(|violation| violation.path.clone()).unwrap_or_default();
                    self.refuse(violations.to_string(), path);
                }
            },
            Some(Err(error)) => self.refuse(error.to_string(), String::new()),
            None => {}
        }
    }

    /// Puts a checked configuration in force.
    fn apply(&mut self, Loaded { config, notices }: Loaded) -> Result<(), StartError> {
        let front = self.world.front.clone();
        let shown = match &front {
            Some(_) => self.certificates.judge_front(&config, &self.world.metrics),
            None => Ok(()),
        };
        let listeners = if front.is_some() { Listeners::Ours } else { Listeners::Gateways };
        usable::all_usable(&config, listeners).map_err(StartError::Unusable)?;
        let unusable = |unusable| StartError::Unusable(usable::Missing(vec![unusable]));
        shown.map_err(unusable)?;
        // What was there a moment ago may be gone.
        let plan = Plan::new(&config, &self.world, &self.pools);
        let plan = plan.map_err(unusable)?;
        self.generation += 1;
        for notice in &notices {
            tracing::info!(notice, "configuration");
        }
        for warning in &plan.warnings {
            tracing::warn!(warning, "configuration");
        }
        for (pool, settings) in &plan.settings {
            self.world.pools.note(pool);
            pool.configure(settings.clone());
        }
        if let Some(front) = &front {
            self.certificates.show_front(&config, front, &self.world.metrics);
        }
        self.keys.follow(&plan.owners);
        self.wanted = plan.owners.keys().copied().collect();
        self.pools = plan.pools;
        let former = std::mem::replace(&mut self.owners, plan.owners);
        self.keep_serving(former);
        self.settings.send_replace(plan.scraping);
        self.wants.send_replace(plan.wants);
        self.reconcile();
        plan.rules.configure(&self.world);
        let former = self.world.routes.swap(Arc::new(plan.routes));
        let routes = self.world.routes.load();
        self.sweeper.note(&routes);
        rules::forget_gone(&former.limits, &routes.limits, &self.world.metrics);
        self.world.config.store(Arc::new(ConfigStatus {
            generation: self.generation,
            source: self.source.display().to_string(),
            loaded_at: SystemTime::now(),
            error: None,
            metrics_enabled: config.metrics_enabled,
        }));
        self.world.metrics.gauge(&CONFIG_VALID, &[]).set(1.0);
        #[expect(clippy::cast_precision_loss, reason = "a generation is far below 2^52")]
        self.world.metrics.gauge(&CONFIG_GENERATION, &[]).set(self.generation as f64);
        tracing::info!(generation = self.generation, pools = self.pools.len(), "configuration in force");
        Ok(())
    }

    /// Endpoints of the former configuration serve on in pools that stay, until those that come in their place are
    /// found: else a change of all endpoints would leave a pool empty for as long as that takes, and requests refused.
    fn keep_serving(&mut self, former: HashMap<u64, Owner>) {
        for (identity, owner) in former {
            if self.pools.values().any(|pool| Arc::ptr_eq(pool, &owner.pool)) {
                self.owners.entry(identity).or_insert(owner);
            }
        }
    }

    fn found_changed(&mut self, now: Arc<[Found]>) {
        self.found = now;
        // A report made for an older configuration may still be on its way: then the right one follows.
        if self.found.iter().all(|found| self.wanted.contains(&found.want.identity)) {
            self.owners.retain(|identity, _| self.wanted.contains(identity));
        }
        self.reconcile();
    }

    fn count_connections(&self) {
        let open: usize = self.cores.iter().map(|(core, _)| core.open_connections()).sum();
        self.world.metrics.gauge(&CONNECTIONS, &[]).set(open as f64);
    }

    /// Keeps the last good configuration and says why.
    fn refuse(&mut self, message: String, path: String) {
        tracing::error!(generation = self.generation, error = %message, "configuration refused; the last good one stays in force");
        self.world.metrics.gauge(&CONFIG_VALID, &[]).set(0.0);
        let mut status = ConfigStatus::clone(&self.world.config.load());
        status.error = Some(ConfigError { message, path, at: SystemTime::now() });
        self.world.config.store(Arc::new(status));
    }

    /// Gives each pool the endpoints that are there for it, and takes away those that are not.
    fn reconcile(&mut self) {
        let members = endpoints::members(&self.found, &self.owners, &self.handles, &self.keys, &self.world);
        self.sink.follow(&members);
        let gone: Vec<EndpointId> = self.handles.keys().filter(|id| !members.contains_key(*id)).copied().collect();
        self.handles = members.iter().map(|(id, member)| (*id, Arc::clone(&member.handle))).collect();
        for pool in self.pools.values() {
            let mine: Vec<_> = members.values().filter(|member| Arc::ptr_eq(&member.pool, pool)).collect();
            let handles = mine.iter().map(|member| (member.endpoint.id, Arc::clone(&member.handle))).collect();
            let list: Vec<_> = mine.iter().map(|member| member.membership()).collect();
            pool.set_endpoints(handles, &list);
        }
        self.sweeper.note_members(self.pools.values());
        for id in gone {
            for (core, clients) in &self.cores {
                let clients = clients.clone();
                core.spawn(async move { clients.forget(id.get()) });
            }
        }
        let scraped: Vec<Found> =
            self.found.iter().filter(|found| members.contains_key(&found.endpoint.id)).cloned().collect();
        self.endpoints.send_replace(scraped.into());
    }
}
