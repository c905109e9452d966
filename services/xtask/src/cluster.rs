//! `cargo xtask cluster`: the test rig from the command line.
//!
//! It builds what a cluster runs, and leaves the rest to the rig itself: `docs/test-rig.md` says what that is.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context;

use crate::step;
use crate::workspace::Workspace;

/// Whether the cluster stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Until Ctrl-C.
    KeepRunning,
    /// Start it, look at it, end it.
    Check,
}

/// Builds and starts a cluster with the installation of this tree.
pub(crate) fn up(workspace: &Workspace, mode: Mode) -> anyhow::Result<()> {
    build(workspace)?;
    let mut command = rig(workspace);
    match mode {
        Mode::KeepRunning => {
            command.arg("up").args(installation(workspace));
            Err(command.exec()).context("cannot start the rig")
        }
        Mode::Check => {
            command.arg("run").args(installation(workspace));
            command.args(["--", "kubectl", "wait", "--for=condition=Available", "--timeout=60s"]);
            step::run(
                command.args(["--namespace=hyperpod-inference-system", "deployment/inference-gateway-controller"]),
            )
        }
    }
}

/// Becomes a command inside the network of the cluster that `up` started.
pub(crate) fn enter(workspace: &Workspace, words: &[&str]) -> anyhow::Result<()> {
    let mut command = rig(workspace);
    command.arg("enter").arg("--").args(words);
    Err(command.exec()).context("cannot start the rig: is it built? `cargo xtask cluster up` does")
}

/// Builds every program that a cluster runs.
pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<()> {
    println!("Building the programs that pods run (the first time takes some minutes)");
    // The whole workspace, so that dependencies get the same features as for tests and are built once.
    step::run(&mut workspace.cargo(&["build", "--workspace", "--locked", "--bins"]))
}

/// The rig's program.
pub(crate) fn rig(workspace: &Workspace) -> Command {
    Command::new(workspace.program("cluster-rig"))
}

/// The options by which a cluster gets what an operator would install.
pub(crate) fn installation(workspace: &Workspace) -> [OsString; 2] {
    ["--apply".into(), workspace.root.join("addon-manifest").into()]
}
