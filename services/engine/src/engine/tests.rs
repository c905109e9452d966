use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{ApiOverhead, BlockHash, CacheKey, Gauges, Policy, StepTime};

mod ahead;
mod changes;

/// A small engine without chance in its times: `blocks` usable blocks of 4 tokens, 16 tokens per step, 4 requests,
/// 1 adapter; a step takes 10 ms, a prefill step 10 ms more.
fn small(blocks: u32) -> Profile {
    Profile {
        name: "small",
        kv_blocks: blocks + 1,
        block_tokens: 4,
        max_batched_tokens: 16,
        max_seqs: 4,
        max_loras: 1,
        max_model_tokens: 1_000,
        step: StepTime { jitter_sigma: 0.0, ..StepTime::new(10.0, 20.0, 0.0, 0.0, 0.0, 0.0) },
        api: ApiOverhead { base_us: 0.0, per_token_us: 0.0, spread: 0.0 },
        policy: Policy::Fcfs,
        scheduling: Scheduling::InTurn,
    }
}

fn request(id: u64, prompt: u32, output: u32) -> Request {
    Request {
        id: RequestId(id),
        blocks: Vec::new(),
        prompt_tokens: prompt,
        output_tokens: output,
        max_tokens: None,
        adapter: None,
        priority: 0,
    }
}

fn with_blocks(request: Request, blocks: impl IntoIterator<Item = u64>) -> Request {
    Request { blocks: blocks.into_iter().map(BlockHash).collect(), ..request }
}

fn ms(ms: u64) -> Moment {
    Moment::ORIGIN + Duration::from_millis(ms)
}

/// Steps until idle; every event in order.
fn run(engine: &mut Engine) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(at) = engine.next_step_at() {
        all.extend_from_slice(engine.step(at));
    }
    all
}

fn kinds(events: &[Event], id: u64) -> Vec<(u64, EventKind)> {
    let of = events.iter().filter(|e| e.id == RequestId(id));
    of.map(|e| (e.at.since_origin().as_millis() as u64, e.kind)).collect()
}

#[test]
fn one_request_from_arrival_to_end() {
    let mut engine = Engine::new(small(20), 1);
    engine.submit(Request { max_tokens: Some(3), ..request(1, 20, 3) }, ms(5)).unwrap();
    assert_eq!(engine.next_step_at(), Some(ms(5)));
    let events = run(&mut engine);
    let expected = [
        (5, EventKind::Scheduled { cached_tokens: 0 }),
        // 20 tokens under a budget of 16: two prefill steps of 20 ms.
        (45, EventKind::FirstToken),
        (55, EventKind::Tokens(1)),
        (65, EventKind::Tokens(1)),
        (65, EventKind::Finished(FinishReason::Length)),
    ];
    assert_eq!(kinds(&events, 1), expected);
    let counters = engine.stats().counters;
    assert_eq!((counters.prompt_tokens, counters.generation_tokens, counters.steps), (20, 3, 4));
    assert_eq!((counters.finished_length, counters.prefill_steps), (1, 2));
    let histograms = engine.histograms();
    assert!((histograms.time_to_first_token.sum() - 0.040).abs() < 1e-9);
    assert!((histograms.inter_token_latency.sum() - 0.020).abs() < 1e-9);
    assert!((histograms.e2e_latency.sum() - 0.060).abs() < 1e-9);
    assert_eq!(histograms.iteration_tokens.sum(), 23.0);
    assert_eq!(engine.stats().gauges, Gauges { kv_blocks_cached_free: 5, ..Gauges::default() });
}

#[test]
fn a_prefill_stretches_the_steps_of_those_that_decode() {
    let mut engine = Engine::new(small(50), 1);
    engine.submit(request(1, 4, 6), ms(0)).unwrap();
    engine.step(ms(0));
    engine.submit(request(2, 15, 2), ms(25)).unwrap();
    let events = run(&mut engine);
    let tokens: Vec<u64> =
        kinds(&events, 1).into_iter().filter(|(_, k)| *k == EventKind::Tokens(1)).map(|(t, _)| t).collect();
    // 30 ms: an ordinary step; the next holds the other's whole prefill (15 of the 15 tokens left).
    assert_eq!(tokens, [30, 50, 60, 70, 80]);
    assert!(kinds(&events, 2).contains(&(50, EventKind::FirstToken)));
}

