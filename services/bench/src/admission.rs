//! `igw-bench admission`: what waiting costs.
//!
//! The dispatcher that the gateway keeps behind one short lock is called here directly, without network or lock: what a
//! request pays for the queue when nobody waits, and how fast a queue is worked off when many do. All subjects run in
//! each pass, one after the other, so that a busy moment of the machine meets them all.

mod pass;

use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;

use crate::{
    cost::beside_build,
    machine::{Machine, date},
    report::cell,
    statistics::Spread,
};
pub use pass::{Figure, Pass};

/// What waiting costs: admission beside a bare pick, and the speed at which a queue is worked off
#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct Arguments {
    /// Where admission.md and admission.json go [default: target/bench]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: Option<PathBuf>,
    /// Passes; a published figure needs at least 5
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    passes: u32,
    /// Endpoints of the pool
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    endpoints: u16,
    /// Flows that share the queue
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    flows: u16,
    /// Calls of each kind that are timed in one pass
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    calls: u32,
    /// Of prompts
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Everything that a reader needs to believe the table, as it goes into `admission.json`.
#[derive(Debug, Serialize)]
struct Measured {
    machine: Machine,
    settings: Arguments,
    passes: Vec<Pass>,
}

/// Measures, prints the table and writes both files.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let machine = Machine::here();
    let passes = (0..arguments.passes).map(|_| Pass::measure(arguments)).collect();
    let measured = Measured { machine, settings: arguments.clone(), passes };
    let table = markdown(&measured);
    let out = arguments.out.clone().unwrap_or_else(|| beside_build("bench"));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("admission.md", &table)?;
    write("admission.json", &serde_json::to_string_pretty(&measured)?)?;
    println!("{table}\nWritten to {}", out.display());
    Ok(())
}

/// Nanoseconds of each of `calls` bare picks in a pool of `endpoints`.
pub(crate) fn picks_ns(endpoints: u16, calls: u32, seed: u64) -> Vec<u64> {
    pass::picks_ns(&Arguments { out: None, passes: 1, endpoints, flows: 100, calls, seed })
}

fn markdown(measured: &Measured) -> String {
    let Measured { machine, settings, passes } = measured;
    let mut text = format!(
        "Taken {} on {} cores of {}, Linux {}, load average {:.2} before; revision {}.\n{} passes of {} calls, {} endpoints, \
         {} flows, prompts of {} blocks, seed {}. Medians of the passes, least and most in brackets.\n\n\
         | figure | value | target | met |\n|---|---|---|---|\n",
        date(machine.taken_at_s),
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.load_average,
        machine.revision,
        settings.passes,
        settings.calls,
        settings.endpoints,
        settings.flows,
        pass::PROMPT_BLOCKS,
        settings.seed,
    );
    for figure in Figure::ALL {
        let values: Vec<f64> = passes.iter().map(|pass| pass.figures[&figure]).collect();
        let Some(spread) = Spread::of(&values) else { continue };
        let (target, met) = figure.target().map_or((String::new(), ""), |target| {
            (target.to_string(), if target.is_met(spread.median) { "yes" } else { "**no**" })
        });
        text += &format!("| {} | {} | {target} | {met} |\n", figure.title(), cell(&spread, figure.decimals()));
    }
    text
}

impl Arguments {
    /// Requests that may be in flight at one endpoint while a queue is worked off.
    const fn cap(&self) -> u32 {
        8
    }
}
