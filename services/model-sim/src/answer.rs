//! Answers: their bodies, and event streams written as they are generated.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use parking_lot::Mutex;

/// What breaks a body off: the simulated server died.
#[derive(Debug, thiserror::Error)]
#[error("the simulated server broke the connection off")]
pub(crate) struct BrokenOff;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, BrokenOff>;

/// Where an event stream's writer puts its events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events(Arc<Mutex<VecDeque<Bytes>>>);

/// Runs a writer inside a body: when the body is dropped, so is the writer, and with it its requests in the engine.
/// The writer runs only when everything it wrote before has been taken.
struct EventStream<F> {
    writer: Pin<Box<F>>,
    events: Events,
    done: bool,
}

/// A body of known length.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Any answer with a body of known length.
pub(crate) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    if !content_type.is_empty() {
        response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    }
    response
}

/// A JSON answer.
pub(crate) fn json_answer(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    answer(status, "application/json", body.to_string())
}

/// An answer of JSON with status 200.
pub(crate) fn ok_json(body: &serde_json::Value) -> Response<Body> {
    json_answer(StatusCode::OK, body)
}

/// An event stream, written by a future that gets the place for its events.
pub(crate) fn event_stream<F>(write: impl FnOnce(Events) -> F) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let events = Events::default();
    let stream = EventStream { writer: Box::pin(write(events.clone())), events, done: false };
    let mut response = Response::new(stream.boxed_unsync());
    let content_type = http::HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

impl Events {
    /// One `data:` event.
    pub(crate) fn data(&self, json: &str) {
        self.push(format!("data: {json}\n\n"));
    }

    /// One event with a name.
    pub(crate) fn named(&self, name: &str, json: &serde_json::Value) {
        self.push(format!("event: {name}\ndata: {json}\n\n"));
    }

    /// The end marker of OpenAI streams.
    pub(crate) fn done(&self) {
        self.push("data: [DONE]\n\n");
    }

    fn push(&self, event: impl Into<Bytes>) {
        self.0.lock().push_back(event.into());
    }
}

impl<F: Future<Output = ()>> HttpBody for EventStream<F> {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        loop {
            if let Some(event) = self.events.0.lock().pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(event))));
            }
            if self.done {
                return Poll::Ready(None);
            }
            let polled = self.writer.as_mut().poll(context);
            self.done = polled.is_ready();
            if polled.is_pending() && self.events.0.lock().is_empty() {
                return Poll::Pending;
            }
        }
    }
}
