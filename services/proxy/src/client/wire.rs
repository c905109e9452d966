//! The bytes to and from an endpoint, counted.
//!
//! Two facts are needed that no HTTP library tells: whether a single byte of an answer was read (a replay is safe only if
//! not), and what the endpoint said before it stopped listening. For the second, a failed write on HTTP/1.1 is kept quiet:
//! an endpoint that answers early and closes makes our writes fail while its answer lies ready to be read. The reading side
//! then reports the end, if that is all there is.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// Bytes read from one connection so far.
#[derive(Clone, Debug, Default)]
pub(super) struct BytesRead(Arc<AtomicU64>);

/// What happens when a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedWrites {
    /// It is reported. HTTP/2 must see it: it reads nothing while it cannot write.
    Reported,
    /// Nothing is written any more, and reading goes on.
    Quiet,
}

pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

pub(super) struct Wire {
    transport: Transport,
    read: BytesRead,
    failed_writes: FailedWrites,
    deaf: bool,
}

impl BytesRead {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wire {
    pub(super) fn new(transport: Transport, failed_writes: FailedWrites) -> (Self, BytesRead) {
        let read = BytesRead::default();
        (Self { transport, read: read.clone(), failed_writes, deaf: false }, read)
    }

    fn unless_failed<T>(&mut self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &done
            && self.failed_writes == FailedWrites::Quiet
        {
            tracing::debug!(%error, "an endpoint stopped reading");
            self.deaf = true;
            return Poll::Pending;
        }
        done
    }

    fn write_with(&mut self, write: impl FnOnce(&mut Transport) -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Pending;
        }
        let written = write(&mut self.transport);
        self.unless_failed(written)
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        };
        let bytes = buf.filled().len() - before;
        if bytes > 0 {
            self.read.0.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write_with(|transport| match transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        })
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write_with(|transport| match transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        })
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deaf {
            return Poll::Pending;
        }
        let flushed = match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        };
        self.unless_failed(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
