//! Who gets a place, who waits for one, and who gets it then.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::{Band, Flow, FlowControl, HasPage, More, PickReason, QueueFull, Rejected, Ticket, Waiting};

/// Endpoints that hold so many of our requests, and say nothing.
pub(super) fn capped(n: usize, cap: u32, change: impl FnOnce(&mut Settings)) -> Rig {
    let mut settings =
        Settings { has_page: HasPage::No, max_in_flight_per_endpoint: NonZeroU32::new(cap), ..Settings::default() };
    for band in &mut settings.flow.bands {
        band.max_saturation = 1.0;
    }
    change(&mut settings);
    let mut rig = Rig::unread(n, settings);
    for number in 0..n {
        rig.observe(number, Observation::Healthy { began: rig.now });
    }
    rig
}

pub(super) fn rank(priority: i32) -> Ask {
    Ask { priority, bytes: 1_000, ..Ask::default() }
}

pub(super) fn waits(admitted: Admitted) -> Waiting {
    match admitted {
        Admitted::Waiting(waiting) => waiting,
        Admitted::Placed(_) | Admitted::Refused(_) => panic!("{admitted:?}"),
    }
}

fn refused(admitted: Admitted) -> Refusal {
    match admitted {
        Admitted::Refused(refusal) => refusal,
        Admitted::Placed(_) | Admitted::Waiting(_) => panic!("{admitted:?}"),
    }
}

impl Rig {
    pub(super) fn place(&mut self, ask: Ask) -> Permit {
        match self.ask(ask, Request::default()) {
            Admitted::Placed(dispatched) => dispatched.permit,
            other @ (Admitted::Waiting(_) | Admitted::Refused(_)) => panic!("{other:?}"),
        }
    }

    /// Places one that stays in flight.
    pub(super) fn occupy(&mut self, ask: Ask) {
        let permit = self.place(ask);
        self.held.push(permit);
    }

    /// The last one that stayed in flight ends.
    fn complete_last(&mut self) {
        let permit = self.held.pop().unwrap();
        self.complete(permit);
    }

    pub(super) fn wait(&mut self, ask: Ask) -> Ticket {
        waits(self.ask(ask, Request::default())).ticket
    }

    /// Hands out what room there is. The tickets of those placed; the rest stays in `freed`.
    pub(super) fn release(&mut self) -> Vec<Ticket> {
        while self.pool.release(self.now, &mut self.freed) == More::Perhaps {}
        let mut placed = Vec::new();
        for freed in std::mem::take(&mut self.freed) {
            match freed {
                Freed::Placed { ticket, dispatched, decision } => {
                    assert_eq!(decision.picked, dispatched.ranked);
                    placed.push(ticket);
                    self.held.push(dispatched.permit);
                }
                other @ (Freed::Refused { .. } | Freed::Evict { .. }) => self.freed.push(other),
            }
        }
        placed
    }

    fn refusals(&mut self) -> Vec<(Ticket, Refusal)> {
        let refusal = |freed| match freed {
            Freed::Refused { ticket, refusal } => Some((ticket, refusal)),
            Freed::Placed { .. } | Freed::Evict { .. } => None,
        };
        self.freed.drain(..).filter_map(refusal).collect()
    }
}

#[test]
fn releases_follow_completions_one_to_one() {
    let mut rig = capped(2, 3, |_| {});
    let mut permits: Vec<_> = (0..6).map(|_| rig.place(rank(0))).collect();
    let tickets: Vec<_> = (0..5).map(|_| rig.wait(rank(0))).collect();
    assert_eq!(rig.release(), []);
    for &ticket in &tickets {
        rig.complete(permits.pop().unwrap());
        assert_eq!(rig.release(), [ticket]);
        assert_eq!(rig.release(), []);
        assert_eq!(rig.in_flight(), [3, 3]);
    }
    assert!(!rig.pool.has_waiting());
}

#[test]
fn with_a_reported_queue_a_completion_makes_room_before_the_next_report() {
    let mut rig = Rig::idle(1);
    let mut permits: Vec<_> = (0..15).map(|_| rig.place(rank(1))).collect();
    rig.pass(ms(2_000));
    rig.report(0, Page { running: 10.0, waiting: 5.0, ..Page::default() });
    let tickets: Vec<_> = (0..3).map(|_| rig.wait(rank(1))).collect();
    rig.pass(ms(50));
    rig.answer_and_complete(permits.remove(0));
    assert_eq!(rig.release(), [tickets[0]], "one has ended, so one of those that waited there runs");
    rig.answer_and_complete(permits.remove(0));
    assert_eq!(rig.release(), [tickets[1]]);
    // The report that comes now began before the second ended: it shows that one, and all that came of the first.
    let load = Page { running: 10.0, waiting: 5.0, ..Page::default() }.load(rig.now);
    rig.pass(ms(5));
    rig.answer_and_complete(permits.remove(0));
    rig.observe(0, Observation::Page { began: load.waiting.unwrap().at, load });
    assert_eq!(rig.release(), [tickets[2]], "what ended while the report was read is credited against it");
    assert_eq!(rig.pool.saturation(rig.now), 1.0);
}

