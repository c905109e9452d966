//! One Markdown table for people and one JSON file for programs, both with everything that makes them believable.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::cost::{FIGURES, Figure, Key, Measured};
use crate::machine;
use crate::statistics::Spread;

/// Prints the table; writes `cost.md` and `cost.json` into `out`.
pub fn write(measured: &Measured, out: &Path) -> anyhow::Result<()> {
    let table = markdown(measured);
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("cost.md", &table)?;
    write("cost.json", &serde_json::to_string_pretty(measured)?)?;
    println!("\n{table}\nWritten to {}", out.display());
    Ok(())
}

fn markdown(measured: &Measured) -> String {
    let mut text = preamble(measured);
    let names: Vec<&str> = measured.subjects.iter().map(|subject| subject.name.as_str()).collect();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        text,
        "| figure | {} | target: the gateway's |\n|---|{}---|",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    for figure in FIGURES {
        let spreads: Vec<Option<Spread>> = names.iter().map(|name| of_passes(measured, name, figure.key)).collect();
        if spreads.iter().all(Option::is_none) {
            continue;
        }
        let cells =
            spreads.iter().map(|spread| spread.map_or("–".to_owned(), |spread| cell(&spread, figure.decimals)));
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(text, "| {} | {} | {} |", figure.title, cells.join(" | "), verdicts(measured, figure));
    }
    text
}

/// Each target with how the gateway stands to it.
fn verdicts(measured: &Measured, figure: &Figure) -> String {
    let median = |subject: &str| of_passes(measured, subject, figure.key).map(|spread| spread.median);
    let Some(gateway) = median("gateway") else { return String::new() };
    let judged = figure.targets.iter().map(|target| match target.judge(gateway, median) {
        Some(verdict) if verdict.met => format!("{target}: {:.2}, met", verdict.value),
        Some(verdict) => format!("{target}: **{:.2}, missed**", verdict.value),
        None => format!("{target}: not measured"),
    });
    judged.collect::<Vec<_>>().join("; ")
}

fn preamble(measured: &Measured) -> String {
    let machine = &measured.machine;
    let during = measured.passes.iter().map(|pass| format!("{:.1}", pass.load_average)).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "Taken {} on {} cores of {}, Linux {}, load average {:.2} before ({during} at the passes' beginnings); revision {}.\n{}",
        machine::date(machine.taken_at_s),
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.load_average,
        machine.revision,
        measured.settings.summary(),
    );
    if measured.rate_per_second > 0.0 {
        let _ = write!(text, "; latency at {:.0} requests per second (Poisson)", measured.rate_per_second);
    }
    text += ". Medians of the passes, least and most in brackets.\n\n";
    for subject in &measured.subjects {
        let _ = writeln!(text, "- {}: {}", subject.name, subject.version);
    }
    let failed = |name: &str| measured.passes.iter().filter_map(|pass| pass.failed.get(name)).sum::<u64>();
    let failed: Vec<String> = measured
        .subjects
        .iter()
        .filter(|subject| failed(&subject.name) > 0)
        .map(|subject| format!("{} of {}", failed(&subject.name), subject.name))
        .collect();
    let failed = if failed.is_empty() { "none".to_owned() } else { failed.join(", ") };
    let _ = writeln!(text, "- requests that failed in all passes: {failed}");
    let mut missing: Vec<&String> = measured.passes.iter().flat_map(|pass| &pass.missing).collect();
    missing.sort();
    missing.dedup();
    for missing in missing {
        let _ = writeln!(text, "- not measured: {missing}");
    }
    text + "\n"
}

fn of_passes(measured: &Measured, subject: &str, key: Key) -> Option<Spread> {
    let values = measured.passes.iter().filter_map(|pass| pass.figures.get(subject)?.get(&key).copied());
    Spread::of(&values.collect::<Vec<_>>())
}

/// `57.1 (55.0–60.2)`, or the number alone when all passes agree.
pub fn cell(spread: &Spread, decimals: usize) -> String {
    let [median, least, most] = [spread.median, spread.least, spread.most].map(|value| format!("{value:.decimals$}"));
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_shows_its_spread() {
        assert_eq!(cell(&Spread { median: 57.14, least: 55.0, most: 60.25 }, 1), "57.1 (55.0–60.2)");
        assert_eq!(cell(&Spread { median: 9.6, least: 9.6, most: 9.6 }, 1), "9.6");
    }
}
