//! `cargo xtask ci`: what has to hold before a change goes in.
//!
//! Cheapest first, so that a slip shows early; it stops at the first failure, because what follows would only bury
//! the message. It runs the same commands that a contributor types.

use std::time::Instant;

use crate::workspace::Workspace;
use crate::{codegen, conformance, demo, step, suite, tidy};

type Action = fn(&Workspace) -> anyhow::Result<()>;

struct Step {
    name: &'static str,
    action: Action,
    /// What to type after a failure.
    remedy: &'static str,
}

const STEPS: [Step; 9] = [
    Step { name: "format", action: format, remedy: "run `cargo fmt --all`" },
    Step { name: "tidy", action: tidy::run, remedy: "each line above names the rule and the place" },
    Step { name: "clippy", action: clippy, remedy: "run `cargo clippy --workspace --all-targets`" },
    Step { name: "rustdoc", action: rustdoc, remedy: "run `cargo doc --workspace --no-deps`" },
    Step { name: "codegen", action: generated, remedy: "run `cargo xtask codegen` and commit what it wrote" },
    Step { name: "test", action: tests, remedy: "run `cargo xtask test`" },
    Step { name: "demo", action: demonstrated, remedy: "run `cargo xtask demo --check`; logs are in target/demo" },
    Step { name: "cluster", action: in_a_cluster, remedy: "run `cargo xtask demo --kubernetes --check`" },
    Step { name: "conformance", action: conforming, remedy: "run `cargo xtask conformance`" },
];

/// Runs every step, timed.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut times = Vec::new();
    for (index, step) in STEPS.iter().enumerate() {
        println!("\n== [{}/{}] {} ==", index + 1, STEPS.len(), step.name);
        let since = Instant::now();
        (step.action)(workspace).map_err(|error| {
            anyhow::anyhow!(
                "step `{}` after {}: {error:#}\n  what to do: {}",
                step.name,
                step::lasted(since),
                step.remedy
            )
        })?;
        println!("== {}: ok, {} ==", step.name, step::lasted(since));
        times.push(format!("  {:<8} ok  {}", step.name, step::lasted(since)));
    }
    println!("\n{}\nAll {} steps passed in {}", times.join("\n"), STEPS.len(), step::lasted(started));
    Ok(())
}

fn format(workspace: &Workspace) -> anyhow::Result<()> {
    step::run(&mut workspace.cargo(&["fmt", "--all", "--", "--check"]))
}

fn clippy(workspace: &Workspace) -> anyhow::Result<()> {
    step::run(&mut workspace.cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
}

fn rustdoc(workspace: &Workspace) -> anyhow::Result<()> {
    let mut command = workspace.cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    step::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn generated(workspace: &Workspace) -> anyhow::Result<()> {
    codegen::run(workspace, codegen::Mode::Check)
}

fn tests(workspace: &Workspace) -> anyhow::Result<()> {
    suite::run(workspace, &[])
}

fn demonstrated(workspace: &Workspace) -> anyhow::Result<()> {
    demo::run(workspace, demo::Mode::Check)
}

fn in_a_cluster(workspace: &Workspace) -> anyhow::Result<()> {
    demo::kubernetes::run(workspace, demo::Mode::Check)
}

fn conforming(workspace: &Workspace) -> anyhow::Result<()> {
    conformance::run(workspace, conformance::Reports::Aside)
}
