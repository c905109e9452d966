//! What was published beside what was measured, at the loads where it is said to hold.

use std::fmt::Write as _;

use super::{
    Figures, Measured, Measurement, RouterFigures, cell::Setting, points::PointKind, scenario::Scenario, table::spread,
};
use crate::statistics::Spread;

/// Goodput that counts as meeting the objective.
const MEETS: f64 = 0.95;

/// Tables of changes against round-robin, of distances from clairvoyant greedy, and of what the objective takes.
pub fn markdown(scenario: &Scenario, setting: &Setting, measured: &Measured) -> String {
    let mut text = String::from("\n## Against round-robin\n\n");
    text += "| at | router | TTFT P95 | TTFT P99 | tokens/s |\n|---|---|---|---|---|\n";
    for measurement in &measured.points {
        let Some(basis) = router(measurement, "round-robin") else { continue };
        for other in measurement.routers.iter().filter(|other| other.router != basis.router) {
            let changes = [|f: &Figures| f.ttft_p95, |f: &Figures| f.ttft_p99, |f: &Figures| f.throughput]
                .map(|of| change(spread(basis, &of), spread(other, &of)));
            let _ = writeln!(text, "| {} | {} | {} |", measurement.point.name, other.router, changes.join(" | "));
        }
    }
    text += &published(scenario, measured);
    text += &clairvoyant(measured);
    text += &objective(setting, measured);
    text
}

fn router<'a>(measurement: &'a Measurement, name: &str) -> Option<&'a RouterFigures> {
    measurement.routers.iter().find(|router| router.router == name)
}

/// `−97 %`, or that it lies within the spread.
fn change(from: Option<Spread>, to: Option<Spread>) -> String {
    let Some((from, to)) = from.zip(to) else { return "–".to_owned() };
    let change = (to.median / from.median - 1.0) * 100.0;
    let apart = to.least > from.most || to.most < from.least;
    format!("{change:+.1} %{}", if apart { "" } else { " (within the spread)" })
}

fn published(scenario: &Scenario, measured: &Measured) -> String {
    let rows = [
        ("TTFT P95", scenario.published.ttft_p95, PointKind::RoundRobinBusy, (|f| f.ttft_p95) as fn(&Figures) -> f64),
        ("TTFT P99", scenario.published.ttft_p99, PointKind::RoundRobinBusy, |f| f.ttft_p99),
        ("tokens/s", scenario.published.throughput, PointKind::Full, |f| f.throughput),
    ];
    let mut text = String::new();
    for (title, published, kind, of) in rows {
        let measurement = measured.points.iter().find(|measurement| measurement.point.kind == kind);
        let (Some(published), Some(measurement)) = (published, measurement) else { continue };
        let (Some(basis), Some(own)) = (router(measurement, "round-robin"), router(measurement, "gateway")) else {
            continue;
        };
        let (from, to) = (spread(basis, &of), spread(own, &of));
        let said = if published == 0.0 { "comparable".to_owned() } else { format!("{:+.0} %", published * 100.0) };
        let met = from.zip(to).is_some_and(|(from, to)| reached(published, from, to, title == "tokens/s"));
        let verdict = if met { "yes" } else { "**no**" };
        let bound = change(from, router(measurement, "clairvoyant").and_then(|bound| spread(bound, &of)));
        let (at, measured) = (&measurement.point.name, change(from, to));
        let _ = writeln!(text, "| {title} | {at} | {said} | {measured} | {verdict} | {bound} |");
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\n## Beside what was published\n\n| figure | at | published | measured | reached | clairvoyant |\n|---|---|---|---|---|---|\n{text}"
    )
}

/// Whether a published change was reached: as large or larger, or, where it was called comparable, no worse than the
/// spread.
fn reached(published: f64, from: Spread, to: Spread, more_is_better: bool) -> bool {
    let change = to.median / from.median - 1.0;
    match (published == 0.0, more_is_better) {
        (true, true) => to.most >= from.least,
        (true, false) => to.least <= from.most,
        (false, true) => change >= published,
        (false, false) => change <= published,
    }
}

fn clairvoyant(measured: &Measured) -> String {
    let mut text = String::new();
    for measurement in &measured.points {
        let Some(bound) = router(measurement, "clairvoyant").and_then(|r| spread(r, &|f| f.ttft_p99)) else { continue };
        for router in measurement.routers.iter().filter(|router| router.router != "clairvoyant") {
            let Some(own) = spread(router, &|f| f.ttft_p99) else { continue };
            let times = own.median / bound.median;
            let _ = writeln!(text, "| {} | {} | {times:.2} |", measurement.point.name, router.router);
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("\n## TTFT P99 ÷ that of clairvoyant greedy\n\n| at | router | times |\n|---|---|---|\n{text}")
}

/// The largest rate at which nearly all answers are good, between the loads measured, and the GPUs that 10 requests per
/// second take then.
fn objective(setting: &Setting, measured: &Measured) -> String {
    let mut text = format!(
        "\n## What the objective takes\n\nThe largest load with {:.0} % of answers good (between those measured), and GPUs \
         of this fleet's mix for 10 requests/s at it.\n\n| router | load | GPUs |\n|---|---|---|\n",
        MEETS * 100.0
    );
    let routers = measured.points.first().map_or(&[][..], |measurement| &measurement.routers);
    for name in routers.iter().map(|router| router.router.as_str()) {
        let goodput = measured.points.iter().filter_map(|measurement| {
            let median = spread(router(measurement, name)?, &|f| f.goodput)?.median;
            Some((measurement.point.load, median))
        });
        let goodput: Vec<(f64, f64)> = goodput.collect();
        let row = match largest(&goodput) {
            Some(load) => {
                let gpus = setting.gpus() as f64 / (load * measured.capacity_per_s) * 10.0;
                let at_least = if Some(load) == goodput.last().map(|last| last.0) { "≥ " } else { "" };
                format!("| {name} | {at_least}{:.0} % | {gpus:.1} |", load * 100.0)
            }
            None => format!("| {name} | below {:.0} % | – |", goodput.first().map_or(0.0, |first| first.0) * 100.0),
        };
        let _ = writeln!(text, "{row}");
    }
    text
}

/// Where goodput by load, ascending, falls below [`MEETS`] for the first time. `None` when it never reaches it.
fn largest(goodput: &[(f64, f64)]) -> Option<f64> {
    let below = goodput.iter().position(|(_, goodput)| *goodput < MEETS);
    match below {
        None => goodput.last().map(|(load, _)| *load),
        Some(0) => None,
        Some(place) => {
            let ((low, above), (high, under)) = (goodput[place - 1], goodput[place]);
            Some(low + (high - low) * (above - MEETS) / (above - under))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_within_the_spread_is_none() {
        let spread = |least, median, most| Some(Spread { least, median, most });
        assert_eq!(change(spread(90.0, 100.0, 110.0), spread(2.0, 3.0, 4.0)), "-97.0 %");
        assert_eq!(change(spread(90.0, 100.0, 110.0), spread(85.0, 89.0, 91.0)), "-11.0 % (within the spread)");
    }

    #[test]
    fn the_objective_holds_up_to_where_it_first_fails() {
        assert_eq!(largest(&[(0.5, 0.99), (0.7, 0.97), (0.85, 0.96)]), Some(0.85));
        assert_eq!(largest(&[(0.5, 0.94), (0.7, 0.97)]), None);
        let between = largest(&[(0.5, 1.0), (0.7, 0.9), (0.85, 0.96)]).unwrap();
        assert!((between - 0.6).abs() < 1e-9, "{between}");
    }
}
