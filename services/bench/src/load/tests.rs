use std::time::Duration;

use super::*;
use crate::backend::{Backend, Stream};
use crate::bodies::{Kind, Requests};

fn backend() -> Backend {
    Backend::start(1, Stream { chunks: 20, gap: Duration::from_millis(1) }).unwrap()
}

#[test]
fn a_closed_loop_counts_and_times_every_answer() {
    let backend = backend();
    let requests = Requests::new(1_000, Kind::Whole, 1);
    let outcome = closed(backend.addresses[0], 4, &requests, Duration::from_millis(200)).unwrap();
    assert!(outcome.answered > 20, "{outcome:?}");
    assert_eq!((outcome.failed, outcome.latencies_ns.len() as u64), (0, outcome.answered));
    assert!(outcome.latencies_ns.iter().all(|latency| *latency > 0));
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let backend = backend();
    let requests = Requests::new(1_000, Kind::Whole, 1);
    let rate = Rate { per_second: 400.0, seed: 7 };
    let outcome = open(backend.addresses[0], &requests, rate, Duration::from_millis(500)).unwrap();
    // 200 are due; a Poisson count is within six deviations of it, and on a machine so slow that some were missed they
    // are counted as failed, never forgotten.
    assert!((110..290).contains(&(outcome.answered + outcome.failed)), "{} + {}", outcome.answered, outcome.failed);
    assert!(outcome.answered > 0);
}

#[test]
fn streams_are_read_to_their_end() {
    let backend = backend();
    let requests = Requests::new(1_000, Kind::Streamed, 1);
    let seen = streams(backend.addresses[0], 10, &requests, Duration::from_millis(5)).unwrap();
    assert_eq!((seen.completed, seen.failed, seen.events), (10, 0, 10 * 23));
    assert!(seen.elapsed_s >= 0.02, "{seen:?}");
}

#[test]
fn nobody_there_is_an_error_and_not_a_measurement() {
    let backend = backend();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let requests = Requests::new(1_000, Kind::Whole, 1);
    assert!(closed(address, 1, &requests, Duration::from_millis(50)).is_err());
    let rate = Rate { per_second: 200.0, seed: 7 };
    let outcome = open(address, &requests, rate, Duration::from_millis(100)).unwrap();
    assert_eq!(outcome.answered, 0);
    assert!(outcome.failed > 0);
    assert_eq!(streams(address, 2, &requests, Duration::ZERO).unwrap().failed, 2);
    drop(backend);
}
