//! Where nothing else decides.

use super::*;
use crate::PickReason;

/// Sends requests one after another, each answered before the next; reports come every 200 ms.
fn one_after_another(rig: &mut Rig, n: usize, prompts: &[Vec<u64>]) -> Vec<usize> {
    let mut picks = Vec::new();
    for (i, prefix) in prompts.iter().enumerate() {
        if i % 40 == 0 {
            rig.report_all(&vec![Page::default(); n]);
        }
        let (to, permit) = rig.send(prefix);
        rig.pass(ms(5));
        rig.answer_and_complete(permit);
        picks.push(to);
    }
    picks
}

#[test]
fn e02_idle_endpoints_share_sequential_unique_prompts() {
    let mut rig = Rig::idle(4);
    let prompts: Vec<_> = (0..200).map(|_| rig.new_prompt(3)).collect();
    let picks = one_after_another(&mut rig, 4, &prompts);
    assert!(counts(&picks, 4).iter().all(|c| (30..=70).contains(c)), "{:?}", counts(&picks, 4));
    assert_eq!(rig.decision.reason, PickReason::TieByPrefix);
}

#[test]
fn e02_long_prompts_in_parallel_are_counted_from_the_pick() {
    let mut rig = Rig::idle(4);
    let mut open = std::collections::VecDeque::new();
    let mut picks = Vec::new();
    for i in 0..200 {
        if i % 20 == 0 {
            rig.report_all(&[Page::default(); 4]);
        }
        if open.len() == 20 {
            let (_, permit) = open.pop_front().unwrap();
            rig.answer_and_complete(permit);
        }
        let prefix = rig.new_prompt(500);
        let sent = rig.send(&prefix);
        picks.push(sent.0);
        open.push_back(sent);
        rig.pass(ms(10));
    }
    assert!(counts(&picks, 4).iter().all(|c| (30..=70).contains(c)), "{:?}", counts(&picks, 4));
}

#[test]
fn without_a_prefix_the_least_recently_picked_is_next() {
    let mut rig = Rig::idle(3);
    let picks = one_after_another(&mut rig, 3, &vec![Vec::new(); 9]);
    assert_eq!(picks[..3], picks[3..6]);
    assert_eq!(picks[..3], picks[6..]);
    assert_eq!(counts(&picks, 3), [3, 3, 3]);
    assert_eq!(rig.decision.reason, PickReason::TieByLeastRecent);
}

#[test]
fn the_seed_breaks_the_very_first_tie() {
    let first: std::collections::BTreeSet<_> =
        (0..40).map(|tie| Rig::idle(4).dispatch(Request { tie, ..Request::default() }).unwrap().ranked[0]).collect();
    assert_eq!(first.len(), 4, "gateways that start together do not all begin with the same endpoint");
}

#[test]
fn e09_after_silence_an_endpoint_is_as_good_as_any() {
    let mut rig = Rig::idle(2);
    rig.pool.set_endpoints(&[member(0)], rig.now);
    let prompts: Vec<_> = (0..50).map(|_| rig.new_prompt(3)).collect();
    one_after_another(&mut rig, 1, &prompts);
    rig.pass(ms(60_000));
    rig.pool.set_endpoints(&[member(0), member(1)], rig.now);
    let prompts: Vec<_> = (0..50).map(|_| rig.new_prompt(3)).collect();
    let picks = one_after_another(&mut rig, 2, &prompts);
    assert!(counts(&picks, 2).iter().all(|c| (15..=35).contains(c)), "{:?}", counts(&picks, 2));
}

#[test]
fn two_gateways_send_a_cold_prompt_to_the_same_endpoint() {
    let (mut one, mut other) = (Rig::idle(5), Rig::idle(5));
    // The other one numbers the endpoints differently and has a past of its own.
    let members: Vec<_> = (0..5)
        .map(|i| Membership {
            endpoint: Endpoint { id: id(100 - i), ..member(i).endpoint },
            standing: Standing::Serving,
        })
        .collect();
    other.pool.set_endpoints(&members, other.now);
    for i in 96..=100 {
        other.report(i, Page::default());
    }
    for _ in 0..50 {
        let prefix = one.new_prompt(6);
        let (a, permit) = one.send(&prefix);
        one.answer_and_complete(permit);
        let (b, permit) = other.send(&prefix);
        other.answer_and_complete(permit);
        assert_eq!(a, 100 - b);
        let past = other.new_prompt(2);
        let (_, permit) = other.send(&past);
        other.answer_and_complete(permit);
    }
}

#[test]
fn b04_aborted_requests_leave_nothing_and_a_new_life_does_not_draw_everything() {
    let mut rig = Rig::idle(4);
    for _ in 0..400 {
        let prefix = rig.new_prompt(3);
        let (_, permit) = rig.send(&prefix);
        rig.complete(permit);
    }
    assert_eq!(rig.in_flight(), [0; 4]);
    let members = [member(0), member(5), member(2), member(3)];
    rig.pool.set_endpoints(&members, rig.now);
    rig.report(5, Page::default());
    let prompts: Vec<_> = (0..200).map(|_| rig.new_prompt(3)).collect();
    let mut picks = Vec::new();
    for prefix in &prompts {
        let (to, permit) = rig.send(prefix);
        picks.push(to);
        rig.answer_and_complete(permit);
    }
    let counts = counts(&picks, 6);
    assert!([0, 5, 2, 3].iter().all(|&i| (30..=70).contains(&counts[i])), "{counts:?}");
}
