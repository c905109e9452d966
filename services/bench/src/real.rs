//! `igw-bench real`: a scenario of `quality` in real time, with real programs.
//!
//! The same calls, drawn from the same seed, go over sockets: through the gateway's own executable, through peers, or from
//! the client to the endpoints in turn as a Kubernetes Service would send them. Behind each is a fleet of `model-sim`
//! processes, which run the very engines that `quality` runs on virtual time, started anew for every run. Beside it
//! stands the same run on virtual time without delays on the way, since there are none on one machine: at low load both
//! must say the same.
//!
//! It refuses scenarios in which something happens to endpoints, gateways are several, or adapters are asked for: those
//! are judged on virtual time alone.

pub mod clients;
mod fleet;
pub mod prompt;
pub(crate) mod table;
mod virtual_time;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cost::{beside_build, programs};
use crate::machine::{self, Machine};
use crate::quality::Figures;
use crate::quality::cell::Setting;
use crate::quality::figures::Basis;
use crate::quality::scenario::Scenario;
use crate::quality::workload;
use crate::subject::{Programs, Site, Subject};
use crate::world::call::Call;
use clients::{Door, Replay};
use fleet::Fleet;

/// A client that goes through the endpoints itself, without any proxy.
pub const ROUND_ROBIN: &str = "round-robin";

/// A scenario of `quality` in real time: the gateway, peers, and simulated model servers as processes
#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct Arguments {
    /// A file of `tests/scenarios`
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,
    /// Who routes: round-robin, gateway, or a peer, as NAME or NAME:POLICY
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "round-robin,gateway,envoy:least-request,smg,vllm-router,sglang-router"
    )]
    routers: Vec<String>,
    /// Shares of the fleet's capacity
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.5")]
    load: Vec<f64>,
    /// How long calls come in each run, in seconds of the engines' time
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Seconds of real time for each of the engines': below 1 the gateway's signals are older than in life
    #[arg(long, default_value_t = 1.0)]
    time_scale: f64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each router, each with the next seed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    seeds: u32,
    /// The gateway's executable [default: `inference-gateway` beside igw-bench]
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    gateway: Option<PathBuf>,
    /// The simulated model server's executable [default: `model-sim` beside igw-bench]
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    model_sim: Option<PathBuf>,
    /// Other peers than those the bench knows: see services/bench/peers.toml
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    peers: Option<PathBuf>,
    /// Where real.md and real.json go [default: target/bench]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: Option<PathBuf>,
}

/// Everything measured, as it goes into `real.json`.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub machine: Machine,
    pub settings: Arguments,
    pub title: String,
    /// Requests per second of the whole fleet, measured on virtual time.
    pub capacity_per_s: f64,
    pub points: Vec<Point>,
}

/// One load.
#[derive(Debug, Serialize)]
pub struct Point {
    pub load: f64,
    pub rate_per_s: f64,
    pub routers: Vec<Row>,
}

/// One router at one load, by seed.
#[derive(Debug, Default, Serialize)]
pub struct Row {
    pub router: String,
    pub real: Vec<Figures>,
    /// The same calls on virtual time; none where nothing there routes alike.
    pub on_virtual_time: Vec<Figures>,
    /// Of the real runs: over one minute, at their ends.
    pub load_averages: Vec<f64>,
}

/// Measures, prints the table and writes both files.
pub fn run(arguments: &Arguments) -> Result<()> {
    let scenario = shortened(arguments)?;
    let machine = Machine::here();
    let out = arguments.out.clone().unwrap_or_else(|| beside_build("bench"));
    let folder = out.join("run");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let programs = programs(arguments.gateway.clone(), arguments.peers.as_deref())?;
    let routers: Vec<(String, Option<Subject>)> =
        arguments.routers.iter().map(|name| router(name, &programs)).collect::<Result<_>>()?;
    let setting = Setting::of(&scenario, arguments.seed)?;
    let capacity_per_s = setting.capacity_per_s();
    let mut points = Vec::new();
    for &load in &arguments.load {
        ensure!(load > 0.0, "a load is a share above 0");
        let rate_per_s = load * capacity_per_s;
        println!("{}: {rate_per_s:.2} requests per second, {:.0} % of capacity", scenario.title, load * 100.0);
        let run = Run { arguments, scenario: &scenario, setting: &setting, rate_per_s, folder: &folder };
        points.push(Point { load, rate_per_s, routers: run.all(&routers)? });
    }
    let title = scenario.title.clone();
    let measured = Measured { machine, settings: arguments.clone(), title, capacity_per_s, points };
    table::write(&measured, &setting, &out)
}

