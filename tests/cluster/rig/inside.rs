//! The inner part: the first process of the cluster's namespaces.
//!
//! It starts the control plane, becomes the node, applies what every cluster starts with, and then runs one command or
//! waits. Kubeconfigs get their names last, so whoever waits for one finds a cluster that is up.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::sync::oneshot;

use crate::{
    Setup,
    assets::Assets,
    bridge,
    control_plane::ControlPlane,
    kubelet::{self, Images},
    namespace,
    place::Place,
    service_proxy,
};

/// How often the parts are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Runs the cluster; returns the code that the command ended with.
///
/// # Errors
/// When it cannot start, or a part of it ends.
pub(crate) fn run(setup: &Setup, command: &[String]) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let place = Place::at(setup.dir.as_deref().context("the outer part gives a folder")?)?;
    let assets = Assets::obtain()?;
    let images = Images::load(&setup.images)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        let port = env::var("CLUSTER_RIG_OUTSIDE_PORT").ok().and_then(|port| port.parse().ok()).unwrap_or_default();
        let (mut plane, client) = ControlPlane::start(&assets, &place, port).await?;
        wrap_kubectl(&assets, &place)?;
        bridge::to_api_server(&place.bridge())?;
        service_proxy::start(&place);
        kubelet::start(client, place.clone(), images).await?;
        apply(&place, &assets.kinds, &setup.apply).await?;
        fs::rename(place.file("outside.conf"), place.outside_kubeconfig())?;
        fs::rename(place.file("admin.conf"), place.kubeconfig())?;
        // The controllers read the file by its old name again when their connection breaks.
        std::os::unix::fs::symlink(place.kubeconfig(), place.file("admin.conf"))?;
        eprintln!("cluster-rig: up in {:.1} s, in {}", started.elapsed().as_secs_f64(), place.root().display());
        attend(&mut plane, &place, command).await
    })?;
    // As the first process of its namespace, this one takes all others with it.
    Ok(ExitCode::from(code))
}

/// Runs the command to its end, or waits until the outer part is gone.
async fn attend(plane: &mut ControlPlane, place: &Place, command: &[String]) -> anyhow::Result<u8> {
    let mut gone = lifeline();
    let mut ended = if command.is_empty() { None } else { Some(start(place, command)?) };
    if ended.is_none() {
        println!("export KUBECONFIG={}", place.outside_kubeconfig().display());
    }
    loop {
        let end = async {
            match &mut ended {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = &mut gone => return Ok(0),
            code = end => return Ok(code.unwrap_or(1)),
            () = tokio::time::sleep(LOOK) => plane.check(place)?,
        }
    }
}

/// Resolves when standard input ends: the outer part holds its other end.
fn lifeline() -> oneshot::Receiver<()> {
    let (tell, gone) = oneshot::channel();
    std::thread::spawn(move || {
        // Nobody writes to it; whatever ends the reading ends the cluster.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tell.send(());
    });
    gone
}

fn start(place: &Place, command: &[String]) -> anyhow::Result<oneshot::Receiver<u8>> {
    let (program, arguments) = command.split_first().context("a command has a first word")?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(namespace::surroundings(place))
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let (tell, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let code = child.wait().ok().and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
        let _ = tell.send(code.unwrap_or(1));
    });
    Ok(ended)
}

/// A `kubectl` of the cluster's own release for everything inside.
fn wrap_kubectl(assets: &Assets, place: &Place) -> anyhow::Result<()> {
    let script = format!("#!/bin/sh\nexec '{}' kubectl \"$@\"\n", assets.program.display());
    let path = place.file("bin/kubectl");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Applies the kinds of other projects, waits until they are served, then applies what was asked for.
async fn apply(place: &Place, kinds: &Path, further: &[std::path::PathBuf]) -> anyhow::Result<()> {
    kubectl(place, &["apply", "--server-side", "-f"], Some(kinds)).await?;
    for path in further {
        let option = if path.join("kustomization.yaml").is_file() { "-k" } else { "-f" };
        kubectl(place, &["apply", "--server-side", option], Some(path)).await?;
        kubectl(place, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], None).await?;
    }
    kubectl(place, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], None).await
}

async fn kubectl(place: &Place, words: &[&str], path: Option<&Path>) -> anyhow::Result<()> {
    let mut command = Command::new(place.file("bin/kubectl"));
    command.arg("--kubeconfig").arg(place.file("admin.conf")).args(words).args(path).stdin(Stdio::null());
    let shown = format!("{command:?}");
    let (tell, ended) = oneshot::channel();
    // On a thread of its own: the kubelet must go on meanwhile.
    std::thread::spawn(move || drop(tell.send(command.output())));
    let output = ended.await?.with_context(|| format!("cannot start {shown}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{shown} ended with {}:\n{errors}", output.status);
    Ok(())
}
