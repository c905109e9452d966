//! Who may wait.

use super::*;

fn refused(queue: &mut Queue<u32>, ask: Ask, now: Moment) -> Option<QueueFull> {
    join(queue, ask, 0, now).err()
}

#[test]
fn f04_bytes_are_bounded_per_band_and_given_back() {
    let mut queue = Queue::new(standard(|band| band.queued_bytes_max = 1_000_000));
    let large = Ask { bytes: 100_000, ..of(1) };
    let mut tickets = Vec::new();
    for _ in 0..100 {
        tickets.extend(join(&mut queue, large, 0, at(0)).ok().map(|joined| joined.ticket));
    }
    assert_eq!(tickets.len(), 10);
    assert_eq!(refused(&mut queue, large, at(0)), Some(QueueFull::Bytes));
    assert_eq!(refused(&mut queue, Ask { priority: 1, ..large }, at(0)), None, "the bands do not share");
    assert_eq!(queue.waiting_bytes(Band::Standard), 1_000_000);
    for ticket in tickets {
        queue.leave(ticket).unwrap();
    }
    assert_eq!(queue.waiting_bytes(Band::Standard), 0);
}

#[test]
fn what_cannot_wait_is_told_so_at_once() {
    let mut queue = Queue::new(standard(|band| band.queued_bytes_max = 500));
    let ask = Ask { priority: -1, ..of(1) };
    assert_eq!(refused(&mut queue, ask, at(0)), Some(QueueFull::NoWaiting), "the lowest band does not wait");
    assert_eq!(refused(&mut queue, Ask { bytes: 501, ..of(1) }, at(0)), Some(QueueFull::TooLarge));
    assert_eq!(refused(&mut queue, Ask { bytes: 500, ..of(1) }, at(0)), None);
    assert_eq!(refused(&mut queue, Ask { bytes: 1, ..of(1) }, at(0)), Some(QueueFull::Bytes));
    let mut queue = Queue::new(standard(|band| band.queued_requests_max = 0));
    assert_eq!(refused(&mut queue, of(1), at(0)), Some(QueueFull::NoWaiting));
}

/// A queue of ten, nine of which are one flow's.
fn greedy() -> Queue<u32> {
    let mut queue = Queue::new(standard(|band| band.queued_requests_max = 10));
    for name in 0..10 {
        join(&mut queue, of(u64::from(name == 5)), name, at(0)).unwrap();
    }
    queue
}

#[test]
fn a_greedy_flow_cannot_fill_the_queue() {
    let mut queue = greedy();
    assert_eq!(refused(&mut queue, of(0), at(0)), Some(QueueFull::Requests), "its own do not make room for it");
    let joined = join(&mut queue, of(2), 20, at(0)).unwrap();
    assert_eq!(joined.pushed_out.iter().map(|left| left.waiting).collect::<Vec<_>>(), [9], "its newest");
    assert_eq!(queue.waiting(Band::Standard), 10);
    let mut others = 2;
    while join(&mut queue, of(3), 30, at(0)).is_ok() {
        others += 1;
    }
    assert_eq!(others, 6, "the fourth of its own would leave it with more than the greedy one has left");
}

#[test]
fn flows_of_equal_length_do_not_push_each_other_out() {
    let mut queue = Queue::new(standard(|band| band.queued_requests_max = 9));
    for name in 0..9 {
        join(&mut queue, of(u64::from(name % 2)), name, at(0)).unwrap();
    }
    assert_eq!(refused(&mut queue, of(1), at(0)), Some(QueueFull::Requests), "four beside five");
    assert_eq!(refused(&mut queue, of(0), at(0)), Some(QueueFull::Requests));
}

#[test]
fn a_higher_priority_does_not_give_way() {
    let settings = {
        let mut settings = Settings::default();
        settings.bands[Band::Critical.index()].queued_requests_max = 4;
        settings
    };
    let mut queue = Queue::new(settings);
    for (name, priority) in [(0, 5), (1, 5), (2, 5), (3, 5)] {
        join(&mut queue, Ask { priority, ..of(1) }, name, at(0)).unwrap();
    }
    assert_eq!(refused(&mut queue, Ask { priority: 4, ..of(2) }, at(0)), Some(QueueFull::Requests));
    let joined = join(&mut queue, Ask { priority: 5, ..of(2) }, 9, at(0)).unwrap();
    assert_eq!(joined.pushed_out[0].waiting, 3);
}

