//! `igw-bench`: the command line of the measurements.

use std::process::ExitCode;

use bench::cost;
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
    /// CPU, latency and memory of the gateway with everything on, beside Envoy as a plain proxy
    Cost(cost::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().measurement {
        Measurement::Cost(arguments) => cost::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("igw-bench failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}
