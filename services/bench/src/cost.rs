//! `igw-bench cost`: what the gateway costs beside its peers.
//!
//! The same load, the same backend, alternating passes. CPU is the measured process's own user and system time divided
//! by what it served, so neither generator nor backend counts. The gateway runs with everything on: it reads each body,
//! scrapes every endpoint, picks by all default scorers, counts and logs; Envoy as a plain proxy does none of this.
//!
//! Two floors stand beside: no proxy at all, and the barest one that the gateway's own HTTP library makes.

mod figures;
mod in_process;
mod loads;
mod measure;
mod pass;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::backend::Backend;
use crate::bodies::{Kind, Requests};
use crate::certificate::Certificate;
use crate::load;
use crate::machine::Machine;
use crate::peers;
use crate::report;
use crate::subject::{Programs, Site, Subject};
use loads::Loads;
use pass::Stage;

pub use figures::{FIGURES, Figure, Key, Target, Verdict};
pub use pass::Pass;

/// Load average per core above which the reader is warned.
const BUSY_PER_CORE: f64 = 0.25;
/// How long each proxy runs flat out to find the rate of half load.
const CALIBRATION: Duration = Duration::from_secs(2);

/// CPU, latency and memory of the gateway with everything on, beside its peers
#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct Arguments {
    /// The gateway's executable, built with `cargo build --release` [default: `inference-gateway` beside igw-bench]
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    gateway: Option<PathBuf>,
    /// What is measured: direct, bare, gateway, or a peer, as NAME or NAME:POLICY; peers are installed when first asked for
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "direct,bare,envoy,gateway")]
    subjects: Vec<String>,
    /// Other peers than those the bench knows: see services/bench/peers.toml
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    peers: Option<PathBuf>,
    /// What they are put through [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    parts: Vec<Part>,
    /// One short pass, to see that everything works: its figures mean nothing
    #[arg(long)]
    quick: bool,
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
    /// Chunks of each stream of 100 chunks per second, about 200 bytes each
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chunks: u32,
    /// Chunks of each stream of 1,000 chunks per second
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    fast_chunks: u32,
    /// Requests per second for latency [default: half of what the slower of gateway and Envoy served flat out at 4 kB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Of request bodies and arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Something that a subject is put through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Bodies of 1 kB to 4 MB, flat out; executable and start
    Requests,
    /// 256 and 1,000 connections
    Connections,
    /// Clients that speak HTTP/2 with prior knowledge
    Http2,
    /// Clients that speak TLS
    Tls,
    /// Streamed answers, short, paced and fast
    Streams,
    /// Latency at half load
    Latency,
    /// CPU and memory without any request
    Idle,
    /// Memory with many streams, and with many large bodies
    Memory,
    /// Picks and prefix look-ups, without any process
    InProcess,
}

/// Everything that a reader needs to believe the table, as it goes into `cost.json`.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub machine: Machine,
    pub settings: Arguments,
    /// Requests per second of the latency load; 0 when there was none.
    pub rate_per_second: f64,
    pub subjects: Vec<Described>,
    pub passes: Vec<Pass>,
}

/// A subject, in the report.
#[derive(Debug, Serialize)]
pub struct Described {
    pub name: String,
    pub version: String,
}

impl Arguments {
    /// One line for the report.
    pub fn summary(&self) -> String {
        let quick = if self.quick { "A quick run, its figures mean nothing. " } else { "" };
        format!(
            "{quick}{} passes of {} s, {} connections, {} endpoints, {} streams of {} chunks (fast ones: {}), seed {}",
            self.passes(),
            self.seconds,
            self.connections,
            self.endpoints,
            self.streams,
            self.chunks,
            self.fast_chunks,
            self.seed
        )
    }

    fn passes(&self) -> u32 {
        if self.quick { 1 } else { self.passes }
    }

