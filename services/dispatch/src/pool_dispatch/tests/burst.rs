//! Between two reports own work is the load.

use proptest::prelude::*;

use super::*;

fn burst(rig: &mut Rig, requests: usize, blocks: usize) -> Vec<usize> {
    let mut picks = Vec::new();
    for _ in 0..requests {
        let prefix = rig.new_prompt(blocks.max(1));
        let prefix = if blocks == 0 { &[] } else { &prefix[..] };
        let request = Request { prefix, prompt_tokens: 700, ..Request::default() };
        picks.push(rig.dispatch(request).unwrap().ranked[0].get() as usize);
    }
    picks
}

fn never_full(n: usize) -> Rig {
    let full = crate::Full { waiting: 1_000, kv_cache: 1.0 };
    let mut rig = Rig::unread(n, Settings { full, ..Settings::default() });
    rig.report_all(&vec![Page::default(); n]);
    rig
}

proptest! {
    #[test]
    fn a_burst_of_n_onto_n_equal_endpoints_spreads(
        n in 1usize..24,
        k in 1usize..6,
        blocks in 0usize..12,
        weights in (1u32..10, 0u32..10, 0u32..10, 0u32..10, 0u32..10, 0u32..10),
    ) {
        let (queue, kv_cache, prefix, lora_affinity, running_requests, lru) = weights;
        let weights = Weights { queue, kv_cache, prefix, lora_affinity, running_requests, lru, predicted_latency: 0 };
        let mut rig = Rig::with(n, weights);
        for round in 1..=k {
            burst(&mut rig, n, blocks);
            prop_assert_eq!(rig.in_flight(), vec![round as u32; n]);
        }
        let more = burst(&mut rig, n / 2, blocks);
        prop_assert!(counts(&more, n).into_iter().all(|c| c <= 1));
    }

    #[test]
    fn a_burst_spreads_without_any_report_too(n in 1usize..24, k in 1usize..6, blocks in 0usize..12) {
        let mut rig = Rig::unread(n, Settings { has_page: crate::HasPage::No, ..Settings::default() });
        for number in 0..n {
            rig.observe(number, Observation::Healthy { began: rig.now });
        }
        burst(&mut rig, n * k, blocks);
        prop_assert_eq!(rig.in_flight(), vec![k as u32; n]);
        prop_assert_eq!(rig.decision.basis, crate::Basis::OwnWork);
    }
}

#[test]
fn e01_own_sends_since_the_report_count_as_load() {
    // Answers begin at once or not at all: either way the two share the burst.
    for answered in [false, true] {
        // Endpoints that show a queue would be full at five waiting: here it is the spreading that is looked at.
        let mut rig = never_full(2);
        rig.report_all(&[Page::default(), Page { waiting: 1.0, ..Page::default() }]);
        for _ in 0..200 {
            let prefix = rig.new_prompt(3);
            let (_, permit) = rig.send(&prefix);
            rig.pass(ms(1));
            if answered {
                rig.pool.answered(&permit, rig.now);
                rig.pool.prefilled(&permit, rig.now);
            }
            rig.held.push(permit);
        }
        let in_flight = rig.in_flight();
        let (most, least) = (*in_flight.iter().max().unwrap(), *in_flight.iter().min().unwrap());
        assert!(f64::from(most - least) < 0.2 * f64::from(most), "answered: {answered}: {in_flight:?}");
    }
}

#[test]
fn a_report_does_not_count_twice_what_it_shows() {
    let mut rig = never_full(1);
    for _ in 0..10 {
        let prefix = rig.new_prompt(3);
        rig.hold(&prefix);
    }
    let waiting_used = |rig: &mut Rig| {
        let permit = rig.dispatch(Request::default()).unwrap().permit;
        rig.complete(permit);
        rig.decision.candidates[0].readings.waiting_used
    };
    assert_eq!(waiting_used(&mut rig), 10.0);
    rig.pass(ms(1));
    rig.report(0, Page { waiting: 6.0, running: 4.0, ..Page::default() });
    assert_eq!(waiting_used(&mut rig), 6.0, "all ten are in the report");
    rig.pass(ms(100));
    for _ in 0..3 {
        let prefix = rig.new_prompt(3);
        rig.hold(&prefix);
    }
    assert_eq!(waiting_used(&mut rig), 9.0, "and three came since");
    rig.pass(ms(100));
    rig.report(0, Page { waiting: 0.0, running: 4.0, ..Page::default() });
    assert_eq!(waiting_used(&mut rig), 9.0, "thirteen unanswered of which four run: an engine that hangs is not empty");
    rig.report(0, Page { waiting: 0.0, running: 20.0, ..Page::default() });
    assert_eq!(waiting_used(&mut rig), 0.0);
}

#[test]
fn a_look_that_was_overtaken_is_ignored() {
    let mut rig = Rig::idle(2);
    let late = Observation::Page { began: rig.now, load: Page { waiting: 9.0, ..Page::default() }.load(rig.now) };
    rig.pass(ms(50));
    rig.report(0, Page::default());
    rig.observe(0, late);
    assert_eq!(rig.pool.snapshot(rig.now).endpoints[0].waiting.unwrap().value, 0.0);
}

#[test]
fn e01_one_full_endpoint_is_not_hidden_by_the_mean() {
    let mut rig = Rig::idle(4);
    rig.report(0, Page { waiting: 8.0, ..Page::default() });
    let picks = burst(&mut rig, 30, 3);
    assert_eq!(counts(&picks, 4), [0, 10, 10, 10]);
}
