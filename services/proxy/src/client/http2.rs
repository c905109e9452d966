//! One request as one stream of a shared HTTP/2 connection.
//!
//! On the `h2` crate itself: what decides about a second try (which streams a GOAWAY leaves unprocessed, who reset a stream
//! and why) is told there, and a request costs no task. The connection has one task that reads and writes frames.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, client::ResponseFuture};
use http::{HeaderMap, Request, Response, Uri, Version, header::TRANSFER_ENCODING, request::Parts, uri};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    ANSWER_HEAD_BYTES_MAX, AnswerBody, Destination, Payload, ProtocolFault, SendError, Timeouts,
    answer::Cause,
    connect,
    error::Tried,
    http1::set_length,
    pool::Pools,
    wire::{BytesRead, FailedWrites, Wire},
};
use crate::deadline::Deadline;

/// Bytes of fields that are read at all. More than are allowed: beyond what is read `h2` drops fields of trailers and says
/// nothing, so what is too large has to be seen whole to be refused. (Of trailers yet larger, up to
/// some 400 KB, the fields that fit still pass for all: `h2` tells nobody.)
const FIELDS_BYTES_READ: u32 = 4 * ANSWER_HEAD_BYTES_MAX as u32;

/// Most streams of one connection at a time, if its server allows as many; beyond, another connection is opened.
const STREAMS_MAX: usize = 100;

/// What an endpoint may send before it is read, per stream and per connection, in bytes.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// A connection that many requests share.
pub(super) struct Multiplexed {
    sender: h2::client::SendRequest<Bytes>,
    open_streams: AtomicUsize,
    read: BytesRead,
    dead: AtomicBool,
    last_used: Mutex<Instant>,
    idle_pooled: Duration,
}

/// One stream of it, counted until dropped.
struct Slot(Arc<Multiplexed>);

/// An answer that is being received, and its request if that is still being sent.
pub(super) struct Streamed {
    answer: RecvStream,
    upload: Option<Upload>,
    part: Part,
    pub(super) deadline: Deadline,
    _slot: Slot,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Data,
    Trailers,
    Over,
}

struct Upload {
    stream: SendStream<Bytes>,
    chunk: Bytes,
    rest: Payload,
}

/// Why one exchange gave no answer.
enum Lost {
    /// The server says, or it is certain, that it did not process the request.
    Unprocessed(h2::Error),
    /// The connection ended without a byte since the request.
    ClosedSilently(h2::Error),
    /// The connection ended after something was read.
    Closed(h2::Error),
    Failed(SendError),
}

pub(super) async fn send(
    pools: &Arc<Pools>,
    to: &Destination,
    head: &Parts,
    body: Payload,
    timeouts: &Timeouts,
) -> Result<Response<AnswerBody>, SendError> {
    let (slot, reused) = connection(pools, to, timeouts).await?;
    let mut tried = if reused { Tried::ReusedAndAnswering } else { Tried::Fresh };
    let first = exchange(slot, request(to, head, &body)?, body.clone(), timeouts).await;
    let unknown = matches!(first, Err(Lost::ClosedSilently(_)));
    let source = match first {
        Ok(answer) => return finish(answer, timeouts, false),
        Err(Lost::Failed(error)) => return Err(error),
        Err(Lost::Closed(source)) => return Err(closed(tried, source)),
        Err(Lost::ClosedSilently(source)) if !reused => return Err(closed(tried, source)),
        Err(Lost::ClosedSilently(source) | Lost::Unprocessed(source)) if !body.is_sendable() => {
            return Err(closed(Tried::ReusedAndTaken, source));
        }
        Err(Lost::ClosedSilently(source) | Lost::Unprocessed(source)) => source,
    };
    tracing::debug!(error = %source, "an HTTP/2 request goes to another connection");
    // Nobody knows whether a request that was lost in silence ran; one that its server disowned did not.
    let failed = |error: SendError| if unknown { error.after_replay() } else { error };
    let (slot, reused) = connection(pools, to, timeouts).await.map_err(failed)?;
    tried = if reused { tried } else { Tried::ReusedThenFresh };
    match exchange(slot, request(to, head, &body)?, body, timeouts).await {
        Ok(answer) => finish(answer, timeouts, true),
        Err(Lost::Failed(error)) => Err(error.after_replay()),
        Err(Lost::Closed(source) | Lost::ClosedSilently(source) | Lost::Unprocessed(source)) => {
            Err(closed(tried, source))
        }
    }
}

fn closed(tried: Tried, source: h2::Error) -> SendError {
    SendError::ClosedBeforeAnswer { tried, source: Some(source.into()) }
}

