//! The tables of a real run, in Markdown and JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Measured, Point, Row};
use crate::machine::{self, Machine};
use crate::quality::Figures;
use crate::quality::cell::Setting;
use crate::report::cell;
use crate::statistics::Spread;

/// One column.
struct Column {
    title: &'static str,
    decimals: usize,
    of: fn(&Figures) -> f64,
}

/// What clients see; then what only the servers know.
const COLUMNS: [Column; 11] = [
    Column { title: "TTFT P50 ms", decimals: 0, of: |f| f.ttft_p50 },
    Column { title: "P95", decimals: 0, of: |f| f.ttft_p95 },
    Column { title: "P99", decimals: 0, of: |f| f.ttft_p99 },
    Column { title: "ITL P50 ms", decimals: 1, of: |f| f.itl_p50 },
    Column { title: "P99", decimals: 1, of: |f| f.itl_p99 },
    Column { title: "goodput %", decimals: 1, of: |f| f.goodput * 100.0 },
    Column { title: "shed %", decimals: 1, of: |f| f.shed * 100.0 },
    Column { title: "failed %", decimals: 2, of: |f| f.failed * 100.0 },
    Column { title: "tokens/s", decimals: 0, of: |f| f.throughput },
    Column { title: "imbalance", decimals: 2, of: |f| f.imbalance },
    Column { title: "prefix hits %", decimals: 1, of: |f| f.prefix_hits * 100.0 },
];
/// Of them, those that a client can see.
pub(crate) const SEEN_BY_CLIENTS: usize = 9;

/// Prints the table; writes `real.md` and `real.json` into `out`.
pub(super) fn write(measured: &Measured, setting: &Setting, out: &Path) -> Result<()> {
    let mut text = format!("# {}\n\n{}", measured.title, preamble(measured));
    for point in &measured.points {
        text += &at_load(point, setting);
    }
    files("real", &text, measured, out)
}

/// One Markdown file and one of JSON.
pub(crate) fn files(name: &str, table: &str, measured: &impl Serialize, out: &Path) -> Result<()> {
    let write = |suffix: &str, text: &str| {
        let path = out.join(format!("{name}.{suffix}"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("md", table)?;
    write("json", &serde_json::to_string_pretty(measured)?)?;
    println!("\n{table}\nWritten to {}", out.display());
    Ok(())
}

/// One run, while others are still to come.
pub(crate) fn told(figures: &Figures) -> String {
    let shown = COLUMNS[..SEEN_BY_CLIENTS]
        .iter()
        .map(|column| format!("{} {:.*}", column.title, column.decimals, (column.of)(figures)));
    shown.collect::<Vec<_>>().join(", ")
}

/// The cells of one row, for the leading `columns`.
pub(crate) fn cells(runs: &[Figures], columns: usize) -> String {
    let mut text = String::new();
    for column in &COLUMNS[..columns] {
        let spread = Spread::of(&runs.iter().map(column.of).collect::<Vec<_>>());
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, " {} |", spread.map_or("–".to_owned(), |spread| cell(&spread, column.decimals)));
    }
    text
}

/// The titles of the leading `columns`.
pub(crate) fn titles(columns: usize) -> String {
    COLUMNS[..columns].iter().map(|column| format!(" {} |", column.title)).collect()
}

/// Machine, load and date.
pub(crate) fn taken(machine: &Machine) -> String {
    format!(
        "Taken {} on {} cores of {}, Linux {}, load average {:.2} before; revision {}.\n",
        machine::date(machine.taken_at_s),
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.load_average,
        machine.revision,
    )
}

fn preamble(measured: &Measured) -> String {
    let settings = &measured.settings;
    format!(
        "{}{} s of calls each, seeds {}–{}, {} real seconds for each of the engines'; the fleet's capacity is {:.2} requests/s. \
         Medians, least and most in brackets.\n",
        taken(&measured.machine),
        settings.seconds,
        settings.seed,
        settings.seed + u64::from(settings.seeds) - 1,
        settings.time_scale,
        measured.capacity_per_s,
    )
}

fn at_load(point: &Point, setting: &Setting) -> String {
    let shares: String = setting.pods.iter().map(|pod| format!(" to {} % |", pod.name)).collect();
    let columns = COLUMNS.len() + setting.pods.len() + 1;
    let mut text = format!(
        "\n## {:.2} requests/s, {:.0} % of capacity\n\n| router | time |{}{shares} load average |\n|{}\n",
        point.rate_per_s,
        point.load * 100.0,
        titles(COLUMNS.len()),
        "---|".repeat(columns + 2)
    );
    for Row { router, real, on_virtual_time, load_averages } in &point.routers {
        let own = Spread::of(load_averages).map_or("–".to_owned(), |spread| cell(&spread, 1));
        for (time, runs, load) in [("real", real, own.as_str()), ("virtual", on_virtual_time, "–")] {
            if !runs.is_empty() {
                let _ = writeln!(
                    text,
                    "| {router} | {time} |{}{} {load} |",
                    cells(runs, COLUMNS.len()),
                    of_pods(runs, setting)
                );
            }
        }
    }
    text
}

fn of_pods(runs: &[Figures], setting: &Setting) -> String {
    let of_pod = |class: usize| {
        let shares: Vec<f64> = runs.iter().map(|figures| figures.shares[class] * 100.0).collect();
        Spread::of(&shares).map_or(" – |".to_owned(), |spread| format!(" {} |", cell(&spread, 1)))
    };
    (0..setting.pods.len()).map(of_pod).collect()
}
