//! The bytes to and from a client, watched.
//!
//! The socket is shared with the connection's watchman, who must see the end of input before what lies unread in front of it
//! is read. Answers that hyper gives by itself, to heads it cannot read, are kept back here: the connection sends the
//! gateway's own instead, in the shape that clients know.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
};

use super::activity::Activity;

/// Where the status stands in an HTTP/1.1 answer: `HTTP/1.1 431 ...`.
const STATUS_AT: std::ops::Range<usize> = 9..12;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    Http1,
    Http2,
}

pub(super) struct Wire {
    socket: Arc<TcpStream>,
    activity: Arc<Activity>,
    /// Read while finding out what is spoken.
    first: Bytes,
    spoken: Spoken,
}

impl Wire {
    pub(super) fn new(socket: Arc<TcpStream>, activity: Arc<Activity>, first: Bytes, spoken: Spoken) -> Self {
        Self { socket, activity, first, spoken }
    }

    /// HTTP/2 has bytes that begin no request.
    fn note_read(&self) {
        if self.spoken == Spoken::Http1 {
            self.activity.read();
        }
    }

    fn keeps_back(&self, written: &[u8]) -> bool {
        if self.spoken == Spoken::Http2 || !self.activity.writes_refusal() {
            return false;
        }
        if self.activity.refused().is_none() {
            let status = written.get(STATUS_AT).and_then(|digits| std::str::from_utf8(digits).ok());
            self.activity.refuse(status.and_then(|digits| digits.parse().ok()).unwrap_or(400));
        }
        true
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.socket.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    self.activity.write_blocked();
                    return Poll::Pending;
                }
            }
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => {
                    self.activity.wrote();
                    return Poll::Ready(done);
                }
            }
        }
    }
}

/// Reads like tokio's own stream: a read that did not fill the buffer emptied the socket, so the next one may wait for the
/// next event instead of asking the kernel.
pub(super) fn poll_read_shared(
    socket: &TcpStream,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<usize>> {
    let room = buf.remaining();
    loop {
        ready!(socket.poll_read_ready(cx))?;
        match socket.try_read_buf(buf) {
            Ok(bytes) => {
                if 0 < bytes && bytes < room {
                    let _emptied: io::Result<()> =
                        socket.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
                }
                return Poll::Ready(Ok(bytes));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let bytes = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first[..bytes]);
            self.first.advance(bytes);
            self.note_read();
            return Poll::Ready(Ok(()));
        }
        let bytes = ready!(poll_read_shared(&self.socket, cx, buf))?;
        if bytes > 0 {
            self.note_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.keeps_back(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        self.poll_write_with(cx, |socket| socket.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.keeps_back(bufs.first().map_or(&[], |buf| buf)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        self.poll_write_with(cx, |socket| socket.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.activity.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With an answer kept back there is still something to say.
        if self.activity.refused().is_none() {
            finish_writing(&self.socket);
        }
        Poll::Ready(Ok(()))
    }
}

/// Sends the end of our output. The client may have closed before; then there is nothing to say.
pub(super) fn finish_writing(socket: &TcpStream) {
    let _sent = socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Write);
}
