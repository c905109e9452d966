//! Old, missing and strange readings.

use super::*;
use crate::{Basis, Rejected};

fn sends(rig: &mut Rig, requests: usize) -> Vec<usize> {
    (0..requests)
        .map(|_| {
            let prefix = rig.new_prompt(3);
            let (to, permit) = rig.send(&prefix);
            rig.answer_and_complete(permit);
            to
        })
        .collect()
}

#[test]
fn d09_a_stale_endpoint_is_left_out_while_others_are_fresh_and_comes_back_by_itself() {
    let mut rig = Rig::idle(3);
    let busy = Page { waiting: 3.0, ..Page::default() };
    rig.pass(ms(2_001));
    rig.no_page(0, NoPage::Accepting);
    rig.report(1, busy);
    rig.report(2, busy);
    let picks = sends(&mut rig, 200);
    assert_eq!(counts(&picks, 3)[0], 0, "its idle numbers are too old to be believed");
    let left_out = rig.decision.candidates.iter().find(|c| c.endpoint == id(0)).unwrap();
    assert_eq!(left_out.rejected, Some(Rejected::Stale));
    rig.report(0, Page::default());
    assert_eq!(counts(&sends(&mut rig, 20), 3)[0], 20);
}

#[test]
fn d09_when_all_are_stale_own_work_decides_and_the_decision_says_so() {
    let mut rig = Rig::idle(3);
    rig.report(1, Page { waiting: 4.0, kv_cache: 0.9, ..Page::default() });
    rig.pass(ms(10_000));
    let mut permits = Vec::new();
    for _ in 0..201 {
        let prefix = rig.new_prompt(3);
        permits.push(rig.send(&prefix).1);
    }
    assert_eq!(rig.in_flight(), [67; 3], "no refusal, and spread");
    assert_eq!(rig.decision.basis, Basis::OwnWorkAllStale);
    assert!(rig.decision.explain().contains("too old"), "{}", rig.decision.explain());
    assert!(rig.pool.saturation(rig.now) < 1.0, "a broken scrape path is no full pool");
}

#[test]
fn a_failed_look_spoils_nothing_as_long_as_the_report_is_fresh() {
    let mut rig = Rig::idle(2);
    rig.pass(ms(500));
    rig.no_page(0, NoPage::Accepting);
    assert_eq!(counts(&sends(&mut rig, 100), 2).iter().filter(|&&c| c > 25).count(), 2);
}

#[test]
fn an_unreachable_endpoint_is_the_last_resort() {
    let mut rig = Rig::idle(2);
    rig.no_page(0, NoPage::Unreachable);
    assert_eq!(counts(&sends(&mut rig, 20), 2), [0, 20]);
    rig.no_page(1, NoPage::Unreachable);
    assert_eq!(sends(&mut rig, 20).len(), 20, "its connects will fail soon enough");
    rig.report(0, Page::default());
    assert_eq!(counts(&sends(&mut rig, 20), 2), [20, 0]);
}

#[test]
fn an_endpoint_never_read_is_used_only_while_no_other_is_usable() {
    let mut rig = Rig::unread(2, Settings::default());
    assert_eq!(sends(&mut rig, 20).len(), 20);
    assert_eq!(rig.decision.basis, Basis::OwnWorkWhileStarting);
    rig.report(0, Page { waiting: 2.0, ..Page::default() });
    assert_eq!(counts(&sends(&mut rig, 20), 2), [20, 0]);
    let rejected = rig.decision.candidates.iter().find(|c| c.endpoint == id(1)).unwrap().rejected;
    assert_eq!(rejected, Some(Rejected::Starting));
    assert_eq!(rig.pool.snapshot(rig.now).endpoints[1].state, pool::State::Starting);
}

