//! From the command line to a gateway that serves, and from SIGTERM to a process that has ended cleanly.

use std::{
    cell::Cell,
    io::Write,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
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
    control::{self, Control, CoreClients},
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
    let (sources, loaded) = control::load(&options.config)?;
    let world = world(metrics, log, options.body_memory);
    let cores = Cores::start(core_count(options.cores), "core").context("cores to serve on")?;
    let clients: CoreClients = cores.all().iter().map(|core| (core.clone(), Clients::new())).collect();
    let control = Control::start(Arc::clone(&world), options.config.clone(), clients.clone(), loaded)?;

    // One thread for everything that is not a request: it must never make one wait.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("the control runtime")?;
    runtime.block_on(async {
        // Before anybody is served, whose answer could be cut off.
        let mut signals = Signals::listen()?;
        let data = bind(options.listen, "--listen")?;
        let admin = bind(options.admin, "--admin")?;
        let bound = (data.local_addr()?, admin.local_addr()?);
        tokio::spawn(control.run(sources));
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
        let serving = serve::start(&cores, limits(), door, drain, refusals);
        let front = world.front.clone().unwrap_or_else(Tls::plain);
        let listener = Listener { port: bound.0.port(), scheme: Scheme::Http };
        serving.add(data, listener, front).context("the data port")?;
        announce(bound)?;
        let signal = signals.asked().await;
        tracing::info!("{signal}: draining");
        end(&world, serving, options, signals).await;
        anyhow::Ok(())
    })?;
    runtime.shutdown_timeout(Duration::from_millis(100));
    cores.shutdown();
    drop(writer);
    Ok(())
}

fn world(metrics: Metrics, log: RequestLog, body_memory_bytes: usize) -> Arc<World> {
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
        front: Some(Tls::plain()),
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

/// Tells whoever started the process where it listens, on one line of standard output.
fn announce((data, admin): (SocketAddr, SocketAddr)) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, r#"{{"data":"{data}","admin":"{admin}"}}"#)?;
    out.flush()?;
    tracing::info!(%data, %admin, "listening");
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
async fn end(world: &World, serving: Serving, options: &Options, mut signals: Signals) {
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
