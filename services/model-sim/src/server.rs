//! Starts, listens, refuses, drains and stops.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::{
    faults::Faults,
    journal::SeenRequest,
    kv_events::{self, KvEventSource, KvEventsError},
    options::{Face, Options, Version},
    sim::Sim,
};

mod connection;
mod exchange;
mod paced;
mod socket;

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    sim: Arc<Sim>,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    stage: watch::Sender<Stage>,
    driver: JoinHandle<()>,
    listeners: JoinSet<()>,
    /// Held for their end: dropping it stops them.
    _publishers: JoinSet<()>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An option that makes no sense.
    #[error("the time scale must be a positive number, got {0}")]
    TimeScale(f64),
    /// Only releases whose behaviour is known are shown.
    #[error("version {0} of this engine is not known")]
    Version(Version),
    /// KV events cannot be published.
    #[error(transparent)]
    KvEvents(#[from] KvEventsError),
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It serves.
    Serving,
    /// It takes nothing new and finishes what it has.
    Draining,
    /// It drops everything.
    Dropping,
}

/// Connections at once, far above what a demonstration needs.
const CONNECTIONS_MAX: usize = 16_384;
/// How often and how long a port that was given up is asked for again.
const REBIND_INTERVAL: Duration = Duration::from_millis(20);
const REBIND_ATTEMPTS_MAX: u32 = 500;
/// How long dropped connections may take to notice.
const DROP_LIMIT: Duration = Duration::from_secs(1);

/// Binds and serves in the background, within the current tokio runtime.
pub async fn start(options: Options) -> Result<Running, StartError> {
    check(&options)?;
    let listener = bind(options.listen).await?;
    let admin = match options.admin {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let publishers = kv_events::start(&options).await?;
    let sim = Arc::new(Sim::new(options, publishers.outlets, publishers.sources));
    let stage = watch::Sender::new(Stage::Serving);
    let local = |listener: &TcpListener| listener.local_addr().expect("a bound listener has an address");
    let (address, admin_address) = (local(&listener), admin.as_ref().map(local));
    let mut listeners = JoinSet::new();
    listeners.spawn(listen(sim.clone(), listener, stage.subscribe(), Door::Front));
    if let Some(admin) = admin {
        listeners.spawn(listen(sim.clone(), admin, stage.subscribe(), Door::Admin));
    }
    let driver = tokio::spawn(sim.driver.clone().run());
    Ok(Running { sim, address, admin: admin_address, stage, driver, listeners, _publishers: publishers.tasks })
}

impl Running {
    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address that never refuses, if asked for.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Where KV events are published, by rank; empty if they are not.
    pub fn kv_event_sources(&self) -> &[KvEventSource] {
        &self.sim.kv_event_sources
    }

    /// Replaces all faults.
    pub fn set_faults(&self, faults: Faults) {
        self.sim.set_faults(faults);
    }

    /// The last requests seen, oldest first.
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.sim.journal.list()
    }

    /// Requests in the engine.
    pub fn live_requests(&self) -> usize {
        self.sim.driver.live()
    }

    /// Stops as SIGTERM does: takes nothing new, lets requests go on for the shutdown timeout, drops the rest.
    pub async fn stop(mut self) {
        let limit = self.sim.options.shutdown_timeout;
        let first = if limit.is_zero() { Stage::Dropping } else { Stage::Draining };
        self.stage.send_replace(first);
        let drained = tokio::time::timeout(limit.max(DROP_LIMIT), self.finish_listeners()).await;
        if drained.is_err() {
            self.stage.send_replace(Stage::Dropping);
            if tokio::time::timeout(DROP_LIMIT, self.finish_listeners()).await.is_err() {
                tracing::warn!("connections did not end in time");
            }
        }
    }

    async fn finish_listeners(&mut self) {
        while self.listeners.join_next().await.is_some() {}
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.driver.abort();
        // The listeners' set aborts its tasks, and theirs their connections, when it is dropped.
    }
}

/// Which of the two addresses a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// Refuses when a fault says so.
    Front,
    /// Always open.
    Admin,
}

fn check(options: &Options) -> Result<(), StartError> {
    if !(options.time_scale.is_finite() && options.time_scale > 0.0) {
        return Err(StartError::TimeScale(options.time_scale));
    }
    let Version(major, minor, _) = options.version;
    if (major, minor) == (0, 0) {
        return Err(StartError::Version(options.version));
    }
    if options.kv_events.is_some() && options.face != Face::Vllm {
        return Err(KvEventsError::Face.into());
    }
    Ok(())
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Bind { address, source })
}

async fn listen(sim: Arc<Sim>, listener: TcpListener, mut stage: watch::Receiver<Stage>, door: Door) {
    let address = listener.local_addr().expect("a bound listener has an address");
    let mut faults = sim.faults_changed.subscribe();
    let mut open = Some(listener);
    let mut connections = JoinSet::new();
    while *stage.borrow_and_update() == Stage::Serving {
        if door == Door::Front && sim.faults.refuse() {
            open = None;
        } else if open.is_none() {
            open = rebind(address).await;
        }
        while connections.try_join_next().is_some() {}
        tokio::select! {
            accepted = accept(open.as_ref()), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok(stream) => {
                    connections.spawn(connection::serve(sim.clone(), stream, stage.clone(), door));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(REBIND_INTERVAL).await;
                }
            },
            _ = connections.join_next(), if connections.len() >= CONNECTIONS_MAX => {}
            _ = faults.changed() => {}
            _ = stage.changed() => {}
        }
    }
    drop(open);
    while connections.join_next().await.is_some() {}
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn rebind(address: SocketAddr) -> Option<TcpListener> {
    for _ in 0..REBIND_ATTEMPTS_MAX {
        match TcpListener::bind(address).await {
            Ok(listener) => return Some(listener),
            Err(error) => tracing::debug!(%error, %address, "not yet free again"),
        }
        tokio::time::sleep(REBIND_INTERVAL).await;
    }
    tracing::error!(%address, "another process took the port: no longer listening");
    None
}
