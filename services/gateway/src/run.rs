//! From the command line to a gateway that serves, and from SIGTERM to a process that has ended cleanly.

use std::{
    cell::Cell,
    fmt,
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    path::PathBuf,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use api::cluster::ObjectKey;
use arc_swap::ArcSwap;
use discovery::cluster;
use proxy::{
    client::Clients,
    cores::Cores,
    serve::{self, Limits, Listener, Scheme, Serving, tls::Tls},
};
use telemetry::{
    Metrics,
    catalog::LOG_LINES_DROPPED,
    request_log::{self, RequestLog},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    admin,
    body_memory::BodyMemory,
    clock::Clock,
    control::{self, Cluster, Control, CoreClients, Files, Following},
    decisions::Decisions,
    descriptors,
    frontend::{http::Door, refusals},
    metrics::ModelMetrics,
    options::Options,
    pools::LivePools,
    record::Observer,
    routes::{OTHER_MODEL, Routes},
    world::{ConfigStatus, Readiness, World},
};

/// Runs the program to its end.
///
/// # Errors
/// When it cannot start; the text says what to do.
pub fn run(options: &Options) -> Result<()> {
    let metrics = Metrics::default();
    let dropped = metrics.counter(&LOG_LINES_DROPPED, &[]);
    let (log, writer) =
        request_log::start(options.log.into(), std::io::stderr(), dropped).context("the request log")?;
    telemetry::tracing_setup::install(options.log.into(), &options.log_filter, log.clone())?;
    let source = Source::of(options)?;
    let front = matches!(source, Source::Files { .. }).then(Tls::plain);
    let world = world(metrics, log, options.body_memory, front);
    let cores = Cores::start(core_count(options.cores), "core").context("cores to serve on")?;
    let clients: CoreClients = cores.all().iter().map(|core| (core.clone(), Clients::new())).collect();
    let mut control = Control::new(Arc::clone(&world), source.to_string(), clients.clone());
    if let Source::Files { loaded, .. } = &source {
        control.start(api::Loaded::clone(loaded))?;
    }

    // One thread for everything that is not a request: it must never make one wait.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("the control runtime")?;
    runtime.block_on(async {
        // Before anybody is served, whose answer could be cut off.
        let mut signals = Signals::listen()?;
        let admin = bind(admin_address(options), "--admin")?;
        let admin_bound = admin.local_addr()?;
        let waiting = Arc::clone(&world);
        tokio::spawn(async move { waiting.pools.pump().await });
        let admin = admin::AdminListener::new(tokio::net::TcpListener::from_std(admin)?);
        tokio::spawn(axum::serve(admin, admin::router(Arc::clone(&world))).into_future());
        let door = {
            let world = Arc::clone(&world);
            move |core: usize, listener| Door::new(Arc::clone(&world), clients[core].1.clone(), listener)
        };
        let drain = world.readiness.drain.clone();
        let refusals = refusals::book(Arc::clone(&world));
        let serving = Arc::new(serve::start(&cores, limits(), door, drain, refusals));
        let (following, data) = source.follow(options, &world, &serving).await?;
        tokio::spawn(control.run(following));
        announce(data, admin_bound)?;
        let signal = signals.asked().await;
        tracing::info!("{signal}: draining");
        end(&world, &serving, options, signals).await;
        anyhow::Ok(())
    })?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    cores.shutdown();
    drop(writer);
    Ok(())
}

/// Where the configuration comes from.
enum Source {
    Files { path: PathBuf, texts: Vec<api::Source>, loaded: Box<api::Loaded> },
    Cluster(ObjectKey),
}

impl Source {
    fn of(options: &Options) -> Result<Self> {
        if let Some(gateway) = options.gateway.clone().filter(|_| options.kubernetes) {
            return Ok(Self::Cluster(gateway));
        }
        let path = options.config.clone().context("--config or --kubernetes says what to serve")?;
        let (texts, loaded) = control::load(&path)?;
        Ok(Self::Files { path, texts, loaded: Box::new(loaded) })
    }

    /// What to follow, and where clients connect if that is known.
    async fn follow(
        self,
        options: &Options,
        world: &World,
        serving: &Arc<Serving>,
    ) -> Result<(Following, Option<SocketAddr>)> {
        match self {
            Self::Files { path, texts, .. } => {
                let data = bind(options.listen, "--listen")?;
                let listener = Listener { port: data.local_addr()?.port(), scheme: Scheme::Http };
                let front = world.front.clone().unwrap_or_else(Tls::plain);
                let bound = serving.add(data, listener, front).context("the data port")?;
                Ok((Following::Files(Files { path, known: texts }), Some(bound)))
            }
            Self::Cluster(gateway) => {
                let owner = gateway.to_string();
                let cluster = Cluster {
                    client: cluster::connect().await?,
                    gateway,
                    saved: options.state_dir.clone().map(|directory| cluster::Saved::new(directory, owner)),
                    serving: Arc::clone(serving),
                    bind: options.bind_address.unwrap_or_else(any_address),
                };
                Ok((Following::Cluster(Box::new(cluster)), None))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { path, .. } => path.display().fmt(f),
            Self::Cluster(gateway) => write!(f, "Gateway {gateway}"),
        }
    }
}

/// Every address of the machine: of both families, where it has both.
fn any_address() -> IpAddr {
    let six = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    if TcpListener::bind((six, 0)).is_ok() { six } else { Ipv4Addr::UNSPECIFIED.into() }
}

fn admin_address(options: &Options) -> SocketAddr {
    let port = options.admin.port();
    options.bind_address.map_or(options.admin, |address| SocketAddr::new(address, port))
}

fn world(metrics: Metrics, log: RequestLog, body_memory_bytes: usize, front: Option<Arc<Tls>>) -> Arc<World> {
    let clock = Clock::start();
    let observer = Arc::new(Observer {
        clock,
        log,
        decisions: Arc::new(Decisions::default()),
        cutting: AtomicBool::new(false),
        unrouted: ModelMetrics::new(&metrics, "".into(), OTHER_MODEL.into()),
    });
    Arc::new(World {
        clock,
        metrics,
        observer,
        body_memory: BodyMemory::new(body_memory_bytes),
        routes: ArcSwap::from_pointee(Routes::none()),
        pools: LivePools::default(),
        front,
        config: ArcSwap::from_pointee(ConfigStatus {
            generation: 0,
            source: String::new(),
            loaded_at: SystemTime::now(),
            error: None,
            metrics_enabled: true,
        }),
        readiness: Readiness::default(),
    })
}

fn core_count(asked: usize) -> usize {
    if asked > 0 { asked } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

/// The documented limits, within what the system lets the process open.
fn limits() -> Limits {
    let (descriptors, limits) = (descriptors::raise(), Limits::default());
    let connections_max = descriptors::connections_max(descriptors).min(limits.connections_max);
    if connections_max < limits.connections_max {
        tracing::info!(
            descriptors,
            connections_max,
            "file descriptors bound connections: raise their limit (ulimit -n) for more"
        );
    }
    Limits { connections_max, ..limits }
}

fn bind(address: SocketAddr, option: &str) -> Result<TcpListener> {
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen on {address}: choose another address with {option}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Tells whoever started the process where it listens, on one line of standard output. In a cluster its Gateway says
/// where clients connect.
fn announce(data: Option<SocketAddr>, admin: SocketAddr) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match data {
        Some(data) => writeln!(out, r#"{{"data":"{data}","admin":"{admin}"}}"#)?,
        None => writeln!(out, r#"{{"data":null,"admin":"{admin}"}}"#)?,
    }
    out.flush()?;
    tracing::info!(data = data.map(tracing::field::display), %admin, "listening");
    Ok(())
}

/// What the process is told from outside.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From now on these signals no longer end the process by themselves.
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits until one of them asks for an end, and says which.
    async fn asked(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                // What other servers reload at must not cut streams off here.
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP: nothing to do, changes of the configuration are noticed without it");
                }
            }
        }
    }
}

/// Readiness first, so that load balancers look elsewhere; then no new connections; then time for what runs. Who asks a
/// second time does not want to wait.
async fn end(world: &World, serving: &Serving, options: &Options, mut signals: Signals) {
    let drain = &world.readiness.drain;
    let hurried = Cell::new(false);
    let mut again = pin!(async {
        let signal = signals.asked().await;
        hurried.set(true);
        tracing::info!("{signal} again: ending at once");
    });
    tokio::select! {
        () = drain.begin_after(options.drain_grace) => {}
        () = &mut again => drain.begin(),
    }
    // Who waits for room is no running answer: another gateway may have some.
    world.pools.close();
    let over = async {
        if !hurried.get() {
            let _either = tokio::time::timeout(options.drain_timeout, again).await;
        }
    };
    let cutting = || world.observer.cutting.store(true, Ordering::Release);
    let drained = serving.drained_until(over, cutting).await;
    let connections = drained.aborted;
    if connections == 0 {
        tracing::info!("drained");
    } else if hurried.get() {
        tracing::warn!(connections, "connections were cut without waiting for their answers");
    } else {
        let timeout = options.drain_timeout;
        tracing::warn!(connections, ?timeout, "--drain-timeout is over: connections with running answers were cut");
    }
}
