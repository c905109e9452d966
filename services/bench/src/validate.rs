//! `igw-bench engine`: how far the engine model is from real vLLM.
//!
//! Measured runs are played to the model request by request, once with the costs that data sheets give and once with costs
//! fitted to one half of the run and judged by the other, so that no figure was fitted to what it is compared with. The
//! runs themselves are not part of this repository; without them only the published tables are compared.

use std::{ops::Range, path::PathBuf};

use anyhow::{Context, ensure};
use serde::Serialize;

pub mod figures;
pub mod fit;
pub mod hardware;
pub mod measured;
pub mod published;
pub mod replay;
pub mod report;
pub mod setup;

use figures::{Figure, Gauge};
use hardware::Scale;
use measured::Run;
use replay::{Replayed, replay};
use setup::{SETUPS, Setup};

/// How far the simulated engine is from real vLLM
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// The folder with the measured runs
    #[arg(long, value_name = "DIR")]
    runs: PathBuf,
    /// Also write every figure here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub struct Validation {
    runs: Vec<Validated>,
    published: Vec<published::Row>,
}

/// One run beside the model.
#[derive(Debug, Serialize)]
pub struct Validated {
    title: String,
    requests: usize,
    /// With the costs of the data sheets, over all requests.
    sheet: Judged,
    /// The same, over the later half of the requests alone.
    sheet_later: Vec<Figure>,
    /// Fitted to the earlier half, judged by the later one.
    fitted_later: Vec<Figure>,
    /// Fitted to the later half, judged by the earlier one.
    fitted_earlier: Vec<Figure>,
    /// The costs of the first of these over those of the data sheets, and the second's.
    scales: [Scale; 2],
    /// Of the run as a whole with the costs fitted to its earlier half.
    fitted: Judged,
}

/// A whole run's figures.
#[derive(Debug, Serialize)]
pub struct Judged {
    latencies: Vec<Figure>,
    totals: Vec<Figure>,
    gauges: Vec<Gauge>,
    preemptions: u64,
}

/// Plays all runs, prints the tables and writes the file.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut runs = Vec::new();
    for setup in SETUPS {
        match Run::read(&arguments.runs, setup.stem, setup.lengths)? {
            Some(run) => runs.push(validate(setup, &run)?),
            None => eprintln!("{}: no measured_{}_requests.jsonl", arguments.runs.display(), setup.stem),
        }
    }
    let validation = Validation { runs, published: published::rows()? };
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&validation)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print!("{}", report::markdown(&validation));
    Ok(())
}

fn validate(setup: &Setup, run: &Run) -> anyhow::Result<Validated> {
    let count = run.requests.len();
    ensure!(count >= 2, "{} has too few requests to be fitted to one half", setup.title());
    let (earlier, later) = (0..count / 2, count / 2..count);
    let scales = [&earlier, &later].map(|half| fit::fit(setup, run, half.clone()));
    let played = |scale: &Scale| replay(run, &setup.profile(scale), setup.ranks);
    let of = |replayed: &Replayed, part: &Range<usize>| figures::latencies(run, replayed, part.clone());
    let (sheet, fitted, other) = (played(&Scale::ONE), played(&scales[0]), played(&scales[1]));
    Ok(Validated {
        title: setup.title(),
        requests: count,
        sheet_later: of(&sheet, &later),
        fitted_later: of(&fitted, &later),
        fitted_earlier: of(&other, &earlier),
        scales,
        sheet: judged(run, &sheet),
        fitted: judged(run, &fitted),
    })
}

fn judged(run: &Run, replayed: &Replayed) -> Judged {
    Judged {
        latencies: figures::latencies(run, replayed, 0..run.requests.len()),
        totals: figures::totals(run, replayed),
        gauges: figures::gauges(run, replayed),
        preemptions: replayed.preemptions,
    }
}
