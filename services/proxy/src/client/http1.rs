//! One request over one HTTP/1.1 connection, which is driven by the future that waits for the answer.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, HOST, TE, TRANSFER_ENCODING},
    request::Parts,
    uri,
};
use http_body::Body;
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1},
};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::{
    ANSWER_HEAD_BYTES_MAX, AnswerBody, Destination, Payload, ProtocolFault, SendError, Timeouts, connect,
    error::Tried,
    link_waker::{LinkWaker, Work},
    pool::Pools,
    wire::{BytesRead, FailedWrites, Wire},
};
use crate::{deadline::Deadline, headers};

/// Most bytes read ahead, and most written behind, on one connection.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// One connection: both ends of hyper's, in one hand.
pub(super) struct Link {
    sender: http1::SendRequest<Payload>,
    driver: http1::Connection<TokioIo<Wire>, Payload>,
    read: BytesRead,
    ended: bool,
    waker: LinkWaker,
    pub(super) deadline: Deadline,
}

/// Where an answer's connection goes when the answer has ended.
pub(super) struct Home {
    pub(super) pools: Arc<Pools>,
    pub(super) id: u64,
    pub(super) idle_pooled: Duration,
}

/// Why one exchange gave no answer.
enum Lost {
    /// Closed; whether bytes of an answer had come.
    Closed { answering: bool, source: Option<hyper::Error> },
    /// Anything that another connection would not cure.
    Failed(SendError),
}

pub(super) async fn send(
    pools: &Arc<Pools>,
    to: &Destination,
    head: &Parts,
    body: Payload,
    timeouts: &Timeouts,
) -> Result<Response<AnswerBody>, SendError> {
    let home = Home { pools: Arc::clone(pools), id: to.id, idle_pooled: timeouts.idle_pooled };
    let mut replaying = Replaying::No;
    if let Some(link) = pools.take_idle(to.id).await {
        match exchange(link, request(to, head, body.clone())?, timeouts).await {
            Ok((answer, link)) => return Ok(finish(answer, link, home, timeouts, replaying).await),
            Err(Lost::Failed(error)) => return Err(error),
            Err(Lost::Closed { answering: true, source }) => return Err(closed(Tried::ReusedAndAnswering, source)),
            Err(Lost::Closed { answering: false, source }) if !body.is_sendable() => {
                return Err(closed(Tried::ReusedAndTaken, source));
            }
            Err(Lost::Closed { answering: false, .. }) => replaying = Replaying::Yes,
        }
    }
    // Boxed so that the usual case does not carry the state of the rare one around.
    Box::pin(send_fresh(home, to, request(to, head, body)?, timeouts, replaying)).await
}

/// Whether the request was sent before, on a connection that closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replaying {
    No,
    Yes,
}

async fn send_fresh(
    home: Home,
    to: &Destination,
    request: Request<Payload>,
    timeouts: &Timeouts,
    replaying: Replaying,
) -> Result<Response<AnswerBody>, SendError> {
    home.pools.enter(to.id);
    match afresh(to, request, timeouts).await {
        Ok((answer, link)) => Ok(finish(answer, link, home, timeouts, replaying).await),
        Err(Lost::Failed(error)) => match replaying {
            Replaying::Yes => Err(error.after_replay()),
            Replaying::No => Err(error),
        },
        Err(Lost::Closed { source, .. }) => match replaying {
            Replaying::Yes => Err(closed(Tried::ReusedThenFresh, source)),
            Replaying::No => Err(closed(Tried::Fresh, source)),
        },
    }
}

async fn afresh(
    to: &Destination,
    request: Request<Payload>,
    timeouts: &Timeouts,
) -> Result<(Response<Incoming>, Box<Link>), Lost> {
    let (wire, read) = connect::connect(to, timeouts, FailedWrites::Quiet).await.map_err(Lost::Failed)?;
    let link = handshake(wire, read).await.map_err(Lost::Failed)?;
    exchange(link, request, timeouts).await
}

fn closed(tried: Tried, source: Option<hyper::Error>) -> SendError {
    SendError::ClosedBeforeAnswer { tried, source: source.map(Into::into) }
}

