//! One subject's share of a pass, part by part; each part starts the subject anew.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;

use super::Part;
use super::figures::{FIGURES, Key};
use super::loads::LARGE_BODY_BYTES;
use super::pass::{Stage, per_second, us_each};
use crate::backend::{Answering, Stream};
use crate::bodies::Requests;
use crate::load::{self, Outcome};
use crate::peers::Speech;
use crate::process::Process;
use crate::statistics::percentile;
use crate::subject::{Running, Site, Subject};

/// One failure in this many spoils a figure.
const ANSWERS_PER_FAILURE_MIN: u64 = 1_000;
/// 10⁶, as in the targets.
const MB: f64 = 1e6;

/// What a subject listens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Plain,
    Tls,
}

pub(super) struct Measure<'a> {
    stage: &'a Stage<'a>,
    subject: &'a Subject,
    pub(super) figures: BTreeMap<Key, f64>,
    pub(super) failed: u64,
    told: Vec<Key>,
}

impl<'a> Measure<'a> {
    pub(super) fn new(stage: &'a Stage<'a>, subject: &'a Subject) -> Self {
        Self { stage, subject, figures: BTreeMap::new(), failed: 0, told: Vec::new() }
    }

    pub(super) fn part(&mut self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Requests => self.requests(),
            Part::Connections => self.connections(),
            Part::Http2 => self.http2(),
            Part::Tls => self.tls(),
            Part::Streams => self.streams(),
            Part::Latency => self.latency(),
            Part::Idle => self.idle(),
            Part::Memory => self.memory(),
            Part::InProcess => Ok(()),
        }
    }

    /// What has been measured since it was last asked.
    pub(super) fn told(&mut self) -> String {
        let new: Vec<_> = FIGURES.iter().filter(|figure| !self.told.contains(&figure.key)).collect();
        let shown = new.into_iter().filter_map(|figure| {
            let value = self.figures.get(&figure.key)?;
            self.told.push(figure.key);
            Some(format!("{} {value:.*}", figure.title, figure.decimals))
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    /// Bodies of all sizes, flat out; and what is seen of a start.
    fn requests(&mut self) -> anyhow::Result<()> {
        let running = self.start(self.stage.loads.endpoints, Front::Plain)?;
        if running.process.is_some() {
            self.figures.insert(Key::FirstAnswerMs, running.first_answer.as_secs_f64() * 1e3);
        }
        for (key, requests) in &self.stage.loads.bodies {
            let rate = (*key == Key::CpuUsPerRequest4kB).then_some(Key::RequestsPerSecond4kB);
            self.flat_out(&running, self.stage.loads.connections, requests, *key, rate)?;
        }
        self.note_peak(&running)?;
        self.figures.extend(self.subject.binary_bytes().map(|bytes| (Key::BinaryMb, bytes as f64 / MB)));
        Ok(())
    }

    fn connections(&mut self) -> anyhow::Result<()> {
        let running = self.start(self.stage.loads.endpoints, Front::Plain)?;
        for (connections, cpu, rate) in [
            (256, Key::CpuUsPerRequest256Connections, Key::RequestsPerSecond256Connections),
            (1_000, Key::CpuUsPerRequest1000Connections, Key::RequestsPerSecond1000Connections),
        ] {
            self.flat_out(&running, connections, &self.stage.loads.usual, cpu, Some(rate))?;
        }
        self.note_peak(&running)
    }

    fn http2(&mut self) -> anyhow::Result<()> {
        if !self.subject.speaks(Speech::H2) {
            return Ok(());
        }
        let running = self.start(self.stage.loads.endpoints, Front::Plain)?;
        let loads = self.stage.loads;
        let all =
            |time| load::closed_http2(&running.data, loads.http2_connections, loads.http2_each(), &loads.usual, time);
        self.accept(&all(loads.warm_up)?)?;
        let (outcome, cpu) = with_cpu(running.process.as_ref(), || all(loads.time))?;
        self.accept(&outcome)?;
        self.note(&outcome, cpu, Key::CpuUsPerRequestHttp2, Some(Key::RequestsPerSecondHttp2));
        Ok(())
    }

    fn tls(&mut self) -> anyhow::Result<()> {
        if !self.subject.speaks(Speech::Tls) {
            return Ok(());
        }
        let running = self.start(self.stage.loads.endpoints, Front::Tls)?;
        let (requests, connections) = (&self.stage.loads.usual, self.stage.loads.connections);
        self.flat_out(&running, connections, requests, Key::CpuUsPerRequestTls, Some(Key::RequestsPerSecondTls))
    }

    fn streams(&mut self) -> anyhow::Result<()> {
        if !self.subject.is_proxy() {
            return Ok(());
        }
        let loads = self.stage.loads;
        let running = self.start(loads.endpoints, Front::Plain)?;
        self.answer(loads.short);
        self.flat_out(&running, loads.connections, &loads.streamed, Key::CpuUsPerShortStream, None)?;
        self.chunks(&running, loads.paced, Key::CpuUsPerChunk)?;
        let rate = self.chunks(&running, loads.fast, Key::CpuUsPerFastChunk)?;
        self.figures.insert(Key::ChunksPerSecond, rate);
        self.note_peak(&running)
    }

    fn chunks(&mut self, running: &Running, stream: Stream, key: Key) -> anyhow::Result<f64> {
        let loads = self.stage.loads;
        self.answer(stream);
        // Streams begin spread over one gap, so that their chunks do not march in step.
        let all = || load::streams(&running.data, loads.streams, &loads.streamed, stream.gap);
        let (streamed, cpu) = with_cpu(running.process.as_ref(), all)?;
        self.failed += streamed.failed;
        anyhow::ensure!(streamed.failed == 0, "{} of {} streams were cut", streamed.failed, loads.streams);
        anyhow::ensure!(streamed.events > stream.chunks as u64 * streamed.completed, "events were lost: {streamed:?}");
        self.figures.extend(cpu.map(|cpu| (key, us_each(cpu, streamed.events))));
        Ok(per_second(streamed.events, streamed.elapsed_s))
    }

    fn latency(&mut self) -> anyhow::Result<()> {
        let loads = self.stage.loads;
        let running = self.start(loads.endpoints, Front::Plain)?;
        self.accept(&load::open(&running.data, &loads.usual, loads.rate, loads.warm_up)?)?;
        let mut outcome = load::open(&running.data, &loads.usual, loads.rate, loads.time)?;
        self.accept(&outcome)?;
        let mut ms = |share| percentile(&mut outcome.latencies_ns, share) as f64 / 1e6;
        self.figures.insert(Key::LatencyMsP50, ms(0.5));
        self.figures.insert(Key::LatencyMsP99, ms(0.99));
        Ok(())
    }

    fn idle(&mut self) -> anyhow::Result<()> {
        let few = (self.stage.loads.endpoints, Key::CoresIdle);
        for (endpoints, key) in [few, (self.stage.loads.many_endpoints, Key::CoresIdle100Endpoints)] {
            let running = self.start(endpoints, Front::Plain)?;
            let Some(process) = &running.process else { return Ok(()) };
            let time = self.stage.loads.idle;
            let before = process.cpu_time()?;
            std::thread::sleep(time);
            let used = process.cpu_time()?.saturating_sub(before);
            self.figures.insert(key, used.as_secs_f64() / time.as_secs_f64());
            if key == Key::CoresIdle {
                self.figures.insert(Key::MemoryMbIdle, process.memory()?.now_bytes as f64 / MB);
            }
        }
        Ok(())
    }

    fn memory(&mut self) -> anyhow::Result<()> {
        let loads = self.stage.loads;
        let running = self.start(loads.endpoints, Front::Plain)?;
        let Some(process) = &running.process else { return Ok(()) };
        self.answer(loads.slow);
        let now = || process.memory();
        let open = load::while_streams_are_open(&running.data, loads.open_streams, &loads.streamed, now);
        self.figures.insert(Key::MemoryMb1000Streams, open.context("open streams")??.now_bytes as f64 / MB);
        drop(running);
        // One endpoint for each body: a pool that is full would make some of them wait in the gateway.
        let running = self.start(loads.many_endpoints, Front::Plain)?;
        let Some(process) = &running.process else { return Ok(()) };
        let before = process.memory()?.now_bytes;
        let (target, count) = (&running.data, loads.bodies_in_flight);
        let waiting = load::while_bodies_wait(target, count, &loads.large, self.stage.backend, || process.memory());
        let (memory, failed) = waiting.context("bodies in flight")?;
        self.failed += failed;
        anyhow::ensure!(failed == 0, "{failed} of {count} large requests failed");
        let bytes = (count * LARGE_BODY_BYTES) as f64;
        let grown = memory?.peak_bytes.saturating_sub(before) as f64;
        self.figures.insert(Key::MemoryPerByteInFlight, grown / bytes);
        Ok(())
    }

    fn start(&self, endpoints: usize, front: Front) -> anyhow::Result<Running> {
        self.stage.backend.answer(Answering::Whole);
        self.subject.start(&Site {
            endpoints: &self.stage.backend.addresses[..endpoints],
            folder: self.stage.folder,
            certificate: (front == Front::Tls).then_some(self.stage.certificate),
        })
    }

    fn answer(&self, stream: Stream) {
        self.stage.backend.answer(Answering::Streamed(stream));
    }

    fn flat_out(
        &mut self,
        running: &Running,
        connections: usize,
        requests: &Requests,
        cpu_key: Key,
        rate_key: Option<Key>,
    ) -> anyhow::Result<()> {
        let all = |time| load::closed(&running.data, connections, requests, time);
        self.accept(&all(self.stage.loads.warm_up)?)?;
        let (outcome, cpu) = with_cpu(running.process.as_ref(), || all(self.stage.loads.time))?;
        self.accept(&outcome)?;
        self.note(&outcome, cpu, cpu_key, rate_key);
        Ok(())
    }

    fn note(&mut self, outcome: &Outcome, cpu: Option<Duration>, cpu_key: Key, rate_key: Option<Key>) {
        self.figures.extend(cpu.map(|cpu| (cpu_key, us_each(cpu, outcome.answered))));
        self.figures.extend(rate_key.map(|key| (key, per_second(outcome.answered, outcome.elapsed_s))));
    }

    fn note_peak(&mut self, running: &Running) -> anyhow::Result<()> {
        let Some(process) = &running.process else { return Ok(()) };
        let peak = process.memory()?.peak_bytes as f64 / MB;
        let noted = self.figures.entry(Key::MemoryMbPeak).or_insert(peak);
        *noted = noted.max(peak);
        Ok(())
    }

    /// A few failures are reported; many make the figure worthless.
    fn accept(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        self.failed += outcome.failed;
        acceptable(outcome)
    }
}

fn acceptable(outcome: &Outcome) -> anyhow::Result<()> {
    let Outcome { answered, failed, .. } = outcome;
    anyhow::ensure!(*answered > 0, "nothing was answered, {failed} requests failed");
    anyhow::ensure!(
        failed * ANSWERS_PER_FAILURE_MIN <= *answered,
        "{failed} requests failed, {answered} were answered"
    );
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_with_many_failures_is_no_measurement() {
        let outcome = |answered, failed| Outcome { answered, failed, ..Outcome::default() };
        assert!(acceptable(&outcome(1_000, 1)).is_ok());
        assert!(acceptable(&outcome(999, 1)).is_err());
        assert!(acceptable(&outcome(0, 0)).is_err());
    }
}