/// The scenario with as many requests as come in the time asked for.
fn shortened(arguments: &Arguments) -> Result<Scenario> {
    let mut scenario = Scenario::read(&arguments.scenario)?;
    ensure!(scenario.changes.is_empty(), "something happens to endpoints in it: that is judged on virtual time alone");
    ensure!(scenario.gateways == 1, "it has several gateways: that is judged on virtual time alone");
    let adapters = scenario.workload.kinds.values().any(|kind| !kind.adapters.is_empty());
    ensure!(!adapters, "it asks for adapters: that is judged on virtual time alone");
    ensure!(arguments.seconds >= 1.0 && arguments.time_scale > 0.0, "a run lasts a second or more");
    scenario.workload.requests = 1;
    scenario.workload.seconds_min = arguments.seconds;
    Ok(scenario)
}

fn router(name: &str, programs: &Programs) -> Result<(String, Option<Subject>)> {
    let subject = if name == ROUND_ROBIN { None } else { Some(programs.subject(name)?) };
    Ok((name.to_owned(), subject))
}

/// All runs at one load.
struct Run<'a> {
    arguments: &'a Arguments,
    scenario: &'a Scenario,
    setting: &'a Setting,
    rate_per_s: f64,
    folder: &'a Path,
}

impl Run<'_> {
    /// Routers take turns within each seed.
    fn all(&self, routers: &[(String, Option<Subject>)]) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> =
            routers.iter().map(|(name, _)| Row { router: name.clone(), ..Row::default() }).collect();
        for seed in (0..u64::from(self.arguments.seeds)).map(|more| self.arguments.seed + more) {
            let (calls, length) = workload::calls(&self.scenario.workload, self.rate_per_s, seed);
            let basis = Basis {
                slo: self.scenario.slo,
                length,
                pods: &self.setting.pods,
                capacity_per_pod: &self.setting.capacity_per_pod,
            };
            for ((name, subject), row) in routers.iter().zip(&mut rows) {
                let figures = self.real(subject.as_ref(), &calls, &basis, seed).with_context(|| name.clone())?;
                println!("  seed {seed}, {name}: {}", table::told(&figures));
                row.real.push(figures);
                row.load_averages.push(machine::load_average());
                row.on_virtual_time.extend(virtual_time::run(name, self.scenario, &calls, &basis, seed));
            }
        }
        Ok(rows)
    }

    /// One run, on a fleet of its own.
    fn real(&self, subject: Option<&Subject>, calls: &[Call], basis: &Basis<'_>, seed: u64) -> Result<Figures> {
        let fleet =
            Fleet::start(self.arguments.model_sim.as_deref(), self.scenario, self.arguments, seed, self.folder)?;
        let endpoints = fleet.addresses();
        let running = match subject {
            None => None,
            Some(subject) => {
                Some(subject.start(&Site { endpoints: &endpoints, folder: self.folder, certificate: None })?)
            }
        };
        let targets = match &running {
            None => endpoints.iter().map(|address| (*address).into()).collect(),
            Some(running) => vec![running.data.clone()],
        };
        let before = fleet.served()?;
        let replay = Replay { calls, salt: 0, time_scale: self.arguments.time_scale };
        let mut ledger = replay.through(&Door::local(targets))?;
        ledger.classes = self.scenario.workload.kinds.keys().cloned().collect();
        let served = fleet.served()?.since(&before);
        let mut figures = Figures::of(&ledger, basis);
        served.complete(&mut figures, basis);
        Ok(figures)
    }
}
