//! One pass: every load on every subject, each subject started anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use super::Arguments;
use super::figures::Key;
use crate::backend::Backend;
use crate::bodies::{Kind, Requests};
use crate::load::{self, Outcome, Rate};
use crate::machine;
use crate::process::Process;
use crate::statistics::percentile;
use crate::subject::{Running, Subject};

/// Body of the latency load.
pub(super) const LATENCY_BODY_BYTES: usize = 4_000;
/// Bodies of the closed loop and where their CPU is noted.
const BODIES: [(usize, Key); 3] = [
    (1_000, Key::CpuUsPerRequest1kB),
    (LATENCY_BODY_BYTES, Key::CpuUsPerRequest4kB),
    (400_000, Key::CpuUsPerRequest400kB),
];
const WARM_UP: Duration = Duration::from_secs(1);
/// How long an idle subject is watched: some ten rounds of scrapes, and 200 clock ticks.
const IDLE: Duration = Duration::from_secs(2);
/// One failure in this many spoils a figure.
const ANSWERS_PER_FAILURE_MIN: u64 = 1_000;
/// 10⁶, as in the targets.
const MB: f64 = 1e6;

/// What every subject is put through.
#[derive(Debug)]
pub(super) struct Loads {
    bodies: Vec<(Key, Requests)>,
    streams: Requests,
    stream_count: usize,
    /// Streams begin spread over one gap, so that their chunks do not march in step.
    stream_spread: Duration,
    chunks: u64,
    connections: usize,
    time: Duration,
    rate: Rate,
}

/// What was measured in one pass.
#[derive(Debug, Serialize)]
pub struct Pass {
    pub number: u32,
    /// Over one minute, at its start.
    pub load_average: f64,
    pub figures: BTreeMap<&'static str, BTreeMap<Key, f64>>,
    /// Requests that were not answered with 200, or streams that did not end as they should.
    pub failed: u64,
}

impl Loads {
    pub(super) fn new(arguments: &Arguments, rate_per_second: f64) -> Self {
        let seed = arguments.seed;
        Self {
            bodies: BODIES.map(|(bytes, key)| (key, Requests::new(bytes, Kind::Whole, seed))).to_vec(),
            streams: Requests::new(LATENCY_BODY_BYTES, Kind::Streamed, seed),
            stream_count: usize::from(arguments.streams),
            stream_spread: Duration::from_secs(1) / u32::from(arguments.chunks_per_second),
            chunks: u64::from(arguments.chunks),
            connections: usize::from(arguments.connections),
            time: Duration::from_secs(arguments.seconds),
            rate: Rate { per_second: rate_per_second, seed },
        }
    }
}

impl Pass {
    /// Subjects take turns in going first, direct apart.
    pub(super) fn measure(
        number: u32,
        subjects: &[Subject],
        backend: &Backend,
        loads: &Loads,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut order: Vec<&Subject> = subjects.iter().collect();
        if number.is_multiple_of(2) {
            order.reverse();
        }
        let mut pass = Self { number, load_average: machine::load_average(), figures: BTreeMap::new(), failed: 0 };
        for subject in order {
            let figures = pass.subject(subject, backend, loads, folder).with_context(|| subject.name())?;
            println!("  {:<8} {}", subject.name(), told(&figures));
            pass.figures.insert(subject.name(), figures);
        }
        pass.add_differences();
        Ok(pass)
    }

    fn subject(
        &mut self,
        subject: &Subject,
        backend: &Backend,
        loads: &Loads,
        folder: &Path,
    ) -> anyhow::Result<BTreeMap<Key, f64>> {
        let running = subject.start(&backend.addresses, folder)?;
        let mut figures = BTreeMap::new();
        if let Some(process) = &running.process {
            let before = process.cpu_time()?;
            std::thread::sleep(IDLE);
            let used = process.cpu_time()?.saturating_sub(before);
            figures.insert(Key::CoresIdle, used.as_secs_f64() / IDLE.as_secs_f64());
            figures.insert(Key::MemoryMbIdle, process.memory()?.now_bytes as f64 / MB);
        }
        for (key, requests) in &loads.bodies {
            self.closed(&running, loads, requests, *key, &mut figures)?;
        }
        self.streams(&running, loads, &mut figures)?;
        self.latency(&running, loads, &mut figures)?;
        if let Some(process) = &running.process {
            figures.insert(Key::MemoryMbPeak, process.memory()?.peak_bytes as f64 / MB);
        }
        figures.extend(subject.binary_bytes().map(|bytes| (Key::BinaryMb, bytes as f64 / MB)));
        Ok(figures)
    }

    fn closed(
        &mut self,
        running: &Running,
        loads: &Loads,
        requests: &Requests,
        key: Key,
        figures: &mut BTreeMap<Key, f64>,
    ) -> anyhow::Result<()> {
        let flat_out = |time| load::closed(running.data, loads.connections, requests, time);
        self.accept(&flat_out(WARM_UP)?)?;
        let (outcome, cpu) = with_cpu(running.process.as_ref(), || flat_out(loads.time))?;
        self.accept(&outcome)?;
        figures.extend(cpu.map(|cpu| (key, cpu.as_secs_f64() * 1e6 / outcome.answered as f64)));
        if key == Key::CpuUsPerRequest4kB {
            figures.insert(Key::RequestsPerSecond4kB, outcome.answered as f64 / outcome.elapsed_s);
        }
        Ok(())
    }

