//! Routers by their names on the command line.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use dispatch::{Scorer, Settings, Weights};

use super::scenario::Scenario;
use crate::world::Router;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Contender {
    /// With the scenario's settings.
    Gateway,
    /// With these weights instead.
    Weighted(Weights),
    Random,
    RoundRobin,
    LeastRequest,
    RandomOfTwo,
    Clairvoyant,
}

impl Contender {
    pub fn defaults() -> Vec<Self> {
        vec![Self::Random, Self::RoundRobin, Self::LeastRequest, Self::RandomOfTwo, Self::Gateway, Self::Clairvoyant]
    }

    pub fn name(&self) -> String {
        match self {
            Self::Gateway => "gateway".to_owned(),
            Self::Weighted(weights) => format!("gateway:{}", written(*weights)),
            Self::Random => "random".to_owned(),
            Self::RoundRobin => "round-robin".to_owned(),
            Self::LeastRequest => "least-request".to_owned(),
            Self::RandomOfTwo => "random-of-two".to_owned(),
            Self::Clairvoyant => "clairvoyant".to_owned(),
        }
    }

    pub fn router(&self, scenario: &Scenario) -> Router {
        let product = |weights: Option<Weights>| {
            let mut settings = Settings { weights: Weights::LLM_D, ..Settings::default() };
            scenario.settings.apply(&mut settings);
            settings.weights = weights.unwrap_or(settings.weights);
            Router::Product { settings: settings.into(), gateways: scenario.gateways }
        };
        match self {
            Self::Gateway => product(None),
            Self::Weighted(weights) => product(Some(*weights)),
            Self::Random => Router::Random,
            Self::RoundRobin => Router::RoundRobin,
            Self::LeastRequest => Router::LeastRequest,
            Self::RandomOfTwo => Router::RandomOfTwo,
            Self::Clairvoyant => Router::Clairvoyant,
        }
    }
}

impl FromStr for Contender {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some(weights) = name.strip_prefix("gateway:") {
            return Ok(Self::Weighted(read(weights)?));
        }
        let mut known = vec![Self::Gateway];
        known.extend(Self::defaults());
        match known.iter().find(|contender| contender.name() == name) {
            Some(contender) => Ok(*contender),
            None => bail!("nobody routes by the name of `{name}`"),
        }
    }
}

/// `queue=2,prefix=3`; what is not named counts nothing.
fn read(text: &str) -> anyhow::Result<Weights> {
    let mut weights = Weights {
        queue: 0,
        kv_cache: 0,
        prefix: 0,
        lora_affinity: 0,
        running_requests: 0,
        lru: 0,
        predicted_latency: 0,
    };
    for part in text.split(',') {
        let (name, value) = part.split_once('=').with_context(|| format!("`{part}` is no weight: name=number"))?;
        let scorer = Scorer::ALL.into_iter().find(|scorer| scorer.as_str() == name);
        let scorer = scorer.with_context(|| format!("no scorer is called `{name}`"))?;
        *of(&mut weights, scorer) = value.parse().with_context(|| format!("`{value}` is no weight"))?;
    }
    ensure!(Scorer::ALL.into_iter().any(|scorer| *of(&mut weights.clone(), scorer) > 0), "nothing counts");
    Ok(weights)
}

fn written(mut weights: Weights) -> String {
    let counting = Scorer::ALL.into_iter().filter_map(|scorer| {
        let weight = *of(&mut weights, scorer);
        (weight > 0).then(|| format!("{}={weight}", scorer.as_str()))
    });
    counting.collect::<Vec<_>>().join(",")
}

fn of(weights: &mut Weights, scorer: Scorer) -> &mut u32 {
    match scorer {
        Scorer::Queue => &mut weights.queue,
        Scorer::KvCache => &mut weights.kv_cache,
        Scorer::Prefix => &mut weights.prefix,
        Scorer::LoraAffinity => &mut weights.lora_affinity,
        Scorer::RunningRequests => &mut weights.running_requests,
        Scorer::Lru => &mut weights.lru,
        Scorer::PredictedLatency => &mut weights.predicted_latency,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for name in ["gateway", "round-robin", "clairvoyant", "gateway:queue=2,prefix=3"] {
            assert_eq!(name.parse::<Contender>().unwrap().name(), name);
        }
        for wrong in ["gatway", "gateway:queu=2", "gateway:queue", "gateway:queue=0", "gateway:queue=-1"] {
            assert!(wrong.parse::<Contender>().is_err(), "{wrong}");
        }
    }
}
