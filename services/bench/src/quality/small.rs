//! A case small enough for chance to find good schedules: a handful of requests that come at twice the fleet's capacity,
//! and the best of many random ways to place them, beside what the routers make of them.
//!
//! It says how far greedy is from the best there is: with so few requests, no better one is likely to be missed by much.

use std::fmt::Write as _;

use fastrand::Rng;

use super::{cell::Setting, contender::Contender, scenario::Scenario, workload};
use crate::world::{
    Router, World,
    call::{Call, mix},
    stage::Stage,
};

const REQUESTS: u32 = 16;
/// Of the fleet's capacity.
const LOAD: f64 = 2.0;
const SCHEDULES: u32 = 1_000;

/// A table of mean times to the first token.
pub fn markdown(scenario: &Scenario, setting: &Setting, contenders: &[Contender], seed: u64) -> String {
    let rate_per_s = setting.capacity_per_s() * LOAD;
    let mut workload = scenario.workload.clone();
    (workload.requests, workload.seconds_min) = (REQUESTS, 0.0);
    let (calls, length) = workload::calls(&workload, rate_per_s, seed);
    let fleet = setting.pods.iter().flat_map(|pod| std::iter::repeat_n(pod.profile.clone(), pod.count));
    let stage = Stage {
        seed,
        fleet: fleet.collect(),
        hops: scenario.hops(),
        changes: Vec::new(),
        classes: scenario.workload.kinds.keys().cloned().collect(),
        length,
        patience: length * 10_000,
    };
    let mut rng = Rng::with_seed(mix(seed, 4));
    let endpoints = stage.fleet.len();
    let schedules = (0..SCHEDULES).map(|_| calls.iter().map(|_| rng.usize(..endpoints)).collect());
    let best = schedules.map(|schedule| mean_ms(&stage, &calls, &Router::Schedule(schedule)));
    let mut rows = vec![(format!("best of {SCHEDULES} random schedules"), best.fold(f64::INFINITY, f64::min))];
    rows.extend(contenders.iter().map(|router| (router.name(), mean_ms(&stage, &calls, &router.router(scenario)))));
    let mut text = format!(
        "\n## {} requests at once\n\nThey come at {:.0} % of capacity to an idle fleet (seed {seed}).\n\n\
         | router | TTFT mean ms |\n|---|---|\n",
        calls.len(),
        LOAD * 100.0
    );
    for (name, mean) in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {mean:.0} |");
    }
    text
}

/// A request without a first token counts as long as nothing else would be as bad.
fn mean_ms(stage: &Stage, calls: &[Call], router: &Router) -> f64 {
    let ledger = World::new(stage, calls, router).run();
    let times = ledger.requests.iter().map(|record| record.time_to_first_token().unwrap_or(stage.patience));
    times.map(|time| time.as_secs_f64() * 1e3).sum::<f64>() / calls.len().max(1) as f64
}
