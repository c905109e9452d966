use proptest::prelude::*;

use super::*;

fn at_ms(ms: u64) -> Moment {
    Moment::ORIGIN + Duration::from_millis(ms)
}

fn at_s(s: u64) -> Moment {
    at_ms(s * 1000)
}

/// A request that is sent, judged and over at once.
fn one(health: &mut Health, verdict: Verdict, now: Moment) -> Finding {
    let term = health.board();
    let finding = health.judge(term, &mut Judged::No, verdict, now);
    health.depart(term);
    finding
}

const FAILED: Verdict = Verdict::Failure(Failure::Status);

/// Five failures in a row, and out.
fn ejected(health: &mut Health, now: Moment) -> Duration {
    for _ in 0..FAILURES_IN_A_ROW - 1 {
        assert_eq!(one(health, FAILED, now), Finding::Nothing);
    }
    assert_eq!(one(health, FAILED, now), Finding::Failing(EjectedBy::FailuresInARow));
    health.eject(now)
}

#[test]
fn five_failures_in_a_row_and_not_one_less() {
    let mut health = Health::default();
    for _ in 0..20 {
        for _ in 0..FAILURES_IN_A_ROW - 1 {
            assert_eq!(one(&mut health, FAILED, at_s(0)), Finding::Nothing);
        }
        // Far apart, so that the other rule has nothing to say.
        health.recent = Recent::default();
        assert_eq!(one(&mut health, Verdict::Success, at_s(0)), Finding::Nothing);
        health.recent = Recent::default();
    }
    ejected(&mut health, at_s(1));
    assert!(health.is_ejected());
}

#[test]
fn half_of_ten_answers_within_ten_seconds_and_not_before() {
    let mut health = Health::default();
    // Four of nine, alternating so that no row forms.
    for n in 0..9 {
        let verdict = if n % 2 == 1 { FAILED } else { Verdict::Success };
        assert_eq!(one(&mut health, verdict, at_s(100 + n)), Finding::Nothing, "{n}");
    }
    assert_eq!(one(&mut health, FAILED, at_s(109)), Finding::Failing(EjectedBy::ShareOfFailures));
    // The same, but so slow that never ten fall into the window.
    let mut health = Health::default();
    for n in 0..100 {
        let verdict = if n % 2 == 1 { FAILED } else { Verdict::Success };
        assert_eq!(one(&mut health, verdict, at_ms(1_200 * n)), Finding::Nothing, "{n}");
    }
}

#[test]
fn pauses_double_from_ten_seconds_to_sixty_and_a_healthy_minute_forgives() {
    let mut health = Health::default();
    let mut now = at_s(5);
    let mut pauses = vec![ejected(&mut health, now)];
    for _ in 0..5 {
        now = health.ejected_until().unwrap();
        assert_eq!(health.closed(now), None, "half open");
        assert_eq!(one(&mut health, FAILED, now), Finding::Failing(EjectedBy::Probe));
        pauses.push(health.eject(now));
    }
    assert_eq!(pauses, [10, 20, 40, 60, 60, 60].map(Duration::from_secs));
    now = health.ejected_until().unwrap();
    assert_eq!(one(&mut health, Verdict::Success, now), Finding::Returned);
    assert_eq!(ejected(&mut health, now + Duration::from_secs(59)), Duration::from_secs(60), "too soon to be forgiven");
    now = health.ejected_until().unwrap();
    assert_eq!(one(&mut health, Verdict::Success, now), Finding::Returned);
    assert_eq!(ejected(&mut health, now + Duration::from_secs(60)), Duration::from_secs(10));
}

#[test]
fn one_probe_at_a_time_and_a_probe_without_a_verdict_makes_room_for_the_next() {
    let mut health = Health::default();
    ejected(&mut health, at_s(0));
    assert_eq!(health.closed(at_ms(9_999)), Some(Rejected::Ejected));
    for _ in 0..3 {
        assert_eq!(health.closed(at_s(10)), None);
        let probe = health.board();
        assert_eq!(health.closed(at_s(10)), Some(Rejected::Probing));
        // Its client leaves, or its answer is none of the endpoint's doing.
        assert_eq!(health.judge(probe, &mut Judged::No, Verdict::Neutral, at_s(10)), Finding::Nothing);
        health.depart(probe);
        assert!(health.is_ejected());
    }
}

#[test]
fn a_stream_that_begins_well_is_a_probes_success_and_its_later_cut_a_failure() {
    let mut health = Health::default();
    ejected(&mut health, at_s(0));
    let (probe, mut judged) = (health.board(), Judged::No);
    assert_eq!(health.judge(probe, &mut judged, Verdict::Begun, at_s(10)), Finding::Returned);
    assert_eq!(health.judge(probe, &mut judged, Verdict::Begun, at_s(10)), Finding::Nothing);
    assert_eq!(health.window_in_use(at_s(10)), 0.5, "one of two places");
    assert_eq!(health.judge(probe, &mut judged, Verdict::Failure(Failure::Broke), at_s(11)), Finding::Nothing);
    assert_eq!(health.failures_in_a_row, 1);
    assert_eq!(health.judge(probe, &mut judged, Verdict::Success, at_s(11)), Finding::Nothing, "it had its last word");
    assert_eq!(health.failures_in_a_row, 1);
    health.depart(probe);
}

