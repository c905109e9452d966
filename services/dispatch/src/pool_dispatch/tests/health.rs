//! Ejection, return and retries, as picks see them.

use pool::State;
use proptest::prelude::*;

use super::*;
use crate::{EjectedBy, Failure, HealthChange, NoRetry, Rejected, Verdict};

const FAILED: Verdict = Verdict::Failure(Failure::Status);

/// A request that must go to this one, judged and over at once.
fn one(rig: &mut Rig, to: usize, verdict: Verdict) -> Option<HealthChange> {
    let permit = to_only(rig, to).unwrap();
    let change = rig.pool.report(&permit, verdict, rig.now);
    rig.complete(permit);
    change
}

fn to_only(rig: &mut Rig, to: usize) -> Result<Permit, Refusal> {
    rig.dispatch(Request { only: Some(id(to)), ..Request::default() }).map(|sent| sent.permit)
}

/// Five failures; says whether they took it out.
fn fail(rig: &mut Rig, number: usize) -> bool {
    (0..5).filter_map(|_| one(rig, number, FAILED)).any(|change| matches!(change, HealthChange::Ejected(_)))
}

fn states(rig: &Rig) -> Vec<State> {
    rig.pool.snapshot(rig.now).endpoints.iter().map(|endpoint| endpoint.state).collect()
}

fn rejected(rig: &Rig, number: usize) -> Option<Rejected> {
    rig.decision.candidates.iter().find(|c| c.endpoint == id(number)).and_then(|c| c.rejected)
}

fn fresh(rig: &mut Rig, n: usize) {
    rig.report_all(&vec![Page::default(); n]);
}

#[test]
fn b11_an_endpoint_that_fails_is_no_candidate_and_the_decision_says_why() {
    let mut rig = Rig::idle(2);
    for n in 0..4 {
        assert_eq!(one(&mut rig, 0, FAILED), None, "{n}");
    }
    let Some(HealthChange::Ejected(ejected)) = one(&mut rig, 0, Verdict::Failure(Failure::Timeout)) else {
        panic!("the fifth takes it out")
    };
    assert_eq!((ejected.endpoint, &*ejected.name, ejected.cause), (id(0), "llama-0", Failure::Timeout));
    assert_eq!((ejected.by, ejected.pause), (EjectedBy::FailuresInARow, ms(10_000)));
    for _ in 0..20 {
        let prefix = rig.new_prompt(3);
        assert_eq!(rig.hold(&prefix), 1);
        assert_eq!(rejected(&rig, 0), Some(Rejected::Ejected));
    }
    assert_eq!(states(&rig), [State::Ejected, State::Ready]);
    assert!(rig.decision.explain().contains("llama-0 (ejected)"), "{}", rig.decision.explain());
    assert_eq!(to_only(&mut rig, 0).unwrap_err(), Refusal::NoEndpoint);
}

#[test]
fn e10_what_clients_do_wrong_changes_nothing_and_an_answer_counts_once() {
    let mut rig = Rig::idle(2);
    for _ in 0..100 {
        assert_eq!(one(&mut rig, 0, Verdict::Neutral), None);
    }
    let permit = to_only(&mut rig, 0).unwrap();
    for _ in 0..100 {
        assert_eq!(rig.pool.report(&permit, FAILED, rig.now), None, "one answer is one failure");
    }
    rig.complete(permit);
    // Neutral answers break no row of failures either.
    for _ in 0..3 {
        one(&mut rig, 0, FAILED);
        one(&mut rig, 0, Verdict::Neutral);
    }
    assert!(matches!(one(&mut rig, 0, FAILED), Some(HealthChange::Ejected(_))));
}

#[test]
fn answers_to_what_was_sent_before_the_ejection_do_not_count() {
    let mut rig = Rig::idle(2);
    let old: Vec<Permit> = (0..20).map(|_| to_only(&mut rig, 0).unwrap()).collect();
    assert!(fail(&mut rig, 0));
    rig.pass(ms(10_000));
    rig.report_all(&[Page { running: 20.0, ..Page::default() }, Page::default()]);
    for (n, permit) in old.iter().enumerate() {
        let verdict = if n % 2 == 0 { FAILED } else { Verdict::Success };
        assert_eq!(rig.pool.report(permit, verdict, rig.now), None);
    }
    assert_eq!(states(&rig)[0], State::Ejected, "neither returned nor out for longer");
    let probe = to_only(&mut rig, 0).expect("old requests take no probe's place");
    assert!(matches!(to_only(&mut rig, 0), Err(Refusal::Full(_))), "one probe at a time");
    old.into_iter().for_each(|permit| rig.complete(permit));
    assert!(matches!(to_only(&mut rig, 0), Err(Refusal::Full(_))), "old ones leave no room for a second");
    assert!(matches!(rig.pool.report(&probe, Verdict::Success, rig.now), Some(HealthChange::Returned { .. })));
    rig.complete(probe);
    assert_eq!(states(&rig)[0], State::Ready);
}

