use std::time::Duration;

use super::*;
use crate::work::Work;

fn own(before: u32, settling: u32, since: u32, tokens: u64) -> OwnWork {
    let mut own = OwnWork::default();
    for (stage, requests) in [(Stage::Before, before), (Stage::Settling, settling), (Stage::Since, since)] {
        let new_tokens = tokens * u64::from(requests);
        own.add(stage, Work { requests, unanswered: requests, uncached_tokens: new_tokens, new_tokens });
    }
    own
}

fn fresh(waiting: f64, running: f64) -> Fresh {
    Fresh { waiting: Some(waiting), running: Some(running), kv_cache: Some(0.0) }
}

#[test]
fn waiting_by_what_the_report_can_have_shown() {
    let load = Load::default();
    let case = |own: OwnWork, fresh: Fresh| waiting_of(&own, 0.0, &fresh, &load).unwrap();
    assert_eq!(case(own(0, 0, 64, 100), fresh(0.0, 0.0)), 0.0, "within the slack");
    assert_eq!(case(own(0, 0, 70, 100), fresh(0.0, 0.0)), 6.0, "beyond it");
    assert_eq!(case(own(0, 40, 30, 100), fresh(0.0, 0.0)), 6.0, "also what was just before the report");
    assert_eq!(case(own(0, 40, 30, 100), fresh(0.0, 40.0)), 0.0, "unless it runs");
    assert_eq!(case(own(9, 0, 0, 100), fresh(0.0, 4.0)), 5.0, "long unanswered and not running: it hangs");
    assert_eq!(case(own(9, 3, 0, 100), fresh(0.0, 12.0)), 0.0);
    assert_eq!(case(own(0, 0, 3, 100), fresh(2.0, 0.0)), 5.0, "a queue leaves no slack");
    assert_eq!(case(own(9, 0, 3, 100), fresh(2.0, 4.0)), 8.0);
    assert_eq!(waiting_of(&own(0, 0, 99, 1), 0.0, &Fresh::default(), &load), None);
}

#[test]
fn slack_counts_tokens_that_are_not_cached_and_at_least_a_block() {
    let load = Load { cache: Some(pool::CacheShape { block_tokens: 16, blocks: 400 }), ..Load::default() };
    let half_free = Fresh { kv_cache: Some(0.5), ..fresh(0.0, 0.0) };
    assert_eq!(slack(&own(0, 0, 10, 320), &half_free, &load), 10.0);
    assert_eq!(slack(&own(0, 0, 10, 1), &half_free, &load), 50.0);
    assert_eq!(slack(&own(0, 0, 10, 320), &Fresh { kv_cache: Some(1.0), ..half_free }, &load), 0.0);
}

#[test]
fn the_share_in_use_never_falls_as_load_rises() {
    let settings = Settings::default();
    let now = Moment::from_origin(Duration::from_secs(9));
    let endpoint =
        pool::Endpoint { id: pool::EndpointId::new(1), name: "a".into(), address: ([127, 0, 0, 1], 1).into() };
    let state = EndpointState::new(endpoint, crate::endpoint_state::Presence::Serving, now);
    let share = |waiting: f64, kv_cache: f64| {
        let fresh = Fresh { kv_cache: Some(kv_cache), ..fresh(waiting, 0.0) };
        room(&state, Tier::Ready, &fresh, &settings, now).fullness()
    };
    for waiting in 0..8 {
        for kv in 0..10 {
            let (waiting, kv) = (f64::from(waiting), f64::from(kv) / 10.0);
            assert!(share(waiting + 1.0, kv) >= share(waiting, kv));
            assert!(share(waiting, kv + 0.1) >= share(waiting, kv));
        }
    }
    assert_eq!((share(0.0, 0.0), share(0.0, 0.95), share(4.0, 0.0)), (0.0, 0.5, 0.8));
}
