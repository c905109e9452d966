use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The chain of a path: each hash stands for the path up to it.
fn chain(path: &[u8]) -> Vec<u64> {
    let mix = |hash: u64, step: u8| (hash ^ u64::from(step)).wrapping_mul(0x0000_0100_0000_01B3) ^ 0x5bd1;
    path.iter()
        .scan(0xcbf2_9ce4_8422_2325, |hash, &step| {
            *hash = mix(*hash, step);
            Some(*hash)
        })
        .collect()
}

fn matched(index: &PrefixIndex, prefix: &[u64], lane: Lane) -> u32 {
    let mut matched = Vec::new();
    index.matches(prefix, &mut matched);
    matched[lane.index()]
}

fn send(index: &mut PrefixIndex, lane: Lane, prefix: &[u64]) {
    let held = matched(index, prefix, lane);
    index.record(lane, prefix, held);
}

#[test]
fn what_was_sent_is_matched_as_far_as_it_goes() {
    let mut index = PrefixIndex::new(1 << 20);
    let (a, b) = (index.open(100).unwrap(), index.open(100).unwrap());
    send(&mut index, a, &chain(&[1, 2, 3, 4, 5]));
    send(&mut index, b, &chain(&[1, 2, 9]));
    for (path, of_a, of_b) in [
        (&[1, 2, 3, 4, 5][..], 5, 2),
        (&[1, 2, 3, 4, 5, 6, 7], 5, 2),
        (&[1, 2, 9, 9], 2, 3),
        (&[1, 3], 1, 1),
        (&[2], 0, 0),
        (&[], 0, 0),
    ] {
        let prefix = chain(path);
        assert_eq!((matched(&index, &prefix, a), matched(&index, &prefix, b)), (of_a, of_b), "{path:?}");
        assert_eq!((index.held(a, &prefix), index.held(b, &prefix)), (of_a, of_b), "{path:?}");
    }
}

#[test]
fn e04_a_chain_is_matched_from_its_start_not_block_by_block() {
    let mut index = PrefixIndex::new(1 << 20);
    let (p1, p2) = (index.open(100).unwrap(), index.open(100).unwrap());
    let (x, y) = ([1, 1], [2, 2]);
    send(&mut index, p1, &chain(&x));
    send(&mut index, p2, &chain(&y));
    let y_then_x = chain(&[2, 2, 1, 1]);
    assert_eq!((matched(&index, &y_then_x, p1), matched(&index, &y_then_x, p2)), (0, 2));
    // Even a hash that turns up in the middle of a prompt by itself is no match without those before it.
    index.record(p1, &[20, 21], 0);
    assert_eq!(matched(&index, &[10, 20, 21], p1), 0);
}

#[test]
fn a_lane_keeps_the_newest_and_never_a_block_without_those_before_it() {
    let mut index = PrefixIndex::new(1 << 20);
    let lane = index.open(6).unwrap();
    send(&mut index, lane, &chain(&[1, 1, 1]));
    send(&mut index, lane, &chain(&[2, 2, 2]));
    send(&mut index, lane, &chain(&[1, 1, 1]));
    send(&mut index, lane, &chain(&[3, 3]));
    assert_eq!(matched(&index, &chain(&[1, 1, 1]), lane), 3, "used again, so newer");
    assert_eq!(matched(&index, &chain(&[2, 2, 2]), lane), 1, "the end goes first");
    assert_eq!(index.stats().evictions, 2);
    send(&mut index, lane, &chain(&[5; 20]));
    assert_eq!(matched(&index, &chain(&[5; 20]), lane), 6, "of a longer prompt the beginning is kept");
    assert_eq!(index.stats().entries, 6);
}

#[test]
fn a_lane_that_turns_out_smaller_is_cut_by_and_by() {
    let mut index = PrefixIndex::new(1 << 20);
    let lane = index.open(1_000).unwrap();
    send(&mut index, lane, &chain(&[7; 200]));
    index.resize(lane, 50);
    for _ in 0..4 {
        index.tidy();
    }
    assert_eq!((index.stats().entries, matched(&index, &chain(&[7; 200]), lane)), (50, 50));
    index.resize(lane, 300);
    send(&mut index, lane, &chain(&[7; 200]));
    assert_eq!(index.stats().entries, 200);
}

