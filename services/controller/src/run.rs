//! From the command line to a controller that watches, and from SIGTERM to one that has given its lease up.

use std::{collections::BTreeMap, io::Write, net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use telemetry::{Metrics, catalog::LOG_LINES_DROPPED, request_log};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    act::Writer,
    certificates::{self, Outcomes},
    client::Clients,
    events::Teller,
    gateway_api::Statuses,
    health::{self, Readiness},
    leader::{self, Leadership},
    mirror::Mirror,
    options::Options,
    reconcile::{Reconciler, config_resource},
    wanted::Settings,
};

/// Runs the program to its end.
///
/// # Errors
/// When it cannot start; the text says what to do.
pub fn run(options: &Options) -> Result<()> {
    let metrics = Metrics::default();
    let dropped = metrics.counter(&LOG_LINES_DROPPED, &[]);
    let (log, writer) =
        request_log::start(options.log.into(), std::io::stderr(), dropped).context("the log's writer")?;
    telemetry::tracing_setup::install(options.log.into(), &options.log_filter, log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("the runtime")?;
    let done = runtime.block_on(control(options, metrics));
    drop(runtime);
    drop(writer);
    done
}

async fn control(options: &Options, metrics: Metrics) -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let clients = Clients::infer().await?;
    let readiness = Readiness::default();
    let address = SocketAddr::new(options.bind_address, options.admin_port);
    let bound = health::serve(address, metrics.clone(), readiness.clone())
        .await
        .with_context(|| format!("cannot serve health on {address}"))?;
    announce(bound)?;
    let identity = identity(options)?;
    let leadership = Leadership::new(&metrics);
    let mirror = Mirror::start(&clients, &options.system_namespace, readiness);
    let client = clients.plain.clone();
    let writer = Arc::new(Writer::new(client.clone(), leadership.clone(), Arc::clone(&mirror), metrics.clone()));
    let (outcomes, (jobs, due)) = (Outcomes::default(), watch::channel(BTreeMap::new()));
    let means = certificates::Means {
        client: client.clone(),
        config_resource: config_resource(),
        writer: Arc::clone(&writer),
        mirror: Arc::clone(&mirror),
        outcomes: outcomes.clone(),
    };
    tokio::spawn(certificates::work(means, due));
    let reconciler = Reconciler {
        settings: Settings {
            system_namespace: options.system_namespace.clone(),
            image: options.data_plane_image.clone(),
            pull_policy: options.data_plane_pull_policy.clone(),
        },
        statuses: Statuses::new(client.clone(), Arc::clone(&writer), options.system_namespace.clone()),
        writer,
        outcomes,
        jobs,
        teller: Teller::new(client.clone(), &identity),
        client,
        mirror,
        leadership: leadership.clone(),
        metrics,
    };
    tokio::spawn(reconciler.run());
    let ended = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to end");
    };
    leader::stand(clients.plain.clone(), &options.system_namespace, &identity, &leadership, ended).await;
    Ok(())
}

/// One line on standard output, once health is served: whoever started us with port 0 reads the port there.
fn announce(admin: SocketAddr) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{{\"admin\":\"{admin}\"}}").and_then(|()| out.flush()).context("standard output")
}

/// The pod's name, else the host's, and always something that no other process has.
fn identity(options: &Options) -> Result<String> {
    let given = options.identity.clone().or_else(|| std::env::var("POD_NAME").ok());
    let name = match given {
        Some(name) => name,
        None => std::fs::read_to_string("/proc/sys/kernel/hostname").context("the host's name; give --identity")?,
    };
    // A container that was restarted keeps the pod's name, and must not take a lease for its own that is not.
    let process = std::process::id();
    let started = jiff::Timestamp::now().as_millisecond();
    Ok(format!("{}_{process}_{started:x}", name.trim()))
}