async fn handshake(wire: Wire, read: BytesRead) -> Result<Box<Link>, SendError> {
    let (sender, driver) = http1::Builder::new()
        .max_header_size(ANSWER_HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .handshake(TokioIo::new(wire))
        .await
        .map_err(|error| SendError::Protocol(ProtocolFault::BadHead(error)))?;
    Ok(Box::new(Link { sender, driver, read, ended: false, waker: LinkWaker::new(), deadline: Deadline::default() }))
}

/// The request as HTTP/1.1 writes it. The head is copied: it may be needed again, by us or for another endpoint.
fn request(to: &Destination, head: &Parts, body: Payload) -> Result<Request<Payload>, SendError> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = origin_form(&head.uri)?;
    *request.version_mut() = Version::HTTP_11;
    let mut fields = head.headers.clone();
    fields.remove(TE);
    fields.remove(TRANSFER_ENCODING);
    fields.entry(HOST).or_insert_with(|| to.authority.clone());
    set_length(&mut fields, &head.method, request.body());
    if request.body().exact_bytes().is_none() {
        // Said here, since hyper takes a GET for one without a body.
        fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    *request.headers_mut() = fields;
    Ok(request)
}

fn origin_form(target: &Uri) -> Result<Uri, SendError> {
    if target.scheme().is_none() && target.authority().is_none() {
        return Ok(target.clone());
    }
    let mut parts = uri::Parts::default();
    parts.path_and_query = Some(target.path_and_query().cloned().unwrap_or(uri::PathAndQuery::from_static("/")));
    Uri::from_parts(parts).map_err(|error| SendError::Protocol(ProtocolFault::Request(error.into())))
}

/// A request without a body says so where a body is usual; servers answer 411 otherwise.
pub(super) fn set_length(fields: &mut http::HeaderMap, method: &Method, body: &Payload) {
    match body.exact_bytes() {
        Some(bytes) if bytes > 0 || matches!(*method, Method::POST | Method::PUT | Method::PATCH) => {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        Some(_) | None => _ = fields.remove(CONTENT_LENGTH),
    }
}

async fn exchange(
    mut link: Box<Link>,
    request: Request<Payload>,
    timeouts: &Timeouts,
) -> Result<(Response<Incoming>, Box<Link>), Lost> {
    let read_before = link.read.get();
    let (sent, body) = (Instant::now(), request.body().clone());
    let Link { sender, waker, .. } = &mut *link;
    let mut answer = pin!(waker.quietly(|| sender.try_send_request(request)));
    let answer = poll_fn(|cx| {
        if let Poll::Ready(answer) = link.drive_for(cx, |cx| answer.as_mut().poll(cx)) {
            return Poll::Ready(answer.map_err(|error| {
                if body.has_failed() {
                    return Lost::Failed(SendError::RequestBroke);
                }
                lost(error, link.read.get() != read_before)
            }));
        }
        if link.ended {
            if body.has_failed() {
                return Poll::Ready(Err(Lost::Failed(SendError::RequestBroke)));
            }
            return Poll::Ready(Err(Lost::Closed { answering: link.read.get() != read_before, source: None }));
        }
        match timeouts.first_byte {
            Some(limit) => {
                let due = body.waited_since(sent) + limit;
                link.deadline.poll(cx, due).map(|()| Err(Lost::Failed(SendError::FirstByteTimeout)))
            }
            None => Poll::Pending,
        }
    })
    .await?;
    acceptable(&answer).map_err(|fault| Lost::Failed(SendError::Protocol(fault)))?;
    Ok((answer, link))
}

fn lost(failed: TrySendError<Request<Payload>>, bytes_came: bool) -> Lost {
    let unsent = failed.message().is_some();
    let error = failed.into_error();
    if error.is_parse_too_large() {
        Lost::Failed(SendError::Protocol(ProtocolFault::HeadTooLarge))
    } else if error.is_parse() {
        Lost::Failed(SendError::Protocol(ProtocolFault::BadHead(error)))
    } else {
        Lost::Closed { answering: bytes_came && !unsent, source: Some(error) }
    }
}

/// What hyper lets pass and we must not.
fn acceptable(answer: &Response<Incoming>) -> Result<(), ProtocolFault> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ProtocolFault::Switched);
    }
    let mut codings = answer.headers().get_all(TRANSFER_ENCODING).iter().flat_map(headers::tokens);
    let only_chunked = codings.next().is_none_or(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    if only_chunked && codings.next().is_none() { Ok(()) } else { Err(ProtocolFault::TransferCoding) }
}

async fn finish(
    answer: Response<Incoming>,
    link: Box<Link>,
    home: Home,
    timeouts: &Timeouts,
    replaying: Replaying,
) -> Response<AnswerBody> {
    let (head, body) = answer.into_parts();
    let link = if body.is_end_stream() {
        let mut link = Some(link);
        poll_fn(|cx| Poll::Ready(link.take().map(|link| link.go_home(cx, &home)))).await;
        None
    } else {
        Some(link)
    };
    let replayed = replaying == Replaying::Yes;
    Response::from_parts(head, AnswerBody::http1(body, link, home, timeouts.stream_idle, replayed))
}

impl Link {
    /// Reads and writes until `wanted` is there, or nothing more can be read and written now. `wanted` is asked first: that
    /// tells hyper what to read for, and often it has it already.
    pub(super) fn drive_for<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { driver, waker, ended, .. } = self;
        let mut polled = Poll::Pending;
        waker.drive(cx, |cx| {
            polled = wanted(cx);
            if polled.is_pending() && !*ended {
                // Errors reach whoever waits for the head or the body.
                *ended = Pin::new(&mut *driver).poll(cx).is_ready();
                polled = wanted(cx);
            }
            if polled.is_ready() || *ended { Work::Done } else { Work::Waits }
        });
        polled
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the next request may go here: open, and both messages of the last exchange complete.
    pub(super) fn is_usable(&mut self, cx: &mut Context<'_>) -> bool {
        let Self { driver, waker, ended, .. } = self;
        waker.drive(cx, |cx| {
            *ended = *ended || Pin::new(&mut *driver).poll(cx).is_ready();
            Work::Waits
        });
        !self.ended && self.sender.is_ready()
    }

    /// The answer has ended: back to the pool, or closed if anything is left over on either side.
    pub(super) fn go_home(mut self: Box<Self>, cx: &mut Context<'_>, home: &Home) {
        if self.is_usable(cx) {
            home.pools.put_idle(home.id, self, home.idle_pooled);
        }
    }
}
