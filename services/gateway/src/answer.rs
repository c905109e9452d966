//! The answer's body on its way to the client: passed through as it comes, and observed.
//!
//! It holds the request's place and record, so whichever way it ends — read to the last byte, broken by the endpoint, or
//! dropped because the client left — the request completes exactly then. It adds bytes in one case only: a stream that
//! the endpoint cut gets an error event, since clients take a silent end for a whole answer.

mod hider;
mod keep_alive;
mod reader;

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use dispatch::{Failure, Verdict as Evidence};
use http::{header::CONTENT_LENGTH, response::Parts};
use http_body::{Body, Frame, SizeHint};
use protocol::{Api, ErrorBody, Reason};
use proxy::client::{AnswerBody, AnswerError};
use tokio::time::Sleep;

use self::{
    keep_alive::KeepAlive,
    reader::{Ended, Reader, Verdict},
};
use crate::{
    metrics::Outcome,
    pools::{Content, Lease},
    record::Record,
    terminal::verdict,
};

/// A body of ours or of an endpoint.
pub enum Answer {
    /// Short and whole; taken when it has been sent.
    Whole(Option<Bytes>),
    /// An endpoint's.
    Flowing(Box<Flow>),
}

impl Answer {
    /// A body of ours.
    pub fn whole(body: Bytes) -> Self {
        Self::Whole(Some(body).filter(|body| !body.is_empty()))
    }

    /// An endpoint's body.
    pub fn flowing(flow: Flow) -> Self {
        Self::Flowing(Box::new(flow))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        match self.get_mut() {
            Self::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Self::Flowing(flow) => flow.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_none(),
            Self::Flowing(flow) => matches!(flow.state, State::Ended),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
            Self::Flowing(flow) => flow.size_hint(),
        }
    }
}

/// What becomes of an event that holds nothing but the usage of its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageEvent {
    /// It passes: the client asked for it, or the endpoint sends it unasked.
    #[default]
    Shown,
    /// The gateway asked for it, and keeps it.
    Hidden,
}

/// A model's name that is turned back: its client asked for one, and was served by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// What the client asked for.
    pub asked: Arc<str>,
    /// What the endpoint calls it.
    pub target: Arc<str>,
}

/// An endpoint's answer, its request's place, and what was seen of it.
pub struct Flow {
    body: AnswerBody,
    reader: Reader,
    api: Api,
    record: Box<Record>,
    lease: Lease,
    deadline: Option<Pin<Box<Sleep>>>,
    keep_alive: Option<KeepAlive>,
    waiting: Waiting,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    ForContent,
    NoLonger,
}

enum State {
    Flowing,
    /// The endpoint is done; this is still to be sent.
    Last(Bytes),
    Ended,
}

impl Flow {
    /// An answer whose head is about to go to the client. `time_left` is what the route leaves for all of it;
    /// `keep_alive_every` how long an event stream may be silent before a comment is sent.
    pub fn new(
        head: &mut Parts,
        api: Api,
        body: AnswerBody,
        record: Box<Record>,
        lease: Lease,
        time_left: Option<Duration>,
        keep_alive_every: Option<Duration>,
    ) -> Self {
        let reader = Reader::of(head, api, record.usage_event, record.renamed.as_ref());
        let keep_alive = keep_alive_every.filter(|_| reader.is_stream()).map(KeepAlive::new);
        let mut flow = Self {
            body,
            reader,
            api,
            record,
            lease,
            deadline: time_left.map(|left| Box::pin(tokio::time::sleep(left))),
            keep_alive,
            waiting: Waiting::ForContent,
            state: State::Flowing,
        };
        flow.record.stream = flow.reader.is_stream();
        if flow.reader.is_stream() || flow.reader.changes_length() {
            // An error event may have to follow what the endpoint announced, or a name of another length stands in it.
            head.headers.remove(CONTENT_LENGTH);
        }
        if flow.body.is_end_stream() {
            flow.finish();
        }
        flow
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        loop {
            match ready!(self.poll_once(cx)) {
                // All of it was hidden, or is held until its event is whole.
                Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                other => return Poll::Ready(other),
            }
        }
    }