#[test]
fn the_same_prefix_is_computed_once() {
    let mut engine = Engine::new(small(50), 1);
    for id in 1..=2 {
        engine.submit(with_blocks(request(id, 12, 1), [7, 8, 9]), ms(id * 100)).unwrap();
    }
    engine.submit(with_blocks(request(3, 12, 1), [7, 0, 9]), ms(300)).unwrap();
    engine
        .submit(Request { adapter: Some(AdapterId(0)), ..with_blocks(request(4, 12, 1), [7, 8, 9]) }, ms(400))
        .unwrap();
    let events = run(&mut engine);
    let cached = |id| {
        let EventKind::Scheduled { cached_tokens } = kinds(&events, id)[0].1 else { panic!("not scheduled first") };
        cached_tokens
    };
    // The last block is never taken from the cache: its last token must be computed.
    assert_eq!([1, 2, 3, 4].map(cached), [0, 8, 4, 0]);
    let counters = engine.stats().counters;
    assert_eq!((counters.prefix_queries, counters.prefix_hits, counters.prompt_tokens_cached), (48, 12, 12));
}

#[test]
fn generated_text_is_a_prefix_for_the_next_turn() {
    let mut engine = Engine::new(small(50), 1);
    // Two prompt blocks, then two of output; the next turn's prompt holds all four.
    engine.submit(with_blocks(request(1, 8, 9), [1, 2, 3, 4]), ms(0)).unwrap();
    run(&mut engine);
    engine.submit(with_blocks(request(2, 20, 1), [1, 2, 3, 4, 5]), ms(500)).unwrap();
    let events = run(&mut engine);
    assert_eq!(kinds(&events, 2)[0].1, EventKind::Scheduled { cached_tokens: 16 });
}

#[test]
fn contents_nobody_described_are_never_found() {
    let mut engine = Engine::new(small(50), 1);
    for id in 1..=3 {
        engine.submit(request(id, 16, 1), ms(id * 100)).unwrap();
    }
    run(&mut engine);
    assert_eq!(engine.stats().counters.prefix_hits, 0);
}

#[test]
fn the_last_one_running_is_preempted_and_resumes_first() {
    // 5 blocks of 4: two requests of 8 + 8 tokens cannot both grow.
    let mut engine = Engine::new(small(5), 1);
    engine.submit(request(1, 8, 8), ms(0)).unwrap();
    engine.submit(request(2, 8, 8), ms(0)).unwrap();
    engine.submit(request(3, 8, 1), ms(1)).unwrap();
    let events = run(&mut engine);
    let preempted: Vec<RequestId> = events.iter().filter(|e| e.kind == EventKind::Preempted).map(|e| e.id).collect();
    assert_eq!(preempted, [RequestId(2)]);
    let end = |id| kinds(&events, id).last().copied().unwrap();
    assert!(end(1).0 < end(2).0);
    // The third was there all along, but the head of the queue blocks it until there is room for both.
    assert_eq!(kinds(&events, 3)[0], (end(1).0, EventKind::Scheduled { cached_tokens: 0 }));
    assert!([1, 2, 3].into_iter().all(|id| matches!(end(id).1, EventKind::Finished(FinishReason::Stop))));
    // All eight tokens, none twice.
    let tokens =
        kinds(&events, 2).iter().filter(|(_, k)| matches!(k, EventKind::FirstToken | EventKind::Tokens(1))).count();
    assert_eq!(tokens, 8);
    assert_eq!(engine.stats().counters.preemptions, 1);
    assert_eq!(engine.histograms().preemptions.sum(), 1.0);
}

#[test]
fn priority_decides_who_is_served_and_who_gives_way() {
    let mut engine = Engine::new(Profile { policy: Policy::Priority, ..small(5) }, 1);
    engine.submit(Request { priority: 5, ..request(1, 8, 8) }, ms(0)).unwrap();
    engine.submit(Request { priority: 1, ..request(2, 8, 8) }, ms(1)).unwrap();
    let events = run(&mut engine);
    let preempted: Vec<RequestId> = events.iter().filter(|e| e.kind == EventKind::Preempted).map(|e| e.id).collect();
    assert_eq!(preempted, [RequestId(1)]);
    assert!(kinds(&events, 2).last().unwrap().0 < kinds(&events, 1).last().unwrap().0);
}

