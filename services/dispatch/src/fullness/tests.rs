use std::time::Duration;

use super::*;
use crate::{
    endpoint_state::Presence,
    prefill_speed::PrefillSpeed,
    work::{OwnWork, Work},
};
use pool::{CacheShape, Load, Signal};

const NOW: Moment = Moment::ORIGIN;

fn own(before: u32, settling: u32, since: u32, tokens: u64) -> OwnWork {
    let mut own = OwnWork::default();
    for (stage, requests) in [(Stage::Before, before), (Stage::Settling, settling), (Stage::Since, since)] {
        let new_tokens = tokens * u64::from(requests);
        own.add(stage, Work { requests, unanswered: requests, uncached_tokens: new_tokens, new_tokens });
    }
    own
}

/// So many own requests, all in `before`, are being answered.
fn and_answered(mut own: OwnWork, answered: u32) -> OwnWork {
    own.add(Stage::Before, Work { requests: answered, ..Work::default() });
    own
}

fn fresh(waiting: f64, running: f64) -> Fresh {
    Fresh { waiting: Some(waiting), running: Some(running), kv_cache: Some(0.0) }
}

fn endpoint(own: OwnWork, load: Load) -> EndpointState {
    let endpoint =
        pool::Endpoint { id: pool::EndpointId::new(1), name: "a".into(), address: ([127, 0, 0, 1], 1).into() };
    let mut state = EndpointState::new(endpoint, Presence::Serving, NOW);
    state.unanswered_in_report = own.at(Stage::Before).unanswered + own.at(Stage::Settling).unanswered;
    (state.own, state.load) = (own, load);
    state
}

fn with_cache() -> Load {
    let waiting = Some(Signal { value: 0.0, at: NOW, source: "waiting" });
    Load { cache: Some(CacheShape { block_tokens: 16, blocks: 400 }), waiting, ..Load::default() }
}

#[test]
fn waiting_by_what_the_report_can_have_shown() {
    let case = |own, fresh| waiting(&endpoint(own, Load::default()), &fresh, NOW).unwrap();
    assert_eq!(case(own(0, 0, 64, 100), fresh(0.0, 0.0)), 0.0, "within the slack");
    assert_eq!(case(own(0, 0, 70, 100), fresh(0.0, 0.0)), 6.0, "beyond it");
    assert_eq!(case(own(0, 40, 30, 100), fresh(0.0, 0.0)), 6.0, "also what was just before the report");
    assert_eq!(case(own(0, 40, 30, 100), fresh(0.0, 40.0)), 0.0, "unless it runs");
    assert_eq!(case(and_answered(own(0, 40, 30, 100), 40), fresh(0.0, 40.0)), 6.0, "and not those being answered do");
    assert_eq!(case(own(9, 0, 0, 100), fresh(0.0, 4.0)), 5.0, "long unanswered and not running: it hangs");
    assert_eq!(case(and_answered(own(9, 0, 0, 100), 4), fresh(0.0, 4.0)), 9.0);
    assert_eq!(case(own(9, 3, 0, 100), fresh(0.0, 12.0)), 0.0);
    assert_eq!(case(own(0, 0, 3, 100), fresh(2.0, 0.0)), 5.0, "a queue leaves no slack");
    assert_eq!(case(own(9, 0, 3, 100), fresh(2.0, 4.0)), 8.0);
    assert_eq!(waiting(&endpoint(own(0, 0, 99, 1), Load::default()), &Fresh::default(), NOW), None);
}

#[test]
fn answers_since_the_report_take_off_its_queue() {
    let case = |then: u32, now: u32, reported: f64| {
        let mut state = endpoint(own(0, now, 0, 100), Load::default());
        state.unanswered_in_report = then;
        still_queued(&state, reported, f64::from(now))
    };
    assert_eq!(case(8, 8, 5.0), 5.0);
    assert_eq!(case(8, 6, 5.0), 5.0, "those that ran may have been answered first");
    assert_eq!(case(8, 2, 5.0), 2.0);
    assert_eq!(case(8, 0, 5.0), 0.0);
    assert_eq!(case(2, 0, 5.0), 3.0, "others' requests wait on");
    assert_eq!(case(0, 0, 5.0), 5.0);
}

