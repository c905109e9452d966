//! How much of everything a pass does: sizes, counts and times, in full or cut short to check that all of it works.

use std::time::Duration;

use super::Arguments;
use super::figures::Key;
use crate::backend::Stream;
use crate::bodies::{Kind, Requests};
use crate::load::Rate;

/// Body of every load but those that are about the size.
pub(super) const BODY_BYTES: usize = 4_000;
pub(super) const LARGE_BODY_BYTES: usize = 4_000_000;
/// Of which size, and where CPU is noted.
const BODIES: [(usize, Key); 4] = [
    (1_000, Key::CpuUsPerRequest1kB),
    (BODY_BYTES, Key::CpuUsPerRequest4kB),
    (400_000, Key::CpuUsPerRequest400kB),
    (LARGE_BODY_BYTES, Key::CpuUsPerRequest4MB),
];
/// A short streamed answer.
const SHORT: Stream = Stream { chunks: 10, gap: Duration::from_millis(1) };
/// Slow enough that streams stay open while memory is read.
const SLOW: Stream = Stream { chunks: 600, gap: Duration::from_millis(500) };
/// HTTP/2 connections that the closed loop's clients share.
const HTTP2_CONNECTIONS: usize = 4;

/// What every subject is put through.
#[derive(Debug)]
pub(super) struct Loads {
    pub(super) bodies: Vec<(Key, Requests)>,
    /// 4 kB.
    pub(super) usual: Requests,
    /// 4 kB, to be streamed.
    pub(super) streamed: Requests,
    pub(super) large: Requests,
    pub(super) connections: usize,
    pub(super) http2_connections: usize,
    pub(super) warm_up: Duration,
    pub(super) time: Duration,
    /// How long an idle subject is watched: some rounds of scrapes, and hundreds of clock ticks.
    pub(super) idle: Duration,
    pub(super) rate: Rate,
    pub(super) streams: usize,
    pub(super) short: Stream,
    pub(super) paced: Stream,
    pub(super) fast: Stream,
    pub(super) slow: Stream,
    pub(super) open_streams: usize,
    pub(super) bodies_in_flight: usize,
    pub(super) endpoints: usize,
    pub(super) many_endpoints: usize,
    /// Calls of each kind that are timed in process.
    pub(super) calls: u32,
    pub(super) seed: u64,
}

impl Loads {
    pub(super) fn new(arguments: &Arguments, rate_per_second: f64) -> Self {
        let seed = arguments.seed;
        let bodies = BODIES.map(|(bytes, key)| (key, Requests::new(bytes, Kind::Whole, seed)));
        let full = Self {
            usual: bodies[1].1.clone(),
            large: bodies[3].1.clone(),
            bodies: bodies.to_vec(),
            streamed: Requests::new(BODY_BYTES, Kind::Streamed, seed),
            connections: usize::from(arguments.connections),
            http2_connections: HTTP2_CONNECTIONS.min(usize::from(arguments.connections)),
            warm_up: Duration::from_secs(1),
            time: Duration::from_secs(arguments.seconds),
            idle: Duration::from_secs(3),
            rate: Rate { per_second: rate_per_second, seed },
            streams: usize::from(arguments.streams),
            short: SHORT,
            paced: Stream { chunks: arguments.chunks as usize, gap: Duration::from_millis(10) },
            fast: Stream { chunks: arguments.fast_chunks as usize, gap: Duration::from_millis(1) },
            slow: SLOW,
            open_streams: 1_000,
            bodies_in_flight: 100,
            endpoints: usize::from(arguments.endpoints),
            many_endpoints: usize::from(arguments.endpoints).max(100),
            calls: 20_000,
            seed,
        };
        if arguments.quick { full.shortened() } else { full }
    }

    /// Requests in flight on each HTTP/2 connection.
    pub(super) fn http2_each(&self) -> usize {
        self.connections.div_ceil(self.http2_connections)
    }

    fn shortened(self) -> Self {
        let tenth = |stream: Stream| Stream { chunks: stream.chunks.div_ceil(10), ..stream };
        Self {
            warm_up: Duration::from_millis(100),
            time: Duration::from_millis(400),
            idle: Duration::from_millis(500),
            paced: tenth(self.paced),
            fast: tenth(self.fast),
            open_streams: 100,
            bodies_in_flight: 10,
            calls: 1_000,
            ..self
        }
    }
}