#[test]
fn a_closed_lane_is_emptied_before_it_is_used_again() {
    let mut index = PrefixIndex::new(1 << 20);
    let gone = index.open(1_000).unwrap();
    send(&mut index, gone, &chain(&[1; 150]));
    index.close(gone);
    send(&mut index, gone, &chain(&[2; 10]));
    let next = index.open(1_000).unwrap();
    assert_ne!(gone, next);
    for _ in 0..10 {
        index.tidy();
    }
    assert_eq!(index.stats().entries, 0);
    let reused = index.open(1_000).unwrap();
    assert_eq!(reused, gone);
    assert_eq!(matched(&index, &chain(&[1; 150]), reused), 0);
}

#[test]
fn a_budget_too_small_holds_nothing_and_breaks_nothing() {
    for budget in [0, 1, 100, 700, 2_000] {
        let mut index = PrefixIndex::new(budget);
        for _ in 0..3 {
            if let Some(lane) = index.open(10) {
                send(&mut index, lane, &chain(&[1, 2, 3]));
            }
        }
        assert!(index.stats().bytes <= budget as u64, "{:?}", index.stats());
    }
}

#[test]
fn e06_a_million_distinct_prompts_stay_within_the_budget() {
    let budget = 4 << 20;
    let mut index = PrefixIndex::new(budget);
    let lanes: Vec<_> = (0..4).map(|_| index.open(31_250).unwrap()).collect();
    let bytes = index.stats().bytes;
    let mut found = Vec::new();
    for i in 0..1_000_000u64 {
        let prompt = [i.wrapping_mul(0x9E37_79B9_7F4A_7C15), !i.wrapping_mul(0xBF58_476D_1CE4_E5B9)];
        index.matches(&prompt, &mut found);
        let lane = lanes[i as usize % 4];
        index.record(lane, &prompt, found[lane.index()]);
    }
    let stats = index.stats();
    assert_eq!(stats.bytes, bytes, "memory is taken once");
    assert!(stats.bytes <= budget as u64 && stats.bytes > budget as u64 * 9 / 10, "{stats:?}");
    assert_eq!(stats.entries + stats.evictions, 2_000_000);
    assert!(stats.entries > 60_000, "{stats:?}");
    index.matches(&[999_999u64.wrapping_mul(0x9E37_79B9_7F4A_7C15)], &mut found);
    assert_eq!(found[lanes[3].index()], 1, "the newest is still there");
}

#[test]
fn e06_endpoints_that_come_and_go_leave_nothing() {
    let mut index = PrefixIndex::new(1 << 20);
    let mut previous = None;
    for life in 0..200u8 {
        let lane = index.open(100).unwrap();
        for prompt in 0..5 {
            send(&mut index, lane, &chain(&[life, prompt, 1, 2, 3]));
            index.tidy();
        }
        if let Some(gone) = previous.replace(lane) {
            index.close(gone);
        }
    }
    index.close(previous.unwrap());
    for _ in 0..100 {
        index.tidy();
    }
    let stats = index.stats();
    assert_eq!(stats.entries, 0);
    assert!(index.lanes.len() <= 8, "lanes are used again: {}", index.lanes.len());
    assert!((0..200u8).all(|life| index.table.get(chain(&[life])[0]).is_none()));
}

#[test]
fn when_all_memory_is_used_the_oldest_of_all_goes_first() {
    let mut index = PrefixIndex::new(7_000);
    let (a, b) = (index.open(10_000).unwrap(), index.open(10_000).unwrap());
    send(&mut index, a, &chain(&[1; 20]));
    send(&mut index, b, &chain(&[2; 20]));
    for step in 3..=6 {
        send(&mut index, b, &chain(&[step; 20]));
    }
    assert_eq!(matched(&index, &chain(&[6; 20]), b), 20);
    assert!(index.stats().evictions > 0);
    assert!(matched(&index, &chain(&[1; 20]), a) < 20, "a's only prompt is older than all of b's");
    assert_eq!(matched(&index, &chain(&[5; 20]), b), 20);
}

