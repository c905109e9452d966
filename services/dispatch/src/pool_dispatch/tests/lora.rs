//! Adapters go where they are loaded.

use pool::Adapters;

use super::*;

fn report(rig: &mut Rig, number: usize, running: &[&str], waiting: &[&str], slots: u32) {
    let mut load = Page { running: running.len() as f64, ..Page::default() }.load(rig.now);
    load.adapters =
        Some(Adapters { running: names(running), waiting: names(waiting), slots: Some(slots), at: rig.now });
    rig.observe(number, Observation::Page { began: rig.now, load });
}

fn send(rig: &mut Rig, adapter: &str) -> usize {
    let prefix = rig.new_prompt(3);
    let request = Request { prefix: &prefix, prompt_tokens: 192, adapter: Some(adapter), ..Request::default() };
    let sent = rig.dispatch(request).unwrap();
    rig.answer_and_complete(sent.permit);
    sent.ranked[0].get() as usize
}

#[test]
fn d03_an_adapter_that_runs_somewhere_goes_there() {
    let mut rig = Rig::idle(3);
    report(&mut rig, 0, &[], &[], 4);
    report(&mut rig, 1, &["a", "b"], &[], 4);
    report(&mut rig, 2, &[], &[], 4);
    for _ in 0..10 {
        assert_eq!(send(&mut rig, "b"), 1);
    }
    assert_ne!(send(&mut rig, "c"), 1, "no bonus for another adapter");
}

#[test]
fn e07_running_and_waiting_are_a_union_and_a_free_slot_is_room() {
    for _ in 0..5 {
        let mut rig = Rig::idle(2);
        report(&mut rig, 0, &["a"], &["a"], 2);
        report(&mut rig, 1, &["c", "d"], &[], 2);
        assert_eq!(send(&mut rig, "b"), 0);
    }
}

#[test]
fn e07_an_idle_adapter_is_still_loaded() {
    let mut rig = Rig::idle(3);
    let first = send(&mut rig, "a");
    for _ in 0..20 {
        rig.pass(ms(1_000));
        for number in 0..3 {
            report(&mut rig, number, &[], &[], 4);
        }
        assert_eq!(send(&mut rig, "a"), first, "its name left the labels, not the GPU");
    }
}

#[test]
fn adapters_seen_running_are_remembered_too() {
    let mut rig = Rig::idle(2);
    report(&mut rig, 1, &["a"], &[], 4);
    rig.pass(ms(1_000));
    for number in 0..2 {
        report(&mut rig, number, &[], &[], 4);
    }
    assert_eq!(send(&mut rig, "a"), 1, "another gateway had it loaded there");
}

#[test]
fn an_adapter_that_is_loaded_nowhere_goes_where_most_room_is() {
    let mut rig = Rig::idle(3);
    report(&mut rig, 0, &["a", "b"], &[], 4);
    report(&mut rig, 1, &["c"], &[], 4);
    report(&mut rig, 2, &["d", "e", "f"], &[], 4);
    assert_eq!(send(&mut rig, "new"), 1);
}

#[test]
fn adapters_of_an_idle_pool_spread_over_it() {
    let mut rig = Rig::idle(4);
    let picks: Vec<_> = (0..8).map(|i| send(&mut rig, &format!("adapter-{i}"))).collect();
    assert_eq!(counts(&picks, 4), [2; 4], "each goes to the one with most room left");
    let again: Vec<_> = (0..8).map(|i| send(&mut rig, &format!("adapter-{i}"))).collect();
    assert_eq!(picks, again);
}

#[test]
fn a_list_of_adapters_that_is_seconds_old_is_empty_unless_requests_run() {
    let mut rig = Rig::idle(2);
    report(&mut rig, 0, &["x", "y"], &[], 2);
    report(&mut rig, 1, &[], &[], 2);
    let old = rig.now;
    rig.pass(ms(6_000));
    for (running, room) in [(0.0, true), (1.0, false)] {
        let mut load = Page { running, ..Page::default() }.load(rig.now);
        load.adapters = Some(Adapters { running: vec![], waiting: names(&["p", "q"]), slots: Some(2), at: old });
        rig.observe(1, Observation::Page { began: rig.now, load });
        let mut full = Page::default().load(rig.now);
        full.adapters = Some(Adapters { running: names(&["x", "y"]), waiting: vec![], slots: Some(2), at: rig.now });
        rig.observe(0, Observation::Page { began: rig.now, load: full });
        let prefix = rig.new_prompt(3);
        let request = Request { prefix: &prefix, adapter: Some("new"), ..Request::default() };
        let permit = rig.dispatch(request).unwrap().permit;
        rig.complete(permit);
        let lora = |n: usize| {
            let at = rig.decision.candidates.iter().position(|c| c.endpoint == id(n)).unwrap();
            rig.decision.candidates[at].scores[3].score
        };
        assert_eq!(lora(1) > lora(0), room, "running {running}");
    }
}

#[test]
fn e08_the_load_is_the_endpoints_whatever_model_is_asked_for() {
    let mut rig = Rig::idle(2);
    rig.report(0, Page { waiting: 4.0, ..Page::default() });
    rig.report(1, Page::default());
    let picks: Vec<_> = (0..50).map(|_| send(&mut rig, "lora-a")).collect();
    assert_eq!(counts(&picks, 2), [0, 50]);
    rig.report(0, Page { waiting: 20.0, ..Page::default() });
    assert_eq!(send(&mut rig, "lora-b"), 1);
}

#[test]
fn a_try_that_failed_leaves_no_adapter_behind() {
    let mut rig = Rig::idle(2);
    let sent = rig.dispatch(Request { adapter: Some("a"), ..Request::default() }).unwrap();
    let (first, second) = (sent.ranked[0], sent.ranked[1]);
    rig.pool.pass_on(&sent.permit, second, &[], rig.now).unwrap();
    rig.answer_and_complete(sent.permit);
    let view = rig.pool.snapshot(rig.now);
    for endpoint in &view.endpoints {
        assert_eq!(endpoint.adapters.is_empty(), endpoint.id == first);
    }
    assert_eq!(id(send(&mut rig, "a")), second);
}

#[test]
fn with_weight_0_adapters_make_no_difference() {
    let mut rig = Rig::with(2, Weights { lora_affinity: 0, ..Weights::default() });
    report(&mut rig, 0, &["a"], &[], 4);
    report(&mut rig, 1, &[], &[], 4);
    let picks: Vec<_> = (0..60).map(|_| send(&mut rig, "a")).collect();
    assert!(counts(&picks, 2).iter().all(|&c| c > 15), "{:?}", counts(&picks, 2));
}