#[test]
fn bands_stop_at_their_saturation_and_what_is_above_is_kept_for_higher_ones() {
    let mut rig = capped(1, 10, |settings| {
        settings.flow = flow_control::Settings::default();
        settings.flow.bands[Band::Sheddable.index()].max_wait = ms(5_000);
    });
    for _ in 0..8 {
        rig.hold(&[]);
    }
    let sheddable = rig.wait(rank(-1));
    assert_eq!(rig.decision.reason, PickReason::BandFull);
    assert_eq!(rig.decision.candidates[0].rejected, Some(Rejected::Reserved));
    let standard = rig.place(rank(0));
    let standard_waits = rig.wait(rank(0));
    let critical = rig.place(rank(1));
    let critical_waits = rig.wait(rank(1));
    assert_eq!(rig.pool.saturation(rig.now), 1.0);
    rig.complete(standard);
    assert_eq!(rig.release(), [critical_waits]);
    rig.complete(critical);
    assert_eq!(rig.release(), [], "0.9 is too much for Standard");
    rig.complete_last();
    assert_eq!(rig.release(), [standard_waits]);
    rig.complete_last();
    assert_eq!(rig.release(), []);
    rig.complete_last();
    assert_eq!(rig.release(), [sheddable]);
}

#[test]
fn the_lowest_band_is_shed_and_others_wait_within_bounds() {
    let mut rig = capped(1, 1, |settings| {
        settings.flow.bands[Band::Standard.index()].queued_requests_max = 1;
        settings.flow.bands[Band::Critical.index()].max_wait = ms(0);
    });
    rig.occupy(rank(-1));
    assert_eq!(refused(rig.ask(rank(-1), Request::default())), Refusal::Shed);
    assert_eq!(refused(rig.ask(rank(1), Request::default())), Refusal::Full(QueueFull::NoWaiting));
    let waiting = rig.wait(rank(0));
    assert_eq!(refused(rig.ask(rank(0), Request::default())), Refusal::Full(QueueFull::Requests));
    let too_large = Ask { bytes: 65 << 20, ..rank(0) };
    assert_eq!(refused(rig.ask(too_large, Request::default())), Refusal::Full(QueueFull::TooLarge));
    assert_eq!(rig.pool.waiting(Band::Standard), 1);
    assert!(rig.pool.withdraw(waiting) && !rig.pool.withdraw(waiting));
    assert!(!rig.pool.has_waiting());
}

#[test]
fn f01_no_endpoint_is_refused_at_once_and_whoever_waits_goes_on_waiting() {
    let mut nobody = capped(0, 1, |_| {});
    assert_eq!(refused(nobody.ask(rank(0), Request::default())), Refusal::NoEndpoint, "nobody waits for it");
    let mut rig = capped(1, 1, |_| {});
    rig.occupy(rank(0));
    let waiting = waits(rig.ask(rank(0), Request::default()));
    rig.pool.set_endpoints(&[], rig.now);
    assert_eq!(refused(rig.ask(rank(0), Request::default())), Refusal::NoEndpoint, "also while others wait");
    assert_eq!(rig.decision.reason, PickReason::NoEndpoint);
    assert_eq!(rig.release(), []);
    let second = {
        rig.pool.set_endpoints(&[member(5)], rig.now);
        rig.observe(5, Observation::Healthy { began: rig.now });
        assert_eq!(rig.release(), [waiting.ticket], "a new endpoint is there in time");
        rig.wait(rank(0))
    };
    rig.pool.set_endpoints(&[], rig.now);
    rig.pass(ms(10_000));
    assert_eq!(rig.release(), []);
    assert_eq!(rig.refusals(), [(second, Refusal::NoEndpoint)], "nobody was there when the wait ended");
}

#[test]
fn f02_one_outcome_on_the_pick_path_and_on_the_queue_path() {
    let elsewhere = Request { only: Some(id(7)), ..Request::default() };
    let mut rig = capped(1, 1, |_| {});
    assert_eq!(refused(rig.ask(rank(0), elsewhere)), Refusal::NoEndpoint);
    rig.occupy(rank(0));
    let _ = rig.wait(rank(0));
    assert_eq!(refused(rig.ask(rank(0), elsewhere)), Refusal::NoEndpoint);
    assert_eq!(rig.decision.reason, PickReason::NoEndpoint);
}

