//! What is too short to be seen from outside: a pick in a large pool, and a look-up of a very long prompt.

use std::collections::BTreeMap;
use std::time::Instant;

use scheduling::PrefixIndex;

use super::figures::Key;
use super::loads::Loads;
use crate::admission;
use crate::statistics::percentile;

const ENDPOINTS_MANY: u16 = 1_000;
const ENDPOINTS_FEW: u16 = 100;
/// A prompt of 100,000 tokens.
const PROMPT_BLOCKS: usize = 100_000 / scheduling::BLOCK_TOKENS as usize;
/// Of the index that is looked into: as many as in the other loads, and prompts enough to fill it.
const LANES: usize = 16;
const PROMPTS: usize = 512;
const BUDGET_BYTES: usize = 64 << 20;

pub(super) fn measure(loads: &Loads) -> BTreeMap<Key, f64> {
    let mut many = admission::picks_ns(ENDPOINTS_MANY, loads.calls, loads.seed);
    let mut few = admission::picks_ns(ENDPOINTS_FEW, loads.calls, loads.seed);
    let growth = percentile(&mut many, 0.5) as f64 / percentile(&mut few, 0.5).max(1) as f64;
    let mut lookups = lookups_ns(loads);
    BTreeMap::from([
        (Key::PickUsP99, percentile(&mut many, 0.99) as f64 / 1e3),
        (Key::PickGrowth, growth),
        (Key::PrefixLookupUs, percentile(&mut lookups, 0.99) as f64 / 1e3),
    ])
}

/// Conversations that share beginnings of all lengths, held by one to sixteen endpoints each; every one is looked up.
fn lookups_ns(loads: &Loads) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(loads.seed);
    let mut index = PrefixIndex::new(BUDGET_BYTES);
    let lanes: Vec<_> = (0..LANES).filter_map(|_| index.open(u32::MAX)).collect();
    let trunk: Vec<u64> = (0..PROMPT_BLOCKS).map(|_| random.u64(..)).collect();
    let prompts: Vec<Vec<u64>> = (0..PROMPTS)
        .map(|_| {
            let shared = random.usize(..PROMPT_BLOCKS);
            trunk[..shared].iter().copied().chain((shared..PROMPT_BLOCKS).map(|_| random.u64(..))).collect()
        })
        .collect();
    for prompt in &prompts {
        for lane in lanes.iter().take(random.usize(1..=LANES)) {
            let held = index.held(*lane, prompt);
            index.record(*lane, prompt, held);
        }
    }
    let mut matched = Vec::new();
    let calls = prompts.iter().cycle().take(loads.calls as usize);
    calls
        .map(|prompt| {
            let started = Instant::now();
            index.matches(prompt, &mut matched);
            let took = started.elapsed();
            std::hint::black_box(&matched);
            took.as_nanos() as u64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_is_measured() {
        let line = super::super::tests::arguments(&["--quick"]);
        let figures = measure(&Loads::new(&line, 1.0));
        assert!(figures.values().all(|value| value.is_finite() && *value > 0.0), "{figures:?}");
    }
}
