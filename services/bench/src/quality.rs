//! `igw-bench quality`: who answers first, and what that costs the others.
//!
//! A scenario's calls meet the gateway's own decisions, other ways to route, and bounds, each on the same simulated
//! engines in virtual time. Every run is a function of the scenario, the load, the router and the seed, so a table can be
//! made again byte for byte; what is measured is a median over seeds with its spread, and a difference within the spread
//! counts as none. Time and progress go to stderr.
//!
//! It refuses to know how good an answer is by itself: objectives, fleets and published figures stand in the scenario.

pub mod arrivals;
pub mod cell;
pub mod contender;
pub mod figures;
pub mod lengths;
pub mod plot;
pub mod points;
pub mod progress;
pub mod scenario;
pub mod small;
pub mod store;
pub mod summary;
pub mod table;
pub mod text;
pub mod trace;
pub mod workload;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use cell::{Cell, Setting};
use contender::Contender;
use points::Point;
use scenario::Scenario;
use store::Store;
use trace::Trace;

pub use figures::Figures;

/// Who answers first: the gateway's decisions beside other ways to route, on simulated engines
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// A file of `tests/scenarios`
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs of each cell, each with the next seed; a published figure needs at least 5
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    seeds: u32,
    /// Who routes: gateway, random, round-robin, least-request, random-of-two, clairvoyant, or the gateway with other weights as
    /// in `gateway:queue=2,prefix=3` [default: all of them, the gateway as the scenario has it]
    #[arg(long, value_name = "NAME")]
    router: Vec<String>,
    /// Shares of the fleet's capacity [default: the scenario's, and those at which round-robin is busy]
    #[arg(long, value_name = "SHARE")]
    load: Vec<f64>,
    /// Requests of each run, instead of the scenario's
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(100..))]
    requests: Option<u32>,
    /// A published trace instead of the scenario's drawn lengths and arrivals
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Threads [default: as many as there are cores]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    jobs: Option<u16>,
    /// Everything measured, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Plots of the first token's P99 and of goodput over load go there, as SVG
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Finished runs are kept here and not repeated [default: target/bench/quality-runs.jsonl]
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
}

/// Everything measured.
#[derive(Debug, Serialize)]
pub struct Measured {
    pub title: String,
    pub scenario: String,
    pub seeds: Vec<u64>,
    /// Requests per second of the whole fleet.
    pub capacity_per_s: f64,
    pub points: Vec<Measurement>,
}

/// All routers at one load.
#[derive(Debug, Serialize)]
pub struct Measurement {
    pub point: Point,
    pub routers: Vec<RouterFigures>,
}

/// One router at one load, by seed.
#[derive(Debug, Serialize)]
pub struct RouterFigures {
    pub router: String,
    pub runs: Vec<Figures>,
}

/// Measures, prints the tables and writes the files.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut scenario = Scenario::read(&arguments.scenario)?;
    scenario.workload.requests = arguments.requests.unwrap_or(scenario.workload.requests);
    scenario.workload.trace = arguments.trace.as_deref().map(Trace::read).transpose()?;
    let contenders = contenders(&arguments.router)?;
    let setting = Setting::of(&scenario, arguments.seed)?;
    let points = points::of(&scenario, &setting, &arguments.load);
    let store = Store::open(arguments.runs.as_deref(), &format!("{scenario:?}"))?;
    let measured = measure(arguments, &scenario, &setting, &contenders, points, &store)?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&measured)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(folder) = &arguments.svg {
        plot::write(&measured, folder)?;
    }
    let small = small::markdown(&scenario, &setting, &contenders, arguments.seed);
    println!("{}{small}", table::markdown(&scenario, &setting, &measured));
    Ok(())
}

fn contenders(names: &[String]) -> Result<Vec<Contender>> {
    if names.is_empty() {
        return Ok(Contender::defaults());
    }
    names.iter().map(|name| name.parse()).collect()
}

fn measure(
    arguments: &Arguments,
    scenario: &Scenario,
    setting: &Setting,
    contenders: &[Contender],
    points: Vec<Point>,
    store: &Store,
) -> Result<Measured> {
    let seeds: Vec<u64> = (0..u64::from(arguments.seeds)).map(|more| arguments.seed + more).collect();
    let mut cells = Vec::new();
    for point in &points {
        for &seed in &seeds {
            cells.extend(contenders.iter().map(|router| Cell { rate_per_s: point.rate_per_s, router, seed }));
        }
    }
    let jobs = arguments.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let runs = cell::run_all(&cells, scenario, setting, store, jobs)?;
    ensure!(runs.len() == cells.len(), "every cell has run");
    let of = |point: &Point, router: &Contender| {
        let here = cells.iter().zip(&runs).filter(|(cell, _)| cell.rate_per_s == point.rate_per_s);
        here.filter(|(cell, _)| cell.router == router).map(|(_, run)| run.clone()).collect()
    };
    let measurement = |point: Point| {
        let figures = |router: &Contender| RouterFigures { router: router.name(), runs: of(&point, router) };
        Measurement { routers: contenders.iter().map(figures).collect(), point }
    };
    Ok(Measured {
        title: scenario.title.clone(),
        scenario: arguments.scenario.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        seeds,
        capacity_per_s: setting.capacity_per_s(),
        points: points.into_iter().map(measurement).collect(),
    })
}

#[cfg(test)]
mod tests;
