//! A request's body that is sent on while it arrives: never held whole, so of any size, and sent only once.
//!
//! As long as nothing was taken of it, it can still be given to another connection; whoever sends it asks first.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Chunks;

/// What goes wrong inside a body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body as it arrives. Clones are the same body.
#[derive(Clone)]
pub struct Passing(Arc<Mutex<State>>);

struct State {
    body: Pin<Box<dyn Body<Data = Bytes, Error = BodyError> + Send>>,
    taken_bytes: Arc<AtomicU64>,
    moved_at: Instant,
    ended: bool,
    failure: Option<BodyError>,
}

/// A request's body, in one of its two forms.
#[derive(Clone, Debug)]
pub enum Payload {
    /// All there: may be sent as often as is needed.
    Whole(Chunks),
    /// Sent on as it arrives.
    Passing(Passing),
}

impl Passing {
    /// Passes `body` on. Its trailers, if any, are dropped.
    pub fn new(body: impl Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static) -> Self {
        let body = Box::pin(http_body_util::BodyExt::map_err(body, Into::into));
        let ended = body.is_end_stream();
        let state = State { body, taken_bytes: Arc::default(), moved_at: Instant::now(), ended, failure: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Counts the bytes that are taken to be sent, also for who lets go of the body before its end.
    pub fn taken_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.lock().taken_bytes)
    }

    /// Why its sender gave no more of it, if that is why the request failed; the first call gets it.
    pub fn take_failure(&self) -> Option<BodyError> {
        self.0.lock().failure.take()
    }

    /// Whether its sender failed.
    pub(super) fn has_failed(&self) -> bool {
        self.0.lock().failure.is_some()
    }

    /// When something was last taken of it.
    fn moved_at(&self) -> Instant {
        self.0.lock().moved_at
    }

    fn is_untouched(&self) -> bool {
        let state = self.0.lock();
        state.taken_bytes.load(Ordering::Relaxed) == 0 && state.failure.is_none()
    }
}

impl State {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            let Poll::Ready(frame) = self.body.as_mut().poll_frame(cx) else { return Poll::Pending };
            self.moved_at = Instant::now();
            match frame {
                Some(Ok(frame)) => {
                    self.ended = self.body.is_end_stream();
                    // Nothing but data: trailers of a request say nothing to those behind us.
                    if let Ok(data) = frame.into_data() {
                        self.taken_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    let told = error.to_string();
                    self.failure = Some(error);
                    return Poll::Ready(Some(Err(told.into())));
                }
                None => self.ended = true,
            }
        }
    }
}

impl fmt::Debug for Passing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passing").finish_non_exhaustive()
    }
}

impl Payload {
    /// No body.
    pub fn empty() -> Self {
        Self::Whole(Chunks::empty())
    }

    /// How long it is, where that is known.
    pub(super) fn exact_bytes(&self) -> Option<u64> {
        self.size_hint().exact()
    }

    /// Whether all of it can be sent, be it for the first time or again.
    pub fn is_sendable(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Passing(passing) => passing.is_untouched(),
        }
    }

    /// Whether its sender failed, so that nobody else is to blame.
    pub(super) fn has_failed(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Passing(passing) => passing.has_failed(),
        }
    }

    /// From when on an answer is waited for: a body that is still on its way is not held against who reads it.
    pub(super) fn waited_since(&self, sent: Instant) -> Instant {
        match self {
            Self::Whole(_) => sent,
            Self::Passing(passing) => passing.moved_at().max(sent),
        }
    }
}

impl From<Chunks> for Payload {
    fn from(chunks: Chunks) -> Self {
        Self::Whole(chunks)
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(chunks) => Poll::Ready(chunks.next_chunk().map(|chunk| Ok(Frame::data(chunk)))),
            Self::Passing(passing) => passing.0.lock().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(chunks) => chunks.is_end_stream(),
            Self::Passing(passing) => passing.0.lock().ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(chunks) => chunks.size_hint(),
            Self::Passing(passing) => {
                let state = passing.0.lock();
                if state.ended { SizeHint::with_exact(0) } else { state.body.size_hint() }
            }
        }
    }
}