#[test]
fn one_that_gives_way_to_itself_does_not_stop_the_rest() {
    // The worst one runs first in the batch and is the one that finds no block.
    let mut engine = Engine::new(Profile { policy: Policy::Priority, ..small(4) }, 1);
    engine.submit(Request { priority: 5, ..request(1, 7, 4) }, ms(0)).unwrap();
    engine.step(ms(0));
    engine.submit(Request { priority: 1, ..request(2, 8, 4) }, ms(1)).unwrap();
    let events = run(&mut engine);
    assert!(kinds(&events, 1).contains(&(40, EventKind::Preempted)));
    assert!(kinds(&events, 2).contains(&(50, EventKind::Tokens(1))), "no step is lost");
    for id in [1, 2] {
        assert!(matches!(kinds(&events, id).last(), Some((_, EventKind::Finished(_)))), "{id}");
    }
}

#[test]
fn an_adapter_without_a_slot_waits_and_others_pass_it() {
    let mut engine = Engine::new(small(50), 1);
    let lora = |id, adapter| Request { adapter: Some(AdapterId(adapter)), ..request(id, 4, 5) };
    engine.submit(lora(1, 0), ms(0)).unwrap();
    engine.submit(lora(2, 1), ms(0)).unwrap();
    engine.submit(request(3, 4, 5), ms(0)).unwrap();
    engine.step(ms(0));
    engine.step(ms(20));
    let gauges = engine.stats().gauges.clone();
    assert_eq!((gauges.running, gauges.waiting, gauges.waiting_deferred), (2, 1, 1));
    assert_eq!((gauges.adapters_running, gauges.adapters_waiting), (vec![AdapterId(0)], vec![AdapterId(1)]));
    let events = run(&mut engine);
    let end_of_first = kinds(&events, 1).last().unwrap().0;
    assert_eq!(kinds(&events, 2)[0], (end_of_first, EventKind::Scheduled { cached_tokens: 0 }));
}

#[test]
fn requests_beyond_the_batch_wait() {
    let mut engine = Engine::new(small(50), 1);
    for id in 1..=6 {
        engine.submit(request(id, 1, 3), ms(0)).unwrap();
    }
    engine.step(ms(0));
    engine.step(ms(20));
    assert_eq!((engine.stats().gauges.running, engine.stats().gauges.waiting), (4, 2));
}

#[test]
fn embeddings_end_with_their_prefill() {
    let mut engine = Engine::new(small(50), 1);
    engine.submit(request(1, 5, 0), ms(0)).unwrap();
    let events = run(&mut engine);
    let expected = [(0, EventKind::Scheduled { cached_tokens: 0 }), (20, EventKind::Finished(FinishReason::Stop))];
    assert_eq!(kinds(&events, 1), expected);
    assert_eq!(engine.stats().counters.generation_tokens, 0);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let mut engine = Engine::new(small(5), 1);
    assert_eq!(engine.submit(request(1, 0, 1), ms(0)), Err(SubmitError::EmptyPrompt));
    assert_eq!(engine.submit(request(1, 20, 1), ms(0)), Err(SubmitError::TooLong { tokens: 21, max: 20 }));
    engine.submit(request(1, 19, 1), ms(0)).unwrap();
    assert_eq!(engine.submit(request(1, 1, 1), ms(0)), Err(SubmitError::IdInUse(RequestId(1))));
    run(&mut engine);
    engine.submit(request(1, 1, 1), ms(0)).unwrap();
}

#[test]
fn an_abort_frees_its_blocks_at_the_end_of_the_step() {
    let mut engine = Engine::new(small(50), 1);
    engine.submit(request(1, 8, 100), ms(0)).unwrap();
    engine.step(ms(0));
    engine.step(ms(20));
    assert_eq!(engine.stats().gauges.kv_blocks_used, 2);
    assert!(engine.abort(RequestId(1), ms(22)));
    assert!(!engine.abort(RequestId(1), ms(22)));
    assert_eq!(engine.step(ms(30)), []);
    let stats = engine.stats();
    assert_eq!((stats.gauges.kv_blocks_used, stats.gauges.running, stats.counters.finished_abort), (0, 0, 1));
    // Its full blocks stay in the prefix cache.
    assert_eq!(stats.gauges.kv_blocks_cached_free, 2);
    assert_eq!(engine.next_step_at(), None);
}

