//! An answer's body: frames as they come, and the connection's fate.

use std::{
    error::Error as StdError,
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::time::Instant;

use super::{
    http1::{Home, Link},
    http2::Streamed,
};
use crate::deadline::Deadline;

/// The body of an endpoint's answer. Its end gives the connection back; dropping it before closes the connection, or
/// resets the stream, at once.
pub struct AnswerBody {
    source: Source,
    patience: Patience,
    replayed: bool,
    /// What came while nobody read.
    ahead: Option<Box<Came>>,
}

type Came = Result<Frame<Bytes>, AnswerError>;

/// Why a body ended before its end.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// The connection or stream ended, or what came breaks the protocol.
    #[error("the answer broke off")]
    Broke(#[source] Option<Box<dyn StdError + Send + Sync>>),
    /// Nothing came for as long as is allowed, while somebody wanted to read.
    #[error("the answer stalled")]
    IdleTimeout,
}

enum Source {
    Http1 { body: Incoming, link: Option<Box<Link>>, home: Home },
    Http2(Box<Streamed>),
    Failed,
}

/// How long the reader may be kept waiting.
struct Patience {
    limit: Option<Duration>,
    waiting_since: Option<Instant>,
}

impl AnswerBody {
    pub(super) fn http1(
        body: Incoming,
        link: Option<Box<Link>>,
        home: Home,
        stream_idle: Option<Duration>,
        replayed: bool,
    ) -> Self {
        Self::new(Source::Http1 { body, link, home }, stream_idle, replayed)
    }

    pub(super) fn http2(streamed: Streamed, stream_idle: Option<Duration>, replayed: bool) -> Self {
        Self::new(Source::Http2(Box::new(streamed)), stream_idle, replayed)
    }

    fn new(source: Source, limit: Option<Duration>, replayed: bool) -> Self {
        Self { source, patience: Patience { limit, waiting_since: None }, replayed, ahead: None }
    }

    /// Whether the request was sent twice, the first time on a reused connection that closed without a byte.
    pub fn replayed(&self) -> bool {
        self.replayed
    }

    /// Waits until something of it has come, or it has ended. Whoever reads it then sees all of it.
    pub async fn begun(&mut self) {
        if self.ahead.is_none() {
            let first = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
            self.ahead = first.map(Box::new);
        }
    }

    fn fail(&mut self, error: AnswerError) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        // Dropping the source is what closes the connection or resets the stream.
        self.source = Source::Failed;
        Poll::Ready(Some(Err(error)))
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").field("ended", &self.is_end_stream()).field("replayed", &self.replayed).finish()
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let this = &mut *self;
        if let Some(came) = this.ahead.take() {
            return Poll::Ready(Some(*came));
        }
        let polled = match &mut this.source {
            Source::Http1 { link: None, .. } | Source::Failed => return Poll::Ready(None),
            Source::Http1 { body, link: Some(link), .. } => poll_http1(body, link, cx),
            Source::Http2(streamed) => streamed.poll_frame(cx),
        };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                this.patience.waiting_since = None;
                this.source.ended_with(&frame, cx);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.source.ended(cx);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(cause))) => this.fail(AnswerError::Broke(cause)),
            Poll::Pending => {
                ready!(this.patience.poll(this.source.deadline(), cx));
                this.fail(AnswerError::IdleTimeout)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none()
            && match &self.source {
                Source::Http1 { link, .. } => link.is_none(),
                Source::Http2(streamed) => streamed.has_ended(),
                Source::Failed => true,
            }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = match &self.source {
            Source::Http1 { body, .. } => body.size_hint(),
            Source::Http2(streamed) => streamed.size_hint(),
            Source::Failed => SizeHint::default(),
        };
        if let Some(Ok(frame)) = self.ahead.as_deref() {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + bytes);
            }
            hint.set_lower(hint.lower() + bytes);
        }
        hint
    }
}

impl Source {
    /// Some bodies tell with their last frame that it is the last, and after trailers nothing follows: nobody may poll them
    /// again.
    fn ended_with(&mut self, frame: &Frame<Bytes>, cx: &mut Context<'_>) {
        if let Self::Http1 { body, link: Some(link), .. } = self
            && (body.is_end_stream()
                || (frame.is_trailers() && matches!(poll_http1(body, link, cx), Poll::Ready(None))))
        {
            self.ended(cx);
        }
    }

    fn ended(&mut self, cx: &mut Context<'_>) {
        if let Self::Http1 { link, home, .. } = self
            && let Some(link) = link.take()
        {
            link.go_home(cx, home);
        }
    }

    fn deadline(&mut self) -> Option<&mut Deadline> {
        match self {
            Self::Http1 { link, .. } => link.as_mut().map(|link| &mut link.deadline),
            Self::Http2(streamed) => Some(&mut streamed.deadline),
            Self::Failed => None,
        }
    }
}

impl Patience {
    fn poll(&mut self, deadline: Option<&mut Deadline>, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(limit), Some(deadline)) = (self.limit, deadline) else { return Poll::Pending };
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        deadline.poll(cx, since + limit)
    }
}

/// What a connection reported when it broke, if it did.
pub(super) type Cause = Option<Box<dyn StdError + Send + Sync>>;

fn poll_http1(body: &mut Incoming, link: &mut Link, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
    let polled = link.drive_for(cx, |cx| Pin::new(&mut *body).poll_frame(cx));
    if polled.is_pending() && link.has_ended() {
        return Poll::Ready(Some(Err(None)));
    }
    polled.map_err(|error| Some(error.into()))
}