    fn parts(&self) -> Vec<Part> {
        if self.parts.is_empty() { Part::value_variants().to_vec() } else { self.parts.clone() }
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// Measures, prints the table and writes both files.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let started = Instant::now();
    allow_many_files()?;
    let programs = programs(arguments.gateway.clone(), arguments.peers.as_deref())?;
    let subjects: Vec<Subject> =
        arguments.subjects.iter().map(|asked| programs.subject(asked)).collect::<anyhow::Result<_>>()?;
    let machine = Machine::here();
    if machine.load_average > BUSY_PER_CORE * machine.cores as f64 {
        println!("Busy machine (load average {:.2}): these figures are not for publishing", machine.load_average);
    }
    let out = arguments.out.clone().unwrap_or_else(|| beside_build("bench"));
    let folder = out.join("run");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let certificate = Certificate::make(&folder)?;
    let parts = arguments.parts();
    let mut loads = Loads::new(arguments, 0.0);
    let backend = Backend::start(loads.many_endpoints)?;
    if parts.contains(&Part::Latency) {
        loads.rate.per_second = rate(arguments, &subjects, &backend, &folder)?;
        println!("Latency is measured at {:.0} requests per second", loads.rate.per_second);
    }
    let stage = Stage {
        subjects: &subjects,
        backend: &backend,
        certificate: &certificate,
        loads: &loads,
        folder: &folder,
        parts: &parts,
    };
    let mut passes = Vec::new();
    for number in 1..=arguments.passes() {
        let (of, seconds) = (arguments.passes(), started.elapsed().as_secs_f64());
        println!("Pass {number} of {of}, {seconds:.0} s after the start");
        passes.push(Pass::measure(number, &stage));
    }
    let described =
        subjects.iter().map(|subject| Described { name: subject.name().to_owned(), version: subject.version() });
    let subjects = described.collect();
    let rate_per_second = loads.rate.per_second;
    let measured = Measured { machine, settings: arguments.clone(), rate_per_second, subjects, passes };
    report::write(&measured, &out)?;
    let own = |missing: &&String| ["direct", "bare", "gateway"].iter().any(|name| missing.starts_with(name));
    match measured.passes.iter().flat_map(|pass| &pass.missing).find(own) {
        Some(missing) => anyhow::bail!("not everything was measured: {missing}"),
        None => Ok(()),
    }
}

/// The gateway beside this program unless named, and all peers that are known.
pub fn programs(gateway: Option<PathBuf>, peers: Option<&Path>) -> anyhow::Result<Programs> {
    let beside = || std::env::current_exe().ok()?.parent().map(|folder| folder.join("inference-gateway"));
    Ok(Programs {
        gateway: gateway.or_else(beside).unwrap_or_default(),
        cache: peers::cache(),
        peers: peers::load(peers)?,
    })
}

/// A folder in the build output that this program was started from, else in the current folder's `target`.
pub fn beside_build(name: &str) -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(Path::parent).and_then(Path::parent).unwrap_or(Path::new("target"));
    target.join(name)
}

/// A thousand streams take three thousand sockets here and in what is measured.
fn allow_many_files() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, most).context("cannot raise the limit of open files")
}

/// Half of what the slower of gateway and Envoy serves, so that both are loaded alike; a slower peer would leave them idle.
fn rate(arguments: &Arguments, subjects: &[Subject], backend: &Backend, folder: &Path) -> anyhow::Result<f64> {
    if let Some(rate) = arguments.rate {
        return Ok(f64::from(rate));
    }
    let calibrated = |subject: &&Subject| ["gateway", "envoy"].contains(&subject.name());
    let requests = Requests::new(loads::BODY_BYTES, Kind::Whole, arguments.seed);
    let mut slowest = f64::INFINITY;
    let all = subjects.iter().filter(calibrated).chain(subjects.iter().filter(|subject| subject.is_proxy()).take(1));
    for subject in all {
        let endpoints = &backend.addresses[..usize::from(arguments.endpoints)];
        let running = subject.start(&Site { endpoints, folder, certificate: None })?;
        let outcome = load::closed(&running.data, usize::from(arguments.connections), &requests, CALIBRATION)?;
        let per_second = outcome.answered as f64 / outcome.elapsed_s;
        println!("{} answers {per_second:.0} requests per second flat out", subject.name());
        slowest = slowest.min(per_second);
    }
    anyhow::ensure!(slowest.is_finite() && slowest >= 2.0, "no proxy answered while it was calibrated");
    Ok(slowest / 2.0)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    pub(super) fn arguments(line: &[&str]) -> Arguments {
        Line::parse_from([&["cost"], line].concat()).arguments
    }

    #[test]
    fn without_a_choice_everything_is_measured() {
        assert_eq!(arguments(&[]).parts().len(), Part::value_variants().len());
        assert_eq!(arguments(&["--parts", "tls,idle"]).parts(), [Part::Tls, Part::Idle]);
        assert_eq!(arguments(&["--quick"]).passes(), 1);
    }
}