#[test]
fn f03_a_wait_that_is_over_is_its_own_outcome_and_is_never_served() {
    let mut rig = capped(1, 1, |_| {});
    let permit = rig.place(rank(0));
    let (first, second) = (rig.wait(rank(0)), rig.wait(rank(0)));
    rig.pass(ms(9_999));
    assert_eq!(rig.pool.next_expiry(), Some(rig.now + ms(1)));
    rig.pass(ms(1));
    assert_eq!(rig.pool.expire(second, rig.now), Some(Refusal::Expired));
    assert_eq!(rig.pool.expire(second, rig.now), None);
    rig.complete(permit);
    assert_eq!(rig.release(), [], "there is room, and its time is over");
    assert_eq!(rig.refusals(), [(first, Refusal::Expired)]);
    assert!(!rig.pool.withdraw(first));
    let second_try = Ask { wait_until: Some(rig.now), ..rank(0) };
    rig.occupy(second_try);
    assert_eq!(refused(rig.ask(second_try, Request::default())), Refusal::Expired, "it has waited its time");
}

#[test]
fn f05_who_left_while_waiting_is_never_sent() {
    let mut rig = capped(1, 1, |_| {});
    let permit = rig.place(rank(0));
    let tickets: Vec<_> = (0..50).map(|_| rig.wait(rank(0))).collect();
    assert!(tickets.iter().all(|&ticket| rig.pool.withdraw(ticket)));
    rig.complete(permit);
    assert_eq!(rig.release(), []);
    assert_eq!((rig.pool.waiting(Band::Standard), rig.pool.waiting_bytes(Band::Standard)), (0, 0));
    assert_eq!(rig.in_flight(), [0]);
}

#[test]
fn f08_a_live_request_is_counted_until_it_ends_however_long() {
    let days = ms(3 * 24 * 3_600_000);
    let mut rig = capped(2, 1, |settings| settings.flow.bands[Band::Standard.index()].max_wait = days);
    // One has not had a byte of its answer, one has begun; neither is heard of for two days.
    let (silent, begun) = (rig.place(rank(0)), rig.place(rank(0)));
    rig.pool.answered(&begun, rig.now);
    rig.pool.prefilled(&begun, rig.now);
    let ticket = rig.wait(rank(0));
    for _ in 0..2 * 24 * 60 {
        rig.pass(ms(60_000));
        for number in 0..2 {
            rig.observe(number, Observation::Healthy { began: rig.now });
        }
        assert_eq!(rig.release(), []);
        assert_eq!(rig.in_flight(), [1, 1]);
    }
    rig.complete(silent);
    assert_eq!(rig.release(), [ticket]);
    rig.complete(begun);
    rig.complete_last();
    assert_eq!(rig.in_flight(), [0, 0]);
}

#[test]
fn a_newcomer_goes_before_lower_ranks_and_behind_its_own() {
    let mut rig = capped(1, 1, |_| {});
    let permit = rig.place(rank(0));
    let (standard, critical) = (rig.wait(rank(0)), rig.wait(rank(1)));
    rig.complete(permit);
    // The room is there and nobody has handed it out yet: it goes to who waits, not to who comes.
    let late = rig.wait(rank(1));
    assert_eq!(rig.release(), [critical]);
    rig.complete_last();
    assert_eq!(rig.release(), [late]);
    rig.complete_last();
    assert_eq!(rig.release(), [standard]);
}

#[test]
fn one_call_hands_out_a_bounded_number() {
    let mut rig = capped(1, 100, |_| {});
    let permits: Vec<_> = (0..100).map(|_| rig.place(rank(0))).collect();
    let tickets: Vec<_> = (0..70).map(|_| rig.wait(rank(0))).collect();
    for permit in permits {
        rig.complete(permit);
    }
    let mut freed = Vec::new();
    assert_eq!(rig.pool.release(rig.now, &mut freed), More::Perhaps);
    assert_eq!(freed.len(), 32);
    rig.freed = freed;
    assert_eq!(rig.release(), tickets);
}

#[test]
fn one_that_must_go_to_a_full_endpoint_holds_up_nobody() {
    let mut rig = capped(2, 1, |_| {});
    let (first, second) = (rig.place(rank(1)), rig.place(rank(1)));
    let at_first = rig.pool.endpoint_of(&first).unwrap();
    let wishes = Request { only: Some(at_first), ..Request::default() };
    let choosy = waits(rig.ask(rank(1), wishes)).ticket;
    let tried = [rig.pool.endpoint_of(&second).unwrap()];
    let other = waits(rig.ask(rank(1), Request { exclude: &tried, ..Request::default() })).ticket;
    let standard = rig.wait(rank(0));
    rig.complete(second);
    assert_eq!(rig.release(), [standard], "of a lower band, and the only one that can go there");
    rig.complete(first);
    assert_eq!(rig.release(), [choosy]);
    rig.complete_last();
    assert_eq!(rig.release(), [other]);
}

