//! A scenario file: a fleet, who asks it for what, what happens to it, and what must come of that.
//!
//! Loads are multiples of what the fleet can serve of that class alone, which is measured (see `capacity`) and never
//! written down; so a scenario keeps its meaning when an engine's numbers change. Unknown fields are refused: a
//! misspelt expectation would be one that cannot fail.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use bench::world::{
    call::Answers,
    knobs::Knobs,
    stage::{Change, Machines},
};
use serde::Deserialize;

use crate::expectation::Expectation;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// What it shows, in a sentence or two.
    pub(crate) about: String,
    /// Where all chance comes from.
    pub(crate) seed: u64,
    pub(crate) fleet: Vec<Machines>,
    /// What differs from the product's defaults.
    #[serde(default)]
    pub(crate) settings: Knobs,
    /// What differs from that in a second run, for expectations `over: other`.
    #[serde(default)]
    pub(crate) other: Option<Knobs>,
    pub(crate) classes: BTreeMap<String, Class>,
    /// One after the other.
    pub(crate) phases: Vec<Phase>,
    #[serde(default)]
    pub(crate) changes: Vec<Change>,
    pub(crate) expect: Vec<Expectation>,
}

/// Requests of one kind, from open-loop clients: they come whatever becomes of the ones before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Class {
    /// The objective's priority: it names the band.
    #[serde(default)]
    pub(crate) priority: i32,
    /// Callers with a fairness key of their own, equally busy.
    #[serde(default = "one")]
    pub(crate) flows: u32,
    pub(crate) prompt_tokens: Length,
    pub(crate) output_tokens: Length,
    /// Prompts that begin alike.
    #[serde(default)]
    pub(crate) prefixes: Option<Prefixes>,
    /// When its clients want their first token, after asking, ms.
    #[serde(default)]
    pub(crate) slo_ms: Option<Length>,
    /// Clients without a first token leave after so long.
    #[serde(default)]
    pub(crate) patience_ms: Option<Length>,
    /// How the answers come.
    #[serde(default)]
    pub(crate) answers: Answers,
    /// The one endpoint, by number, that its requests must go to.
    #[serde(default)]
    pub(crate) only: Option<usize>,
}

/// A number drawn for each request.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Length {
    Fixed(u32),
    /// Evenly.
    Between {
        from: u32,
        to: u32,
    },
    /// Lognormal, cut off at `max`.
    Around {
        median: u32,
        sigma: f64,
        max: u32,
    },
}

/// Groups of prompts, each with leading tokens of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prefixes {
    pub(crate) groups: u32,
    pub(crate) tokens: u32,
}

/// A time of even load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// By class: offered load as a multiple of the fleet's capacity for that class. Poisson arrivals.
    #[serde(default)]
    pub(crate) load: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) bursts: Vec<Burst>,
}

/// Requests that come at one moment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Burst {
    /// After the phase's beginning.
    pub(crate) at_s: f64,
    pub(crate) class: String,
    pub(crate) requests: u32,
}

impl Scenario {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let scenario: Self = yaml_serde::from_str(text).context("not a scenario")?;
        scenario.check()?;
        Ok(scenario)
    }

    /// From and to, after the beginning.
    pub(crate) fn window(&self, phase: &str) -> Result<(Duration, Duration)> {
        let mut begins = 0.0;
        for candidate in &self.phases {
            let ends = begins + candidate.seconds;
            if candidate.name == phase {
                return Ok((Duration::from_secs_f64(begins), Duration::from_secs_f64(ends)));
            }
            begins = ends;
        }
        anyhow::bail!("no phase is called `{phase}`")
    }

    pub(crate) fn endpoints(&self) -> usize {
        self.fleet.iter().map(|machines| machines.count).sum()
    }

    fn check(&self) -> Result<()> {
        ensure!(!self.expect.is_empty(), "a scenario without expectations cannot fail");
        for phase in &self.phases {
            for class in phase.load.keys().chain(phase.bursts.iter().map(|burst| &burst.class)) {
                ensure!(self.classes.contains_key(class), "phase `{}`: no class is called `{class}`", phase.name);
            }
        }
        for endpoint in self.changes.iter().filter_map(|change| change.endpoint) {
            ensure!(endpoint < self.endpoints(), "there is no endpoint {endpoint}");
        }
        self.expect.iter().try_for_each(|expectation| expectation.check(self))
    }
}

impl Class {
    /// Whether its requests take as much of an engine.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.prompt_tokens, self.output_tokens, self.prefixes)
            == (other.prompt_tokens, other.output_tokens, other.prefixes)
    }
}

impl Length {
    pub(crate) fn draw(self, rng: &mut fastrand::Rng) -> u32 {
        match self {
            Self::Fixed(value) => value,
            Self::Between { from, to } => rng.u32(from..=to),
            Self::Around { median, sigma, max } => {
                let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
                ((f64::from(median) * (sigma * normal).exp()) as u32).clamp(1, max)
            }
        }
    }
}

const fn one() -> u32 {
    1
}
