//! The same calls on virtual time, where somebody there routes alike.

use std::time::Duration;

use super::ROUND_ROBIN;
use crate::quality::Figures;
use crate::quality::contender::Contender;
use crate::quality::figures::Basis;
use crate::quality::scenario::Scenario;
use crate::world::World;
use crate::world::call::Call;
use crate::world::stage::{Hops, Stage};

/// `None` for a router that virtual time does not know.
pub(super) fn run(router: &str, scenario: &Scenario, calls: &[Call], basis: &Basis<'_>, seed: u64) -> Option<Figures> {
    let contender = match router {
        ROUND_ROBIN => Contender::RoundRobin,
        "gateway" => Contender::Gateway,
        "envoy:least-request" => Contender::RandomOfTwo,
        _ => return None,
    };
    let fleet = basis.pods.iter().flat_map(|pod| std::iter::repeat_n(pod.profile.clone(), pod.count));
    let stage = Stage {
        seed,
        fleet: fleet.collect(),
        hops: Hops { front: Duration::ZERO, gateway: Duration::ZERO, engine: Duration::ZERO },
        changes: Vec::new(),
        classes: scenario.workload.kinds.keys().cloned().collect(),
        length: basis.length,
        patience: basis.length * 1_000,
    };
    let ledger = World::new(&stage, calls, &contender.router(scenario)).run();
    Some(Figures::of(&ledger, basis))
}
