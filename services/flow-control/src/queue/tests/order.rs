//! Who goes first.

use super::*;

#[test]
fn priorities_are_strict_and_age_decides_within_a_flow() {
    let mut queue = Queue::new(Settings::default());
    for (name, priority) in [(0, 1), (1, 7), (2, 1), (3, 7), (4, 3)] {
        join(&mut queue, Ask { priority, ..of(1) }, name, at(u64::from(name))).unwrap();
    }
    assert_eq!(drain(&mut queue, Band::Critical), [1, 3, 4, 0, 2]);
    assert!(queue.is_empty());
}

#[test]
fn flows_of_a_lower_priority_wait_for_all_of_a_higher_one() {
    let mut queue = Queue::new(Settings::default());
    for name in 0..6 {
        let priority = if name < 3 { 1 } else { 2 };
        join(&mut queue, Ask { priority, ..of(u64::from(name) % 3) }, name, at(0)).unwrap();
    }
    assert_eq!(drain(&mut queue, Band::Critical), [3, 4, 5, 0, 1, 2]);
}

#[test]
fn the_nearest_deadline_goes_first_and_without_one_the_end_of_the_wait_counts() {
    let mut queue = Queue::new(Settings { ordering: Ordering::Deadline, ..Settings::default() });
    let due = |ms: u64| Ask { deadline: Some(at(ms)), ..of(1) };
    for (name, ask) in [(0, due(9_000)), (1, of(1)), (2, due(2_000)), (3, due(40_000))] {
        join(&mut queue, ask, name, at(0)).unwrap();
    }
    assert_eq!(drain(&mut queue, Band::Standard), [2, 0, 1, 3], "the wait of the second ends at ten seconds");
}

#[test]
fn a_change_of_the_order_holds_for_those_who_wait() {
    let mut queue = Queue::new(Settings::default());
    for (name, ms) in [(0, 9_000), (1, 3_000), (2, 6_000)] {
        join(&mut queue, Ask { deadline: Some(at(ms)), ..of(1) }, name, at(0)).unwrap();
    }
    queue.configure(Settings { ordering: Ordering::Deadline, ..Settings::default() });
    assert_eq!(next(&mut queue, Band::Standard), Some(1));
    queue.configure(Settings::default());
    assert_eq!(drain(&mut queue, Band::Standard), [0, 2]);
    assert_eq!(queue.waiting_bytes(Band::Standard), 0);
}

#[test]
fn one_that_fits_nowhere_holds_up_nobody_not_even_in_its_flow() {
    let mut queue = Queue::new(Settings::default());
    for name in 0..100 {
        let choice = if name < 99 { Choice::Some } else { Choice::Any };
        queue.join(&of(1), choice, || name, at(0)).unwrap();
    }
    let mut looks = 0;
    let found = queue.next(Band::Standard, |_, &name| {
        looks += 1;
        if name == 99 { Look::Placed(()) } else { Look::NoRoom }
    });
    assert_eq!(found.map(|(left, ())| left.waiting), Some(99));
    assert_eq!(looks, 33, "the looks at those with wishes are bounded, and the other is always looked at");
}

#[test]
fn no_room_for_one_without_wishes_ends_the_search() {
    let mut queue = Queue::new(Settings::default());
    for name in 0..9 {
        join(&mut queue, of(u64::from(name)), name, at(0)).unwrap();
    }
    let mut looks = 0;
    let found = queue.next(Band::Standard, |_, _| -> Look<()> {
        looks += 1;
        Look::NoRoom
    });
    assert!(found.is_none());
    assert_eq!(looks, 1);
    assert_eq!(drain(&mut queue, Band::Standard), (0..9).collect::<Vec<_>>(), "a look in vain costs nobody his turn");
}

#[test]
fn who_goes_after_others() {
    let mut queue = Queue::new(Settings::default());
    let rank = |priority| Ask { priority, ..of(5) };
    assert!(!queue.goes_after_others(&rank(-1)));
    queue.join(&rank(2), Choice::Some, || 0, at(0)).unwrap();
    assert!(!queue.goes_after_others(&rank(-1)), "one with wishes says nothing about room for others");
    join(&mut queue, rank(2), 1, at(0)).unwrap();
    assert_eq!(
        [3, 2, 1, 0, -1].map(|priority| queue.goes_after_others(&rank(priority))),
        [false, true, true, true, true]
    );
}

#[test]
fn a_wait_ends_when_its_band_or_the_request_says() {
    let mut queue = Queue::new(Settings::default());
    assert_eq!(join(&mut queue, of(1), 0, at(500)).unwrap().expires_at, at(10_500));
    let second_wait = Ask { wait_until: Some(at(4_000)), ..of(1) };
    assert_eq!(join(&mut queue, second_wait, 1, at(500)).unwrap().expires_at, at(4_000));
    let longer_than_allowed = Ask { wait_until: Some(at(60_000)), ..of(1) };
    assert_eq!(join(&mut queue, longer_than_allowed, 2, at(500)).unwrap().expires_at, at(10_500));
    assert_eq!(queue.next_expiry(), Some(at(4_000)));
    assert!(queue.leave_expired(at(3_999)).is_none());
    assert_eq!(queue.leave_expired(at(4_000)).map(|left| left.waiting), Some(1));
    assert!(queue.leave_expired(at(4_000)).is_none());
}

#[test]
fn a_ticket_names_one_request_for_ever() {
    let mut queue = Queue::new(Settings::default());
    let first = join(&mut queue, of(1), 0, at(0)).unwrap().ticket;
    assert_eq!(queue.leave(first).map(|left| left.waiting), Some(0));
    let second = join(&mut queue, of(1), 1, at(0)).unwrap().ticket;
    assert_eq!(queue.leave(first), None, "though its place in memory is the same");
    assert_eq!(queue.get(second), Some(&1));
}
