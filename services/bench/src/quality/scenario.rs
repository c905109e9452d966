//! A scenario file of `tests/scenarios`: a fleet, what is asked of it, when an answer is good, and what was published for
//! this condition.
//!
//! Loads are shares of what the fleet can do, which is measured (see `world::capacity`) and never written down. Unknown
//! fields are refused.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use engine::Profile;
use serde::Deserialize;

use super::{lengths::Lengths, trace::Trace};
use crate::world::{
    knobs::Knobs,
    stage::{Deed, Hops, Machines},
};

/// One file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The condition, in a line.
    pub title: String,
    /// Where each of its numbers comes from.
    pub sources: Vec<String>,
    pub model: String,
    pub fleet: Vec<Machines>,
    /// Gateways that share the work, each of which sees only its own.
    #[serde(default = "one")]
    pub gateways: usize,
    pub hops_ms: HopsMs,
    pub slo: Slo,
    pub workload: Workload,
    #[serde(default)]
    pub changes: Vec<ChangeAt>,
    /// What differs from the product's defaults.
    #[serde(default)]
    pub settings: Knobs,
    /// Shares of the fleet's capacity.
    #[serde(default = "loads")]
    pub loads: Vec<f64>,
    #[serde(default)]
    pub published: Published,
}

/// Delays of one way, ms. See [`Hops`].
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HopsMs {
    front: f64,
    gateway: f64,
    engine: f64,
}

/// When an answer is good.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slo {
    /// The client has its first token within so long.
    pub first_token_ms: f64,
    /// Its further tokens come, on average, at least so fast.
    pub token_ms: f64,
}

/// What is asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// In each run, at least; more where they would come in less than [`Workload::seconds_min`].
    pub requests: u32,
    #[serde(default = "seconds_min")]
    pub seconds_min: f64,
    /// Coefficient of variation of the times between arrivals.
    pub arrivals_cv: f64,
    /// Taken instead of what is drawn for the first kind.
    #[serde(skip)]
    pub trace: Option<Trace>,
    /// Kinds of requests.
    pub kinds: BTreeMap<String, Kind>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// Of all requests, as a part of the sum of all kinds' shares.
    #[serde(default = "whole")]
    pub share: f64,
    pub lengths: Lengths,
    /// Longest prompt and longest answer, where the model takes less than the trace's.
    #[serde(default)]
    pub longest: Option<(u32, u32)>,
    /// The objective's priority.
    #[serde(default)]
    pub priority: i32,
    /// Beginnings that prompts share, besides what is their own.
    #[serde(default)]
    pub shared: Option<Shared>,
    /// Conversations: each further turn begins with all that was said.
    #[serde(default)]
    pub turns: Option<Turns>,
    /// Shares of the LoRA adapters that are asked for; none for the base model.
    #[serde(default)]
    pub adapters: Vec<f64>,
}

/// Groups of prompts that begin alike.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    pub groups: u32,
    pub tokens: u32,
    /// Group k is asked for in proportion to 1 ÷ k^zipf; 0 = all equally.
    #[serde(default)]
    pub zipf: f64,
}

/// How conversations go on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// Chance that a request goes on with a conversation that began in this run, rather than beginning one.
    pub goes_on: f64,
    /// Conversations that may still go on.
    pub open: u32,
}

/// Something happens to an endpoint.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeAt {
    /// As a share of the run's length.
    pub at: f64,
    /// Its number.
    pub endpoint: usize,
    pub does: Deed,
}

/// Published changes against round-robin, as shares: −0.97 is "97 % less". `None` where nothing was published, 0 where it
/// was called comparable.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    #[serde(default)]
    pub ttft_p95: Option<f64>,
    #[serde(default)]
    pub ttft_p99: Option<f64>,
    #[serde(default)]
    pub throughput: Option<f64>,
}

/// Endpoints of one kind of machine.
#[derive(Clone, Debug)]
pub struct PodClass {
    pub name: String,
    pub profile: Profile,
    pub count: usize,
    pub gpus: usize,
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no scenario", path.display()))
    }

    pub fn parse(text: &str) -> Result<Self> {
        let scenario: Self = yaml_serde::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<()> {
        let endpoints: usize = self.fleet.iter().map(|machines| machines.count).sum();
        ensure!(endpoints > 0 && self.gateways > 0, "there is no endpoint or no gateway");
        ensure!(!self.workload.kinds.is_empty(), "nothing is asked");
        ensure!(self.workload.arrivals_cv > 0.0, "arrivals have a variation above 0");
        ensure!(!self.sources.is_empty(), "numbers without a source are made up");
        for change in &self.changes {
            ensure!(change.endpoint < endpoints, "there is no endpoint {}", change.endpoint);
        }
        self.pod_classes().map(drop)
    }

    pub fn hops(&self) -> Hops {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        let HopsMs { front, gateway, engine } = self.hops_ms;
        Hops { front: ms(front), gateway: ms(gateway), engine: ms(engine) }
    }

    pub fn pod_classes(&self) -> Result<Vec<PodClass>> {
        let classes = self.fleet.iter().map(|machines| {
            let name = machines.profile.rsplit('-').next().unwrap_or(&machines.profile).to_owned();
            let gpus = name.split_once('x').and_then(|(count, _)| count.parse().ok()).unwrap_or(1);
            Ok(PodClass { name, profile: machines.profile()?, count: machines.count, gpus })
        });
        classes.collect()
    }
}

const fn one() -> usize {
    1
}

const fn whole() -> f64 {
    1.0
}

const fn seconds_min() -> f64 {
    60.0
}

fn loads() -> Vec<f64> {
    vec![0.5, 0.7, 0.85, 0.95]
}
