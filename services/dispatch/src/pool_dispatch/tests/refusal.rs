//! When a request is refused, and how full a pool says it is.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::{Band, PickReason, QueueFull, Rejected};

fn page(waiting: f64, kv_cache: f64) -> Page {
    Page { waiting, kv_cache, running: 10.0, ..Page::default() }
}

fn refused(rig: &mut Rig) -> Option<Refusal> {
    let sent = rig.dispatch(Request { prompt_tokens: 500, ..Request::default() });
    match sent {
        Ok(sent) => {
            rig.complete(sent.permit);
            None
        }
        Err(refusal) => Some(refusal),
    }
}

#[test]
fn full_is_five_waiting_per_rank_or_a_full_cache_with_one_waiting() {
    for (waiting, kv_cache, ranks, full) in [
        (4.0, 0.5, 1, false),
        (5.0, 0.0, 1, true),
        (5.0, 0.0, 0, true),
        (9.0, 0.0, 2, false),
        (10.0, 0.0, 2, true),
        (0.0, 1.0, 1, false),
        (1.0, 0.79, 1, false),
        (1.0, 0.8, 1, true),
    ] {
        let mut rig = Rig::idle(1);
        rig.report(0, Page { ranks, ..page(waiting, kv_cache) });
        let case = format!("{waiting} waiting, cache {kv_cache}, {ranks} ranks");
        assert_eq!(refused(&mut rig), full.then_some(Refusal::Full(QueueFull::NoWaiting)), "{case}");
        assert_eq!(rig.pool.saturation(rig.now) == 1.0, full, "{case}");
    }
}

#[test]
fn a_full_endpoint_is_no_candidate_while_another_has_room() {
    let mut rig = Rig::idle(2);
    rig.report(0, page(5.0, 0.1));
    rig.report(1, page(4.0, 0.99));
    let sent = rig.dispatch(Request { only: Some(id(0)), ..Request::default() });
    assert_eq!(sent.unwrap_err(), Refusal::Full(QueueFull::NoWaiting), "not even when it is asked for");
    rig.report(1, page(0.0, 0.99));
    let prefix = rig.new_prompt(3);
    let (to, permit) = rig.send(&prefix);
    assert_eq!(to, 1);
    rig.complete(permit);
    assert_eq!(rig.decision.candidates[1].rejected, Some(Rejected::Full));
    rig.report(1, page(6.0, 0.99));
    assert_eq!(refused(&mut rig), Some(Refusal::Full(QueueFull::NoWaiting)));
    assert_eq!(rig.decision.reason, PickReason::PoolFull);
    assert_eq!(rig.decision.candidates.len(), 2, "the record says why, also of a refusal");
}

#[test]
fn no_endpoint_is_something_else_than_no_room() {
    let mut rig = Rig::unread(0, Settings::default());
    assert_eq!(refused(&mut rig), Some(Refusal::NoEndpoint));
    assert_eq!(rig.pool.saturation(rig.now), 1.0);
    let mut rig = Rig::idle(2);
    let draining = [0, 1].map(|n| Membership { standing: Standing::Draining, ..member(n) });
    rig.pool.set_endpoints(&draining, rig.now);
    assert_eq!(refused(&mut rig), Some(Refusal::NoEndpoint));
    assert_eq!(rig.decision.candidates[0].rejected, Some(Rejected::Draining));
    let mut rig = Rig::idle(2);
    let tried = Request { exclude: &[id(0), id(1)], ..Request::default() };
    assert_eq!(rig.dispatch(tried).unwrap_err(), Refusal::NoEndpoint);
    rig.report(1, page(9.0, 0.0));
    let tried = Request { exclude: &[id(0)], ..Request::default() };
    assert_eq!(rig.dispatch(tried).unwrap_err(), Refusal::Full(QueueFull::NoWaiting));
    let elsewhere = Request { only: Some(id(7)), ..Request::default() };
    assert_eq!(rig.dispatch(elsewhere).unwrap_err(), Refusal::NoEndpoint);
}

#[test]
fn a_burst_onto_idle_engines_is_not_refused() {
    let mut rig = Rig::idle(2);
    for _ in 0..128 {
        let prefix = rig.new_prompt(3);
        rig.hold(&prefix);
    }
    // The report begins just after the burst: the engines are still tokenizing and show nothing.
    rig.pass(ms(10));
    rig.report_all(&[Page::default(); 2]);
    assert_eq!(refused(&mut rig), None);
    // Twice 64 fit by assumption, and five may wait at each.
    for _ in 0..10 {
        let prefix = rig.new_prompt(3);
        rig.hold(&prefix);
    }
    assert_eq!(refused(&mut rig), Some(Refusal::Full(QueueFull::NoWaiting)));
    assert_eq!(rig.pool.saturation(rig.now), 1.0);
}

#[test]
fn slack_is_what_the_free_cache_holds() {
    let cache = Some(CacheShape { block_tokens: 16, blocks: 1_000 });
    let mut rig = Rig::idle(1);
    rig.report(0, Page { cache, kv_cache: 0.5, ..Page::default() });
    let mut taken = 0;
    while let Ok(sent) = rig.dispatch(Request { prompt_tokens: 800, ..Request::default() }) {
        rig.held.push(sent.permit);
        taken += 1;
        assert!(taken < 100);
    }
    assert_eq!(taken, 15, "8,000 free tokens hold ten of 800, and five may wait");
}

#[test]
fn an_engine_that_shows_a_queue_has_no_slack() {
    let mut rig = Rig::idle(1);
    rig.report(0, page(2.0, 0.1));
    for _ in 0..3 {
        rig.hold(&[]);
    }
    assert_eq!(refused(&mut rig), Some(Refusal::Full(QueueFull::NoWaiting)));
}

