//! `cargo xtask`: what a contributor types, and what the build machine runs.
//!
//! One small program instead of a folder of scripts, so that a fresh machine needs the Rust toolchain and nothing
//! else, and so that the rules of the house are code with tests. It depends on none of the product's crates: the demo
//! must not compile them twice. What needs them (the generated references) lives in `examples/references.rs`.

mod ci;
mod cluster;
mod codegen;
mod conformance;
mod demo;
mod http;
mod step;
mod suite;
mod tidy;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask <task>

  demo [--check]     build and start four simulated GPU pods and the gateway, send a few chats, show who answered and why
                     --check: do the same, verify it, stop, and exit 0 only if all was right
  demo --kubernetes [--check]
                     the same in a cluster without containers: two models, one InferenceGatewayConfig, the first chat
  cluster up [--check] | cluster enter [CMD...]
                     the test rig: start a cluster with the installation of this tree; a command inside its network
  conformance        the upstream conformance suites, on the rig; reports in docs/conformance
  test [-- ARGS]     every test: units, integration, SDKs; ARGS go to the test binaries
  ci                 what has to hold before a change goes in, in the order of cheapest first
  tidy               the rules of the house that no compiler checks
  codegen [--check]  write crds/, docs/config.md, docs/metrics.md, docs/errors.md and docs/openapi.yaml from the code
                     --check: write nothing, fail if one of them differs
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["demo"] => demo::run(&Workspace::find()?, demo::Mode::KeepRunning),
        ["demo", "--check"] => demo::run(&Workspace::find()?, demo::Mode::Check),
        ["demo", "--kubernetes"] => demo::kubernetes::run(&Workspace::find()?, demo::Mode::KeepRunning),
        ["demo", "--kubernetes", "--check"] | ["demo", "--check", "--kubernetes"] => {
            demo::kubernetes::run(&Workspace::find()?, demo::Mode::Check)
        }
        [demo::kubernetes::INSIDE] => demo::kubernetes::inside(demo::Mode::KeepRunning),
        [demo::kubernetes::INSIDE, "--check"] => demo::kubernetes::inside(demo::Mode::Check),
        ["cluster", "up"] => cluster::up(&Workspace::find()?, cluster::Mode::KeepRunning),
        ["cluster", "up", "--check"] => cluster::up(&Workspace::find()?, cluster::Mode::Check),
        ["cluster", "enter", "--", words @ ..] | ["cluster", "enter", words @ ..] => {
            cluster::enter(&Workspace::find()?, words)
        }
        ["conformance"] => conformance::run(&Workspace::find()?, conformance::Reports::Documented),
        ["test"] => suite::run(&Workspace::find()?, &[]),
        ["test", "--", rest @ ..] => suite::run(&Workspace::find()?, rest),
        ["ci"] => ci::run(&Workspace::find()?),
        ["tidy"] => tidy::run(&Workspace::find()?),
        ["codegen"] => codegen::run(&Workspace::find()?, codegen::Mode::Write),
        ["codegen", "--check"] => codegen::run(&Workspace::find()?, codegen::Mode::Check),
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        unknown => anyhow::bail!("`{}` is not a task\n\n{USAGE}", unknown.join(" ")),
    }
}
