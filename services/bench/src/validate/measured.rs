//! A measured run as its files tell it: when requests came, what they were, when their tokens came, and the gauges.
//!
//! Two clocks are in the files: arrivals are in seconds of the day, everything else in seconds since the machine
//! started. They are joined by the request that reached the engine fastest after it arrived, whose way there is taken as
//! nothing: what the API server itself takes is therefore in no figure, neither measured nor simulated.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

/// One run. Times are in seconds since its load generator started.
#[derive(Debug, Default)]
pub struct Run {
    pub requests: Vec<Measured>,
    pub ticks: Vec<Tick>,
}

/// One request and what became of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Leading tokens of the prompt that some earlier request's prompt and output begin with too.
    pub shared_tokens: u32,
    pub timing: Timing,
}

/// When a request came and went, s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    pub arrival: f64,
    pub first_token: f64,
    pub last_token: f64,
}

/// The gauges at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tick {
    pub at: f64,
    pub running: f64,
    pub waiting: f64,
    /// 0–1.
    pub kv_usage: f64,
}

#[derive(Deserialize)]
struct Line {
    input_toks: u32,
    output_toks: u32,
    arrival_time: f64,
    queued_ts: f64,
    first_token_ts: f64,
    last_token_ts: f64,
}

impl Run {
    /// Reads `measured_<stem>_requests.jsonl`, `measured_<stem>_timeseries.csv` and `<lengths>.csv` of `folder`; `None`
    /// when the run is not there.
    pub fn read(folder: &Path, stem: &str, lengths: &str) -> anyhow::Result<Option<Self>> {
        let requests = folder.join(format!("measured_{stem}_requests.jsonl"));
        if !requests.exists() {
            return Ok(None);
        }
        let text =
            |path: &Path| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        let ticks = text(&folder.join(format!("measured_{stem}_timeseries.csv")))?;
        let lengths = text(&folder.join(format!("{lengths}.csv")))?;
        Self::parse(&text(&requests)?, &ticks, &lengths).with_context(|| format!("in the run {stem}")).map(Some)
    }

    /// From the texts of the three files.
    pub fn parse(requests: &str, ticks: &str, lengths: &str) -> anyhow::Result<Self> {
        let lines: Vec<Line> =
            requests.lines().map(serde_json::from_str).collect::<Result<_, _>>().context("a request's line")?;
        let planned = rows(lengths, ["arrival_time_ns", "input_tokens", "output_tokens", SHARED])?;
        ensure!(!lines.is_empty(), "there are no requests");
        ensure!(lines.len() == planned.len(), "{} requests but {} lengths", lines.len(), planned.len());
        let origin = lines[0].arrival_time - planned[0][0] / 1e9;
        let clocks = lines.iter().map(|line| line.queued_ts - line.arrival_time).fold(f64::INFINITY, f64::min);
        let joined = lines.iter().zip(&planned).enumerate().map(|(index, (line, plan))| {
            let lengths = (f64::from(line.input_toks), f64::from(line.output_toks));
            ensure!(lengths == (plan[1], plan[2]), "request {index} has other lengths than were planned");
            Ok(Measured {
                prompt_tokens: line.input_toks,
                output_tokens: line.output_toks,
                shared_tokens: plan[3] as u32,
                timing: Timing {
                    arrival: line.arrival_time - origin,
                    first_token: line.first_token_ts - clocks - origin,
                    last_token: line.last_token_ts - clocks - origin,
                },
            })
        });
        let ticks = rows(ticks, ["t", "running", "waiting", "kv_cache_pct"])?;
        let ticks =
            ticks.into_iter().map(|[at, running, waiting, kv]| Tick { at, running, waiting, kv_usage: kv / 100.0 });
        Ok(Self { requests: joined.collect::<anyhow::Result<_>>()?, ticks: ticks.collect() })
    }

    /// From the first arrival to the last token, s.
    pub fn total_s(&self) -> f64 {
        total_s(self.requests.iter().map(|request| request.timing))
    }

    /// Tokens generated in it.
    pub fn output_tokens(&self) -> f64 {
        self.requests.iter().map(|request| f64::from(request.output_tokens)).sum()
    }
}

const SHARED: &str = "shared_prefix_tokens_with_earlier";

/// From the first arrival to the last token, s.
pub fn total_s(timings: impl Iterator<Item = Timing> + Clone) -> f64 {
    let last = timings.clone().map(|timing| timing.last_token).fold(0.0, f64::max);
    last - timings.map(|timing| timing.arrival).fold(f64::INFINITY, f64::min)
}

/// The named columns of a CSV file without quotes, all of them numbers.
fn rows<const N: usize>(text: &str, columns: [&str; N]) -> anyhow::Result<Vec<[f64; N]>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().context("a file is empty")?.split(',').collect();
    let mut places = [0; N];
    for (place, column) in places.iter_mut().zip(columns) {
        *place = header.iter().position(|name| *name == column).with_context(|| format!("no column {column}"))?;
    }
    let parse = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let mut row = [0.0; N];
        for (value, place) in row.iter_mut().zip(places) {
            let cell = cells.get(place).with_context(|| format!("the line `{line}` is too short"))?;
            *value = cell.parse().with_context(|| format!("`{cell}` is no number"))?;
        }
        Ok(row)
    };
    lines.filter(|line| !line.is_empty()).map(parse).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const REQUESTS: &str = concat!(
        r#"{"request_id": "a", "input_toks": 40, "output_toks": 3, "arrival_time": 1000.5, "queued_ts": 20.25, "scheduled_ts": 20.25, "first_token_ts": 20.5, "last_token_ts": 21.0}"#,
        "\n",
        r#"{"request_id": "b", "input_toks": 50, "output_toks": 2, "arrival_time": 1001.5, "queued_ts": 21.125, "scheduled_ts": 21.25, "first_token_ts": 21.5, "last_token_ts": 22.0}"#,
        "\n",
    );
    pub const TICKS: &str = "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct\n1.0,90.0,2.0,1,0,50.0\n";
    pub const LENGTHS: &str = "arrival_time_ns,input_tokens,output_tokens,shared_prefix_tokens_with_earlier\n\
                               250000000,40,3,0\n1250000000,50,2,32\n";

    #[test]
    fn the_fastest_way_to_the_engine_joins_the_clocks() {
        let run = Run::parse(REQUESTS, TICKS, LENGTHS).unwrap();
        // The second request came to the engine 0.125 s faster than the first: -980.375 is the clocks' difference.
        assert_eq!(run.requests[1].timing, Timing { arrival: 1.25, first_token: 1.625, last_token: 2.125 });
        assert_eq!(run.requests[0].timing, Timing { arrival: 0.25, first_token: 0.625, last_token: 1.125 });
        assert_eq!(run.requests[1].shared_tokens, 32);
        assert_eq!(run.ticks, [Tick { at: 1.0, running: 1.0, waiting: 0.0, kv_usage: 0.5 }]);
        assert!((run.total_s() - 1.875).abs() < 1e-9);
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused() {
        let other = LENGTHS.replace("50,2", "51,2");
        let told = format!("{:#}", Run::parse(REQUESTS, TICKS, &other).unwrap_err());
        assert!(told.contains("request 1 has other lengths"), "{told}");
        assert!(Run::parse(REQUESTS, "t,running\n", LENGTHS).is_err());
        assert!(Run::parse("", TICKS, LENGTHS).is_err());
    }
}
