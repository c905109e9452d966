//! One connection from accept to close.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hyper::server::conn;
use hyper_util::rt::TokioExecutor;
use tokio::{
    net::TcpStream,
    time::{self, Instant},
};
use tokio_rustls::TlsAcceptor;

use super::{
    Answers, Limits, Refusals, Refused, Sendable,
    activity::Activity,
    discard::Discard,
    http1, http2,
    signal::{Ledger, Level, Listening, Signal},
    tls::{self, Tls},
    wire::{Link, Sock, Spoken, Wire},
};
use crate::cores::OpenConnection;

/// How an HTTP/2 connection begins (RFC 9113 §3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes read at first, while finding out what is spoken.
const FIRST_READ_BYTES: usize = 4 * 1024;

/// How long a handshake that was begun may go on when the listener closes.
const HANDSHAKE_AT_CLOSE_MAX: Duration = Duration::from_secs(1);

/// What all connections of a listener share.
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) refusals: Refusals,
    pub(super) signal: Arc<Signal>,
    pub(super) ledger: Ledger,
    pub(super) http1: conn::http1::Builder,
    pub(super) http2: conn::http2::Builder<TokioExecutor>,
    tls: Arc<Tls>,
}

/// A connection's place in the counts.
pub(super) struct Counted {
    pub(super) shared: Arc<Shared>,
    core: usize,
    _on_core: OpenConnection,
}

/// How a connection's protocol ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All was said; the socket may be dropped.
    Over,
    /// All was said, but the client may still be writing.
    Linger,
}

impl Shared {
    pub(super) fn new(limits: Limits, cores: usize, refusals: Refusals, tls: Arc<Tls>) -> Self {
        Self {
            http1: http1::builder(&limits),
            http2: http2::builder(&limits),
            limits,
            refusals,
            signal: Arc::default(),
            ledger: Ledger::new(cores),
            tls,
        }
    }

    pub(super) fn open_connection(self: &Arc<Self>, core: usize, on_core: OpenConnection) -> Counted {
        self.ledger.connection_opened(core);
        Counted { shared: Arc::clone(self), core, _on_core: on_core }
    }
}

impl Counted {
    pub(super) fn request_opened(&self) {
        self.shared.ledger.request_opened(self.core);
    }

    pub(super) fn request_ended(&self) {
        self.shared.ledger.request_ended(self.core);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.ledger.connection_ended(self.core);
    }
}

pub(super) async fn serve<S, B>(stream: std::net::TcpStream, service: S, counted: Counted)
where
    S: Answers<B>,
    B: Sendable,
{
    let registered = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
    let Ok(socket) = registered.and_then(|socket| socket.set_nodelay(true).map(|()| socket)) else { return };
    let socket = Arc::new(socket);
    let shared = Arc::clone(&counted.shared);
    let activity = Arc::new(Activity::new(counted));
    let mut listening = shared.signal.listen();

    let begun = match shared.tls.acceptor() {
        Some(acceptor) => secured(acceptor, &socket, &activity, &mut listening).await,
        None => in_plain_text(&socket, &shared.limits, &mut listening).await,
    };
    let Some((spoken, link)) = begun else { return };
    let wire = Wire::new(link, Arc::clone(&activity), spoken);
    let end = match spoken {
        Spoken::Http1 => http1::run(wire, &socket, service, &activity, &mut listening).await,
        Spoken::Http2 => http2::run(wire, &socket, service, &activity, &mut listening).await,
    };
    if end == End::Linger {
        let lingering = Discard::new(&shared.limits).linger(&socket, &shared.limits);
        unless(Level::Aborted, &mut listening, lingering).await;
    }
}

/// Finds out what is spoken. `None` if the client left, or the listener closes, before.
async fn in_plain_text(socket: &Arc<TcpStream>, limits: &Limits, listening: &mut Listening) -> Option<(Spoken, Link)> {
    let first = time::timeout(limits.head_timeout, first_bytes(socket));
    let (spoken, first) = unless(Level::Closing, listening, first).await?.ok()??;
    Some((spoken, Link::Plain { socket: Arc::clone(socket), first }))
}

/// Agrees on TLS. `None` if that fails, or the listener closes before anything came.
///
/// Of a client that has begun, the request may be on its way in the same flight as the end of the handshake: when the
/// listener closes, it has a moment left.
async fn secured(
    acceptor: TlsAcceptor,
    socket: &Arc<TcpStream>,
    activity: &Arc<Activity>,
    listening: &mut Listening,
) -> Option<(Spoken, Link)> {
    let shared = &activity.counted.shared;
    let due = Instant::now() + shared.limits.head_timeout;
    let begun = time::timeout_at(due, socket.readable());
    unless(Level::Closing, listening, begun).await?.ok()?.ok()?;
    let sock = Sock::new(Arc::clone(socket), Arc::clone(activity));
    let mut handshake = pin!(time::timeout_at(due, tls::accept(acceptor, sock)));
    let done = match unless(Level::Closing, listening, handshake.as_mut()).await {
        Some(done) => done,
        None => {
            let due = Instant::now() + HANDSHAKE_AT_CLOSE_MAX;
            let mut done = time::timeout_at(due, handshake).await.ok()?;
            if let Ok(Ok(stream)) = &mut done
                && !tls::has_read(stream)
            {
                // Whether bytes came is seen by whoever reads them.
                let _came = time::timeout_at(due, socket.readable()).await;
            }
            done
        }
    };
    match done {
        Ok(Ok(stream)) => Some((tls::spoken(&stream), Link::Tls(stream))),
        Ok(Err(error)) => {
            if !tls::is_gone(&error) {
                (shared.refusals)(Refused::Handshake);
            }
            None
        }
        Err(_) => {
            (shared.refusals)(Refused::HandshakeTimeout);
            None
        }
    }
}

/// Does this unless, or until, the listener asks for an end.
async fn unless<T>(level: Level, listening: &mut Listening, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if listening.poll(cx) >= level {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Reads until it is clear what is spoken. `None` if the client left before.
async fn first_bytes(socket: &TcpStream) -> Option<(Spoken, Bytes)> {
    let mut first = BytesMut::with_capacity(FIRST_READ_BYTES);
    loop {
        socket.readable().await.ok()?;
        match socket.try_read_buf(&mut first) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return None,
        }
        if first.starts_with(HTTP2_PREFACE) {
            return Some((Spoken::Http2, first.freeze()));
        }
        if !HTTP2_PREFACE.starts_with(&first) {
            return Some((Spoken::Http1, first.freeze()));
        }
    }
}

/// Ready once the client has sent the end of its input, whatever lies unread before it.
#[cfg(target_os = "linux")]
pub(super) async fn input_ended(socket: &TcpStream) {
    // tokio's priority interest is satisfied by urgent data, for which a stream does not register, and by the end of input,
    // but not by bytes to read: exactly what is wanted here.
    while let Ok(ready) = socket.ready(tokio::io::Interest::PRIORITY).await {
        if ready.is_read_closed() {
            return;
        }
    }
}

/// Elsewhere the end of input is seen when what lies before it has been read.
#[cfg(not(target_os = "linux"))]
pub(super) async fn input_ended(_: &TcpStream) {
    std::future::pending().await
}
