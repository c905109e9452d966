//! The loads: closed loop (as fast as the answers come), open loop (at a rate), paced streams, and requests that are kept
//! waiting.
//!
//! Everything runs on one thread beside the backend's: on a small machine, more threads would only fight the measured
//! process for its cores.

mod closed;
mod http2;
mod open;
mod streams;
mod waiting;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::wire::Reader;

pub use closed::closed;
pub use http2::closed_http2;
pub use open::{Rate, open};
pub use streams::{Streamed, streams, while_streams_are_open};
pub use waiting::while_bodies_wait;

/// Where requests go, and how.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    /// When it speaks TLS.
    pub tls: Option<Tls>,
}

/// Who is trusted, and the name that a certificate must be for.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// # Errors
    /// `name` is neither a DNS name nor an address.
    pub fn to(name: &str, config: Arc<ClientConfig>) -> io::Result<Self> {
        Ok(Self { config, name: ServerName::try_from(name.to_owned()).map_err(io::Error::other)? })
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }
}

/// What one load brought.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whole 200 answers.
    pub answered: u64,
    /// Anything else: other statuses, broken connections, requests that could not be sent.
    pub failed: u64,
    /// From sending (or its due time) to the last byte, in nanoseconds.
    pub latencies_ns: Vec<u64>,
    pub elapsed_s: f64,
}

impl Outcome {
    fn count(&mut self, result: &io::Result<u16>, latency: std::time::Duration) {
        match result {
            Ok(200) => {
                self.answered += 1;
                self.latencies_ns.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
            }
            Ok(_) | Err(_) => self.failed += 1,
        }
    }
}

/// One kept-alive client connection.
pub struct Connection {
    reader: Reader<Box<dyn AsyncRead + Send + Unpin>>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    closes: bool,
}

impl Connection {
    pub async fn open(to: &Target) -> io::Result<Self> {
        let stream = TcpStream::connect(to.address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &to.tls else {
            let (from, writer) = stream.into_split();
            return Ok(Self { reader: Reader::new(Box::new(from)), writer: Box::new(writer), closes: false });
        };
        let stream = TlsConnector::from(Arc::clone(&tls.config)).connect(tls.name.clone(), stream).await?;
        let (from, writer) = tokio::io::split(stream);
        Ok(Self { reader: Reader::new(Box::new(from)), writer: Box::new(writer), closes: false })
    }

    /// Sends a request and reads its answer to the end; returns the status.
    pub async fn exchange(&mut self, request: &Bytes, seen: &mut impl FnMut(&[u8])) -> io::Result<u16> {
        self.writer.write_all(request).await?;
        self.writer.flush().await?;
        let head = self.reader.answer().await?;
        self.reader.body(head.framing, seen).await?;
        self.closes = head.closes;
        Ok(head.status)
    }

    /// Whether another request may be sent.
    pub fn is_open(&self) -> bool {
        !self.closes
    }
}

/// One `GET`, for whoever waits for a subject to be ready: its status and body.
pub fn fetch(to: SocketAddr, path: &str) -> io::Result<(u16, Vec<u8>)> {
    on_this_thread(async {
        let request = Bytes::from(format!("GET {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\r\n"));
        let mut body = Vec::new();
        let mut connection = Connection::open(&to.into()).await?;
        let status = connection.exchange(&request, &mut |piece| body.extend_from_slice(piece)).await?;
        Ok((status, body))
    })?
}

/// One request on a connection of its own, for whoever waits for the first answer: its status.
pub fn once(to: &Target, request: &Bytes) -> io::Result<u16> {
    on_this_thread(async {
        let mut connection = Connection::open(to).await?;
        connection.exchange(request, &mut |_| {}).await
    })?
}

/// A runtime for one load, on the calling thread.
pub(crate) fn on_this_thread<T>(load: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(tokio::task::LocalSet::new().block_on(&runtime, load))
}

#[cfg(test)]
mod tests;