#[test]
fn who_is_pushed_out_is_told() {
    let mut rig = capped(1, 1, |settings| settings.flow.bands[Band::Standard.index()].queued_requests_max = 3);
    rig.occupy(rank(0));
    let greedy: Vec<_> = (0..3).map(|_| rig.wait(rank(0))).collect();
    let modest = rig.wait(Ask { flow: Flow(9), ..rank(0) });
    assert_eq!(rig.refusals(), [(greedy[2], Refusal::Full(QueueFull::PushedOut))]);
    for ticket in [greedy[0], modest, greedy[1]] {
        rig.complete_last();
        assert_eq!(rig.release(), [ticket], "in turn");
    }
}

#[test]
fn without_flow_control_every_request_is_sent_on_and_one_with_room_comes_first() {
    let mut rig = capped(2, 1, |settings| settings.flow_control = FlowControl::Off);
    let places: Vec<_> = (0..6).map(|_| rig.admit(-5, Request::default()).unwrap()).collect();
    assert_eq!(rig.in_flight(), [3, 3]);
    for dispatched in places {
        rig.complete(dispatched.permit);
    }
    rig.occupy(rank(0));
    let only = rig.pool.endpoint_of(rig.held.last().unwrap()).unwrap();
    let to = rig.admit(0, Request::default()).unwrap();
    assert_ne!(to.ranked[0], only);
    rig.complete(to.permit);
    rig.pool.set_endpoints(&[], rig.now);
    assert_eq!(refused(rig.ask(rank(0), Request::default())), Refusal::NoEndpoint);
}

#[test]
fn when_flow_control_is_turned_off_those_who_wait_go() {
    let mut rig = capped(1, 1, |_| {});
    rig.occupy(rank(0));
    let tickets = [rig.wait(rank(1)), rig.wait(rank(0))];
    let settings = Settings { flow_control: FlowControl::Off, ..rig.pool.settings.clone() };
    rig.pool.configure(settings);
    assert_eq!(rig.release(), tickets);
}

#[test]
fn what_a_flow_was_served_decides_its_turn() {
    let mut rig = capped(1, 1, |settings| {
        settings.flow.fairness = flow_control::Fairness::LeastAttainedService;
    });
    let of = |flow| Ask { flow: Flow(flow), ..rank(0) };
    let permit = rig.place(of(1));
    rig.pool.generated(&permit, 5_000, rig.now);
    let (a, b, c) = (rig.wait(of(1)), rig.wait(of(2)), rig.wait(of(2)));
    rig.complete(permit);
    assert_eq!(rig.release(), [b]);
    rig.pool.generated(rig.held.last().unwrap(), 6_000, rig.now);
    rig.complete_last();
    assert_eq!(rig.release(), [a]);
    rig.complete_last();
    assert_eq!(rig.release(), [c]);
}

#[test]
fn the_time_to_wait_is_that_of_the_band() {
    let mut rig = capped(1, 1, |settings| {
        for band in &mut settings.flow.bands {
            band.max_wait = ms(60_000);
        }
    });
    for _ in 0..50 {
        rig.pass(ms(200));
        rig.observe(0, Observation::Healthy { began: rig.now });
        let permit = rig.place(rank(1));
        rig.complete(permit);
        let permit = rig.place(rank(0));
        rig.complete(permit);
    }
    rig.occupy(rank(0));
    for _ in 0..19 {
        let _ = rig.wait(rank(1));
    }
    for _ in 0..20 {
        let _ = rig.wait(rank(0));
    }
    let seconds = Band::ALL.map(|band| rig.pool.retry_after_s(band, 1 << 63, rig.now));
    assert_eq!(seconds, [4, 4, 10], "20 at 5 a second; 40 at 10; none of the lowest was ever placed");
    let random = |random| rig.pool.retry_after_s(Band::Sheddable, random, rig.now);
    assert_eq!((random(0), random(u64::MAX)), (8, 12));
}

proptest! {
    #[test]
    fn a_full_pool_stays_full_as_long_as_anyone_waits(
        asks in prop::collection::vec((-1i32..3, 0u64..5), 1..60),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 60),
    ) {
        let mut rig = capped(3, 2, |settings| settings.flow.bands[Band::Sheddable.index()].max_wait = ms(9_000));
        for _ in 0..6 {
            rig.occupy(rank(0));
        }
        for &(priority, flow) in &asks {
            let _ = rig.wait(Ask { flow: Flow(flow), ..rank(priority) });
        }
        for end in ends.iter().take(asks.len()) {
            let permit = rig.held.swap_remove(end.index(6));
            rig.complete(permit);
            prop_assert_eq!(rig.release().len(), 1);
            prop_assert_eq!(rig.in_flight(), [2, 2, 2]);
        }
        prop_assert!(!rig.pool.has_waiting());
    }
}
