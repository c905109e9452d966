//! `cargo xtask demo`: the product at work on any machine, with simulated GPU pods.
//!
//! Four pods, two fast and two slow, one model with two LoRA adapters, the real gateway in front, a few chats, and for
//! each the endpoint that served it and why. `--check` is the same run with every expectation verified, so what a
//! reader is shown can not rot.

mod conversation;
mod interrupt;
pub(crate) mod kubernetes;
mod program;
mod site;
mod verify;

use std::time::Instant;

use crate::step;
use crate::workspace::Workspace;
use interrupt::Interrupt;
use site::Site;

/// What to do after the chats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Print where everything is and wait for Ctrl-C.
    KeepRunning,
    /// Verify, stop, and fail if anything was not as shown.
    Check,
}

/// Builds, starts, talks, and leaves nothing behind.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let started = Instant::now();
    println!("Building the gateway and the simulated pods (the first time takes some minutes)");
    let packages = ["--package", "gateway", "--package", "model-sim"];
    step::run(workspace.cargo(&["build", "--locked"]).args(packages))?;
    let mut site = Site::start(workspace, mode, &interrupt)?;
    println!(
        "\nAsking the gateway at http://{} (the pods make words up; times, queues, caches and metrics behave like vLLM's)",
        site.gateway.data
    );
    let exchanges = conversation::hold(&site.gateway, &interrupt)?;
    match mode {
        Mode::Check => {
            let findings = verify::all(&site.gateway, &exchanges)?;
            verify::report(&findings)?;
            site.stop()?;
            println!("demo --check: {} expectations held, in {}", findings.len(), step::lasted(started));
        }
        Mode::KeepRunning => {
            println!("{}", site.signpost());
            let ended = site.wait(&interrupt);
            site.stop()?;
            ended?;
        }
    }
    Ok(())
}
