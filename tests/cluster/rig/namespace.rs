//! The outer part: it stays in the machine's own namespaces, and everything else runs inside the cluster's.
//!
//! The inner process is the first of a PID namespace: when it ends, the kernel ends all that it started, however it
//! ended. It reads its standard input and ends when that does, so it can not outlive this process either.

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    Setup,
    assets::Assets,
    bridge,
    place::{self, Door, Place},
};

/// Ways into namespaces of our own, best first. A `/proc` that shows the new processes is nicer, but not everywhere
/// allowed; without root a user namespace comes first.
const WAYS: [&[&str]; 4] = [
    &["--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"],
    &["--net", "--pid", "--fork", "--kill-child"],
    &["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"],
    &["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"],
];

/// What the namespace needs before anything listens in it.
const LOCAL_ROUTES: &str = "ip link set lo up && ip route add local \"$0\" dev lo && ip route add local \"$1\" dev lo \
                            && shift && exec \"$@\"";

/// Starts a cluster and keeps it until it is told to stop.
///
/// # Errors
/// When it cannot start, or ends by itself.
pub(crate) fn up(mut setup: Setup) -> anyhow::Result<ExitCode> {
    setup.dir.get_or_insert_with(place::last_started);
    host(setup, &[])
}

/// Starts a cluster, runs `command` in it, and ends it.
///
/// # Errors
/// When the cluster cannot start.
pub(crate) fn run(setup: Setup, command: &[String]) -> anyhow::Result<ExitCode> {
    host(setup, command)
}

/// Replaces this process by `command` inside the namespace of a running cluster.
///
/// # Errors
/// When there is none, or it cannot be entered.
pub(crate) fn enter(dir: Option<PathBuf>, command: &[String]) -> anyhow::Result<ExitCode> {
    let place = Place::at(&dir.unwrap_or_else(place::last_started))?;
    let text = fs::read(place.door()).with_context(|| format!("no cluster is up in {}", place.root().display()))?;
    let door: Door = serde_json::from_slice(&text)?;
    let mut enter = Command::new("nsenter");
    enter.arg(format!("--net=/proc/{}/ns/net", door.pid));
    if door.user_namespace {
        enter.args([format!("--user=/proc/{}/ns/user", door.pid), "--preserve-credentials".to_owned()]);
    }
    let shell = [env::var("SHELL").unwrap_or_else(|_| "sh".into())];
    enter.arg("--").args(if command.is_empty() { &shell } else { command });
    for (name, value) in surroundings(&place) {
        enter.env(name, value);
    }
    let error = enter.exec();
    Err(error).context("cannot start nsenter, which is part of util-linux")
}

/// Variables by which a process inside knows its cluster.
pub(crate) fn surroundings(place: &Place) -> [(&'static str, std::ffi::OsString); 3] {
    let mut path = place.file("bin").into_os_string();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()));
    let kubeconfig = place.kubeconfig().into_os_string();
    [("CLUSTER_RIG", place.root().as_os_str().to_owned()), ("KUBECONFIG", kubeconfig), ("PATH", path)]
}

fn host(mut setup: Setup, command: &[String]) -> anyhow::Result<ExitCode> {
    // Built here, because inside nothing can be fetched.
    Assets::obtain()?;
    let temporary = if setup.dir.is_none() { Some(tempfile::tempdir()?) } else { None };
    let root = setup.dir.get_or_insert_with(|| temporary.as_ref().expect("made when none was given").path().to_owned());
    let place = Place::at(root)?;
    forget(&place);
    // Every cluster begins empty, also in a folder that had one.
    for folder in ["etcd", "pods", "pki"] {
        let _ = fs::remove_dir_all(place.file(folder));
    }
    let place = Place::at(place.root())?;
    let way = way()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let port = bridge::from_outside(place.bridge()).await?;
        let child = spawn(way, &setup, &place, port, command)?;
        let door = Door { pid: child.id(), user_namespace: way.contains(&"--user") };
        fs::write(place.door(), serde_json::to_vec(&door)?)?;
        attend(child).await
    });
    forget(&place);
    let code = outcome?;
    if let Some(temporary) = temporary.filter(|_| code != 0) {
        // What failed can be read from the logs; the database is large and tells nothing.
        let kept = temporary.keep();
        let _ = fs::remove_dir_all(kept.join("etcd"));
        eprintln!("cluster-rig: logs are kept in {}", kept.display());
    }
    Ok(ExitCode::from(code))
}

/// What says that a cluster is up.
fn forget(place: &Place) {
    // Whatever is not there needs no removing.
    let links =
        [place.door(), place.bridge(), place.outside_kubeconfig(), place.kubeconfig(), place.file("admin.conf")];
    for file in links {
        let _ = fs::remove_file(file);
    }
}

fn spawn(way: &[&str], setup: &Setup, place: &Place, port: u16, command: &[String]) -> anyhow::Result<Child> {
    let mut unshare = Command::new("unshare");
    unshare.args(way).args(["--", "sh", "-c", LOCAL_ROUTES, place::POD_CIDR, place::SERVICE_CIDR]);
    unshare.arg(env::current_exe()?).arg("inside").arg("--dir").arg(place.root());
    unshare.args(paths("--images", &setup.images)?).args(paths("--apply", &setup.apply)?);
    if !command.is_empty() {
        unshare.arg("--").args(command);
    }
    unshare.env("CLUSTER_RIG_OUTSIDE_PORT", port.to_string());
    // A group of its own: Ctrl-C reaches this process, which then ends the rest in order.
    unshare.stdin(Stdio::piped()).process_group(0);
    unshare.spawn().context("cannot start unshare, which is part of util-linux")
}

/// Options with paths that stay right whatever folder they are read in.
fn paths(option: &str, paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut words = Vec::new();
    for path in paths {
        words.push(PathBuf::from(option));
        words.push(path.canonicalize().with_context(|| format!("no such path: {}", path.display()))?);
    }
    Ok(words)
}

/// Waits for the inner process, or for a signal, and returns the exit code.
async fn attend(mut child: Child) -> anyhow::Result<u8> {
    let lifeline = child.stdin.take();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (tell, mut ended) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || drop(tell.send(child.wait())));
    tokio::select! {
        status = &mut ended => return Ok(code(status??)),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    drop(lifeline);
    ended.await??;
    // It was stopped, as asked.
    Ok(0)
}

fn code(status: std::process::ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn way() -> anyhow::Result<&'static [&'static str]> {
    let ip = Command::new("ip").arg("-V").stdout(Stdio::null()).status();
    anyhow::ensure!(ip.is_ok_and(|status| status.success()), "the program `ip` is missing: install iproute2");
    let works = |way: &&&[&str]| {
        let mut probe = Command::new("unshare");
        probe.args(**way).args(["--", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    WAYS.iter().find(works).copied().context(
        "this machine lets no process have a network namespace of its own: run as root, or allow user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, or kernel.apparmor_restrict_unprivileged_userns=0)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_absolute_and_missing_ones_are_named() {
        let words = paths("--apply", &[PathBuf::from(".")]).unwrap();
        assert!(words[0].as_os_str() == "--apply" && words[1].is_absolute());
        let error = paths("--apply", &[PathBuf::from("no-such-path")]).unwrap_err();
        assert!(error.to_string().contains("no-such-path"), "{error}");
    }
}