#[test]
fn slack_counts_tokens_that_are_not_cached_and_at_least_a_block() {
    let half_free = Fresh { kv_cache: Some(0.5), ..fresh(0.0, 0.0) };
    let case = |own, fresh| slack(&endpoint(own, with_cache()), &fresh, Haste::NowOrNever, NOW);
    assert_eq!(case(own(0, 0, 10, 320), half_free), 10.0);
    assert_eq!(case(own(0, 0, 10, 1), half_free), 50.0);
    assert_eq!(case(own(0, 0, 10, 320), Fresh { kv_cache: Some(1.0), ..half_free }), 0.0);
}

#[test]
fn who_can_wait_is_sent_to_what_is_begun_at_once() {
    let free = fresh(0.0, 0.0);
    let mut state = endpoint(own(0, 0, 10, 64), with_cache());
    let soon = NOW + Duration::from_millis(100);
    assert_eq!(slack(&state, &free, Haste::CanWait, soon), 100.0, "nothing is known of its speed");
    state.prefill_speed.note(6_400, Duration::from_secs(1));
    assert_eq!(slack(&state, &free, Haste::NowOrNever, soon), 100.0, "a burst is taken");
    assert_eq!(slack(&state, &free, Haste::CanWait, soon), 20.0, "what it computes in 0.2 s");
    let later = NOW + Duration::from_secs(2);
    state.load.waiting = Some(Signal { value: 0.0, at: NOW + Duration::from_millis(1_900), source: "waiting" });
    assert_eq!(slack(&state, &free, Haste::NowOrNever, later), 20.0, "it has been behind for 2 s");
    state.prefill_speed = PrefillSpeed::default();
    state.prefill_speed.note(64, Duration::from_secs(1));
    assert_eq!(slack(&state, &free, Haste::CanWait, later), 8.0, "never less than a part of one step");
}

#[test]
fn the_share_in_use_never_falls_as_load_rises() {
    let settings = Settings::default();
    let state = endpoint(OwnWork::default(), Load::default());
    let share = |waiting: f64, kv_cache: f64| {
        let fresh = Fresh { kv_cache: Some(kv_cache), ..fresh(waiting, 0.0) };
        room(&state, Tier::Ready, &fresh, &settings, Haste::NowOrNever, NOW).fullness()
    };
    for waiting in 0..8 {
        for kv in 0..10 {
            let (waiting, kv) = (f64::from(waiting), f64::from(kv) / 10.0);
            assert!(share(waiting + 1.0, kv) >= share(waiting, kv));
            assert!(share(waiting, kv + 0.1) >= share(waiting, kv));
        }
    }
    assert_eq!((share(0.0, 0.0), share(0.0, 0.4), share(0.0, 0.8), share(4.0, 0.0)), (0.0, 0.4, 0.8, 0.8));
    assert_eq!(share(0.0, 1.0), CACHE_ALONE, "a full cache without a queue is healthy");
}

#[test]
fn a_full_cache_is_kept_for_higher_bands_when_few_more_requests_fit() {
    let settings = Settings::default();
    // A cache of 6,400 tokens, and one request of so many sent since the report, whose part is added.
    let share = |running: f64, tokens: u64, kv_cache: f64| {
        let state = endpoint(own(0, 0, 1, tokens), with_cache());
        let fresh = Fresh { kv_cache: Some(kv_cache), ..fresh(0.0, running) };
        room(&state, Tier::Ready, &fresh, &settings, Haste::NowOrNever, NOW).fullness()
    };
    let near = |seen: f64, wanted: f64| assert!((seen - wanted).abs() < 1e-6, "{seen} is not {wanted}");
    near(share(5.0, 64, 0.79), 0.8);
    near(share(5.0, 64, 0.9), 0.8);
    near(share(5.0, 64, 0.95), 0.9);
    near(share(5.0, 64, 0.97), 0.95);
    near(share(5.0, 128, 0.96), 0.975);
    near(share(80.0, 64, 0.89), 0.9);
    let long_ago = endpoint(own(9, 0, 0, 600), with_cache());
    let fresh = Fresh { kv_cache: Some(0.95), ..fresh(0.0, 9.0) };
    near(room(&long_ago, Tier::Ready, &fresh, &settings, Haste::CanWait, NOW).fullness(), 0.8);
}
