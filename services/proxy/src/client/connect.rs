//! One connection to one address, ready for HTTP, within the limit.

use std::{future::Future, io, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{net::TcpStream, time};

use super::{
    Destination, SendError, Timeouts,
    wire::{BytesRead, FailedWrites, Transport, Wire},
};

/// When a silent connection is first asked whether the peer is there, how often after that, and how many times: a host that
/// vanished without a packet is noticed within 75 s, however long a model may think.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;

pub(super) async fn connect(
    to: &Destination,
    timeouts: &Timeouts,
    failed_writes: FailedWrites,
) -> Result<(Wire, BytesRead), SendError> {
    let transport = within(timeouts.connect, open(to)).await?.map_err(SendError::Connect)?;
    Ok(Wire::new(transport, failed_writes))
}

pub(super) async fn within<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Result<T, SendError> {
    match limit {
        Some(limit) => time::timeout(limit, work).await.map_err(|_| SendError::ConnectTimeout),
        None => Ok(work.await),
    }
}

async fn open(to: &Destination) -> io::Result<Transport> {
    let stream = TcpStream::connect(to.address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))?;
    match &to.tls {
        None => Ok(Transport::Plain(stream)),
        Some(tls) => Ok(Transport::Tls(Box::new(tls.handshake(to.protocol, stream).await?))),
    }
}
