//! An HTTP/1.1 connection and its watchman, in one task.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{BufMut, BytesMut};
use http::StatusCode;
use hyper::server::conn::http1::{Builder, Connection};
use hyper_util::rt::TokioIo;
use tokio::{io::AsyncWriteExt, net::TcpStream, time};

use super::{
    Answers, Limits, Refused, Sendable,
    activity::{Activity, Waiting},
    answering::Calls,
    connection::{End, input_ended},
    discard::Discard,
    signal::{Level, Listening},
    wire::{Spoken, Wire},
};
use crate::deadline::Deadline;

/// What hyper takes by default without an allocation per head.
const HEADERS_WITHOUT_ALLOCATION: usize = 100;

/// How long our own refusal may take to be written; it fits into any socket's buffer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// hyper's own time limit is off: it would cover idle connections and slow heads with one number.
pub(super) fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder.header_read_timeout(None).max_header_size(limits.head_bytes_max);
    if limits.headers_max != HEADERS_WITHOUT_ALLOCATION {
        builder.max_headers(limits.headers_max);
    }
    builder
}

/// Why the watchman's round ended.
enum Ended {
    /// hyper is done.
    Done(hyper::Result<()>),
    /// A limit is over.
    TimedOut(Waiting),
    /// The client is gone, or everything is to end.
    Cut,
}

pub(super) async fn run<S, B>(
    wire: Wire,
    socket: &TcpStream,
    service: S,
    activity: &Arc<Activity>,
    listening: &mut Listening,
) -> End
where
    S: Answers<B>,
    B: Sendable,
{
    let calls = Calls::new(service, activity, Spoken::Http1);
    let connection = activity.counted.shared.http1.serve_connection(TokioIo::new(wire), calls);
    let mut watched = Watched {
        connection,
        activity: Arc::clone(activity),
        deadline: Deadline::default(),
        discard: Discard::new(activity.limits()),
        gone: Gone::Not,
        heard: Level::Serving,
    };
    let mut input_ended = pin!(input_ended(socket));
    let ended = poll_fn(|cx| {
        if watched.gone == Gone::Not && input_ended.as_mut().poll(cx).is_ready() {
            watched.gone = Gone::Gone;
        }
        watched.poll(cx, socket, listening)
    })
    .await;
    let Watched { connection, .. } = watched;
    let refused = match &ended {
        Ended::Done(result) => refusal(activity, result),
        Ended::TimedOut(Waiting::Head) => Some(Refused::HeadTimeout),
        Ended::TimedOut(_) | Ended::Cut => None,
    };
    if let Some(refused) = refused {
        let mut wire = connection.into_parts().io.into_inner();
        activity.refusal_taken();
        // If the client does not take it, there is nobody to tell.
        let _written = time::timeout(REFUSAL_TIMEOUT, refuse(&mut wire, activity, refused)).await;
        return End::Linger;
    }
    match ended {
        Ended::Done(Ok(())) if activity.closes_after_answer() || has_unread(socket) => End::Linger,
        Ended::Done(_) | Ended::TimedOut(_) | Ended::Cut => End::Over,
    }
}

struct Watched<S, B>
where
    S: Answers<B>,
    B: Sendable,
{
    connection: Connection<TokioIo<Wire>, Calls<S, B>>,
    activity: Arc<Activity>,
    deadline: Deadline,
    discard: Discard,
    gone: Gone,
    heard: Level,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gone {
    Not,
    Gone,
}

impl<S, B> Watched<S, B>
where
    S: Answers<B>,
    B: Sendable,
{
    fn poll(&mut self, cx: &mut Context<'_>, socket: &TcpStream, listening: &mut Listening) -> Poll<Ended> {
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self.connection).poll(cx) {
                return Poll::Ready(Ended::Done(result));
            }
            if self.gone == Gone::Gone && self.activity.is_busy() {
                return Poll::Ready(Ended::Cut);
            }
            self.activity.poll_leftover(cx);
            if self.activity.closes_after_answer() {
                // hyper reads no more. A client that reads nothing before it has written all must be able to.
                let _discarded = self.discard.poll(socket, cx);
            }
            let level = listening.poll(cx);
            if level == Level::Aborted {
                return Poll::Ready(Ended::Cut);
            }
            if level > self.heard && (level == Level::Closing || self.activity.is_busy()) {
                self.heard = level;
                Pin::new(&mut self.connection).graceful_shutdown();
                continue;
            }
            return self.poll_limits(cx);
        }
    }

    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        while let Some((waiting, due)) = self.activity.due() {
            if self.deadline.poll(cx, due).is_pending() {
                break;
            }
            if waiting != Waiting::Leftover {
                return Poll::Ready(Ended::TimedOut(waiting));
            }
            self.activity.drop_leftover();
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// What was refused, if hyper ended because it could not read a head.
fn refusal(activity: &Activity, result: &hyper::Result<()>) -> Option<Refused> {
    let Some(status) = activity.refused() else {
        // Its answer has left with that of an earlier request, as it was: only to be counted.
        if let Err(error) = result
            && error.is_parse()
        {
            let refused = if error.is_parse_too_large() { Refused::HeadTooLarge } else { Refused::BadRequest };
            (activity.counted.shared.refusals)(refused);
            activity.close_after_answer();
        }
        return None;
    };
    Some(match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Refused::HeadTooLarge,
        StatusCode::URI_TOO_LONG => Refused::UriTooLong,
        _ => Refused::BadRequest,
    })
}

async fn refuse(wire: &mut Wire, activity: &Activity, refused: Refused) -> std::io::Result<()> {
    let refusal = (activity.counted.shared.refusals)(refused);
    let status = refused.status().expect("what is refused by its head has a status");
    let mut answer = BytesMut::with_capacity(256 + refusal.body.len());
    answer.put_slice(b"HTTP/1.1 ");
    answer.put_slice(status.as_str().as_bytes());
    answer.put_slice(b" ");
    answer.put_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    answer.put_slice(b"\r\nconnection: close\r\ncontent-length: ");
    answer.put_slice(refusal.body.len().to_string().as_bytes());
    for (name, value) in &refusal.headers {
        answer.put_slice(b"\r\n");
        answer.put_slice(name.as_str().as_bytes());
        answer.put_slice(b": ");
        answer.put_slice(value.as_bytes());
    }
    answer.put_slice(b"\r\n\r\n");
    answer.put_slice(&refusal.body);
    wire.write_all(&answer).await?;
    wire.flush().await?;
    wire.shutdown().await
}

/// Whether closing now would answer unread bytes with a reset, which can destroy an answer still on its way.
fn has_unread(socket: &TcpStream) -> bool {
    let mut one = [0];
    socket.try_read(&mut one).is_ok_and(|bytes| bytes > 0)
}