#[test]
fn an_engine_that_hangs_fills_up() {
    let mut rig = Rig::idle(1);
    for _ in 0..5 {
        rig.hold(&[]);
    }
    rig.pass(ms(1_500));
    rig.report(0, Page::default());
    assert_eq!(
        refused(&mut rig),
        Some(Refusal::Full(QueueFull::NoWaiting)),
        "five unanswered for long, and it says that it is idle"
    );
    rig.report(0, Page { running: 5.0, ..Page::default() });
    assert_eq!(refused(&mut rig), None);
}

#[test]
fn an_engine_that_does_not_say_how_many_run_is_not_full_of_our_own_requests() {
    let mut rig = Rig::idle(1);
    for _ in 0..30 {
        rig.hold(&[]);
    }
    rig.pass(ms(5_000));
    let mut load = Page::default().load(rig.now);
    load.running = None;
    rig.observe(0, Observation::Page { began: rig.now, load });
    assert_eq!(refused(&mut rig), None);
}

#[test]
fn the_cap_counts_own_requests_with_or_without_reports() {
    let cap = NonZeroU32::new(3);
    let settings = Settings { max_in_flight_per_endpoint: cap, ..Settings::default() };
    let mut rig = Rig::unread(2, settings);
    let mut permits: Vec<_> = (0..6).map(|_| rig.dispatch(Request::default()).unwrap().permit).collect();
    assert_eq!(refused(&mut rig), Some(Refusal::Full(QueueFull::NoWaiting)));
    assert_eq!(rig.decision.candidates[0].rejected, Some(Rejected::AtCap));
    assert_eq!(rig.pool.saturation(rig.now), 1.0);
    rig.complete(permits.pop().unwrap());
    assert_eq!(refused(&mut rig), None);
    assert!(rig.pool.saturation(rig.now) < 1.0);
}

#[test]
fn an_endpoint_that_asked_for_a_pause_is_full_until_then() {
    let mut rig = Rig::idle(2);
    rig.pool.backpressure(id(0), rig.now + ms(3_000));
    let prefix = rig.new_prompt(3);
    assert_eq!(rig.hold(&prefix), 1);
    assert!(!rig.pool.has_room(id(0), rig.now) && rig.pool.has_room(id(1), rig.now));
    rig.pool.backpressure(id(1), rig.now + ms(7_000));
    rig.pool.backpressure(id(1), rig.now + ms(1_000));
    assert_eq!(refused(&mut rig), Some(Refusal::Full(QueueFull::NoWaiting)));
    assert_eq!(rig.pool.retry_after_s(Band::Standard, 1 << 63, rig.now), 3, "when the first of them takes work again");
    rig.pass(ms(3_000));
    rig.report_all(&[Page::default(); 2]);
    let prefix = rig.new_prompt(3);
    assert_eq!(rig.hold(&prefix), 0);
}

#[test]
fn the_time_to_wait_follows_the_drain_rate() {
    let mut rig = Rig::idle(2);
    let seconds = |rig: &Rig| rig.pool.retry_after_s(Band::Standard, 1 << 63, rig.now);
    rig.report_all(&[page(5.0, 0.0), page(7.0, 0.0)]);
    assert_eq!(seconds(&rig), 10, "nobody was ever given a place: at least a whole window");
    // Four places a second for ten seconds.
    for _ in 0..40 {
        rig.pass(ms(250));
        rig.report_all(&[Page::default(); 2]);
        let placed = rig.admit(0, Request::default());
        rig.answer_and_complete(placed.unwrap().permit);
    }
    rig.report_all(&[page(5.0, 0.0), page(7.0, 0.0)]);
    assert_eq!(seconds(&rig), 1, "the next place is a quarter of a second away");
    rig.report_all(&[page(15.0, 0.0), page(18.0, 0.0)]);
    assert_eq!(seconds(&rig), 6, "both have ten or more too many, and one has to go");
    rig.report_all(&[page(500.0, 0.0), page(700.0, 0.0)]);
    assert_eq!(seconds(&rig), 60);
    rig.report_all(&[Page::default(); 2]);
    assert_eq!(seconds(&rig), 1);
}

proptest! {
    #[test]
    fn saturation_is_1_exactly_when_a_request_would_be_refused(
        pages in prop::collection::vec((0.0..12.0f64, 0.0..1.0f64, 0.0..20.0f64), 1..6),
        sent in 0usize..400,
        tokens in 1u32..4_000,
    ) {
        let mut rig = Rig::idle(pages.len());
        let cache = Some(CacheShape { block_tokens: 16, blocks: 4_000 });
        for (number, &(waiting, kv_cache, running)) in pages.iter().enumerate() {
            rig.report(number, Page { waiting: waiting.floor(), kv_cache, running: running.floor(), ranks: 1, cache });
        }
        let mut last = 0.0;
        for _ in 0..sent {
            let saturation = rig.pool.saturation(rig.now);
            prop_assert!((0.0..=1.0).contains(&saturation));
            prop_assert!(saturation >= last, "more work is never less load");
            last = saturation;
            match rig.dispatch(Request { prompt_tokens: tokens, ..Request::default() }) {
                Ok(sent) => {
                    prop_assert!(saturation < 1.0);
                    rig.held.push(sent.permit);
                }
                Err(refusal) => {
                    prop_assert_eq!(refusal, Refusal::Full(QueueFull::NoWaiting));
                    prop_assert_eq!(saturation, 1.0);
                    break;
                }
            }
        }
    }
}
