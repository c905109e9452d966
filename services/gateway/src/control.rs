//! Keeps what the request path reads true: configuration from files or from a cluster, endpoints behind names, signals of
//! endpoints.
//!
//! One task owns all of it and is the only writer of routes; sources report to it, so a config change and an endpoint
//! change can never be applied over each other. A configuration is put in force whole or not at all.

mod basis;
mod build;
mod certificates;
mod cluster;
mod doors;
mod endpoints;
mod files;
mod hand_routes;
mod keys;
mod pods;
mod rules;
mod scope;
mod services;
mod sink;
mod staff;
mod usable;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::{Config, Loaded, Source, Violations, cluster::Objects};
use discovery::{
    files::ReadError,
    resolve::{Found, Resolver, Want},
    scrape::{self, Scraper},
};
use pool::EndpointId;
use proxy::{client::Clients, cores::Core};
use telemetry::catalog::{CONFIG_GENERATION, CONFIG_VALID, CONNECTIONS};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, interval, sleep_until},
};

use self::{
    basis::Basis,
    build::{Looks, Plan},
    certificates::Certificates,
    cluster::View,
    endpoints::Owner,
    files::Seen,
    hand_routes::ByHand,
    keys::Keys,
    sink::SignalSink,
    staff::{Selecting, Staff, Supply},
    usable::Listeners,
};
pub use self::{cluster::Cluster, files::Files};
use crate::{
    admin::Sweeper,
    auth::{self, KeySource},
    pools::{EndpointHandle, PoolHandle},
    world::{ConfigError, ConfigStatus, World},
};

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
    let sources = discovery::files::read(path)?;
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

/// Where configurations come from.
pub enum Following {
    /// Files.
    Files(Files),
    /// A cluster.
    Cluster(Box<Cluster>),
}

/// What has changed there.
enum Changes {
    Files(watch::Receiver<Seen>),
    Cluster(Box<View>),
}

impl Following {
    fn begin(self, background: &mut JoinSet<()>) -> Changes {
        match self {
            Self::Files(files) => Changes::Files(files.begin(background)),
            Self::Cluster(cluster) => Changes::Cluster(Box::new(cluster.begin(background))),
        }
    }
}

/// One change.
enum Change {
    Files(Seen),
    Objects(Arc<Objects>),
}

impl Changes {
    /// Waits for a change. May be dropped while it waits, without a loss.
    async fn next(&mut self) -> Change {
        match self {
            Self::Files(seen) => {
                if seen.changed().await.is_err() {
                    // Said where tasks end.
                    return std::future::pending().await;
                }
                Change::Files(seen.borrow_and_update().clone())
            }
            Self::Cluster(view) => Change::Objects(view.next().await),
        }
    }
}

/// The connections of each core, for telling them of endpoints that left.
pub type CoreClients = Vec<(Core, Clients)>;

/// The owner of everything that changes.
pub struct Control {
    world: Arc<World>,
    /// Where the configuration comes from, for people.
    source: String,
    cores: CoreClients,
    sink: Arc<SignalSink>,
    keys: Keys,
    /// The configuration in force.
    config: Option<Config>,
    pools: BTreeMap<String, Arc<PoolHandle>>,
    /// Whom each of them takes.
    selecting: Vec<Selecting>,
    /// What hangs on the Gateway beside the configuration.
    by_hand: ByHand,
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
    /// Where tokens' keys come from.
    token_keys: watch::Sender<Option<Arc<KeySource>>>,
    sweeper: Sweeper,
    certificates: Certificates,
    generation: u64,
}

impl Control {
    /// With nothing in force. `source` is where configurations come from, for people.
    pub fn new(world: Arc<World>, source: String, cores: CoreClients) -> Self {
        Self {
            sink: Arc::new(SignalSink::new(Arc::clone(&world))),
            world,
            source,
            cores,
            keys: Keys::default(),
            config: None,
            pools: BTreeMap::new(),
            selecting: Vec::new(),
            by_hand: ByHand::default(),
            owners: HashMap::new(),
            wanted: HashSet::new(),
            found: Arc::default(),
            handles: HashMap::new(),
            wants: watch::Sender::new(Arc::default()),
            endpoints: watch::Sender::new(Arc::default()),
            settings: watch::Sender::new(scrape::Settings::default()),
            token_keys: watch::Sender::new(None),
            sweeper: Sweeper::default(),
            certificates: Certificates::default(),
            generation: 0,
        }
    }

    /// Puts the first configuration of files in force.
    ///
    /// # Errors
    /// When something it names cannot be used.
    pub fn start(&mut self, loaded: Loaded) -> Result<(), StartError> {
        self.apply_files(loaded)
    }

