//! The connections to one picker: few, shared by all requests, and made again when they break.
//!
//! Each of its addresses has connections of its own; requests go round the addresses, past those that cannot be reached.
//! TLS is spoken, with any certificate, since pickers make one up when they start; with one that turns out to speak plain
//! text, that is spoken.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request, Version, header::CONTENT_TYPE};
use parking_lot::Mutex;
use proxy::client::{Protocol, TlsClient, Verify};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{interval, timeout},
};

use super::{
    call::Call,
    grpc::{Incoming, Outgoing},
};

/// Where `ext_proc` is served.
const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
/// Streams on one connection at most; a picker may allow fewer.
const STREAMS_MAX: usize = 1_000;
/// Connections to one picker at most, those included that end with their last stream.
const CONNECTIONS_MAX: usize = 16;
/// Addresses tried for one request.
const ADDRESSES_TRIED_MAX: usize = 3;
/// From the first packet to a connection ready for use.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a connection is asked whether its peer is there, and how long it may think about it.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// What the other side may send on one stream before it was read; its messages are small.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// Why no stream was opened.
#[derive(Debug, Error)]
pub(crate) enum LinkError {
    /// Its Service has no ready address.
    #[error("it has no ready endpoint")]
    Nowhere,
    /// As many streams as there may be are open.
    #[error("it has as many requests as it may have")]
    Full,
    /// None could be connected to.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection was lost at once.
    #[error("the connection broke: {0}")]
    Http2(#[from] h2::Error),
}

/// The way to one picker.
pub struct Link {
    addresses: ArcSwap<Vec<SocketAddr>>,
    turn: AtomicUsize,
    open: Mutex<Vec<Arc<Open>>>,
    /// Held while a connection is opened, so that a burst opens one and not a hundred.
    opening: tokio::sync::Mutex<()>,
    speaks_plain: AtomicBool,
    tls: Option<TlsClient>,
}

/// One connection.
pub(super) struct Open {
    to: SocketAddr,
    sender: SendRequest<Bytes>,
    /// Set when no stream can be opened on it any more.
    dead: Arc<AtomicBool>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("addresses", &self.addresses.load()).finish_non_exhaustive()
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

impl Link {
    /// A link to nowhere yet.
    pub fn new() -> Self {
        Self {
            addresses: ArcSwap::default(),
            turn: AtomicUsize::new(0),
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            speaks_plain: AtomicBool::new(false),
            // With nothing to verify this fails only where no TLS is possible at all; then plain text is tried.
            tls: TlsClient::new("endpoint-picker", &Verify::Nothing).ok(),
        }
    }

    /// These are its addresses from now on. Streams to others run on.
    pub fn follow(&self, addresses: Vec<SocketAddr>) {
        self.open.lock().retain(|open| addresses.contains(&open.to));
        self.addresses.store(Arc::new(addresses));
    }

    /// Opens a stream.
    pub(super) async fn call(&self) -> Result<Call, LinkError> {
        let addresses = self.addresses.load_full();
        if addresses.is_empty() {
            return Err(LinkError::Nowhere);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut failed = LinkError::Nowhere;
        for step in 0..addresses.len().min(ADDRESSES_TRIED_MAX) {
            match self.connection(addresses[(turn.wrapping_add(step)) % addresses.len()]).await {
                Ok(open) => match stream(&open).await {
                    Ok(call) => return Ok(call),
                    Err(error) => {
                        open.dead.store(true, Ordering::Relaxed);
                        failed = error.into();
                    }
                },
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn connection(&self, to: SocketAddr) -> Result<Arc<Open>, LinkError> {
        if let Some(open) = self.with_room(to) {
            return Ok(open);
        }
        let _opening = self.opening.lock().await;
        // Whoever held it may have opened one.
        if let Some(open) = self.with_room(to) {
            return Ok(open);
        }
        if self.open.lock().len() >= CONNECTIONS_MAX {
            return Err(LinkError::Full);
        }
        let open = timeout(CONNECT_TIMEOUT, self.connect(to)).await;
        let open = Arc::new(open.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(LinkError::Connect)?);
        self.open.lock().push(Arc::clone(&open));
        Ok(open)
    }

    fn with_room(&self, to: SocketAddr) -> Option<Arc<Open>> {
        let mut open = self.open.lock();
        open.retain(|open| !open.dead.load(Ordering::Relaxed));
        open.iter().find(|open| open.to == to && open.has_room()).cloned()
    }

    async fn connect(&self, to: SocketAddr) -> io::Result<Open> {
        let tcp = async {
            let stream = TcpStream::connect(to).await?;
            stream.set_nodelay(true)?;
            io::Result::Ok(stream)
        };
        let Some(tls) = self.tls.as_ref().filter(|_| !self.speaks_plain.load(Ordering::Relaxed)) else {
            return handshake(to, tcp.await?).await;
        };
        match tls.handshake(Protocol::H2c, tcp.await?).await {
            Ok(stream) => handshake(to, stream).await,
            // What answered a hello is no TLS.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let stream = TcpStream::connect(to).await?;
                stream.set_nodelay(true)?;
                let open = handshake(to, stream).await?;
                self.speaks_plain.store(true, Ordering::Relaxed);
                Ok(open)
            }
            Err(error) => Err(error),
        }
    }
}

impl Open {
    /// The stream's own share in it is one count; the list's another.
    fn has_room(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) <= STREAMS_MAX.min(self.sender.current_max_send_streams())
    }
}

async fn handshake<T>(to: SocketAddr, io: T) -> io::Result<Open>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES * 4).enable_push(false);
    let (sender, mut connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    let dead = Arc::new(AtomicBool::new(false));
    let pings = connection.ping_pong();
    let ended = Arc::clone(&dead);
    tokio::spawn(async move {
        tokio::select! {
            // An error shows at each stream, too.
            _ended = connection => {}
            () = silent(pings) => {}
        }
        ended.store(true, Ordering::Relaxed);
    });
    Ok(Open { to, sender, dead })
}

/// Returns when the peer no longer answers.
async fn silent(pings: Option<h2::PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    let mut due = interval(PING_EVERY);
    loop {
        due.tick().await;
        if !matches!(timeout(PING_TIMEOUT, pings.ping(h2::Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

async fn stream(open: &Arc<Open>) -> Result<Call, h2::Error> {
    let mut sender = open.sender.clone().ready().await?;
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    let authority = open.to;
    *request.uri_mut() = format!("http://{authority}{PROCESS}").parse().expect("an address and a path make a URL");
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
    headers.insert(http::header::TE, http::HeaderValue::from_static("trailers"));
    let (response, body) = sender.send_request(request, false)?;
    Ok(Call::new(Outgoing::new(body), Incoming::new(response), Arc::clone(open)))
}
