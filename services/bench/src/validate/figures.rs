//! Figures of a run, and how far the model's are from the measured ones.

use std::ops::Range;

use serde::Serialize;

use super::{
    measured::{Run, Tick, Timing, total_s},
    replay::Replayed,
};

/// One figure, measured and simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    pub measured: f64,
    pub simulated: f64,
}

/// The gauges over a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gauge {
    pub name: &'static str,
    /// Means over the run's moments.
    pub measured: f64,
    pub simulated: f64,
    /// Mean distance between both at the same moment.
    pub apart: f64,
}

impl Figure {
    /// Simulated over measured, less one.
    pub fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }
}

/// A gauge's name and how it is read.
type Read = (&'static str, fn(&Tick) -> f64);
/// What a latency is called, its unit, its unit in seconds, and how it follows from a request's moments.
type Latency = (&'static str, &'static str, f64, fn(&Timing, u32) -> f64);

const LATENCIES: [Latency; 3] = [
    ("TTFT", "s", 1.0, |timing, _| timing.first_token - timing.arrival),
    ("TPOT", "ms", 1e-3, |timing, tokens| {
        (timing.last_token - timing.first_token) / f64::from(tokens.saturating_sub(1).max(1))
    }),
    ("E2E", "s", 1.0, |timing, _| timing.last_token - timing.arrival),
];
const STATISTICS: [(&str, Option<f64>); 4] =
    [("mean", None), ("p50", Some(0.5)), ("p90", Some(0.9)), ("p99", Some(0.99))];

/// Mean, p50, p90 and p99 of TTFT, TPOT and end-to-end time of the requests in `part`.
pub fn latencies(run: &Run, replayed: &Replayed, part: Range<usize>) -> Vec<Figure> {
    let requests = &run.requests[part.clone()];
    let mut figures = Vec::new();
    for (name, unit, unit_s, of) in LATENCIES {
        let mut measured: Vec<f64> = requests.iter().map(|r| of(&r.timing, r.output_tokens) / unit_s).collect();
        let simulated = requests.iter().zip(&replayed.timings[part.clone()]);
        let mut simulated: Vec<f64> = simulated.map(|(r, timing)| of(timing, r.output_tokens) / unit_s).collect();
        for (statistic, share) in STATISTICS {
            figures.push(Figure {
                name: format!("{name} {statistic}"),
                unit,
                measured: summary(&mut measured, share),
                simulated: summary(&mut simulated, share),
            });
        }
    }
    figures
}

/// Total time and throughput of the whole run.
pub fn totals(run: &Run, replayed: &Replayed) -> Vec<Figure> {
    let (measured_s, simulated_s) = (run.total_s(), total_s(replayed.timings.iter().copied()));
    let figure = |name: &str, unit, measured, simulated| Figure { name: name.to_owned(), unit, measured, simulated };
    let tokens = run.output_tokens();
    vec![
        figure("total time", "s", measured_s, simulated_s),
        figure("throughput", "tok/s", tokens / measured_s, tokens / simulated_s),
    ]
}

/// Running and waiting requests, and KV use where the run has it.
pub fn gauges(run: &Run, replayed: &Replayed) -> Vec<Gauge> {
    let all: [Read; 3] = [
        ("running", |tick| tick.running),
        ("waiting", |tick| tick.waiting),
        ("KV use, %", |tick| tick.kv_usage * 100.0),
    ];
    let compare = |(name, get): Read| {
        let pairs: Vec<(f64, f64)> = run.ticks.iter().map(get).zip(replayed.ticks.iter().map(get)).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len().max(1) as f64;
        Gauge { name, measured: mean(|p| p.0), simulated: mean(|p| p.1), apart: mean(|p| (p.0 - p.1).abs()) }
    };
    // A gauge that never left zero was not read.
    all.into_iter().map(compare).filter(|gauge| gauge.measured > 0.0).collect()
}

/// The mean, or the smallest value that so large a share of all does not exceed. Sorts `values`.
fn summary(values: &mut [f64], share: Option<f64>) -> f64 {
    let Some(share) = share else { return values.iter().sum::<f64>() / values.len().max(1) as f64 };
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::measured::tests::{LENGTHS, REQUESTS, TICKS};

    #[test]
    fn figures_are_those_of_the_requests_in_the_part() {
        let run = Run::parse(REQUESTS, TICKS, LENGTHS).unwrap();
        let timings =
            run.requests.iter().map(|r| Timing { last_token: r.timing.last_token + 0.5, ..r.timing }).collect();
        let ticks = vec![Tick { at: 1.0, running: 3.0, waiting: 0.0, kv_usage: 0.4 }];
        let replayed = Replayed { timings, ticks, preemptions: 0, cached_tokens: 0 };
        let figures = latencies(&run, &replayed, 1..2);
        let find = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().clone();
        assert_eq!((find("TTFT mean").measured, find("TTFT p99").error()), (0.375, 0.0));
        assert_eq!((find("TPOT p50").measured, find("TPOT p50").simulated), (500.0, 1000.0));
        assert_eq!(totals(&run, &replayed)[0].simulated, 2.375);
        let gauges = gauges(&run, &replayed);
        assert_eq!(gauges.iter().map(|gauge| gauge.name).collect::<Vec<_>>(), ["running", "KV use, %"]);
        assert_eq!(gauges[0].apart, 2.0);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!([0.5, 0.9, 0.99].map(|share| summary(&mut values, Some(share))), [5.0, 9.0, 10.0]);
        assert_eq!(summary(&mut values, None), 5.5);
    }
}