#[test]
fn the_api_server_takes_its_time_first() {
    let api = ApiOverhead { base_us: 10_000.0, per_token_us: 100.0, spread: 0.0 };
    let mut engine = Engine::new(Profile { api, ..small(50) }, 1);
    engine.submit(request(1, 10, 1), ms(0)).unwrap();
    assert_eq!(engine.next_step_at(), Some(ms(11)));
    let events = run(&mut engine);
    assert_eq!(kinds(&events, 1)[1], (31, EventKind::FirstToken));
}

#[test]
fn a_late_caller_loses_no_time_on_the_engines_own_line() {
    let (mut punctual, mut late) = (Engine::new(small(50), 1), Engine::new(small(50), 1));
    for engine in [&mut punctual, &mut late] {
        engine.submit(request(1, 8, 10), ms(0)).unwrap();
    }
    let expected = run(&mut punctual);
    assert_eq!(late.step(ms(10_000)), expected);
}

// === Properties ===

#[derive(Clone, Debug)]
enum Action {
    Submit { prompt: Vec<u64>, tail: u32, output: u32, adapter: Option<u32>, priority: i32 },
    Abort(usize),
    Advance(u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let submit =
        (prop::collection::vec(0_u64..3, 0..5), 1_u32..6, 0_u32..20, prop::option::weighted(0.4, 0_u32..3), -1_i32..2)
            .prop_map(|(prompt, tail, output, adapter, priority)| Action::Submit {
                prompt,
                tail,
                output,
                adapter,
                priority,
            });
    let action = prop_oneof![4 => submit, 1 => any::<prop::sample::Index>().prop_map(|i| Action::Abort(i.index(64))), 4 => (0_u64..60).prop_map(Action::Advance)];
    prop::collection::vec(action, 1..60)
}

/// Plays a script and runs the engine until it is idle, checking its books after every call.
fn play(script: &[Action], profile: Profile, seed: u64) -> (Engine, Vec<Event>, Vec<RequestId>, Vec<RequestId>) {
    let mut engine = Engine::new(profile, seed);
    let (mut now, mut events) = (0, Vec::new());
    let (mut submitted, mut aborted) = (Vec::new(), Vec::new());
    for action in script {
        match action {
            Action::Submit { prompt, tail, output, adapter, priority } => {
                let id = RequestId(submitted.len() as u64);
                let tokens = prompt.len() as u32 * 4 + tail;
                let new = Request {
                    adapter: adapter.map(AdapterId),
                    priority: *priority,
                    ..with_blocks(request(id.0, tokens, *output), prompt.iter().copied())
                };
                engine.submit(new, ms(now)).unwrap();
                submitted.push(id);
            }
            Action::Abort(index) => {
                let id = RequestId(*index as u64);
                if engine.abort(id, ms(now)) {
                    aborted.push(id);
                }
            }
            Action::Advance(by) => {
                now += by;
                events.extend_from_slice(engine.step(ms(now)));
            }
        }
        check_books(&engine);
    }
    while let Some(at) = engine.next_step_at() {
        events.extend_from_slice(engine.step(at));
        check_books(&engine);
    }
    (engine, events, submitted, aborted)
}

fn check_books(engine: &Engine) {
    let held: BTreeSet<_> = engine.running.iter().flat_map(|s| s.blocks.iter().copied()).collect();
    assert_eq!(held.len() as u32, engine.blocks.used(), "blocks in use are those of the batch");
    assert!(engine.waiting.iter().all(|s| s.blocks.is_empty()), "nobody holds blocks in the queue");
    let read: BTreeSet<_> =
        engine.running.iter().filter(|s| s.decoding).flat_map(|s| s.blocks.iter().copied()).collect();
    assert_eq!(read.len() as u32, engine.readers.distinct());
    assert!(engine.running.len() <= engine.profile.max_seqs as usize);
    let adapters: BTreeSet<_> = engine.running.iter().filter_map(|s| s.adapter()).collect();
    assert!(adapters.len() <= engine.profile.max_loras as usize);
    for of in [|s: &Sequence| s.scheduled, |s: &Sequence| s.ahead] {
        assert!(engine.running.iter().map(of).sum::<u32>() <= engine.profile.max_batched_tokens);
    }
    let places = engine.running.iter().filter(|s| !s.aborted).count() + engine.waiting.len() + engine.arriving.len();
    assert_eq!(places, engine.live.len(), "every live request is somewhere");
}

proptest! {
    /// Whatever arrives and goes: every request ends exactly once or was aborted, tokens are complete and in order of
    /// time, and at the end nothing is held.
    #[test]
    fn no_request_is_lost(script in actions(), blocks in 11_u32..30, priority in any::<bool>(), ahead in any::<bool>()) {
        let policy = if priority { Policy::Priority } else { Policy::Fcfs };
        let scheduling = if ahead { Scheduling::Ahead } else { Scheduling::InTurn };
        let (engine, events, submitted, aborted) = play(&script, Profile { policy, scheduling, ..small(blocks) }, 3);
        let mut ends = BTreeMap::new();
        let mut tokens: BTreeMap<RequestId, u32> = BTreeMap::new();
        prop_assert!(events.is_sorted_by_key(|e| e.at));
        for event in &events {
            prop_assert!(!ends.contains_key(&event.id), "nothing happens after the end");
            match event.kind {
                EventKind::FirstToken => {
                    prop_assert!(tokens.insert(event.id, 1).is_none());
                }
                EventKind::Tokens(n) => *tokens.get_mut(&event.id).unwrap() += n,
                EventKind::Finished(reason) => {
                    ends.insert(event.id, reason);
                }
                EventKind::Scheduled { .. } | EventKind::Preempted => {}
            }
        }
        for id in &submitted {
            prop_assert!(ends.contains_key(id) != aborted.contains(id), "{id:?} ends once");
        }
        let outputs = script.iter().filter_map(|a| match a {
            Action::Submit { output, .. } => Some(*output),
            Action::Abort(_) | Action::Advance(_) => None,
        });
        for (id, output) in submitted.iter().zip(outputs).filter(|(id, _)| ends.contains_key(id)) {
            prop_assert_eq!(tokens.get(id).copied().unwrap_or(0), output);
        }
        let counters = engine.stats().counters;
        prop_assert_eq!(counters.finished(), submitted.len() as u64);
        prop_assert_eq!(counters.finished_abort, aborted.len() as u64);
        prop_assert_eq!(engine.blocks.free(), blocks);
        prop_assert_eq!(engine.stats().gauges.kv_usage, 0.0);
        prop_assert_eq!(engine.live(), 0);
    }

    /// Equal seeds and calls, equal runs; jitter and overhead included.
    #[test]
    fn runs_are_repeatable(script in actions(), seed in any::<u64>()) {
        let profile = || Profile { api: Profile::ALL[0].api, step: Profile::ALL[0].step, ..small(12) };
        let (first, first_events, ..) = play(&script, profile(), seed);
        let (second, second_events, ..) = play(&script, profile(), seed);
        prop_assert_eq!(first_events, second_events);
        prop_assert_eq!(first.stats(), second.stats());
        prop_assert_eq!(first.histograms(), second.histograms());
    }

    /// A request finds in the cache at most what an earlier one with the same adapter had as its beginning.
    #[test]
    fn hits_are_only_for_the_same_chain(script in actions()) {
        let (_, events, ..) = play(&script, small(11), 3);
        let prompts: Vec<(&[u64], Option<u32>)> = script.iter().filter_map(|a| match a {
            Action::Submit { prompt, adapter, .. } => Some((prompt.as_slice(), *adapter)),
            Action::Abort(_) | Action::Advance(_) => None,
        }).collect();
        for event in events {
            let EventKind::Scheduled { cached_tokens } = event.kind else { continue };
            let (prompt, adapter) = prompts[event.id.0 as usize];
            let shared = prompts.iter().enumerate()
                .filter(|(other, (_, a))| *other != event.id.0 as usize && *a == adapter)
                .map(|(_, (p, _))| p.iter().zip(prompt).take_while(|(a, b)| a == b).count())
                .max().unwrap_or(0);
            prop_assert!(cached_tokens as usize <= shared * 4, "{} tokens of {} blocks", cached_tokens, shared);
        }
    }
}