#[test]
fn a_failed_probe_doubles_the_pause() {
    let mut rig = Rig::idle(2);
    assert!(fail(&mut rig, 0));
    for pause_s in [20, 40, 60, 60] {
        rig.pass(ms(60_000));
        fresh(&mut rig, 2);
        let Some(HealthChange::Ejected(ejected)) = one(&mut rig, 0, FAILED) else { panic!("a probe failed") };
        assert_eq!((ejected.by, ejected.pause), (EjectedBy::Probe, ms(pause_s * 1000)));
    }
}

#[test]
fn a_returned_endpoint_is_full_beyond_its_window_and_a_burst_goes_elsewhere() {
    let mut rig = Rig::idle(2);
    assert!(fail(&mut rig, 0));
    rig.pass(ms(10_000));
    fresh(&mut rig, 2);
    one(&mut rig, 0, Verdict::Success);
    let to: Vec<usize> = (0..30).map(|_| rig.hold(&[])).collect();
    assert_eq!(counts(&to, 2), [2, 28]);
    assert_eq!(rejected(&rig, 0), Some(Rejected::SlowStart));
    rig.pass(ms(10_000));
    fresh(&mut rig, 2);
    let to: Vec<usize> = (0..10).map(|_| rig.hold(&[])).collect();
    assert!(counts(&to, 2)[0] >= 5, "{to:?}");
}

#[test]
fn a_pool_of_one_never_ejects_and_the_last_good_one_stays() {
    let mut rig = Rig::idle(1);
    assert!(!fail(&mut rig, 0) && !fail(&mut rig, 0));
    // Two of four cannot be reached: of the other two both could be ejected by number, and the last one must stay.
    let mut rig = Rig::idle(4);
    rig.no_page(2, NoPage::Unreachable);
    rig.no_page(3, NoPage::Unreachable);
    assert!(fail(&mut rig, 0));
    assert!(!fail(&mut rig, 1));
    assert_eq!(states(&rig), [State::Ejected, State::Ready, State::Stale, State::Stale]);
}

#[test]
fn when_members_leave_no_more_than_half_stay_out_and_the_soonest_comes_back() {
    let mut rig = Rig::idle(4);
    assert!(fail(&mut rig, 0));
    rig.pass(ms(1_000));
    fresh(&mut rig, 4);
    assert!(fail(&mut rig, 1));
    assert!(!fail(&mut rig, 2), "half are out");
    let left = [0, 1, 2].map(member);
    let reconciled = rig.pool.set_endpoints(&left, rig.now);
    assert_eq!((reconciled.left, reconciled.reinstated), (1, 1));
    assert_eq!(states(&rig), [State::Ready, State::Ejected, State::Ready]);
    let mut draining = [1, 2].map(member);
    draining[1].standing = Standing::Draining;
    assert_eq!(rig.pool.set_endpoints(&draining, rig.now).reinstated, 1);
    assert_eq!(states(&rig), [State::Ready, State::Draining], "a pool of one that serves");
    let sent = to_only(&mut rig, 1).unwrap();
    assert!(to_only(&mut rig, 1).is_ok(), "at full width: nobody else is there");
    rig.complete(sent);
}

#[test]
fn a_retry_goes_to_the_first_with_room_while_the_budget_lasts() {
    let mut rig = Rig::idle(4);
    rig.report(1, Page { waiting: 5.0, ..Page::default() });
    assert!(fail(&mut rig, 2));
    let permit = to_only(&mut rig, 0).unwrap();
    let among = [1, 2, 3].map(id);
    assert_eq!(rig.pool.retry(&permit, &among[..2], &[], rig.now), Err(NoRetry::NoRoom));
    assert_eq!(rig.pool.retry(&permit, &among, &[], rig.now), Ok(id(3)));
    assert_eq!((rig.pool.endpoint_of(&permit), rig.in_flight()), (Some(id(3)), vec![0, 0, 0, 1]));
    let granted = (0..100).filter(|_| rig.pool.retry(&permit, &[id(0), id(3)], &[], rig.now).is_ok()).count();
    assert_eq!(granted, 9, "ten at once, and one was used");
    assert_eq!(rig.pool.retry(&permit, &[id(0)], &[], rig.now), Err(NoRetry::OverBudget));
    rig.pass(ms(1_000));
    rig.pool.charge_retry(rig.now);
    fresh(&mut rig, 4);
    assert_eq!(rig.pool.retry(&permit, &[id(0)], &[], rig.now), Err(NoRetry::OverBudget), "a replay was paid for");
    rig.complete(permit);
}

