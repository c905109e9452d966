//! One scenario file, run and judged.
//!
//! Besides its own run there is one of the same classes without load (each alone, at a twentieth of the fleet's capacity)
//! and, where the file has `other` settings, one under those: so "near its unloaded time to the first token" and "more
//! than before" are said of numbers seen in the same simulation.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use bench::world::{
    Router, World,
    capacity::{self, Capacity},
    knobs::Knobs,
    ledger::Ledger,
    stage::{Change, Hops, Machines, Stage},
};
use dispatch::Settings;
use engine::Profile;
use fastrand::Rng;

use crate::{
    clients,
    expectation::{Expectation, Over, Window},
    measure::measure,
    scenario::{Class, Phase, Scenario},
};

/// Of the fleet's capacity: what counts as no load.
const UNLOADED: f64 = 0.05;
/// Requests of each class in the run without load.
const UNLOADED_REQUESTS: f64 = 300.0;

/// What was seen.
pub(crate) struct Trial<'a> {
    scenario: &'a Scenario,
    capacities: Vec<Capacity>,
    own: Ledger,
    unloaded: Option<(Ledger, Vec<Phase>)>,
    other: Option<Ledger>,
}

/// One expectation beside what was seen.
struct Finding<'a> {
    expectation: &'a Expectation,
    value: f64,
}

impl<'a> Trial<'a> {
    /// Runs it, with `twist` on top of the scenario's own settings.
    pub(crate) fn run(scenario: &'a Scenario, twist: &Knobs) -> Result<Self> {
        let capacities = capacities(scenario)?;
        let rates: Vec<f64> = capacities.iter().map(|capacity| capacity.requests_per_s).collect();
        let mut settings = Settings::default();
        scenario.settings.apply(&mut settings);
        twist.apply(&mut settings);
        let fleet = Machines::endpoints(&scenario.fleet)?;
        let run = |settings: Settings, phases: &[Phase], changes: &[Change]| {
            let stage = stage(scenario, fleet.clone(), phases, changes);
            let calls = clients::calls(scenario, phases, &rates);
            World::new(&stage, &calls, &Router::Product { settings: settings.into(), gateways: 1 }).run()
        };
        let compares = |over| scenario.expect.iter().any(|expectation| expectation.over == Some(over));
        let unloaded = if compares(Over::Unloaded) {
            let phases = unloaded_phases(scenario, &rates);
            Some((run(settings.clone(), &phases, &[]), phases))
        } else {
            None
        };
        let other = match &scenario.other {
            Some(other) => {
                let mut settings = settings.clone();
                other.apply(&mut settings);
                Some(run(settings, &scenario.phases, &scenario.changes))
            }
            None => None,
        };
        let own = run(settings, &scenario.phases, &scenario.changes);
        Ok(Self { scenario, capacities, own, unloaded, other })
    }

    /// # Errors
    /// The table of what was expected and what was seen, when one of them was not met.
    pub(crate) fn judge(&self) -> Result<String> {
        let findings = self.findings()?;
        let table = self.table(&findings);
        ensure!(findings.iter().all(Finding::holds), "\n{table}");
        Ok(table)
    }

    fn findings(&self) -> Result<Vec<Finding<'a>>> {
        let expect = self.scenario.expect.iter();
        expect.map(|expectation| Ok(Finding { expectation, value: self.value(expectation)? })).collect()
    }

    fn value(&self, expectation: &Expectation) -> Result<f64> {
        let Expectation { measure: what, of, over, .. } = expectation;
        let window = expectation.window(self.scenario)?;
        let value = measure(&self.own, &self.capacities, *what, of, window);
        let basis = match over {
            None => return Ok(value),
            Some(Over::Other) => self.other.as_ref().map(|other| measure(other, &self.capacities, *what, of, window)),
            Some(Over::Unloaded) => self.unloaded.as_ref().map(|(ledger, phases)| {
                let length = phases.iter().map(|phase| phase.seconds).sum();
                let whole = Window { from: Default::default(), to: std::time::Duration::from_secs_f64(length) };
                measure(ledger, &self.capacities, *what, of, whole)
            }),
        };
        Ok(value / basis.unwrap_or(f64::NAN))
    }

    fn table(&self, findings: &[Finding<'_>]) -> String {
        let mut text = format!("{}\n\n", self.scenario.about);
        for (class, capacity) in self.scenario.classes.keys().zip(&self.capacities) {
            let Capacity { requests_per_s, tokens_per_s } = capacity;
            let _ = writeln!(text, "capacity for {class}: {requests_per_s:.2} requests/s, {tokens_per_s:.0} tokens/s");
        }
        let _ = writeln!(text, "seed {}; {} requests\n", self.scenario.seed, self.own.requests.len());
        let _ = writeln!(text, "| | when | what | expected | seen |\n|---|---|---|---|---|");
        for finding in findings {
            let Finding { expectation, value } = finding;
            let verdict = if finding.holds() { "ok" } else { "NOT" };
            let (when, subject, range) = (expectation.when(), expectation.subject(), expectation.range());
            let _ = writeln!(text, "| {verdict} | {when} | {subject} | {range} | {value:.3} |");
        }
        text
    }
}

impl Finding<'_> {
    fn holds(&self) -> bool {
        self.expectation.holds(self.value)
    }
}

/// One class after the other.
fn unloaded_phases(scenario: &Scenario, rates: &[f64]) -> Vec<Phase> {
    let phase = |(class, rate): (&String, &f64)| Phase {
        name: class.clone(),
        seconds: UNLOADED_REQUESTS / (UNLOADED * rate),
        load: [(class.clone(), UNLOADED)].into(),
        bursts: Vec::new(),
    };
    scenario.classes.keys().zip(rates).map(phase).collect()
}

/// Of the scenario's fleet for each class, in the order of their names. Classes of one shape are measured once.
fn capacities(scenario: &Scenario) -> Result<Vec<Capacity>> {
    let mut known: Vec<(&Class, Capacity)> = Vec::new();
    let kinds = scenario.fleet.iter().map(|machines| Ok((machines.profile()?, machines.count)));
    let kinds: Vec<(Profile, usize)> = kinds.collect::<Result<_>>()?;
    for class in scenario.classes.values() {
        let source = || {
            let mut rng = Rng::with_seed(scenario.seed);
            move |serial| clients::draft(class, scenario.seed, serial, &mut rng)
        };
        let capacity = match known.iter().find(|(other, _)| other.is_like(class)) {
            Some(&(_, capacity)) => capacity,
            None => capacity::of_fleet(&kinds, source, scenario.seed),
        };
        known.push((class, capacity));
    }
    Ok(known.into_iter().map(|(_, capacity)| capacity).collect())
}

fn stage(scenario: &Scenario, fleet: Vec<Profile>, phases: &[Phase], changes: &[Change]) -> Stage {
    Stage {
        seed: scenario.seed,
        fleet,
        hops: Hops::NEAR,
        changes: changes.to_vec(),
        classes: scenario.classes.keys().cloned().collect(),
        length: std::time::Duration::from_secs_f64(phases.iter().map(|phase| phase.seconds).sum()),
        patience: Stage::PATIENCE,
    }
}