/// A slot on a connection, and whether that connection was there before.
async fn connection(pools: &Arc<Pools>, to: &Destination, timeouts: &Timeouts) -> Result<(Slot, bool), SendError> {
    if let Some(connection) = pools.multiplexed(to.id) {
        return Ok((Slot::new(connection), true));
    }
    let opening = pools.opening(to.id);
    // Within the limit too: behind a host that swallows packets, waiting in line would add up.
    let _alone = connect::within(timeouts.connect, opening.lock()).await?;
    if let Some(connection) = pools.multiplexed(to.id) {
        return Ok((Slot::new(connection), true));
    }
    let (wire, read) = connect::connect(to, timeouts, FailedWrites::Reported).await?;
    let connection = handshake(wire, read, timeouts).await?;
    let slot = Slot::new(Arc::clone(&connection));
    pools.put_multiplexed(to.id, connection);
    Ok((slot, false))
}

async fn handshake(wire: Wire, read: BytesRead, timeouts: &Timeouts) -> Result<Arc<Multiplexed>, SendError> {
    let (sender, driver) = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(FIELDS_BYTES_READ)
        .handshake(wire)
        .await
        .map_err(|error| SendError::Connect(std::io::Error::other(error)))?;
    let connection = Arc::new(Multiplexed {
        sender,
        open_streams: AtomicUsize::new(0),
        read,
        dead: AtomicBool::new(false),
        last_used: Mutex::new(Instant::now()),
        idle_pooled: timeouts.idle_pooled,
    });
    let seen = Arc::downgrade(&connection);
    // The one task of this connection. It ends with the socket, or once nobody holds a sender or a stream any more.
    tokio::spawn(async move {
        if let Err(error) = driver.await {
            tracing::debug!(%error, "an HTTP/2 connection to an endpoint ended");
        }
        if let Some(connection) = seen.upgrade() {
            connection.dead.store(true, Ordering::Relaxed);
        }
    });
    Ok(connection)
}

fn request(to: &Destination, head: &Parts, body: &Payload) -> Result<Request<()>, SendError> {
    let unsendable = |error: http::Error| SendError::Protocol(ProtocolFault::Request(error));
    let host = head.headers.get(http::header::HOST).unwrap_or(&to.authority);
    let authority = uri::Authority::from_maybe_shared(Bytes::copy_from_slice(host.as_bytes()));
    let mut target = uri::Parts::default();
    target.scheme = Some(if to.tls.is_some() { uri::Scheme::HTTPS } else { uri::Scheme::HTTP });
    target.authority = Some(authority.map_err(|error| unsendable(error.into()))?);
    target.path_and_query = Some(head.uri.path_and_query().cloned().unwrap_or(uri::PathAndQuery::from_static("/")));
    let mut request = Request::new(());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = Uri::from_parts(target).map_err(|error| unsendable(error.into()))?;
    *request.version_mut() = Version::HTTP_2;
    let mut fields = head.headers.clone();
    fields.remove(TRANSFER_ENCODING);
    fields.remove(http::header::HOST);
    set_length(&mut fields, &head.method, body);
    *request.headers_mut() = fields;
    Ok(request)
}

struct Answered {
    answer: Response<RecvStream>,
    upload: Option<Upload>,
    deadline: Deadline,
    slot: Slot,
}

async fn exchange(slot: Slot, request: Request<()>, body: Payload, timeouts: &Timeouts) -> Result<Answered, Lost> {
    let mut sender = slot.0.sender.clone();
    if let Err(error) = poll_fn(|cx| sender.poll_ready(cx)).await {
        slot.0.dead.store(true, Ordering::Relaxed);
        return Err(Lost::Unprocessed(error));
    }
    let read_before = slot.0.read.get();
    let (answer, stream) =
        sender.send_request(request, body.is_end_stream()).map_err(|error| slot.lost(error, read_before))?;
    drop(sender);
    let mut upload = (!body.is_end_stream()).then(|| Upload { stream, chunk: Bytes::new(), rest: body.clone() });
    let mut deadline = Deadline::default();
    let waited = wait(answer, &mut upload, &body, timeouts.first_byte, &mut deadline).await;
    let answer = waited.map_err(|failed| match failed {
        _ if body.has_failed() => Lost::Failed(SendError::RequestBroke),
        Some(error) => slot.lost(error, read_before),
        None => Lost::Failed(SendError::FirstByteTimeout),
    })?;
    Ok(Answered { answer, upload, deadline, slot })
}

/// The head, or why not; `None` is the time limit.
async fn wait(
    answer: ResponseFuture,
    upload: &mut Option<Upload>,
    body: &Payload,
    limit: Option<Duration>,
    deadline: &mut Deadline,
) -> Result<Response<RecvStream>, Option<h2::Error>> {
    let mut answer = pin!(answer);
    let sent = Instant::now();
    poll_fn(|cx| {
        Upload::advance(upload, cx);
        if body.has_failed() {
            return Poll::Ready(Err(None));
        }
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer.map_err(Some));
        }
        match limit {
            Some(limit) => deadline.poll(cx, body.waited_since(sent) + limit).map(|()| Err(None)),
            None => Poll::Pending,
        }
    })
    .await
}

