//! What one connection is doing, as far as its limits ask: shared by its bytes, its requests and its watchman.
//!
//! All of it is written and read on one core (HTTP/2 streams are tasks of the same core); the atomics are what makes that
//! safe without a lock, not a protocol between threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use http::StatusCode;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Limits, connection::Counted, discard::Leftover};

pub(super) struct Activity {
    pub(super) counted: Counted,
    born: Instant,
    open_requests: AtomicU32,
    head: AtomicU8,
    /// When the present state of rest began: accepted, first byte of a head, or end of the last answer.
    rest_since: Moment,
    write_blocked_since: Moment,
    settled: AtomicBool,
    /// How often everything written had left; wraps.
    flushes: AtomicU32,
    refused: AtomicU16,
    closing: AtomicBool,
    leftover: Mutex<Option<Leftover>>,
}

/// Nanoseconds since the connection's birth, 0 for never.
#[derive(Default)]
struct Moment(AtomicU64);

/// How far the next head has come.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Head {
    /// None was read yet, and no byte of it came.
    First = 0,
    /// Some bytes came.
    Begun = 1,
    /// The last request is answered and no byte of the next came.
    Next = 2,
}

/// Which limit is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// For a first head of which nothing came.
    FirstByte,
    /// For the rest of a head.
    Head,
    /// For the next request.
    NextRequest,
    /// For the client to read.
    Reader,
    /// For the rest of a body that nobody wants.
    Leftover,
}

/// A request being answered, from its head to the end of its answer's body.
pub(super) struct OpenRequest(Arc<Activity>);

impl Activity {
    pub(super) fn new(counted: Counted) -> Self {
        Self {
            counted,
            born: Instant::now(),
            open_requests: AtomicU32::new(0),
            head: AtomicU8::new(Head::First as u8),
            rest_since: Moment::default(),
            write_blocked_since: Moment::default(),
            settled: AtomicBool::new(true),
            flushes: AtomicU32::new(0),
            refused: AtomicU16::new(0),
            closing: AtomicBool::new(false),
            leftover: Mutex::default(),
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.counted.shared.limits
    }

    pub(super) fn is_busy(&self) -> bool {
        self.open_requests.load(Relaxed) > 0
    }

    pub(super) fn request_opened(self: &Arc<Self>) -> OpenRequest {
        self.open_requests.fetch_add(1, Relaxed);
        self.settled.store(false, Relaxed);
        self.counted.request_opened();
        OpenRequest(Arc::clone(self))
    }

    /// Bytes came in.
    pub(super) fn read(&self) {
        if !self.is_busy() && self.head.load(Relaxed) != Head::Begun as u8 {
            // The first head's clock runs since the accept: whoever connects has something to say.
            if self.head.swap(Head::Begun as u8, Relaxed) == Head::Next as u8 {
                self.rest_since.set(self.born);
            }
        }
    }

    pub(super) fn wrote(&self) {
        self.write_blocked_since.clear();
    }

    pub(super) fn write_blocked(&self) {
        if self.write_blocked_since.get(self.born).is_none() {
            self.write_blocked_since.set(self.born);
        }
    }

    /// Everything written so far has left.
    pub(super) fn flushed(&self) {
        self.flushes.store(self.flushes.load(Relaxed).wrapping_add(1), Relaxed);
        if !self.is_busy() {
            self.settled.store(true, Relaxed);
        }
    }

    /// Whether what is being written now answers no request: hyper refusing a head by itself.
    pub(super) fn writes_refusal(&self) -> bool {
        self.refused.load(Relaxed) != 0 || (!self.is_busy() && self.settled.load(Relaxed))
    }

    pub(super) fn refuse(&self, status: u16) {
        self.refused.store(status, Relaxed);
    }

    pub(super) fn refused(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.refused.load(Relaxed)).ok()
    }

    /// Our own refusal may be written now.
    pub(super) fn refusal_taken(&self) {
        self.refused.store(0, Relaxed);
        self.settled.store(false, Relaxed);
    }

    /// The rest of a request is not wanted, and too much to be read for the connection's sake.
    pub(super) fn close_after_answer(&self) {
        self.closing.store(true, Relaxed);
    }

    pub(super) fn closes_after_answer(&self) -> bool {
        self.closing.load(Relaxed)
    }

    /// The rest of a request is not wanted, but soon read.
    pub(super) fn leave(&self, body: Incoming) {
        *self.leftover.lock() = Some(Leftover::new(body));
    }

    pub(super) fn poll_leftover(&self, cx: &mut Context<'_>) {
        let mut leftover = self.leftover.lock();
        if let Some(rest) = leftover.as_mut()
            && let Poll::Ready(()) = rest.poll(cx, self.limits().linger_bytes_max)
        {
            *leftover = None;
        }
    }

    pub(super) fn drop_leftover(&self) {
        self.close_after_answer();
        *self.leftover.lock() = None;
    }

    /// The limit that runs now, and when it is over.
    pub(super) fn due(&self) -> Option<(Waiting, Instant)> {
        let limits = self.limits();
        let since = |moment: &Moment| moment.get(self.born).unwrap_or(self.born);
        if let Some(blocked) = self.write_blocked_since.get(self.born) {
            return Some((Waiting::Reader, blocked + limits.write_stall));
        }
        if let Some(left) = self.leftover.lock().as_ref() {
            return Some((Waiting::Leftover, left.since + limits.linger));
        }
        if self.is_busy() {
            return None;
        }
        match self.head.load(Relaxed) {
            head if head == Head::First as u8 => Some((Waiting::FirstByte, self.born + limits.head_timeout)),
            head if head == Head::Begun as u8 => Some((Waiting::Head, since(&self.rest_since) + limits.head_timeout)),
            _ => Some((Waiting::NextRequest, since(&self.rest_since) + limits.idle)),
        }
    }
}

impl OpenRequest {
    pub(super) fn flushes(&self) -> u32 {
        self.0.flushes.load(Relaxed)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let activity = &self.0;
        activity.counted.request_ended();
        if activity.open_requests.fetch_sub(1, Relaxed) == 1 {
            activity.head.store(Head::Next as u8, Relaxed);
            activity.rest_since.set(activity.born);
        }
    }
}

impl Moment {
    fn set(&self, born: Instant) {
        let nanoseconds = u64::try_from(born.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanoseconds.max(1), Relaxed);
    }

    fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    fn get(&self, born: Instant) -> Option<Instant> {
        let nanoseconds = self.0.load(Relaxed);
        (nanoseconds != 0).then(|| born + std::time::Duration::from_nanos(nanoseconds))
    }
}