/// The same in a few lines and without any speed: each lane's blocks from newest to oldest.
#[derive(Default)]
struct Model {
    lanes: BTreeMap<usize, Vec<u64>>,
}

impl Model {
    fn held(&self, lane: usize, prefix: &[u64]) -> usize {
        let held = &self.lanes[&lane];
        prefix.iter().take_while(|hash| held.contains(hash)).count()
    }

    fn record(&mut self, lane: usize, prefix: &[u64], blocks_max: usize) {
        let prefix = &prefix[..prefix.len().min(blocks_max)];
        let blocks = self.lanes.get_mut(&lane).unwrap();
        blocks.retain(|hash| !prefix.contains(hash));
        blocks.splice(0..0, prefix.iter().copied());
        blocks.truncate(blocks_max);
    }
}

proptest! {
    #[test]
    fn it_does_what_the_slow_model_does(
        sizes in prop::collection::vec(1u32..30, 1..5),
        sent in prop::collection::vec((0usize..5, prop::collection::vec(0u8..3, 0..12)), 1..80),
    ) {
        let mut index = PrefixIndex::new(1 << 20);
        let lanes: Vec<_> = sizes.iter().map(|&size| index.open(size).unwrap()).collect();
        let mut model = Model::default();
        model.lanes.extend((0..lanes.len()).map(|lane| (lane, Vec::new())));
        for (lane, path) in sent {
            let (lane, prefix) = (lane % lanes.len(), chain(&path));
            let mut found = Vec::new();
            index.matches(&prefix, &mut found);
            for (i, &of) in lanes.iter().enumerate() {
                prop_assert_eq!(found[of.index()] as usize, model.held(i, &prefix));
                prop_assert_eq!(index.held(of, &prefix) as usize, model.held(i, &prefix));
            }
            index.record(lanes[lane], &prefix, found[lanes[lane].index()]);
            model.record(lane, &prefix, sizes[lane] as usize);
            let kept: usize = model.lanes.values().map(Vec::len).sum();
            prop_assert_eq!(index.stats().entries as usize, kept);
        }
    }

    #[test]
    fn a_tight_budget_holds_under_any_use(
        budget in 1_000usize..6_000,
        steps in prop::collection::vec((0usize..4, prop::collection::vec(0u8..4, 0..20), 0u8..10), 1..120),
    ) {
        let mut index = PrefixIndex::new(budget);
        let mut lanes: Vec<_> = (0..4).map(|_| index.open(40)).collect();
        for (at, path, what) in steps {
            let prefix = chain(&path);
            if let Some(lane) = lanes[at] {
                if what == 0 {
                    index.close(lane);
                    lanes[at] = index.open(40);
                } else if what == 1 {
                    index.resize(lane, path.len() as u32);
                } else {
                    send(&mut index, lane, &prefix);
                    let held = matched(&index, &prefix, lane);
                    prop_assert_eq!(index.held(lane, &prefix), held);
                    // A block is held only with all before it: none beyond the match is.
                    for &hash in &prefix[held as usize..] {
                        prop_assert!(index.node_of(lane, hash).is_none());
                    }
                }
            }
            index.tidy();
            prop_assert!(index.stats().bytes <= budget as u64);
        }
        for lane in lanes.into_iter().flatten() {
            index.close(lane);
        }
        for _ in 0..64 {
            index.tidy();
        }
        prop_assert_eq!(index.stats().entries, 0);
    }

    #[test]
    fn hashes_that_are_no_chain_at_all_do_no_harm(
        sent in prop::collection::vec((0usize..3, prop::collection::vec(0u64..6, 0..10)), 1..60),
    ) {
        let mut index = PrefixIndex::new(3_000);
        let lanes: Vec<_> = (0..3).map(|_| index.open(8).unwrap()).collect();
        for (lane, prefix) in sent {
            send(&mut index, lanes[lane], &prefix);
            prop_assert!(matched(&index, &prefix, lanes[lane]) as usize <= prefix.len());
        }
        for lane in lanes {
            index.close(lane);
        }
        for _ in 0..8 {
            index.tidy();
        }
        prop_assert_eq!(index.stats().entries, 0);
    }
}
