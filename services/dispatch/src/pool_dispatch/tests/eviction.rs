//! Who is ended for whom, where that is wanted.

use proptest::prelude::*;

use super::{
    waiting::{capped, rank},
    *,
};
use crate::{Band, Eviction, FlightId};

impl Rig {
    fn evictions(&mut self) -> Vec<FlightId> {
        let evicted = |freed| match freed {
            Freed::Evict { flight } => Some(flight),
            Freed::Placed { .. } | Freed::Refused { .. } => None,
        };
        self.freed.drain(..).filter_map(evicted).collect()
    }

    /// Endpoints with so many Sheddable requests in flight, of which those that a report says wait in their queues.
    fn crowded(requests: usize, queues: &[f64]) -> Self {
        let mut rig = Self::idle(queues.len());
        rig.pool.configure(Settings { eviction: Eviction::BeforeFirstByte, ..Settings::default() });
        for _ in 0..requests * queues.len() {
            rig.occupy(rank(-1));
        }
        rig.pass(ms(200));
        for (number, &waiting) in queues.iter().enumerate() {
            rig.report(number, Page { running: requests as f64 - waiting, waiting, ..Page::default() });
        }
        rig
    }

    fn take_held(&mut self, flight: FlightId) -> Permit {
        let at = self.held.iter().position(|permit| permit.id() == flight).expect("it is in flight");
        self.held.remove(at)
    }

    /// Ends everybody who is to be ended, until nobody is. How many that were.
    fn end_all(&mut self) -> usize {
        let mut ended = 0;
        loop {
            assert_eq!(self.release(), [], "the endpoint is far beyond full");
            let evictions = self.evictions();
            if evictions.is_empty() {
                return ended;
            }
            ended += evictions.len();
            for flight in evictions {
                let permit = self.take_held(flight);
                self.complete(permit);
            }
        }
    }
}

#[test]
fn a_sheddable_request_is_ended_for_a_higher_one_before_its_first_byte() {
    let mut rig = capped(1, 4, |settings| settings.eviction = Eviction::BeforeFirstByte);
    let low: Vec<_> = [-1, -3, -1, -3].map(|priority| rig.place(rank(priority))).into();
    let names: Vec<_> = low.iter().map(Permit::id).collect();
    rig.pool.answered(&low[1], rig.now);
    let first = rig.wait(rank(0));
    assert_eq!(rig.evictions(), [names[3]], "lowest priority, newest, unanswered");
    assert_eq!(rig.release(), [], "its place is not free yet");
    assert_eq!(rig.evictions(), []);
    let second = rig.wait(rank(1));
    let third = rig.wait(rank(0));
    assert_eq!(rig.evictions(), [names[2]], "two at a time");
    let mut low = low.into_iter();
    let (a, _b, c, d) = (low.next().unwrap(), low.next(), low.next().unwrap(), low.next().unwrap());
    rig.complete(d);
    assert_eq!(rig.release(), [second], "the higher band gets the place, whoever it was made for");
    assert_eq!(rig.evictions(), [names[0]]);
    rig.pool.answered(&a, rig.now);
    rig.complete(c);
    assert_eq!(rig.release(), [first]);
    assert_eq!(rig.evictions(), [], "nobody is left who may be ended");
    assert!(rig.pool.withdraw(third));
}

#[test]
fn one_is_ended_for_each_that_waits_even_if_that_makes_no_room() {
    let mut rig = Rig::crowded(30, &[20.0]);
    let first = rig.wait(rank(1));
    assert_eq!(rig.end_all(), 1);
    for _ in 0..4 {
        let _ = rig.wait(rank(0));
    }
    assert_eq!(rig.end_all(), 4);
    // What was ended for one that leaves is not ended again, nor held against the next.
    assert!(rig.pool.withdraw(first));
    assert_eq!(rig.end_all(), 0);
    let _ = rig.wait(rank(1));
    assert_eq!(rig.end_all(), 1);
}

#[test]
fn those_are_ended_whose_endpoint_is_nearest_to_having_room() {
    let mut rig = Rig::crowded(30, &[20.0, 6.0, 1.0]);
    // That one has asked for a pause: nobody's end makes room there.
    rig.pool.backpressure(id(2), rig.now + ms(5_000));
    let waiting = [rig.wait(rank(0)), rig.wait(rank(0))];
    let evicted = rig.evictions();
    assert_eq!(evicted.len(), 2);
    for flight in evicted {
        let permit = rig.take_held(flight);
        assert_eq!(rig.pool.endpoint_of(&permit), Some(id(1)));
        rig.complete(permit);
    }
    assert_eq!(rig.release(), waiting[..1], "two ends at one endpoint have made room there");
}

#[test]
fn nobody_is_ended_at_an_endpoint_that_takes_no_new_work() {
    for standing in [None, Some(Standing::Draining)] {
        let mut rig = capped(2, 1, |settings| settings.eviction = Eviction::BeforeFirstByte);
        let low = [rig.place(rank(-1)), rig.place(rank(-1))];
        let [stays, leaves] = low.each_ref().map(|permit| usize::from(rig.pool.endpoint_of(permit) == Some(id(1))));
        let mut members: Vec<_> = [stays, leaves].map(member).into();
        match standing {
            Some(standing) => members[1].standing = standing,
            None => drop(members.pop()),
        }
        rig.pool.set_endpoints(&members, rig.now);
        let first = rig.wait(rank(0));
        let second = rig.wait(rank(0));
        assert_eq!(rig.evictions(), [low[0].id()], "the newer one makes no room");
        let [stays, leaves] = low;
        rig.complete(leaves);
        assert_eq!(rig.release(), []);
        rig.complete(stays);
        assert_eq!(rig.release(), [first]);
        assert!(rig.pool.withdraw(second));
    }
}

