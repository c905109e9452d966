//! What the server saw: the last requests, as they came in and as they ended.
//!
//! Tests read it to learn what really reached a model server, byte for byte (by hash) and header for header.

use std::{collections::VecDeque, sync::Arc};

use http::request::Parts;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;

/// One request, as seen by this server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeenRequest {
    /// Counts up from 1.
    pub number: u64,
    /// Request method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// Names and values in the order in which names first came; repeats follow the first.
    pub headers: Vec<(String, String)>,
    /// Bytes of the body read.
    pub body_bytes: u64,
    /// XXH3-64 of those bytes, 16 hex digits.
    pub body_xxh3: String,
    /// Whether the whole body was read.
    pub body_complete: bool,
    /// When the head was there, real milliseconds since the start of this server.
    pub began_ms: f64,
    /// When it was over.
    pub ended_ms: Option<f64>,
    /// Status answered.
    pub status: Option<u16>,
    /// Pieces of the body sent.
    pub events: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It goes on.
    Open,
    /// The answer was written to its end.
    Answered,
    /// The client left before that.
    ClientGone,
    /// The server broke it off, by a fault.
    Broken,
}

/// The last requests.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    last: u64,
    seen: VecDeque<Arc<Mutex<SeenRequest>>>,
}

/// A request being served. Dropping it unfinished means that its client left.
#[derive(Debug)]
pub(crate) struct Entry {
    clock: Clock,
    seen: Arc<Mutex<SeenRequest>>,
}

/// Requests remembered.
const REQUESTS_MAX: usize = 1_000;

impl Journal {
    /// Opens an entry for a request whose head is there.
    pub(crate) fn open(&self, parts: &Parts, clock: Clock) -> Entry {
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let mut ring = self.ring.lock();
        ring.last += 1;
        let seen = Arc::new(Mutex::new(SeenRequest {
            number: ring.last,
            method: parts.method.to_string(),
            target: parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), |target| target.to_string()),
            version: format!("{:?}", parts.version),
            headers: parts.headers.iter().map(header).collect(),
            body_bytes: 0,
            body_xxh3: String::new(),
            body_complete: false,
            began_ms: clock.elapsed().as_secs_f64() * 1e3,
            ended_ms: None,
            status: None,
            events: 0,
            outcome: Outcome::Open,
        }));
        if ring.seen.len() == REQUESTS_MAX {
            ring.seen.pop_front();
        }
        ring.seen.push_back(seen.clone());
        Entry { clock, seen }
    }

    /// All that are remembered, oldest first.
    pub(crate) fn list(&self) -> Vec<SeenRequest> {
        self.ring.lock().seen.iter().map(|seen| seen.lock().clone()).collect()
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.ring.lock().seen.clear();
    }
}

impl Entry {
    /// Notes the body, or as much of it as came.
    pub(crate) fn body(&self, bytes: u64, xxh3: u64, complete: bool) {
        let mut seen = self.seen.lock();
        seen.body_bytes = bytes;
        seen.body_xxh3 = format!("{xxh3:016x}");
        seen.body_complete = complete;
    }

    pub(crate) fn status(&self, status: u16) {
        self.seen.lock().status = Some(status);
    }

    pub(crate) fn event(&self) {
        self.seen.lock().events += 1;
    }

    /// Notes how it ended; the first end counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        let mut seen = self.seen.lock();
        if seen.outcome == Outcome::Open {
            seen.outcome = outcome;
            seen.ended_ms = Some(self.clock.elapsed().as_secs_f64() * 1e3);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end(Outcome::ClientGone);
    }
}
