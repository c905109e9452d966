//! `igw-bench`: the command line of the measurements.

use std::process::ExitCode;

use bench::subject::bare;
use bench::{admission, controller, cost, live, quality, real, validate};
use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the gateway beside others, on one machine, in one run.
#[derive(Parser)]
#[command(name = "igw-bench", version)]
struct Arguments {
    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Subcommand)]
enum Measurement {
    /// CPU, latency and memory of the gateway with everything on, beside its peers
    Cost(cost::Arguments),
    /// The barest proxy there is, which `cost` starts to measure it
    #[command(hide = true)]
    Bare(bare::Arguments),
    /// What waiting costs: admission beside a bare pick, and the speed at which a queue is worked off
    Admission(admission::Arguments),
    /// What the controller takes with many configurations, working and idle
    Controller(controller::Arguments),
    /// Who answers first: the gateway's decisions beside other ways to route, on simulated engines
    Quality(quality::Arguments),
    /// A scenario of `quality` in real time: the gateway, peers, and simulated model servers as processes
    Real(real::Arguments),
    /// Real deployments beside each other: the same calls to each, in alternating passes
    Live(live::Arguments),
    /// How far the simulated engine is from real vLLM
    Engine(validate::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().measurement {
        Measurement::Cost(arguments) => cost::run(&arguments),
        Measurement::Bare(arguments) => bare::run(&arguments),
        Measurement::Admission(arguments) => admission::run(&arguments),
        Measurement::Controller(arguments) => controller::run(&arguments),
        Measurement::Quality(arguments) => quality::run(&arguments),
        Measurement::Real(arguments) => real::run(&arguments),
        Measurement::Live(arguments) => live::run(&arguments),
        Measurement::Engine(arguments) => validate::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("igw-bench failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