    fn poll_once(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => return Poll::Ready(None),
            State::Last(event) => return Poll::Ready(Some(Ok(self.passed(event)))),
            State::Flowing => self.state = State::Flowing,
        }
        if self.poll_deadline(cx).is_ready() {
            // The route's limit is the operator's patience, and says nothing of an endpoint that is at work.
            return Poll::Ready(self.cut(Reason::EndpointTimeout, "routeTimeout is over", AnswerError::IdleTimeout));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else { return self.poll_keep_alive(cx) };
        match frame {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(self.observe(frame)))),
            Some(Err(error)) => {
                let (reason, failure) = match error {
                    AnswerError::IdleTimeout => (Reason::EndpointTimeout, Failure::Stall),
                    AnswerError::Broke(_) => (Reason::EndpointBroke, Failure::Broke),
                };
                self.lease.report(Evidence::Failure(failure));
                let detail = error.to_string();
                Poll::Ready(self.cut(reason, &detail, error))
            }
            None => {
                self.finish();
                match std::mem::replace(&mut self.state, State::Ended) {
                    State::Last(event) => Poll::Ready(Some(Ok(self.passed(event)))),
                    State::Ended | State::Flowing => Poll::Ready(None),
                }
            }
        }
    }

    /// Nothing came: a comment where it is due, and where it may stand.
    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let Some(keep_alive) = self.keep_alive.as_mut().filter(|_| self.reader.is_between_events()) else {
            return Poll::Pending;
        };
        ready!(keep_alive.poll(cx));
        Poll::Ready(Some(Ok(self.passed(keep_alive::COMMENT))))
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.deadline {
            Some(deadline) => deadline.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Looks at a frame that passes.
    fn observe(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(trailers) => return self.last(trailers),
        };
        let (step, data) = self.reader.feed(data);
        self.record.content_passed(step.content_events);
        self.lease.generated_tokens = self.lease.generated_tokens.saturating_add(step.content_events);
        if self.waiting == Waiting::ForContent && step.has_content {
            self.waiting = Waiting::NoLonger;
            let content = if step.content_events > 0 { Content::Streamed } else { Content::Whole };
            self.lease.answered(content, self.is_2xx().then_some(Evidence::Begun));
        }
        if self.body.is_end_stream() {
            self.finish();
        }
        self.passed(data)
    }

    /// Trailers come last; those of a stream that was cut short give way to the event that says so.
    fn last(&mut self, trailers: Frame<Bytes>) -> Frame<Bytes> {
        self.finish();
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Last(event) => self.passed(event),
            State::Ended | State::Flowing => trailers,
        }
    }

    fn passed(&mut self, data: Bytes) -> Frame<Bytes> {
        self.record.bytes_out += data.len() as u64;
        if let Some(keep_alive) = &mut self.keep_alive {
            keep_alive.sent();
        }
        Frame::data(data)
    }

    /// The endpoint's last byte was seen: says how the request ended, or adds what its stream lacks.
    fn finish(&mut self) {
        let status = self.record.status.unwrap_or_default();
        let Ended { verdict, rest, .. } = self.close_reader();
        self.judge(verdict);
        match verdict {
            Verdict::Complete => self.record.end(Outcome::of_status(status)),
            Verdict::ErrorEvent { client_fault: true, .. } => self.record.end(Outcome::Upstream4xx),
            Verdict::ErrorEvent { client_fault: false, .. } => self.record.end(Outcome::Upstream5xx),
            Verdict::CutShort { at_event_boundary } => {
                self.record.detail("the stream ended without its terminator");
                self.record.end(Outcome::Refused(Reason::EndpointBroke));
                let event = self.error_event(Reason::EndpointBroke, at_event_boundary);
                self.state = State::Last(joined(rest, event));
                return;
            }
        }
        self.state = if rest.is_empty() { State::Ended } else { State::Last(rest) };
    }

    /// Says of the endpoint what its whole answer was. What its head said already, as a 500 does, stands.
    fn judge(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Complete if self.is_2xx() => self.lease.succeeded(),
            Verdict::Complete | Verdict::ErrorEvent { client_fault: true, .. } => {}
            Verdict::ErrorEvent { client_fault: false, code } => self.lease.report(verdict::of_error_event(code)),
            Verdict::CutShort { .. } => self.lease.report(Evidence::Failure(Failure::Broke)),
        }
    }

    fn is_2xx(&self) -> bool {
        self.record.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// The endpoint failed in the middle: an event stream is told so in its own words, any other body ends uncleanly.
    fn cut(&mut self, reason: Reason, detail: &str, error: AnswerError) -> Option<Result<Frame<Bytes>, AnswerError>> {
        self.record.detail(detail);
        self.record.end(Outcome::Refused(reason));
        self.state = State::Ended;
        let was_stream = self.reader.is_stream();
        let Ended { verdict, rest, .. } = self.close_reader();
        let at_event_boundary = match verdict {
            Verdict::CutShort { at_event_boundary } => at_event_boundary,
            Verdict::Complete | Verdict::ErrorEvent { .. } => true,
        };
        if !was_stream {
            return Some(Err(error));
        }
        let event = joined(rest, self.error_event(reason, at_event_boundary));
        Some(Ok(self.passed(event)))
    }

    fn close_reader(&mut self) -> Ended {
        let ended = std::mem::replace(&mut self.reader, Reader::Opaque).close(self.api);
        if let Some(usage) = ended.usage {
            self.lease.generated_tokens = u32::try_from(usage.completion_tokens).unwrap_or(u32::MAX);
        }
        if self.is_2xx() && reader::counts_tokens(self.api) {
            self.record.usage.get_or_insert(ended.usage);
        }
        ended
    }

    fn error_event(&self, reason: Reason, at_event_boundary: bool) -> Bytes {
        let message = if reason == Reason::EndpointTimeout {
            "the model server went silent before its answer was complete: try again"
        } else {
            "the model server's answer ended before it was complete: what came so far is not all; try again"
        };
        let event = ErrorBody { reason, message, param: None }.to_sse_event(self.api.dialect());
        if at_event_boundary { event } else { [b"\n\n", &*event].concat().into() }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Flowing if !self.reader.is_stream() && !self.reader.changes_length() => self.body.size_hint(),
            State::Flowing | State::Last(_) => SizeHint::default(),
            State::Ended => SizeHint::with_exact(0),
        }
    }
}

/// What was held of a stream, and what ends it.
fn joined(held: Bytes, event: Bytes) -> Bytes {
    if held.is_empty() { event } else { [held, event].concat().into() }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if matches!(self.state, State::Ended) {
            return;
        }
        // The client left: what was used up to here is still known to some streams.
        let ended = self.close_reader();
        // SDKs hang up on a stream's last event, without waiting for the end of its framing: they have their answer.
        if ended.said_so {
            self.judge(ended.verdict);
            self.record.end(match ended.verdict {
                Verdict::ErrorEvent { client_fault: true, .. } => Outcome::Upstream4xx,
                Verdict::ErrorEvent { client_fault: false, .. } => Outcome::Upstream5xx,
                Verdict::Complete | Verdict::CutShort { .. } => {
                    Outcome::of_status(self.record.status.unwrap_or_default())
                }
            });
        }
    }
}
