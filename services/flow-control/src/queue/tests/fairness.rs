//! Whose turn it is.

use proptest::prelude::*;

use super::*;

#[test]
fn flows_take_turns_however_many_each_has() {
    let mut queue = Queue::new(Settings::default());
    for name in 0..12 {
        let flow = if name < 8 { 1 } else { 2 };
        join(&mut queue, of(flow), name, at(0)).unwrap();
    }
    assert_eq!(drain(&mut queue, Band::Standard), [0, 8, 1, 9, 2, 10, 3, 11, 4, 5, 6, 7]);
}

#[test]
fn a_flow_that_comes_back_goes_behind_those_who_wait() {
    let mut queue = Queue::new(Settings::default());
    for (name, flow) in [(0, 1), (1, 2), (2, 2), (3, 3)] {
        join(&mut queue, of(flow), name, at(0)).unwrap();
    }
    assert_eq!(next(&mut queue, Band::Standard), Some(0));
    join(&mut queue, of(1), 4, at(0)).unwrap();
    assert_eq!(drain(&mut queue, Band::Standard), [1, 3, 4, 2]);
}

proptest! {
    #[test]
    fn shares_of_flows_that_wait_are_within_one_request(
        flows in 1u64..12,
        waiting in 5u32..20,
        taken in 0usize..60,
        joined in prop::collection::vec(0u64..12, 240),
    ) {
        let mut queue = Queue::new(Settings::default());
        for name in 0..waiting * flows as u32 {
            join(&mut queue, of(u64::from(name) % flows), name, at(0)).unwrap();
        }
        let mut shares = vec![0u32; flows as usize];
        for joined in joined.into_iter().take(taken.min((waiting as usize - 1) * flows as usize)) {
            // Others of the same flows come meanwhile, as unevenly as it happens.
            join(&mut queue, of(joined % flows), 0, at(1)).unwrap();
            let (left, ()) = queue.next(Band::Standard, |_, _| Look::Placed(())).unwrap();
            shares[left.ask.flow.0 as usize] += 1;
        }
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        prop_assert!(most - least <= 1, "{shares:?}");
    }

    #[test]
    fn flows_attain_the_same_service_however_large_their_requests_are(
        sizes in prop::collection::vec(10u64..1_000, 2..6),
    ) {
        let mut queue = Queue::new(Settings { fairness: Fairness::LeastAttainedService, ..Settings::default() });
        let mut served = vec![0u64; sizes.len()];
        for (flow, _) in sizes.iter().enumerate() {
            join(&mut queue, of(flow as u64), 0, at(0)).unwrap();
        }
        let enough = 1_000 * 40;
        for ms in 0.. {
            let (left, ()) = queue.next(Band::Standard, |_, _| Look::Placed(())).unwrap();
            let flow = left.ask.flow.0 as usize;
            join(&mut queue, left.ask, 0, at(ms)).unwrap();
            queue.served(left.ask.flow, sizes[flow], at(ms));
            served[flow] += sizes[flow];
            if served[flow] > enough {
                break;
            }
        }
        let fair = served.iter().sum::<u64>() as f64 / served.len() as f64;
        for served in &served {
            prop_assert!((*served as f64 / fair - 1.0).abs() < 0.05, "{served} of a fair {fair}");
        }
    }
}

#[test]
fn service_counts_half_after_a_minute() {
    let mut queue = Queue::new(Settings { fairness: Fairness::LeastAttainedService, ..Settings::default() });
    queue.served(Flow(1), 1_000, at(0));
    queue.served(Flow(2), 400, at(60_000));
    for flow in [1, 2] {
        join(&mut queue, of(flow), flow as u32, at(60_000)).unwrap();
    }
    queue.served(Flow(2), 99, at(60_000));
    assert_eq!(next(&mut queue, Band::Standard), Some(2), "499 now are less than 1,000 a minute ago");
    join(&mut queue, of(2), 2, at(60_000)).unwrap();
    queue.served(Flow(2), 2, at(60_000));
    assert_eq!(next(&mut queue, Band::Standard), Some(1), "501 are more");
}

#[test]
fn service_of_days_ago_and_of_thousands_of_flows_is_forgotten_in_order() {
    let mut queue = Queue::new(Settings { fairness: Fairness::LeastAttainedService, ..Settings::default() });
    let day = 24 * 3_600 * 1_000;
    for days in 0..3 {
        queue.served(Flow(1), 1_000_000, at(days * day));
        queue.served(Flow(2), 1_000, at(days * day));
        join(&mut queue, of(1), 1, at(days * day)).unwrap();
        join(&mut queue, of(2), 2, at(days * day)).unwrap();
        assert_eq!(drain(&mut queue, Band::Standard), [2, 1], "after {days} days");
    }
    for flow in 10..100_000 {
        queue.served(Flow(flow), 1 + flow % 7, at(3 * day));
        assert!(queue.service.flows() <= 4_096);
    }
    queue.served(Flow(1), 5_000, at(3 * day));
    join(&mut queue, of(1), 1, at(3 * day)).unwrap();
    join(&mut queue, of(99_999), 2, at(3 * day)).unwrap();
    assert_eq!(drain(&mut queue, Band::Standard), [2, 1]);
}

#[test]
fn a_newcomer_has_a_bounded_head_start() {
    let mut queue = Queue::new(Settings { fairness: Fairness::LeastAttainedService, ..Settings::default() });
    let (old, new) = (1, 2);
    queue.served(Flow(old), 100_000, at(0));
    for turn in 0..4 {
        join(&mut queue, of(old), 10 + turn, at(1)).unwrap();
    }
    for turn in 0..4 {
        join(&mut queue, of(new), 20 + turn, at(2)).unwrap();
    }
    let mut order = Vec::new();
    while let Some(name) = next(&mut queue, Band::Standard) {
        queue.served(Flow(u64::from(name / 10)), 10_000, at(3));
        order.push(name / 10);
    }
    assert_eq!(order, [2, 2, 1, 2, 1, 2, 1, 1]);
}
