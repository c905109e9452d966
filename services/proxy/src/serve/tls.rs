//! TLS at the door: TLS 1.2 and 1.3, HTTP/2 or HTTP/1.1 by ALPN, the certificate chosen by the name the client asks for.
//!
//! What a listener speaks can change while it serves: each new handshake uses what was set last, and connections that are
//! open keep what they agreed on. A handshake is part of the wait for a first head, under the same limit, and no request:
//! one that fails is counted apart.
//!
//! It refuses client certificates, early data (it can be replayed), and to choose between an old and a new certificate:
//! see [`Tls::speak_tls`].

mod certificate;
mod sites;

use std::{
    io::{self, BufRead},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring::{self, Ticketer},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use self::sites::Sites;
pub use self::{
    certificate::{Certificate, CertificateError},
    sites::Site,
};
use super::wire::Spoken;

/// What may be spoken inside, the better first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];
const HTTP2: &[u8] = b"h2";

/// What one listener speaks: plain text, or TLS with certificates. Shared by its acceptor and whoever follows changes.
#[derive(Debug)]
pub struct Tls {
    speaks: ArcSwap<Speaks>,
    sites: Arc<Sites>,
}

#[derive(Debug)]
enum Speaks {
    Plain,
    Tls(Arc<ServerConfig>),
}

impl Tls {
    /// Plain text, until told otherwise.
    pub fn plain() -> Arc<Self> {
        Arc::new(Self { speaks: ArcSwap::from_pointee(Speaks::Plain), sites: Arc::default() })
    }

    /// From now on new connections speak plain text.
    pub fn speak_plain(&self) {
        self.speaks.store(Arc::new(Speaks::Plain));
        self.sites.set(Vec::new());
    }

    /// From now on new connections speak TLS with these certificates; without any, every handshake is refused. Sessions
    /// that began with others can no longer be resumed. Nothing happens when nothing has changed.
    ///
    /// # Errors
    /// The system gives no random numbers for session tickets; then nothing has changed.
    pub fn speak_tls(&self, sites: Vec<Site>) -> Result<(), rustls::Error> {
        if matches!(**self.speaks.load(), Speaks::Tls(_)) && self.sites.are(&sites) {
            return Ok(());
        }
        let config = server_config(Arc::clone(&self.sites))?;
        self.sites.set(sites);
        self.speaks.store(Arc::new(Speaks::Tls(Arc::new(config))));
        Ok(())
    }

    /// How to answer a handshake now, or nothing for plain text.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        match &**self.speaks.load() {
            Speaks::Plain => None,
            Speaks::Tls(config) => Some(TlsAcceptor::from(Arc::clone(config))),
        }
    }
}

fn server_config(sites: Arc<Sites>) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(sites);
    config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
    // Tickets are kept by clients: no memory here.
    config.ticketer = Ticketer::new()?;
    Ok(config)
}

/// What was agreed on. Without ALPN it is HTTP/1.1: HTTP/2 over TLS must be asked for (RFC 9113 §3.2).
pub(super) fn spoken<S>(stream: &TlsStream<S>) -> Spoken {
    if stream.get_ref().1.alpn_protocol() == Some(HTTP2) { Spoken::Http2 } else { Spoken::Http1 }
}

/// Whether some of what is inside has been read already.
pub(super) fn has_read<S>(stream: &mut TlsStream<S>) -> bool {
    stream.get_mut().1.reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty())
}

/// A client that left before its handshake was over, such as a check whether the port is open. Not a fault of anybody.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Answers a handshake. A failed one has told the client why, as far as TLS has words for it.
pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    acceptor: TlsAcceptor,
    socket: S,
) -> io::Result<Box<TlsStream<S>>> {
    acceptor.accept(socket).await.map(Box::new)
}

#[cfg(test)]
mod tests;
