//! What a fleet can do at most, measured: each engine by itself, with no gateway in front that could hold it back.
//!
//! An engine is kept at a number of live requests for a while, at several numbers; the best rate of ends is its
//! capacity for that class of requests. So "10 × capacity" and "95 % of capacity" are said of the engines, and a
//! gateway that starves them cannot hide it.

use std::time::Duration;

use anyhow::{Context, Result};
use engine::{Engine, EventKind, Profile};
use fastrand::Rng;
use pool::Moment;

use crate::{
    prompt::Draft,
    scenario::{Class, Machines, Scenario},
};

/// Live requests tried. The largest is beyond every profile's batch at the lengths in use.
const LIVE: [usize; 6] = [16, 32, 64, 128, 256, 512];
/// Then these multiples of the best of them.
const AROUND: [f64; 5] = [0.6, 0.7, 0.8, 1.2, 1.4];
/// Ends counted per trial, after as many that are not: at least this many, and several times all that are live, since those
/// that begin together end together.
const ENDS_MIN: usize = 500;
const ENDS_PER_LIVE: usize = 4;
/// A trial gives up after this; then its rate is that of the time passed.
const TRIAL: Duration = Duration::from_secs(600);

/// Requests and output tokens per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacity {
    pub(crate) requests_per_s: f64,
    pub(crate) tokens_per_s: f64,
}

/// Of a scenario's fleet for each class, in the order of their names. Classes of one shape are measured once.
pub(crate) fn of_classes(scenario: &Scenario) -> Result<Vec<Capacity>> {
    let mut known: Vec<(&Class, Capacity)> = Vec::new();
    for class in scenario.classes.values() {
        let capacity = match known.iter().find(|(other, _)| other.is_like(class)) {
            Some(&(_, capacity)) => capacity,
            None => measure(&scenario.fleet, class, scenario.seed)?,
        };
        known.push((class, capacity));
    }
    Ok(known.into_iter().map(|(_, capacity)| capacity).collect())
}

/// Of a whole fleet, for one class.
fn measure(fleet: &[Machines], class: &Class, seed: u64) -> Result<Capacity> {
    let mut sum = Capacity::default();
    for machines in fleet {
        let profile = profile(machines)?;
        let at = |live: usize| (live, trial(&profile, class, live, seed));
        let best_of = |trials: Vec<(usize, Capacity)>| {
            trials.into_iter().max_by(|(_, a), (_, b)| a.requests_per_s.total_cmp(&b.requests_per_s))
        };
        let coarse = best_of(LIVE.map(at).into()).context("trials were made")?;
        let around = AROUND.map(|factor| at((coarse.0 as f64 * factor) as usize));
        let (_, best) = best_of([&around[..], &[coarse]].concat()).context("trials were made")?;
        sum.requests_per_s += best.requests_per_s * machines.count as f64;
        sum.tokens_per_s += best.tokens_per_s * machines.count as f64;
    }
    Ok(sum)
}

pub(crate) fn profile(machines: &Machines) -> Result<Profile> {
    let mut profile = Profile::named(&machines.profile)?;
    profile.max_seqs = machines.batch_max.unwrap_or(profile.max_seqs);
    Ok(profile)
}

fn trial(profile: &Profile, class: &Class, live: usize, seed: u64) -> Capacity {
    let (mut engine, mut rng) = (Engine::new(profile.clone(), seed), Rng::with_seed(seed));
    let mut drafts: Vec<u32> = Vec::new();
    let mut now = Moment::ORIGIN;
    let (mut ends, mut tokens, mut counting_since) = (0, 0u64, now);
    let warm = ENDS_MIN.max(ENDS_PER_LIVE * live);
    while ends < 2 * warm && now.since_origin() < TRIAL {
        while engine.live() < live {
            let serial = drafts.len() as u64;
            let draft = Draft::draw(class, seed, serial, &mut rng);
            drafts.push(draft.output_tokens);
            engine.submit(draft.for_engine(serial), now).expect("a scenario's lengths fit its engines");
        }
        now = engine.next_step_at().expect("an engine with live requests has a next step");
        for event in engine.step(now) {
            if matches!(event.kind, EventKind::Finished(_)) {
                ends += 1;
                tokens += u64::from(drafts[event.id.0 as usize]);
                if ends == warm {
                    (counting_since, tokens) = (now, 0);
                }
            }
        }
    }
    let seconds = now.since(counting_since).as_secs_f64().max(f64::MIN_POSITIVE);
    let counted = if ends >= warm { ends - warm } else { ends };
    Capacity { requests_per_s: counted as f64 / seconds, tokens_per_s: tokens as f64 / seconds }
}