#[test]
fn a_large_request_takes_the_place_of_several_small_ones_of_the_flow_with_most_bytes() {
    let mut queue = Queue::new(standard(|band| band.queued_bytes_max = 100));
    for name in 0..10 {
        join(&mut queue, Ask { bytes: 10, ..of(1) }, name, at(0)).unwrap();
    }
    let joined = join(&mut queue, Ask { bytes: 40, ..of(2) }, 20, at(0)).unwrap();
    assert_eq!(joined.pushed_out.iter().map(|left| left.waiting).collect::<Vec<_>>(), [9, 8, 7, 6]);
    assert_eq!(
        refused(&mut queue, Ask { bytes: 40, ..of(3) }, at(0)),
        Some(QueueFull::Bytes),
        "40 beside 20 is unfair"
    );
    assert_eq!(queue.waiting_bytes(Band::Standard), 100);
}

/// A queue in which ten flows wait, one of them with most, and of which two requests a second are placed.
fn slow(since_ms: u64, until_ms: u64) -> Queue<u32> {
    let mut queue = Queue::new(Settings::default());
    for name in 0..200 {
        let flow = if name < 180 { 0 } else { name % 10 };
        join(&mut queue, of(flow.into()), name, at(since_ms)).unwrap();
    }
    for ms in (since_ms..until_ms).step_by(500) {
        queue.placed(&of(0), at(ms));
    }
    queue
}

#[test]
fn a_wait_that_is_certain_to_be_too_long_is_not_begun() {
    let mut queue = slow(1_000, 11_000);
    let now = at(11_000);
    assert_eq!(refused(&mut queue, of(0), now), Some(QueueFull::TooSlow), "all of 200 are before it, at 2 a second");
    assert_eq!(refused(&mut queue, of(77), now), None, "a new flow has its turn after ten others: in five seconds");
    assert_eq!(refused(&mut queue, Ask { priority: 1, ..of(0) }, now), None, "nobody waits in the higher band");
    assert_eq!(refused(&mut queue, of(3), now), None, "20 are before it, and it may wait for 10 s");
    let in_haste = Ask { wait_until: Some(now + Duration::from_secs(5)), ..of(3) };
    assert_eq!(refused(&mut queue, in_haste, now), Some(QueueFull::TooSlow), "it may not wait that long");
}

#[test]
fn a_speed_that_was_not_measured_with_a_queue_says_nothing() {
    let now = at(11_000);
    assert_eq!(refused(&mut slow(1_001, 11_000), of(0), now), None, "not a whole window yet");
    let mut idle = slow(1_000, 1_000);
    assert_eq!(refused(&mut idle, of(0), now), None, "nothing moves: it may begin any moment");
    let mut interrupted = slow(1_000, 11_000);
    assert_eq!(drain(&mut interrupted, Band::Standard).len(), 200);
    for name in 0..200 {
        assert!(join(&mut interrupted, of(0), name, now).is_ok(), "a little was done because little was asked");
    }
}

#[test]
fn with_deadlines_or_by_service_only_what_is_certain_counts() {
    let now = at(11_000);
    let mut queue = slow(1_000, 11_000);
    queue.configure(Settings { ordering: Ordering::Deadline, ..Settings::default() });
    assert_eq!(refused(&mut queue, of(0), now), None, "its deadline may be before all others");
    queue.configure(Settings { fairness: Fairness::LeastAttainedService, ..Settings::default() });
    assert_eq!(refused(&mut queue, of(0), now), Some(QueueFull::TooSlow), "180 of its own are before it");
    assert_eq!(refused(&mut queue, of(3), now), None);
}

#[test]
fn the_time_until_one_is_served_counts_its_band_and_those_above() {
    let mut queue = slow(1_000, 11_000);
    let (now, s) = (at(11_000), Duration::from_secs);
    let seconds = |queue: &Queue<u32>, band| queue.served_in(band, 1.0, now).as_secs_f64();
    assert_eq!(queue.served_in(Band::Sheddable, 1.0, now), s(10), "none of it was placed: at least a window");
    assert_eq!(seconds(&queue, Band::Standard), 60.0, "never more than a client would believe");
    while queue.waiting(Band::Standard) > 19 {
        next(&mut queue, Band::Standard).unwrap();
    }
    assert!((seconds(&queue, Band::Standard) - 10.0).abs() < 1.5, "{}", seconds(&queue, Band::Standard));
    for name in 0..10 {
        join(&mut queue, Ask { priority: 1, ..of(4) }, name, now).unwrap();
    }
    assert!((seconds(&queue, Band::Standard) - 15.0).abs() < 2.0, "{}", seconds(&queue, Band::Standard));
}
