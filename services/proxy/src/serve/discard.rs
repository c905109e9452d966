//! Reading what nobody wants, so that its sender gets to read the answer.
//!
//! A client that writes its whole request before it reads anything is stuck, or reset, if the server answers early and stops
//! reading. So the rest is read and thrown away, for a bounded time and number of bytes.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::Body;
use hyper::body::Incoming;
use tokio::{
    io::ReadBuf,
    net::TcpStream,
    time::{self, Instant},
};

use super::{
    Limits,
    wire::{finish_writing, poll_read_shared},
};

/// How long a client may stay silent after its answer before we close without waiting for it.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Bytes read at a time.
const SCRATCH_BYTES: usize = 16 * 1024;

/// A body nobody reads any more, on a connection that is to be kept.
pub(super) struct Leftover {
    body: Incoming,
    pub(super) since: Instant,
    bytes: u64,
}

impl Leftover {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, since: Instant::now(), bytes: 0 }
    }

    /// Ready once it has ended, failed, or is more than wanted.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, bytes_max: u64) -> Poll<()> {
        while let Some(Ok(frame)) = ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
            if self.bytes > bytes_max {
                break;
            }
        }
        Poll::Ready(())
    }
}

/// Reads the rest of an HTTP/2 request that was answered early.
pub(super) async fn discard_stream(body: Incoming, linger: Duration, bytes_max: u64) {
    let mut leftover = Leftover::new(body);
    // Either way the stream is reset when it is dropped, which the answer's completeness makes harmless.
    let _in_time = time::timeout(linger, poll_fn(|cx| leftover.poll(cx, bytes_max))).await;
}

/// What a connection that is to be closed still sends.
pub(super) struct Discard {
    left_bytes: u64,
    scratch: Vec<u8>,
}

impl Discard {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { left_bytes: limits.linger_bytes_max, scratch: Vec::new() }
    }

    /// Ready at the end of input, at an error, and when more than enough was read.
    pub(super) fn poll(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_some(socket, cx)) {}
        Poll::Ready(())
    }

    /// Closes a connection gently: our end of output first, then theirs, or the limits.
    pub(super) async fn linger(mut self, socket: &TcpStream, limits: &Limits) {
        finish_writing(socket);
        let end = Instant::now() + limits.linger;
        let silence = SILENCE_MAX.min(limits.linger);
        while let Ok(true) =
            time::timeout_at(end.min(Instant::now() + silence), poll_fn(|cx| self.poll_some(socket, cx))).await
        {
        }
    }

    /// Whether there may be more.
    fn poll_some(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<bool> {
        if self.left_bytes == 0 {
            return Poll::Ready(false);
        }
        self.scratch.resize(SCRATCH_BYTES, 0);
        let read = ready!(poll_read_shared(socket, cx, &mut ReadBuf::new(&mut self.scratch)));
        let bytes = read.unwrap_or(0);
        self.left_bytes = self.left_bytes.saturating_sub(bytes as u64);
        Poll::Ready(bytes > 0)
    }
}