    /// Follows what `following` says, names and endpoints until dropped.
    pub async fn run(mut self, following: Following) {
        let mut background = JoinSet::new();
        let mut changes = following.begin(&mut background);
        let mut found = self.begin(&mut background);
        let (mut keys, mut sweep, mut basis_due) = (interval(KEYS_EVERY), interval(SWEEP_EVERY), interval(BASIS_EVERY));
        let mut basis = Basis::default();
        let mut first_round_until = None;
        loop {
            let is_starting = self.generation > 0 && !self.world.readiness.has_started();
            let until = *first_round_until.get_or_insert_with(|| Instant::now() + FIRST_ROUND_MAX);
            if !is_starting {
                first_round_until = None;
            }
            tokio::select! {
                change = changes.next() => match (change, &mut changes) {
                    (Change::Objects(objects), Changes::Cluster(view)) => self.objects_changed(view, &objects),
                    (Change::Files(seen), _) => self.files_changed(seen.as_deref()),
                    (Change::Objects(_), Changes::Files(_)) => {}
                },
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
                () = self.sink.first_round(), if is_starting => self.world.readiness.start(),
                () = sleep_until(until), if is_starting => self.world.readiness.start(),
                Some(ended) = background.join_next() => {
                    tracing::error!(?ended, "a part that follows the world has ended: report this");
                }
            }
        }
    }

    /// Begins to look names up and to look at endpoints. Returns where endpoints are told that were found.
    fn begin(&self, background: &mut JoinSet<()>) -> watch::Receiver<Arc<[Found]>> {
        // Only the newest report counts, so one that nobody has read yet is replaced, never queued.
        let (found_told, found) = watch::channel(Arc::default());
        let clock = self.world.clock;
        let scraper = Scraper::new(Arc::clone(&self.sink) as Arc<dyn scrape::Sink>, Arc::new(move || clock.now()));
        background.spawn(scraper.run(self.settings.subscribe(), self.endpoints.subscribe()));
        background.spawn(Resolver::system().run(self.wants.subscribe(), move |now| _ = found_told.send_replace(now)));
        background.spawn(auth::follow(self.token_keys.subscribe()));
        found
    }

    /// Puts a checked configuration in force.
    fn apply(&mut self, Loaded { config, notices, .. }: Loaded, supply: &Supply) -> Result<(), StartError> {
        // What was there a moment ago may be gone.
        let plan = Plan::new(&config, supply, &self.world, &self.pools);
        let plan = plan.map_err(|unusable| StartError::Unusable(usable::Missing(vec![unusable])))?;
        self.generation += 1;
        for notice in &notices {
            tracing::info!(notice, "configuration");
        }
        for (pool, settings) in &plan.settings {
            self.world.pools.note(pool);
            pool.configure(settings.clone());
        }
        self.pools = plan.pools;
        self.pools.extend(self.by_hand.pools.clone());
        self.selecting = plan.selecting;
        self.settings.send_replace(plan.scraping);
        self.staff(plan.staff);
        plan.rules.configure(&self.world);
        self.token_keys.send_replace(plan.routes.auth.as_ref().and_then(|auth| auth.key_source().cloned()));
        let former = self.world.routes.swap(Arc::new(self.by_hand.beside(plan.routes)));
        let routes = self.world.routes.load();
        self.sweeper.note(&routes);
        rules::forget_gone(&former.limits, &routes.limits, &self.world.metrics);
        self.world.config.store(Arc::new(ConfigStatus {
            generation: self.generation,
            source: self.source.clone(),
            loaded_at: SystemTime::now(),
            error: None,
            metrics_enabled: config.metrics_enabled,
        }));
        self.world.metrics.gauge(&CONFIG_VALID, &[]).set(1.0);
        #[expect(clippy::cast_precision_loss, reason = "a generation is far below 2^52")]
        self.world.metrics.gauge(&CONFIG_GENERATION, &[]).set(self.generation as f64);
        tracing::info!(generation = self.generation, pools = self.pools.len(), "configuration in force");
        self.config = Some(config);
        Ok(())
    }

    /// Puts those in force who serve now.
    fn staff(&mut self, staff: Staff) {
        for warning in &staff.warnings {
            tracing::warn!(warning, "configuration");
        }
        self.keys.follow(&staff.owners);
        self.wanted = staff.owners.keys().copied().collect();
        let former = std::mem::replace(&mut self.owners, staff.owners);
        self.keep_serving(former);
        self.wants.send_replace(staff.wants);
        self.reconcile();
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

    /// Keeps the last good configuration and says why, once.
    fn refuse(&mut self, message: String, path: String) {
        if self.world.config.load().error.as_ref().is_some_and(|error| error.message == message) {
            return;
        }
        tracing::error!(generation = self.generation, error = %message, "configuration refused; the last good one stays in force");
        self.world.metrics.gauge(&CONFIG_VALID, &[]).set(0.0);
        let mut status = ConfigStatus::clone(&self.world.config.load());
        status.error = Some(ConfigError { message, path, at: SystemTime::now() });
        self.world.config.store(Arc::new(status));
    }

    /// What is in force is what was asked for.
    fn accept(&mut self) {
        let status = self.world.config.load();
        if status.error.is_some() {
            tracing::info!(generation = self.generation, "what was refused is no longer asked for");
            self.world.metrics.gauge(&CONFIG_VALID, &[]).set(1.0);
            self.world.config.store(Arc::new(ConfigStatus { error: None, ..ConfigStatus::clone(&status) }));
        }
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
        let is_looked_at = |id: &EndpointId| members.get(id).is_some_and(|member| member.looks == Looks::Often);
        let scraped: Vec<Found> = self.found.iter().filter(|found| is_looked_at(&found.endpoint.id)).cloned().collect();
        self.endpoints.send_replace(scraped.into());
    }
}
