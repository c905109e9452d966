//! The body of an answer on its way out: paced and broken by faults, watched to its end.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::request::Parts;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::connection::{Busy, Control};
use crate::{
    answer::{Body, BrokenOff},
    face,
    faults::Fault,
    journal::{Entry, Outcome},
    sim::Sim,
    web::Served,
};

/// What is held until a body is over.
#[derive(Debug)]
pub(super) struct Tracking {
    pub(super) fault: Option<Fault>,
    pub(super) control: Arc<Control>,
    pub(super) entry: Option<Entry>,
    /// Server, request, status, bytes announced, and when it began.
    pub(super) served: Option<(Arc<Sim>, Parts, u16, u64, Instant)>,
    #[expect(dead_code, reason = "held for its drop: the connection is busy until the body is over")]
    pub(super) busy: Busy,
}

/// A body with its tracking.
pub(super) struct Paced {
    inner: Body,
    tracking: Tracking,
    /// Whether it is written piece by piece.
    streams: bool,
    pieces: u64,
    waiting: Option<Pin<Box<Sleep>>>,
    waited: bool,
    ended: bool,
}

/// What a fault does to the next piece.
enum Turn {
    Pass,
    Wait(Duration),
    Silence,
    Reset,
    ErrorEvent,
}

const ERROR_EVENT: &[u8] = b"data: {\"error\":{\"message\":\"EngineCore encountered an issue. See stack trace \
(above) for the root cause.\",\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}\n\ndata: [DONE]\n\n";

impl Paced {
    pub(super) fn new(inner: Body, tracking: Tracking) -> Self {
        let streams = inner.size_hint().exact().is_none();
        let mut paced = Self { inner, tracking, streams, pieces: 0, waiting: None, waited: false, ended: false };
        if paced.inner.is_end_stream() {
            paced.end(Outcome::Answered);
        }
        paced
    }

    fn end(&mut self, outcome: Outcome) {
        self.ended = true;
        if let Some(entry) = &self.tracking.entry {
            entry.end(outcome);
        }
    }

    fn turn(&self) -> Turn {
        let Some(fault) = &self.tracking.fault else { return Turn::Pass };
        let sent = Some(self.pieces);
        if fault.die_after_events == sent {
            return Turn::Reset;
        }
        if fault.hang_after_events == sent {
            return Turn::Silence;
        }
        if fault.error_event_after == sent && self.streams {
            return Turn::ErrorEvent;
        }
        let wait_ms = if self.pieces == 0 { fault.delay_first_ms } else { fault.gap_ms };
        if wait_ms > 0 && !self.waited { Turn::Wait(Duration::from_millis(wait_ms)) } else { Turn::Pass }
    }

    /// A body that is no stream and dies after its one piece loses half of it.
    fn cut(&self, data: Bytes) -> Bytes {
        let dies = self.tracking.fault.as_ref().is_some_and(|fault| fault.die_after_events == Some(1));
        if dies && !self.streams { data.slice(..data.len() / 2) } else { data }
    }

    fn take_piece(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.pieces += 1;
        self.waited = false;
        if let Some(entry) = &self.tracking.entry {
            entry.event();
        }
        let frame = frame.map_data(|data| self.cut(data));
        if self.inner.is_end_stream() && self.tracking.fault.is_none() {
            self.end(Outcome::Answered);
        }
        frame
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(sleep) = &mut self.waiting {
                ready!(sleep.as_mut().poll(context));
                self.waiting = None;
                self.waited = true;
            }
            match self.turn() {
                Turn::Pass => break,
                Turn::Wait(time) => self.waiting = Some(Box::pin(sleep(time))),
                Turn::Silence => return Poll::Pending,
                // What was written so far is flushed after this; then the connection's task drops the socket.
                Turn::Reset => {
                    if let Some(entry) = &self.tracking.entry {
                        entry.end(Outcome::Broken);
                    }
                    self.tracking.control.reset();
                    return Poll::Pending;
                }
                Turn::ErrorEvent => {
                    self.end(Outcome::Broken);
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(ERROR_EVENT)))));
                }
            }
        }
        match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(self.take_piece(frame)))),
            Some(Err(broken)) => {
                self.end(Outcome::Broken);
                Poll::Ready(Some(Err(broken)))
            }
            None => {
                self.end(Outcome::Answered);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.tracking.fault.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        let Some((sim, parts, status, response_bytes, began)) = &self.tracking.served else { return };
        let length = parts.headers.get(http::header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        sim.web.note(&Served {
            handler: face::handler(&sim.options, parts.uri.path()),
            method: &parts.method,
            status: *status,
            took: began.elapsed(),
            request_bytes: length.and_then(|text| text.parse().ok()).unwrap_or(0),
            response_bytes: *response_bytes,
            unix_s: sim.clock.unix_s(),
        });
    }
}