#[test]
fn streams_that_begin_and_are_cut_are_failures_in_a_row() {
    let mut health = Health::default();
    for n in 1..=FAILURES_IN_A_ROW {
        let (term, mut judged) = (health.board(), Judged::No);
        health.judge(term, &mut judged, Verdict::Begun, at_s(0));
        let finding = health.judge(term, &mut judged, Verdict::Failure(Failure::Broke), at_s(0));
        health.depart(term);
        assert_eq!(finding != Finding::Nothing, n == FAILURES_IN_A_ROW);
    }
}

#[test]
fn a_returned_endpoint_gets_one_more_than_it_has_served_for_ten_seconds() {
    let mut health = Health::default();
    ejected(&mut health, at_s(0));
    one(&mut health, Verdict::Success, at_s(10));
    let mut served = 1;
    for _ in 0..5 {
        let terms: Vec<Term> = (0..=served)
            .map(|_| {
                assert!(health.window_in_use(at_s(12)) < 1.0);
                health.board()
            })
            .collect();
        assert_eq!(health.window_in_use(at_s(12)), 1.0, "{served} served");
        assert_eq!(health.window_in_use(at_s(20)), 0.0, "ten seconds are over");
        for term in terms {
            health.judge(term, &mut Judged::No, Verdict::Success, at_s(12));
            health.depart(term);
            served += 1;
        }
    }
}

#[test]
fn another_process_at_the_address_begins_without_a_past() {
    let mut health = Health::default();
    let old = health.board();
    for _ in 0..3 {
        ejected(&mut health, at_s(0));
        health.begin_anew();
        assert_eq!((health.closed(at_s(0)), health.window_in_use(at_s(0))), (None, 0.0));
    }
    for _ in 0..20 {
        assert_eq!(health.judge(old, &mut Judged::No, FAILED, at_s(1)), Finding::Nothing, "not its own");
    }
    health.depart(old);
    assert_eq!(ejected(&mut health, at_s(1)), Duration::from_secs(10));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Pass(u64),
    Send,
    Judge(prop::sample::Index, Verdict),
    Leave(prop::sample::Index),
    Reinstate,
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        1 => Just(Verdict::Begun),
        1 => Just(Verdict::Success),
        1 => Just(Verdict::Neutral),
        4 => prop::sample::select(Failure::ALL.to_vec()).prop_map(Verdict::Failure),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0u64..30_000).prop_map(Step::Pass),
        4 => Just(Step::Send),
        6 => (any::<prop::sample::Index>(), verdicts()).prop_map(|(which, verdict)| Step::Judge(which, verdict)),
        3 => any::<prop::sample::Index>().prop_map(Step::Leave),
        1 => Just(Step::Reinstate),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn an_ejected_endpoint_always_comes_back_and_nothing_old_or_neutral_counts(steps in steps()) {
        let mut health = Health::default();
        let mut now = at_s(0);
        let mut open: Vec<(Term, Judged)> = Vec::new();
        for step in steps {
            match step {
                Step::Pass(ms) => now = now + Duration::from_millis(ms),
                Step::Send if health.closed(now).is_none() && health.window_in_use(now) < 1.0 => {
                    open.push((health.board(), Judged::No));
                }
                Step::Judge(which, verdict) if !open.is_empty() => {
                    let which = which.index(open.len());
                    let (term, judged) = &mut open[which];
                    let (is_old, was_final) = (*term != health.term, *judged == Judged::Finally);
                    let before = format!("{health:?}");
                    let finding = health.judge(*term, judged, verdict, now);
                    if is_old || was_final || verdict == Verdict::Neutral {
                        prop_assert_eq!(finding, Finding::Nothing);
                        prop_assert_eq!(format!("{health:?}"), before);
                    }
                    if let Finding::Failing(_) = finding {
                        let pause = health.eject(now);
                        prop_assert!([10, 20, 40, 60].contains(&pause.as_secs()), "{:?}", pause);
                    }
                }
                Step::Leave(which) if !open.is_empty() => {
                    let (term, _) = open.swap_remove(which.index(open.len()));
                    health.depart(term);
                }
                Step::Reinstate if health.is_ejected() => health.reinstate(),
                Step::Send | Step::Judge(..) | Step::Leave(_) | Step::Reinstate => {}
            }
            let aboard = open.iter().filter(|(term, _)| *term == health.term).count();
            prop_assert_eq!(health.aboard as usize, aboard);
            if let Some(until) = health.ejected_until() {
                prop_assert!(until <= now + EJECTED_FOR_MAX);
                // Half open no later than that, and free for a probe as soon as none is there.
                let later = until.max(now);
                prop_assert_eq!(health.closed(later), (aboard > 0).then_some(Rejected::Probing));
            }
        }
    }
}
