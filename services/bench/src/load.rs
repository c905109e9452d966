//! The three loads: closed loop (as fast as the answers come), open loop (at a rate), and paced streams.
//!
//! Everything runs on one thread beside the backend's: on a small machine, more threads would only fight the measured
//! process for its cores.

mod closed;
mod open;
mod streams;

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::wire::Reader;

pub use closed::closed;
pub use open::{Rate, open};
pub use streams::{Streamed, streams};

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
#[derive(Debug)]
pub struct Connection {
    reader: Reader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    closes: bool,
}

impl Connection {
    pub async fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let (from, writer) = stream.into_split();
        Ok(Self { reader: Reader::new(from), writer, closes: false })
    }

    /// Sends a request and reads its answer to the end; returns the status.
    pub async fn exchange(&mut self, request: &Bytes, seen: &mut impl FnMut(&[u8])) -> io::Result<u16> {
        self.writer.write_all(request).await?;
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
        let mut connection = Connection::open(to).await?;
        let status = connection.exchange(&request, &mut |piece| body.extend_from_slice(piece)).await?;
        Ok((status, body))
    })?
}

/// A runtime for one load, on the calling thread.
fn on_this_thread<T>(load: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(tokio::task::LocalSet::new().block_on(&runtime, load))
}

#[cfg(test)]
mod tests;
