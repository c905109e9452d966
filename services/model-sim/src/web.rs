//! What the HTTP layer counts, as prometheus-fastapi-instrumentator does for vLLM.

use std::{collections::BTreeMap, time::Duration};

use engine::Histogram;
use parking_lot::Mutex;

/// Counts by handler, in the order in which handlers were first used.
#[derive(Debug)]
pub(crate) struct Web(Mutex<WebCounts>);

/// A copy of the counts.
#[derive(Clone, Debug)]
pub(crate) struct WebCounts {
    /// Per handler, method and status class.
    pub(crate) requests: BTreeMap<(&'static str, String, &'static str), Counted>,
    /// Per handler and method: seconds.
    pub(crate) durations: BTreeMap<(&'static str, String), (Histogram, f64)>,
    /// Per handler: bytes in and out.
    pub(crate) sizes: BTreeMap<&'static str, Sizes>,
    /// Over everything: seconds.
    pub(crate) all: Histogram,
    /// Refused for the length of the queue.
    pub(crate) rejected_for_queue: u64,
}

/// A count and the Unix time of its first use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) count: u64,
    pub(crate) created_unix_s: f64,
}

/// Bytes announced by heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) count: u64,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    pub(crate) created_unix_s: f64,
}

/// One request that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served<'a> {
    pub(crate) handler: &'static str,
    pub(crate) method: &'a http::Method,
    pub(crate) status: u16,
    pub(crate) took: Duration,
    pub(crate) request_bytes: u64,
    pub(crate) response_bytes: u64,
    pub(crate) unix_s: f64,
}

const DURATION_S: &[f64] = &[0.1, 0.5, 1.0];
const DURATION_FINE_S: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
];

/// Handlers that are not counted.
const UNCOUNTED: [&str; 6] = ["/metrics", "/health", "/load", "/ping", "/version", "/server_info"];

impl Web {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(WebCounts {
            requests: BTreeMap::new(),
            durations: BTreeMap::new(),
            sizes: BTreeMap::new(),
            all: Histogram::new(DURATION_FINE_S),
            rejected_for_queue: 0,
        }))
    }

    pub(crate) fn counts(&self) -> WebCounts {
        self.0.lock().clone()
    }

    pub(crate) fn note_rejected_for_queue(&self) {
        self.0.lock().rejected_for_queue += 1;
    }

    pub(crate) fn note(&self, served: &Served<'_>) {
        if UNCOUNTED.contains(&served.handler) {
            return;
        }
        let method = served.method.to_string();
        let seconds = served.took.as_secs_f64();
        let mut counts = self.0.lock();
        let key = (served.handler, method.clone(), class(served.status));
        let fresh = Counted { count: 0, created_unix_s: served.unix_s };
        counts.requests.entry(key).or_insert(fresh).count += 1;
        let fresh = || (Histogram::new(DURATION_S), served.unix_s);
        counts.durations.entry((served.handler, method)).or_insert_with(fresh).0.observe(seconds);
        counts.all.observe(seconds);
        let fresh = Sizes { count: 0, request_bytes: 0, response_bytes: 0, created_unix_s: served.unix_s };
        let sizes = counts.sizes.entry(served.handler).or_insert(fresh);
        sizes.count += 1;
        sizes.request_bytes += served.request_bytes;
        sizes.response_bytes += served.response_bytes;
    }
}

fn class(status: u16) -> &'static str {
    match status {
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}