#[test]
fn a_verdict_is_of_the_endpoint_where_the_try_was() {
    let mut rig = Rig::idle(3);
    for _ in 0..5 {
        let permit = to_only(&mut rig, 0).unwrap();
        rig.pool.report(&permit, Verdict::Failure(Failure::Connect), rig.now);
        let _ = rig.pool.pass_on(&permit, id(1), &[], rig.now);
        assert_eq!(rig.pool.report(&permit, Verdict::Success, rig.now), None);
        rig.complete(permit);
    }
    assert_eq!(states(&rig), [State::Ejected, State::Ready, State::Ready]);
    let permit = to_only(&mut rig, 1).unwrap();
    assert!(rig.pool.pass_on(&permit, id(0), &[], rig.now).is_err(), "nothing goes on to one that is out");
    rig.complete(permit);
}

#[test]
fn a_restart_at_the_same_address_is_another_life() {
    let mut rig = Rig::idle(2);
    let started = |rig: &mut Rig, unix_s| {
        let load = Load { started_unix_s: Some(unix_s), ..Page::default().load(rig.now) };
        rig.observe(0, Observation::Page { began: rig.now, load });
    };
    started(&mut rig, 1_000.0);
    let prefix = rig.new_prompt(8);
    let sent = |rig: &mut Rig, adapter| {
        rig.dispatch(Request { prefix: &prefix, adapter, only: Some(id(0)), ..Request::default() }).unwrap().permit
    };
    let permit = sent(&mut rig, Some("sql"));
    rig.answer_and_complete(permit);
    let old = sent(&mut rig, Some("sql"));
    assert!(fail(&mut rig, 0));
    rig.pool.backpressure(id(0), rig.now + ms(60_000));
    let known = |rig: &mut Rig| {
        let _ = rig.dispatch(Request { prefix: &prefix, ..Request::default() }).map(|s| rig.complete(s.permit));
        let matched = rig.decision.candidates.iter().find(|c| c.endpoint == id(0)).unwrap().matched_blocks;
        (matched, rejected(rig, 0))
    };
    assert_eq!(known(&mut rig), (8, Some(Rejected::Ejected)));
    started(&mut rig, 999.0);
    started(&mut rig, 1_001.5);
    assert_eq!(known(&mut rig), (8, Some(Rejected::Ejected)), "an older start, and one by rounding, are none");
    rig.pass(ms(200));
    started(&mut rig, 1_060.0);
    let (matched, why) = known(&mut rig);
    assert_eq!((matched, why), (0, None));
    assert_eq!(rig.in_flight()[0], 1, "the old request is counted until it ends");
    for _ in 0..10 {
        assert_eq!(rig.pool.report(&old, FAILED, rig.now), None);
    }
    let new = sent(&mut rig, Some("sql"));
    rig.complete(old);
    let view = rig.pool.snapshot(rig.now);
    assert_eq!(view.endpoints[0].adapters.iter().map(|a| a.in_flight).sum::<u32>(), 1);
    rig.complete(new);
    assert_eq!(rig.in_flight(), [0, 0]);
    assert!(rig.pool.snapshot(rig.now).endpoints[0].adapters.is_empty(), "what was loaded is not");
    assert_eq!(states(&rig)[0], State::Ready);
}

