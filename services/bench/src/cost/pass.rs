//! One pass: every load on every subject, each subject started anew.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::figures::Key;
use super::loads::Loads;
use super::measure::Measure;
use super::{Part, in_process};
use crate::backend::Backend;
use crate::certificate::Certificate;
use crate::machine;
use crate::subject::Subject;

/// What all passes of a run share.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) subjects: &'a [Subject],
    pub(super) backend: &'a Backend,
    pub(super) certificate: &'a Certificate,
    pub(super) loads: &'a Loads,
    pub(super) folder: &'a Path,
    pub(super) parts: &'a [Part],
}

/// What was measured in one pass.
#[derive(Debug, Serialize)]
pub struct Pass {
    pub number: u32,
    /// Over one minute, at its start.
    pub load_average: f64,
    pub figures: BTreeMap<String, BTreeMap<Key, f64>>,
    /// Requests that were not answered with 200, or streams that did not end as they should.
    pub failed: BTreeMap<String, u64>,
    /// What a subject could not be put through, and why.
    pub missing: Vec<String>,
}

impl Pass {
    /// Subjects take turns in going first.
    pub(super) fn measure(number: u32, stage: &Stage<'_>) -> Self {
        let mut order: Vec<&Subject> = stage.subjects.iter().collect();
        let by = (number as usize - 1) % order.len().max(1);
        order.rotate_left(by);
        let mut pass = Self {
            number,
            load_average: machine::load_average(),
            figures: BTreeMap::new(),
            failed: BTreeMap::new(),
            missing: Vec::new(),
        };
        for subject in order {
            pass.subject(subject, stage);
        }
        pass.add_differences();
        pass
    }

    /// Who fails one part is shown without it, and the run goes on.
    fn subject(&mut self, subject: &Subject, stage: &Stage<'_>) {
        let mut measure = Measure::new(stage, subject);
        for part in stage.parts {
            let before = measure.figures.len();
            if let Err(error) = measure.part(*part) {
                let why = last_line(&error);
                println!("  {:<14} {part}: {why}", subject.name());
                self.missing.push(format!("{}, {part}: {why}", subject.name()));
            }
            if measure.figures.len() > before {
                println!("  {:<14} {part}: {}", subject.name(), measure.told());
            }
        }
        if matches!(subject, Subject::Gateway { .. }) && stage.parts.contains(&Part::InProcess) {
            measure.figures.extend(in_process::measure(stage.loads));
        }
        let name = subject.name().to_owned();
        self.failed.insert(name.clone(), measure.failed);
        self.figures.insert(name, measure.figures);
    }

    /// What each proxy added to the direct latency of this very pass.
    fn add_differences(&mut self) {
        let Some(direct) = self.figures.get("direct").cloned() else { return };
        for (_, figures) in self.figures.iter_mut().filter(|(name, _)| *name != "direct") {
            for (from, to) in [(Key::LatencyMsP50, Key::AddedMsP50), (Key::LatencyMsP99, Key::AddedMsP99)] {
                let added = figures.get(&from).zip(direct.get(&from)).map(|(through, direct)| through - direct);
                figures.extend(added.map(|added| (to, added)));
            }
        }
    }
}

/// What its program said last, where it said anything.
fn last_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// A rate, or 0 when no time has passed.
pub(super) fn per_second(count: u64, elapsed_s: f64) -> f64 {
    if elapsed_s > 0.0 { count as f64 / elapsed_s } else { 0.0 }
}

/// CPU µs for each of `count`.
pub(super) fn us_each(cpu: Duration, count: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_taken_within_the_pass() {
        let of = |p50, p99| BTreeMap::from([(Key::LatencyMsP50, p50), (Key::LatencyMsP99, p99)]);
        let figures = BTreeMap::from([("direct".to_owned(), of(0.25, 0.5)), ("gateway".to_owned(), of(0.375, 1.0))]);
        let mut pass = Pass { number: 1, load_average: 0.0, figures, failed: BTreeMap::new(), missing: Vec::new() };
        pass.add_differences();
        assert_eq!(pass.figures["gateway"][&Key::AddedMsP50], 0.125);
        assert_eq!(pass.figures["gateway"][&Key::AddedMsP99], 0.5);
        assert!(!pass.figures["direct"].contains_key(&Key::AddedMsP50));
    }
}
