//! Listeners, which come and go: the acceptor of each hands a connection to the core with the fewest open ones, where it stays.
//!
//! HTTP/1.1 and HTTP/2 with prior knowledge are told apart by their first bytes, on the same port; over TLS, see [`tls`], by
//! what was agreed on. hyper reads and writes
//! the messages; this module adds what it leaves to others: separate limits for a slow head, a silent body, an idle
//! connection and a reader that stopped; answers that can be read although the request was not; a client's leaving being
//! noticed whatever lies unread before it; and a drain in which nobody is cut off who could be served.
//!
//! **A client is gone** at the end of input of its HTTP/1.1 connection, also a half-close, or at an RST_STREAM, before its
//! answer is complete: the service's future and the answer's body are dropped at once. END_STREAM is not that.
//!
//! It refuses to route, to log, and to invent error texts: see [`Refusals`].

mod acceptor;
mod activity;
mod answering;
mod connection;
mod discard;
mod drain;
mod http1;
mod http2;
mod request_body;
mod serving;
mod signal;
pub mod tls;
mod wire;

use std::{convert::Infallible, error::Error as StdError, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use tower::Service;

pub use self::{
    drain::{Drain, Phase},
    request_body::{RequestBody, RequestBodyError},
    serving::{AddError, Drained, LISTENERS_MAX, Listener, Scheme, Serving, start},
};

/// What listeners allow their clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the accept, or from the first byte of a later request, to the end of its head.
    pub head_timeout: Duration,
    /// Longest silence inside a request's body while somebody wants to read it.
    pub body_idle: Duration,
    /// How long a connection may stay open between requests.
    pub idle: Duration,
    /// How long a client may leave bytes of its answer unread before its connection is closed (HTTP/1.1).
    pub write_stall: Duration,
    /// Largest head, request line included, in bytes. At least 8 KiB.
    pub head_bytes_max: usize,
    /// Most header lines. Other than 100, each head costs an allocation of its own.
    pub headers_max: usize,
    /// Most open streams of one HTTP/2 connection.
    pub h2_streams_max: u32,
    /// Most open connections of all listeners together; a further one is closed at once.
    pub connections_max: usize,
    /// How long a request that was answered early is still read and discarded, so that its sender gets to read the answer.
    pub linger: Duration,
    /// How many of its bytes at most.
    pub linger_bytes_max: u64,
}

impl Default for Limits {
    /// The gateway's documented defaults; `write_stall` and the header count as nginx and Envoy have them, and lingering
    /// enough for twice the largest body a configuration may allow.
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(15),
            body_idle: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            write_stall: Duration::from_secs(60),
            head_bytes_max: 64 * 1024,
            headers_max: 100,
            h2_streams_max: 256,
            connections_max: 65_536,
            linger: Duration::from_secs(30),
            linger_bytes_max: 512 * 1024 * 1024,
        }
    }
}

/// What was refused before any service saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// Not HTTP, or framed so that two readers could disagree about where it ends.
    BadRequest,
    /// Over the limits of a head. (Over HTTP/2 the size is refused below us, with 431 and without this report.)
    HeadTooLarge,
    /// The request line alone is over the limit.
    UriTooLong,
    /// The head did not arrive in time.
    HeadTimeout,
    /// Over `connections_max`, or the process has no file descriptor left; nothing is answered.
    NoConnection,
    /// No TLS was agreed on: no request, and TLS has told the client what it can.
    Handshake,
    /// A handshake was begun and not ended in time; nothing is answered.
    HandshakeTimeout,
}

impl Refused {
    /// What the client is told, if anything.
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::BadRequest => Some(StatusCode::BAD_REQUEST),
            Self::HeadTooLarge => Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Self::UriTooLong => Some(StatusCode::URI_TOO_LONG),
            Self::HeadTimeout => Some(StatusCode::REQUEST_TIMEOUT),
            Self::NoConnection | Self::Handshake | Self::HandshakeTimeout => None,
        }
    }
}

/// The answer to what was refused, but for its status and framing; empty by default.
#[derive(Clone, Debug, Default)]
pub struct Refusal {
    /// What the body is, and what else the client should know.
    pub headers: HeaderMap,
    /// The text.
    pub body: Bytes,
}

/// Called once for each refusal: counts it, and says what to answer.
pub type Refusals = Arc<dyn Fn(Refused) -> Refusal + Send + Sync>;

/// A service that answers on connections: one clone per request.
pub trait Answers<B>:
    Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<S, B> Answers<B> for S where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

/// An answer's body.
pub trait Sendable: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static {}

impl<B> Sendable for B where B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static {}