#[test]
fn g05_what_the_old_life_gives_back_never_touches_the_new_one() {
    let mut rig = Rig::idle(1);
    let old = to_only(&mut rig, 0).unwrap();
    // Gone, and back under the same name and address: another id.
    let mut again = member(0);
    again.endpoint.id = id(7);
    rig.pool.set_endpoints(&[], rig.now);
    rig.pool.set_endpoints(std::slice::from_ref(&again), rig.now);
    let new = rig.dispatch(Request::default()).unwrap();
    assert_eq!(new.ranked[0], id(7));
    let in_flight = |rig: &Rig| -> Vec<_> {
        let view = rig.pool.snapshot(rig.now);
        view.endpoints.iter().map(|e| (e.id, e.in_flight.requests)).collect()
    };
    assert_eq!(in_flight(&rig), [(id(0), 1), (id(7), 1)]);
    rig.pool.report(&old, FAILED, rig.now);
    rig.pool.answered(&old, rig.now);
    rig.complete(old);
    assert_eq!(in_flight(&rig), [(id(7), 1)]);
    rig.complete(new.permit);
    assert_eq!(in_flight(&rig), [(id(7), 0)]);
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Send,
    Judge(prop::sample::Index, Verdict),
    End(prop::sample::Index),
    Members(Vec<(usize, Standing)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verdict = prop_oneof![
        1 => Just(Verdict::Begun),
        1 => Just(Verdict::Success),
        1 => Just(Verdict::Neutral),
        8 => Just(FAILED),
    ];
    let standing = prop_oneof![4 => Just(Standing::Serving), 1 => Just(Standing::Draining)];
    let members = prop::collection::btree_map(0usize..8, standing, 0..8);
    let step = prop_oneof![
        2 => (0u64..20_000).prop_map(Step::Pass),
        10 => Just(Step::Send),
        10 => (any::<prop::sample::Index>(), verdict).prop_map(|(which, verdict)| Step::Judge(which, verdict)),
        6 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => members.prop_map(|members| Step::Members(members.into_iter().collect())),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn never_more_than_half_are_out_and_places_add_up(steps in steps()) {
        let mut rig = Rig::idle(6);
        let mut open = Vec::new();
        for step in steps {
            match step {
                Step::Pass(pause_ms) => {
                    rig.pass(ms(pause_ms));
                    fresh(&mut rig, 8);
                }
                Step::Send => {
                    if let Ok(sent) = rig.dispatch(Request::default()) {
                        let to = sent.ranked[0];
                        open.push((to, sent.permit));
                    }
                }
                Step::Judge(which, verdict) if !open.is_empty() => {
                    rig.pool.report(&open[which.index(open.len())].1, verdict, rig.now);
                }
                Step::End(which) if !open.is_empty() => {
                    let (_, permit) = open.swap_remove(which.index(open.len()));
                    rig.complete(permit);
                }
                Step::Judge(..) | Step::End(_) => {}
                Step::Members(members) => {
                    let list: Vec<_> = members.iter().map(|&(n, standing)| Membership { standing, ..member(n) }).collect();
                    rig.pool.set_endpoints(&list, rig.now);
                    fresh(&mut rig, 8);
                }
            }
            let view = rig.pool.snapshot(rig.now);
            let out = view.endpoints.iter().filter(|e| e.state == State::Ejected).count();
            let serving = view.endpoints.iter().filter(|e| e.state != State::Draining).count();
            prop_assert!(out <= serving / 2, "{out} of {serving}");
            for endpoint in &view.endpoints {
                let here = open.iter().filter(|(to, _)| *to == endpoint.id).count();
                prop_assert_eq!(endpoint.in_flight.requests as usize, here);
            }
            prop_assert_eq!(rig.pool.snapshot(rig.now).endpoints.iter().map(|e| e.in_flight.requests as usize).sum::<usize>(), open.len());
        }
    }
}

/// An endpoint of which looks say that nobody listens is the last resort anyway. Ejected besides, it would stay out when it
/// is back and the others are not.
#[test]
fn an_endpoint_where_nobody_listens_is_not_ejected_and_serves_as_soon_as_somebody_does() {
    let refused = Verdict::Failure(Failure::Connect);
    let mut rig = Rig::idle(2);
    // Ejected before a look has noticed, and then known.
    for _ in 0..5 {
        one(&mut rig, 0, refused);
    }
    assert_eq!(states(&rig), [State::Ejected, State::Ready]);
    rig.pass(ms(100));
    rig.no_page(0, NoPage::Unreachable);
    rig.no_page(1, NoPage::Unreachable);
    assert_eq!(states(&rig), [State::Stale, State::Stale]);
    for n in 0..20 {
        assert_eq!(one(&mut rig, n % 2, refused), None, "it is known");
    }
    rig.pass(ms(100));
    rig.report(0, Page::default());
    assert_eq!(states(&rig), [State::Ready, State::Stale]);
    let prompt = rig.new_prompt(3);
    assert_eq!(rig.hold(&prompt), 0);
    // One that listens and fails is another matter, beside one that serves.
    rig.report(1, Page::default());
    for _ in 0..5 {
        one(&mut rig, 0, FAILED);
    }
    assert_eq!(states(&rig)[0], State::Ejected);
}

/// Servers of any kind answer 500 for reasons of their own, and nobody looks at them: only one that cannot be connected to is
/// left out.
#[test]
fn servers_that_nobody_looks_at_are_ready_and_only_blamed_for_not_being_there() {
    let unasked = Settings { has_page: crate::HasPage::Unasked, ..Settings::default() };
    let mut rig = Rig::unread(2, unasked);
    assert_eq!(states(&rig), [State::Ready, State::Ready]);
    rig.pass(ms(3_600_000));
    assert_eq!(states(&rig), [State::Ready, State::Ready], "no report is missed");
    for cause in Failure::ALL.into_iter().filter(|cause| *cause != Failure::Connect) {
        for _ in 0..20 {
            assert_eq!(one(&mut rig, 0, Verdict::Failure(cause)), None, "{cause:?}");
        }
    }
    let gone: Vec<_> = (0..5).filter_map(|_| one(&mut rig, 0, Verdict::Failure(Failure::Connect))).collect();
    assert!(matches!(gone[..], [HealthChange::Ejected(_)]), "{gone:?}");
    assert_eq!(states(&rig), [State::Ejected, State::Ready]);
}
