//! A request's body as it arrives, with the limit on silence, and with care for what is not read of it.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, header::EXPECT};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::{runtime::Handle, time::Instant};

use super::{activity::Activity, discard::discard_stream, wire::Spoken};
use crate::deadline::Deadline;

/// Bodies with no more than this left are read to their end when nobody wants them, and the connection is kept: it costs
/// less than a new one, also for a client that is refused a hundred times.
const READ_ANYWAY_BYTES_MAX: u64 = 256 * 1024;

/// The body of a request.
pub struct RequestBody(Origin);

enum Origin {
    Wire(Arriving),
    /// Not from a connection: what callers' tests and inner calls use.
    Whole(Option<Bytes>),
}

struct Arriving {
    /// Taken when it has ended.
    body: Option<Incoming>,
    activity: Arc<Activity>,
    spoken: Spoken,
    /// The client waits to be asked for the body; asking is polling.
    unasked: bool,
    waiting_since: Option<Instant>,
    deadline: Deadline,
}

/// Why a body ended before its end.
#[derive(Debug, Error)]
pub enum RequestBodyError {
    /// Nothing came for as long as is allowed.
    #[error("the request's body stalled")]
    Idle,
    /// The client left, or what came is not a body.
    #[error("the request's body broke off")]
    Broke(#[source] hyper::Error),
}

impl RequestBody {
    pub(super) fn arriving(body: Incoming, headers: &HeaderMap, activity: Arc<Activity>, spoken: Spoken) -> Self {
        if body.is_end_stream() {
            return Self(Origin::Whole(None));
        }
        Self(Origin::Wire(Arriving {
            body: Some(body),
            activity,
            spoken,
            unasked: headers.contains_key(EXPECT),
            waiting_since: None,
            deadline: Deadline::default(),
        }))
    }
}

impl From<Bytes> for RequestBody {
    fn from(body: Bytes) -> Self {
        Self(Origin::Whole((!body.is_empty()).then_some(body)))
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("ended", &self.is_end_stream()).finish_non_exhaustive()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match &mut self.0 {
            Origin::Wire(arriving) => arriving.poll_frame(cx),
            Origin::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Origin::Wire(arriving) => arriving.body.as_ref().is_none_or(Incoming::is_end_stream),
            Origin::Whole(body) => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Origin::Wire(arriving) => arriving.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint),
            Origin::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
        }
    }
}

impl Arriving {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        self.unasked = false;
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.waiting_since = None;
                if body.is_end_stream() {
                    self.body = None;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.body = None;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.body = None;
                self.activity.close_after_answer();
                Poll::Ready(Some(Err(RequestBodyError::Broke(error))))
            }
            Poll::Pending => {
                let since = *self.waiting_since.get_or_insert_with(Instant::now);
                ready!(self.deadline.poll(cx, since + self.activity.limits().body_idle));
                self.abandon(Abandoned::Stalled);
                Poll::Ready(Some(Err(RequestBodyError::Idle)))
            }
        }
    }

    /// Nobody wants the rest.
    fn abandon(&mut self, how: Abandoned) {
        let Some(body) = self.body.take() else { return };
        let left_bytes = body.size_hint().exact();
        let soon_read = left_bytes.is_some_and(|left| left <= READ_ANYWAY_BYTES_MAX);
        match self.spoken {
            Spoken::Http1 if soon_read && !self.unasked && how == Abandoned::Unread => self.activity.leave(body),
            Spoken::Http1 => self.activity.close_after_answer(),
            Spoken::Http2 if how == Abandoned::Unread => self.discard_stream(body),
            Spoken::Http2 => {}
        }
    }

    fn discard_stream(&self, body: Incoming) {
        let limits = self.activity.limits();
        if let Ok(core) = Handle::try_current() {
            core.spawn(discard_stream(body, limits.linger, limits.linger_bytes_max));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Abandoned {
    /// Dropped before its end.
    Unread,
    /// Its sender stalled: waiting on for it would be in vain.
    Stalled,
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.abandon(Abandoned::Unread);
    }
}