    fn streams(&mut self, running: &Running, loads: &Loads, figures: &mut BTreeMap<Key, f64>) -> anyhow::Result<()> {
        let Some(process) = &running.process else { return Ok(()) };
        let all = || load::streams(running.data, loads.stream_count, &loads.streams, loads.stream_spread);
        let (streamed, cpu) = with_cpu(Some(process), all)?;
        self.failed += streamed.failed;
        anyhow::ensure!(streamed.failed == 0, "{} of {} streams were cut", streamed.failed, loads.stream_count);
        anyhow::ensure!(streamed.events > loads.chunks * streamed.completed, "events were lost: {streamed:?}");
        figures.extend(cpu.map(|cpu| (Key::CpuUsPerChunk, cpu.as_secs_f64() * 1e6 / streamed.events as f64)));
        Ok(())
    }

    fn latency(&mut self, running: &Running, loads: &Loads, figures: &mut BTreeMap<Key, f64>) -> anyhow::Result<()> {
        let requests = &loads.bodies[1].1;
        self.accept(&load::open(running.data, requests, loads.rate, WARM_UP)?)?;
        let mut outcome = load::open(running.data, requests, loads.rate, loads.time)?;
        self.accept(&outcome)?;
        let mut ms = |share| percentile(&mut outcome.latencies_ns, share) as f64 / 1e6;
        figures.insert(Key::LatencyMsP50, ms(0.5));
        figures.insert(Key::LatencyMsP99, ms(0.99));
        Ok(())
    }

    /// A few failures are reported; many make the figure worthless.
    fn accept(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        self.failed += outcome.failed;
        let Outcome { answered, failed, .. } = outcome;
        anyhow::ensure!(*answered > 0, "nothing was answered, {failed} requests failed");
        anyhow::ensure!(
            failed * ANSWERS_PER_FAILURE_MIN <= *answered,
            "{failed} requests failed, {answered} were answered"
        );
        Ok(())
    }

    /// What each proxy added to the direct latency of this very pass.
    fn add_differences(&mut self) {
        let Some(direct) = self.figures.get("direct").cloned() else { return };
        for (_, figures) in self.figures.iter_mut().filter(|(name, _)| **name != "direct") {
            for (from, to) in [(Key::LatencyMsP50, Key::AddedMsP50), (Key::LatencyMsP99, Key::AddedMsP99)] {
                let added = figures.get(&from).zip(direct.get(&from)).map(|(through, direct)| through - direct);
                figures.extend(added.map(|added| (to, added)));
            }
        }
    }
}

/// Runs a load and takes the CPU time that `process` used meanwhile.
fn with_cpu<T>(
    process: Option<&Process>,
    load: impl FnOnce() -> std::io::Result<T>,
) -> anyhow::Result<(T, Option<Duration>)> {
    let before = process.map(Process::cpu_time).transpose()?;
    let outcome = load()?;
    let after = process.map(Process::cpu_time).transpose()?;
    Ok((outcome, after.zip(before).map(|(after, before)| after.saturating_sub(before))))
}

fn told(figures: &BTreeMap<Key, f64>) -> String {
    let shown = super::FIGURES.iter().filter_map(|figure| {
        let value = figures.get(&figure.key)?;
        Some(format!("{} {value:.*}", figure.title.replace(" body", ""), figure.decimals))
    });
    shown.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(figures: BTreeMap<&'static str, BTreeMap<Key, f64>>) -> Pass {
        Pass { number: 1, load_average: 0.0, figures, failed: 0 }
    }

    #[test]
    fn what_is_added_is_taken_within_the_pass() {
        let of = |p50, p99| BTreeMap::from([(Key::LatencyMsP50, p50), (Key::LatencyMsP99, p99)]);
        let mut pass = pass(BTreeMap::from([("direct", of(0.25, 0.5)), ("gateway", of(0.375, 1.0))]));
        pass.add_differences();
        assert_eq!(pass.figures["gateway"][&Key::AddedMsP50], 0.125);
        assert_eq!(pass.figures["gateway"][&Key::AddedMsP99], 0.5);
        assert!(!pass.figures["direct"].contains_key(&Key::AddedMsP50));
    }

    #[test]
    fn a_pass_with_many_failures_is_no_measurement() {
        let mut pass = pass(BTreeMap::new());
        let outcome = |answered, failed| Outcome { answered, failed, ..Outcome::default() };
        assert!(pass.accept(&outcome(1_000, 1)).is_ok());
        assert!(pass.accept(&outcome(999, 1)).is_err());
        assert!(pass.accept(&outcome(0, 0)).is_err());
        assert_eq!(pass.failed, 2);
    }
}
