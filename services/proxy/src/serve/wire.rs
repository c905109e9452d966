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
use tokio_rustls::server::TlsStream;

use super::activity::Activity;

/// Where the status stands in an HTTP/1.1 answer: `HTTP/1.1 431 ...`.
const STATUS_AT: std::ops::Range<usize> = 9..12;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    Http1,
    Http2,
}

pub(super) struct Wire {
    link: Link,
    activity: Arc<Activity>,
    spoken: Spoken,
}

/// What carries the bytes.
pub(super) enum Link {
    /// The socket itself, and what was read while finding out what is spoken.
    Plain { socket: Arc<TcpStream>, first: Bytes },
    /// TLS on the socket.
    Tls(Box<TlsStream<Sock>>),
}

/// The socket as TLS sees it. Limits for a client that does not read count what leaves here.
pub(super) struct Sock {
    socket: Arc<TcpStream>,
    activity: Arc<Activity>,
}

impl Wire {
    pub(super) fn new(link: Link, activity: Arc<Activity>, spoken: Spoken) -> Self {
        Self { link, activity, spoken }
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
}

impl Sock {
    pub(super) fn new(socket: Arc<TcpStream>, activity: Arc<Activity>) -> Self {
        Self { socket, activity }
    }
}

fn poll_write_with(
    socket: &TcpStream,
    activity: &Activity,
    cx: &mut Context<'_>,
    write: impl Fn(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        match socket.poll_write_ready(cx) {
            Poll::Ready(ready) => ready?,
            Poll::Pending => {
                activity.write_blocked();
                return Poll::Pending;
            }
        }
        match write(socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => {
                activity.wrote();
                return Poll::Ready(done);
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
        let before = buf.filled().len();
        match &mut self.link {
            Link::Plain { first, .. } if !first.is_empty() => {
                let bytes = first.len().min(buf.remaining());
                buf.put_slice(&first[..bytes]);
                first.advance(bytes);
            }
            Link::Plain { socket, .. } => _ = ready!(poll_read_shared(socket, cx, buf))?,
            Link::Tls(stream) => ready!(Pin::new(stream).poll_read(cx, buf))?,
        }
        if buf.filled().len() > before {
            self.note_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.keeps_back(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        let Self { link, activity, .. } = &mut *self;
        match link {
            Link::Plain { socket, .. } => poll_write_with(socket, activity, cx, |socket| socket.try_write(buf)),
            Link::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.keeps_back(bufs.first().map_or(&[], |buf| buf)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let Self { link, activity, .. } = &mut *self;
        match link {
            Link::Plain { socket, .. } => {
                poll_write_with(socket, activity, cx, |socket| socket.try_write_vectored(bufs))
            }
            Link::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Link::Tls(stream) = &mut self.link {
            ready!(Pin::new(stream).poll_flush(cx))?;
        }
        self.activity.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With an answer kept back there is still something to say.
        if self.activity.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        match &mut self.link {
            Link::Plain { socket, .. } => finish_writing(socket),
            Link::Tls(stream) => ready!(Pin::new(stream).poll_shutdown(cx))?,
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Sock {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        poll_read_shared(&self.socket, cx, buf).map_ok(|_bytes| ())
    }
}

impl AsyncWrite for Sock {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        poll_write_with(&self.socket, &self.activity, cx, |socket| socket.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_write_with(&self.socket, &self.activity, cx, |socket| socket.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        finish_writing(&self.socket);
        Poll::Ready(Ok(()))
    }
}

/// Sends the end of our output. The client may have closed before; then there is nothing to say.
pub(super) fn finish_writing(socket: &TcpStream) {
    let _sent = socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Write);
}