#[test]
fn who_goes_on_to_another_endpoint_is_ended_for_its_room() {
    let mut rig = capped(2, 1, |settings| settings.eviction = Eviction::BeforeFirstByte);
    rig.occupy(rank(-1));
    let from = rig.pool.endpoint_of(&rig.held[0]).unwrap();
    let to = if from == id(0) { id(1) } else { id(0) };
    rig.pool.pass_on(&rig.held[0], to, &[], rig.now).unwrap();
    rig.occupy(rank(0));
    rig.pool.backpressure(from, rig.now + ms(5_000));
    let waiting = rig.wait(rank(0));
    let evicted = rig.evictions();
    assert_eq!(evicted, [rig.held[0].id()]);
    let permit = rig.take_held(evicted[0]);
    rig.complete(permit);
    assert_eq!(rig.release(), [waiting]);
}

#[test]
fn nobody_is_ended_for_a_sheddable_one_or_without_being_asked_to() {
    let sheddable_waits = |settings: &mut Settings| {
        settings.flow.bands[Band::Sheddable.index()].max_wait = ms(1_000);
    };
    let mut rig = capped(1, 1, |settings| {
        sheddable_waits(settings);
        settings.eviction = Eviction::BeforeFirstByte;
    });
    rig.occupy(rank(-2));
    let _ = rig.wait(rank(-1));
    assert_eq!(rig.evictions(), []);
    let mut rig = capped(1, 1, sheddable_waits);
    rig.occupy(rank(-2));
    let _ = rig.wait(rank(1));
    assert_eq!(rig.evictions(), []);
}

#[derive(Clone, Debug)]
enum Step {
    Ask(i32),
    Leave(prop::sample::Index),
    /// One that was to be ended is over.
    Evicted(prop::sample::Index),
    /// One that was to be ended has an answer, and goes on.
    Answered(prop::sample::Index),
    /// Another is over.
    Over(prop::sample::Index),
    Report([u8; 2]),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0i32..3).prop_map(Step::Ask),
        1 => any::<prop::sample::Index>().prop_map(Step::Leave),
        6 => any::<prop::sample::Index>().prop_map(Step::Evicted),
        1 => any::<prop::sample::Index>().prop_map(Step::Answered),
        1 => any::<prop::sample::Index>().prop_map(Step::Over),
        1 => [0u8..30, 0u8..30].prop_map(Step::Report),
    ]
}

proptest! {
    /// However full the endpoints are, and whoever leaves meanwhile.
    #[test]
    fn no_more_are_ended_than_have_waited(steps in prop::collection::vec(step(), 1..100)) {
        let mut rig = Rig::crowded(30, &[20.0, 20.0]);
        let (mut waiting, mut waited, mut ended, mut told) = (Vec::new(), 0, 0, Vec::new());
        for step in steps {
            match step {
                Step::Ask(priority) => match rig.ask(rank(priority), Request::default()) {
                    Admitted::Waiting(begun) => {
                        waited += 1;
                        waiting.push(begun.ticket);
                    }
                    Admitted::Placed(dispatched) => rig.held.push(dispatched.permit),
                    Admitted::Refused(refusal) => panic!("{refusal}"),
                },
                Step::Leave(which) if !waiting.is_empty() => {
                    let ticket = waiting.swap_remove(which.index(waiting.len()));
                    prop_assert!(rig.pool.withdraw(ticket));
                }
                Step::Evicted(which) if !told.is_empty() => {
                    ended += 1;
                    let permit = rig.take_held(told.swap_remove(which.index(told.len())));
                    rig.complete(permit);
                }
                Step::Answered(which) if !told.is_empty() => {
                    let permit = rig.take_held(told.swap_remove(which.index(told.len())));
                    rig.pool.answered(&permit, rig.now);
                    rig.held.push(permit);
                }
                Step::Over(which) if !rig.held.is_empty() => {
                    let permit = rig.held.swap_remove(which.index(rig.held.len()));
                    ended += usize::from(told.contains(&permit.id()));
                    told.retain(|&flight| flight != permit.id());
                    rig.complete(permit);
                }
                Step::Report(queues) => {
                    rig.pass(ms(200));
                    for (number, waiting) in queues.into_iter().enumerate() {
                        rig.report(number, Page { running: 10.0, waiting: waiting.into(), ..Page::default() });
                    }
                }
                Step::Leave(_) | Step::Evicted(_) | Step::Answered(_) | Step::Over(_) => {}
            }
            let placed = rig.release();
            waiting.retain(|ticket| !placed.contains(ticket));
            let evictions = rig.evictions();
            told.extend(evictions);
            prop_assert!(told.len() <= 2);
            prop_assert!(ended + told.len() <= waited, "{ended} and {} for {waited}", told.len());
        }
    }
}