#[test]
fn d10_a_new_endpoint_without_a_page_is_scored_like_the_mean_of_the_others() {
    let mut rig = Rig::idle(2);
    rig.pool.set_endpoints(&[member(0), member(1), member(2)], rig.now);
    let mut picks = Vec::new();
    let busy = |waiting| Page { waiting, running: 8.0, kv_cache: 0.3, ..Page::default() };
    // 50 rounds of 200 ms, two calls each, of which those after the first two seconds may go to the new one.
    for _ in 0..50 {
        rig.pass(ms(200));
        rig.report(0, busy(1.0));
        rig.report(1, busy(1.0));
        rig.no_page(2, NoPage::Accepting);
        picks.extend(sends(&mut rig, 2));
    }
    let counts = counts(&picks, 3);
    assert!((15..=45).contains(&counts[2]), "{counts:?}");
    assert_eq!(rig.pool.snapshot(rig.now).endpoints[2].state, pool::State::Ready);
    rig.report(0, busy(3.0));
    let prefix = rig.new_prompt(3);
    assert_eq!(rig.hold(&prefix), 1, "the mean is not the best");
}

#[test]
fn an_endpoint_without_a_page_is_charged_its_own_work() {
    let mut rig = Rig::idle(2);
    rig.pool.set_endpoints(&[member(0), member(1), member(2)], rig.now);
    rig.pass(ms(2_500));
    rig.report_all(&[Page::default(), Page::default()]);
    rig.no_page(2, NoPage::Accepting);
    for _ in 0..30 {
        let prefix = rig.new_prompt(3);
        rig.hold(&prefix);
    }
    assert_eq!(rig.in_flight(), [10; 3]);
}

#[test]
fn d13_nan_infinite_and_negative_readings_count_as_missing() {
    for strange in [f64::NAN, f64::INFINITY, -1.0, f64::NEG_INFINITY] {
        let mut rig = Rig::idle(3);
        rig.report(0, Page { kv_cache: strange, ..Page::default() });
        rig.report(1, Page { kv_cache: 0.5, ..Page::default() });
        rig.report(2, Page { kv_cache: 0.1, ..Page::default() });
        let prefix = rig.new_prompt(3);
        rig.hold(&prefix);
        let order: Vec<_> = rig.decision.candidates.iter().map(|c| c.endpoint.get()).collect();
        assert_eq!(order, [2, 0, 1], "{strange}: between the two, as their mean");
        rig.report(0, Page { waiting: strange, running: strange, ..Page::default() });
        assert!(rig.decision.candidates.iter().all(|c| c.total.is_finite()));
        assert!(rig.pool.saturation(rig.now).is_finite());
    }
}

#[test]
fn one_family_that_is_missing_grows_old_alone() {
    let mut rig = Rig::idle(2);
    rig.report(0, Page { waiting: 4.0, ..Page::default() });
    let old = rig.now;
    for _ in 0..15 {
        rig.pass(ms(200));
        let mut load = Page::default().load(rig.now);
        load.waiting = Some(Signal { value: 4.0, at: old, source: "test" });
        rig.observe(0, Observation::Page { began: rig.now, load });
        rig.report(1, Page { waiting: 2.0, ..Page::default() });
    }
    let prefix = rig.new_prompt(3);
    rig.hold(&prefix);
    let used: Vec<_> = rig.decision.candidates.iter().map(|c| c.readings.waiting_used).collect();
    assert_eq!(used, [2.0, 2.0], "four waiting is three seconds old: the mean of the others stands in");
}

#[test]
fn an_engine_without_a_page_is_ready_while_its_health_check_passes() {
    let mut rig = Rig::unread(2, Settings { has_page: crate::HasPage::No, ..Settings::default() });
    for _ in 0..5 {
        rig.pass(ms(1_000));
        rig.observe(0, Observation::Healthy { began: rig.now });
        rig.no_page(1, NoPage::Unreachable);
    }
    assert_eq!(counts(&sends(&mut rig, 20), 2), [20, 0]);
    assert_eq!(rig.decision.basis, Basis::OwnWork);
}
