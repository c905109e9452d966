//! One Markdown table for people and one JSON file for programs, both with everything that makes them believable.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;

use crate::cost::{FIGURES, Measured};
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
    text += "| figure | direct | Envoy | gateway | gateway ÷ Envoy | target | met |\n|---|---|---|---|---|---|---|\n";
    for figure in &FIGURES {
        let spread = |subject| of_passes(measured, subject, |figures| figures.get(&figure.key).copied());
        let cell = |subject| spread(subject).map_or("–".to_owned(), |spread| cell(&spread, figure.decimals));
        let (envoy, gateway) = (spread("envoy").map(|s| s.median), spread("gateway").map(|s| s.median));
        let ratio = gateway.zip(envoy).filter(|(_, envoy)| *envoy > 0.0).map(|(gateway, envoy)| gateway / envoy);
        let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        let met = match gateway.and_then(|gateway| figure.target.met(gateway, envoy)) {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let (direct, envoy, gateway) = (cell("direct"), cell("envoy"), cell("gateway"));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "| {} | {direct} | {envoy} | {gateway} | {ratio} | {} | {met} |",
            figure.title, figure.target
        );
    }
    text
}

fn preamble(measured: &Measured) -> String {
    let machine = &measured.machine;
    let mut text = format!(
        "Taken {} on {} cores of {}, Linux {}, load average {:.2} before; revision {}.\n{}; latency at {:.0} requests per \
         second (Poisson). Medians of the passes, least and most in brackets.\n\n",
        machine::date(machine.taken_at_s),
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.load_average,
        machine.revision,
        measured.settings.summary(),
        measured.rate_per_second,
    );
    for subject in &measured.subjects {
        let _ = writeln!(text, "- {}: {}", subject.name, subject.version);
    }
    let failed: u64 = measured.passes.iter().map(|pass| pass.failed).sum();
    let _ = writeln!(text, "- requests that failed in all passes: {failed}\n");
    text
}

type Figures = std::collections::BTreeMap<crate::cost::Key, f64>;

fn of_passes(measured: &Measured, subject: &str, pick: impl Fn(&Figures) -> Option<f64>) -> Option<Spread> {
    let values = measured.passes.iter().filter_map(|pass| pick(pass.figures.get(subject)?));
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
