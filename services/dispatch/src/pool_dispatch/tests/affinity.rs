//! Prompts go where their beginning is cached.

use super::*;
use crate::PickReason;

/// Twelve requests that share about 700 tokens and end differently.
fn shared_batch() -> Vec<Vec<u64>> {
    let shared = prompt(77, 10);
    (0..12).map(|i| continued(&shared, i + 1, 1)).collect()
}

#[test]
fn a_shared_prefix_lands_on_one_of_two_one_after_another() {
    let mut rig = Rig::idle(2);
    let mut picks = Vec::new();
    for prefix in shared_batch() {
        let (to, permit) = rig.send(&prefix);
        rig.pass(ms(150));
        rig.report(to, Page { running: 1.0, kv_cache: 0.02, ..Page::default() });
        rig.report(1 - to, Page::default());
        rig.answer_and_complete(permit);
        picks.push(to);
    }
    assert!(counts(&picks, 2).contains(&12), "{picks:?}");
    assert_eq!(rig.decision.reason, PickReason::HighestScore);
}

#[test]
fn a_shared_prefix_lands_on_one_of_two_all_at_once() {
    let mut rig = Rig::idle(2);
    let picks: Vec<_> = shared_batch().iter().map(|prefix| rig.hold(prefix)).collect();
    assert!(counts(&picks, 2).contains(&12), "{picks:?}");
}

#[test]
fn unique_prefixes_spread() {
    let mut rig = Rig::idle(2);
    let picks: Vec<_> = (0..12)
        .map(|_| {
            let prefix = rig.new_prompt(11);
            rig.hold(&prefix)
        })
        .collect();
    assert_eq!(counts(&picks, 2), [6, 6]);
}

#[test]
fn without_prefix_weight_the_shared_batch_spreads_too() {
    let weights = Weights { queue: 3, kv_cache: 2, prefix: 0, ..Weights::default() };
    for concurrent in [false, true] {
        let mut rig = Rig::with(2, weights);
        let mut picks = Vec::new();
        for prefix in shared_batch() {
            let (to, permit) = rig.send(&prefix);
            picks.push(to);
            if concurrent {
                rig.held.push(permit);
            } else {
                rig.answer_and_complete(permit);
            }
        }
        assert!(counts(&picks, 2).iter().all(|c| (5..=7).contains(c)), "concurrent: {concurrent}: {picks:?}");
    }
}

#[test]
fn e04_the_endpoint_that_holds_the_head_wins_over_the_one_that_holds_the_tail() {
    for text in 0..20 {
        let mut rig = Rig::idle(2);
        let x = prompt(1_000 + text, 2);
        let y = prompt(2_000 + text, 2);
        let pinned = |rig: &mut Rig, prefix: &[u64], only| {
            let sent =
                rig.dispatch(Request { prefix, prompt_tokens: 128, only: Some(only), ..Request::default() }).unwrap();
            rig.answer_and_complete(sent.permit);
        };
        pinned(&mut rig, &x, id(0));
        pinned(&mut rig, &y, id(1));
        let y_then_x = continued(&y, 1_000 + text, 2);
        assert_eq!(rig.hold(&y_then_x), 1);
        assert_eq!(rig.decision.candidates[0].matched_blocks, 2);
    }
}

#[test]
fn e05_another_model_name_is_another_chain_and_no_hit() {
    // The model's name seeds the chain, so the second call's blocks have nothing in common with the first's.
    let mut same = 0;
    for text in 0..100 {
        let mut rig = Rig::idle(2);
        let (base, permit) = rig.send(&prompt(text, 5));
        rig.answer_and_complete(permit);
        let adapter_chain = prompt(text + 10_000, 5);
        let request =
            Request { prefix: &adapter_chain, prompt_tokens: 320, adapter: Some("lora-a"), ..Request::default() };
        let adapter = rig.dispatch(request).unwrap();
        assert_eq!(adapter.cached_tokens, 0);
        same += usize::from(adapter.ranked[0] == id(base));
    }
    assert!((40..=60).contains(&same), "{same}");
}

#[test]
fn cached_tokens_are_those_of_whole_blocks_and_never_more_than_the_prompt() {
    let mut rig = Rig::idle(1);
    let prefix = prompt(5, 4);
    let first = rig.dispatch(Request { prefix: &prefix, prompt_tokens: 300, ..Request::default() }).unwrap();
    assert_eq!((first.cached_tokens, first.uncached_tokens), (0, 300));
    let second = rig.dispatch(Request { prefix: &prefix, prompt_tokens: 300, ..Request::default() }).unwrap();
    assert_eq!((second.cached_tokens, second.uncached_tokens), (256, 44));
    let short = rig.dispatch(Request { prefix: &prefix, prompt_tokens: 100, ..Request::default() }).unwrap();
    assert_eq!((short.cached_tokens, short.uncached_tokens), (100, 0));
}

#[test]
fn a_request_passed_on_is_remembered_where_it_went() {
    let mut rig = Rig::idle(3);
    let prefix = prompt(9, 8);
    let sent = rig.dispatch(Request { prefix: &prefix, prompt_tokens: 512, ..Request::default() }).unwrap();
    let next = sent.ranked[1];
    rig.pool.pass_on(&sent.permit, next, &prefix, rig.now).unwrap();
    rig.answer_and_complete(sent.permit);
    let again = Request { prefix: &prefix, prompt_tokens: 512, exclude: &[sent.ranked[0]], ..Request::default() };
    let again = rig.dispatch(again).unwrap();
    assert_eq!((again.ranked[0], again.cached_tokens), (next, 512));
}

#[test]
fn the_memory_follows_the_engines_own_cache() {
    let mut rig = Rig::idle(1);
    let cache = CacheShape { block_tokens: 16, blocks: 40 };
    rig.report(0, Page { cache: Some(cache), ..Page::default() });
    let (first, second) = (prompt(1, 8), prompt(2, 8));
    for prefix in [&first, &second] {
        let (_, permit) = rig.send(prefix);
        rig.complete(permit);
    }
    assert_eq!(rig.pool.index_stats().entries, 10, "640 tokens are ten blocks of ours");
}