fn finish(answered: Answered, timeouts: &Timeouts, replayed: bool) -> Result<Response<AnswerBody>, SendError> {
    let Answered { answer, upload, deadline, slot } = answered;
    let (head, answer) = answer.into_parts();
    if fields_bytes(&head.headers) > ANSWER_HEAD_BYTES_MAX {
        return Err(SendError::Protocol(ProtocolFault::HeadTooLarge));
    }
    let streamed = Streamed { answer, upload, part: Part::Data, deadline, _slot: slot };
    Ok(Response::from_parts(head, AnswerBody::http2(streamed, timeouts.stream_idle, replayed)))
}

/// The size of a block of fields as RFC 9113 §6.5.2 counts it.
fn fields_bytes(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

impl Multiplexed {
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn has_room(&self) -> bool {
        self.open_streams.load(Ordering::Relaxed) < STREAMS_MAX.min(self.sender.current_max_send_streams())
    }

    pub(super) fn idled_out(&self, now: Instant) -> bool {
        self.open_streams.load(Ordering::Relaxed) == 0 && *self.last_used.lock() + self.idle_pooled <= now
    }
}

impl Slot {
    fn new(connection: Arc<Multiplexed>) -> Self {
        connection.open_streams.fetch_add(1, Ordering::Relaxed);
        Self(connection)
    }

    fn lost(&self, error: h2::Error, read_before: u64) -> Lost {
        let graceful = error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
        let refused = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
        if error.is_io() || error.is_go_away() {
            // No stream is opened on it any more, also before its task has noticed.
            self.0.dead.store(true, Ordering::Relaxed);
        }
        if graceful || refused {
            Lost::Unprocessed(error)
        } else if error.is_reset() && error.is_remote() {
            Lost::Closed(error)
        } else if !error.is_io() && !error.is_go_away() {
            Lost::Failed(SendError::Protocol(ProtocolFault::Http2(error)))
        } else if self.0.read.get() == read_before {
            Lost::ClosedSilently(error)
        } else {
            Lost::Closed(error)
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.last_used.lock() = Instant::now();
        self.0.open_streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Upload {
    /// Sends what fits. A server that wants no more of the body may still answer, so an error here ends only the upload.
    fn advance(upload: &mut Option<Self>, cx: &mut Context<'_>) {
        if let Some(sending) = upload
            && let Poll::Ready(done) = sending.poll(cx)
        {
            if let Err(error) = done {
                tracing::debug!(%error, "an endpoint takes no more of a request's body");
            }
            *upload = None;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            if self.chunk.is_empty() {
                match ready!(Pin::new(&mut self.rest).poll_frame(cx)) {
                    Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                    Some(Err(_)) => {
                        self.stream.send_reset(Reason::CANCEL);
                        return Poll::Ready(Ok(()));
                    }
                    // Its end was not known with its last piece.
                    None => return Poll::Ready(self.stream.send_data(Bytes::new(), true)),
                }
                if self.chunk.is_empty() && !self.rest.is_end_stream() {
                    continue;
                }
            }
            self.stream.reserve_capacity(self.chunk.len());
            let room_bytes = self.stream.capacity();
            if room_bytes == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => return Poll::Ready(Ok(())),
                }
            }
            let piece = self.chunk.split_to(room_bytes.min(self.chunk.len()));
            let last = self.chunk.is_empty() && self.rest.is_end_stream();
            self.stream.send_data(piece, last)?;
            if last {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Streamed {
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        Upload::advance(&mut self.upload, cx);
        if self.part == Part::Data {
            match ready!(self.answer.poll_data(cx)) {
                Some(Ok(data)) => {
                    // Taken by the reader: the endpoint may send as much again.
                    let _released = self.answer.flow_control().release_capacity(data.len());
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(self.ended_by(error)),
                None => self.part = Part::Trailers,
            }
        }
        if self.part == Part::Trailers {
            let trailers = ready!(self.answer.poll_trailers(cx));
            self.part = Part::Over;
            match trailers {
                Ok(Some(trailers)) if fields_bytes(&trailers) > ANSWER_HEAD_BYTES_MAX => {
                    return Poll::Ready(Some(Err(Some("the answer's trailers are too large".into()))));
                }
                Ok(Some(trailers)) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                Ok(None) => {}
                Err(error) => return Poll::Ready(self.ended_by(error)),
            }
        }
        Poll::Ready(None)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.part == Part::Over || self.answer.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        if self.has_ended() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }

    fn ended_by(&mut self, error: h2::Error) -> Option<Result<Frame<Bytes>, Cause>> {
        self.part = Part::Over;
        Some(Err(Some(error.into())))
    }
}
