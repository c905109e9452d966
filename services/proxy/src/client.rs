//! Clients: requests to endpoints, over connections that belong to one core.
//!
//! [`Clients::send`] gives one answer or one [`SendError`], and makes at most one more try by itself, in the two cases where
//! that cannot do a request's work twice unasked: a *reused* connection that closed before one byte of an answer (it was
//! closing while we wrote), and an HTTP/2 stream that its server says it never processed. Whether another endpoint is tried
//! is the caller's decision, for which [`SendError::nothing_sent`] is the fact.
//!
//! Dropping the future of `send`, or an [`AnswerBody`] before its end, closes the HTTP/1.1 connection (or resets the HTTP/2
//! stream) at once: that is how an endpoint learns that nobody waits. An HTTP/1.1 connection is driven by whoever waits for
//! its answer, not by a task of its own, so there is nothing that could linger.
//!
//! It refuses redirects, decoding, proxies from the environment, and upgrades.

mod answer;
mod body;
mod connect;
mod error;
mod http1;
mod http2;
mod link_waker;
mod passing;
mod pool;
mod tls;
mod wire;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderValue, request::Parts};

use self::pool::Pools;
pub use self::{
    answer::{AnswerBody, AnswerError},
    body::Chunks,
    error::{ProtocolFault, SendError, Tried},
    passing::{BodyError, Passing, Payload},
    tls::{TlsClient, TlsError, Verify},
};

/// Largest head of an answer, and largest block of its trailers, in bytes. As large as what clients may send.
pub const ANSWER_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most header lines of an answer. hyper's (and Envoy's) own limit: at more, every head costs an allocation of its own.
pub const ANSWER_HEADERS_MAX: usize = 100;

/// Idle HTTP/1.1 connections kept per core and endpoint; more are closed as their answers end.
pub const IDLE_PER_ENDPOINT_MAX: usize = 128;

/// What speaks at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1; one request at a time and connection.
    Http1,
    /// HTTP/2 with prior knowledge, or by ALPN with TLS; streams of one connection.
    H2c,
}

/// One endpoint as a client needs it.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Names the endpoint in the pools. Never used again for another endpoint.
    pub id: u64,
    /// Where to connect.
    pub address: SocketAddr,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Set for https.
    pub tls: Option<Arc<TlsClient>>,
    /// `Host`, or `:authority`.
    pub authority: HeaderValue,
}

/// Time limits of one request. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first packet to a connection ready for use, TLS included.
    pub connect: Option<Duration>,
    /// From the request being handed to a connection to the answer's head.
    pub first_byte: Option<Duration>,
    /// Longest silence inside an answer's body, while somebody wants to read it.
    pub stream_idle: Option<Duration>,
    /// How long a connection may lie unused and still be used again. Below the 5 s after which uvicorn closes.
    pub idle_pooled: Duration,
}

impl Default for Timeouts {
    /// The gateway's documented defaults.
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(1)),
            first_byte: Some(Duration::from_secs(600)),
            stream_idle: Some(Duration::from_secs(600)),
            idle_pooled: Duration::from_secs(4),
        }
    }
}

/// The connections of one core to all endpoints. Make one per core; clones share it. Use it on that core only: its
/// connections belong to the runtime that opened them.
#[derive(Clone, Default)]
pub struct Clients {
    pools: Arc<Pools>,
}

impl Clients {
    /// No connections yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends one request and waits for the head of its answer.
    ///
    /// `head` has been through [`crate::headers::prepare_request`]; target form, version and framing are set here, and so is
    /// `Host` unless it was set since.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(
        &self,
        to: &Arc<Destination>,
        head: &Parts,
        body: impl Into<Payload>,
        timeouts: &Timeouts,
    ) -> Result<http::Response<AnswerBody>, SendError> {
        let body = body.into();
        match to.protocol {
            Protocol::Http1 => http1::send(&self.pools, to, head, body, timeouts).await,
            // Boxed so that HTTP/1.1, by far the more frequent, does not carry its state around.
            Protocol::H2c => Box::pin(http2::send(&self.pools, to, head, body, timeouts)).await,
        }
    }

    /// An endpoint was removed: closes its idle connections. Those in use close when their answers end.
    pub fn forget(&self, id: u64) {
        self.pools.forget(id);
    }

    /// Idle HTTP/1.1 connections kept for an endpoint on this core, and HTTP/2 connections open to it.
    pub fn pooled(&self, id: u64) -> usize {
        self.pools.pooled(id)
    }
}
