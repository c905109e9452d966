//! An HTTP/2 connection and its watchman. Its streams are tasks of the same core.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{net::TcpStream, time::Instant};

use super::{
    Answers, Limits, Sendable,
    activity::{Activity, Waiting},
    answering::Calls,
    connection::{End, input_ended},
    signal::{Level, Listening},
    wire::{Spoken, Wire},
};
use crate::deadline::Deadline;

/// How long a client that was told to go may take to close.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// A silent peer is asked whether it is there three times within the idle limit.
pub(super) fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.h2_streams_max)
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(limits.idle / 3)
        .keep_alive_timeout(limits.head_timeout);
    builder
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
    let calls = Calls::new(service, activity, Spoken::Http2);
    let mut connection = pin!(activity.counted.shared.http2.serve_connection(TokioIo::new(wire), calls));
    let mut input_ended = pin!(input_ended(socket));
    let mut deadline = Deadline::default();
    let mut leaving_since = None;
    poll_fn(|cx| {
        loop {
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::Linger);
            }
            // Streams learn of it when the connection is dropped.
            if input_ended.as_mut().poll(cx).is_ready() {
                return Poll::Ready(End::Over);
            }
            let level = listening.poll(cx);
            if level == Level::Aborted {
                return Poll::Ready(End::Over);
            }
            let due = match leaving_since {
                Some(since) if !activity.is_busy() => Some((Waiting::NextRequest, since + GOODBYE_MAX)),
                _ => activity.due(),
            };
            let over = due.is_some_and(|(_, due)| deadline.poll(cx, due).is_ready());
            if over && (leaving_since.is_some() || due.is_some_and(|(waiting, _)| waiting == Waiting::Reader)) {
                return Poll::Ready(End::Over);
            }
            if leaving_since.is_none() && (over || level >= Level::Draining) {
                leaving_since = Some(Instant::now());
                connection.as_mut().graceful_shutdown();
                continue;
            }
            return Poll::Pending;
        }
    })
    .await
}
