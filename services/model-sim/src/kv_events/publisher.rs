//! The sockets: PUB for whoever listens, ROUTER for whoever missed something.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqError, ZmqMessage};

use super::buffer::Buffer;

/// Why events are not published.
#[derive(Debug, thiserror::Error)]
pub enum KvEventsError {
    /// Not an address.
    #[error("`{0}` is no address such as tcp://*:5557")]
    Endpoint(String),
    /// The address cannot be listened on or connected to.
    #[error("cannot publish KV events at {endpoint}")]
    Socket {
        /// The address.
        endpoint: String,
        /// What the socket said.
        #[source]
        source: ZmqError,
    },
    /// Only vLLM's form is known here.
    #[error("KV events are published as vLLM does, not by this engine")]
    Face,
}

/// How long a client may take to accept one replayed batch.
const REPLAY_LIMIT: Duration = Duration::from_secs(5);
/// The number behind the last replayed batch.
const END: [u8; 8] = [0xff; 8];

/// Where to bind or connect, for one rank: its port is the rank's number above the first, unless any port will do.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
    binds: bool,
}

impl Address {
    fn parse(endpoint: &str, rank: u32) -> Result<Self, KvEventsError> {
        let wrong = || KvEventsError::Endpoint(endpoint.to_owned());
        let (host, port) = endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wrong)?;
        let first: u16 = port.parse().map_err(|_| wrong())?;
        let rank = u16::try_from(rank).map_err(|_| wrong())?;
        let port = if first == 0 { 0 } else { first.checked_add(rank).ok_or_else(wrong)? };
        // vLLM connects to whatever is no wildcard. Nobody can connect to port 0.
        let wildcard = matches!(host, "*" | "0.0.0.0" | "::" | "[::]");
        let host = if host == "*" { "0.0.0.0" } else { host };
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, binds: wildcard || first == 0 })
    }

    fn text(&self) -> String {
        format!("tcp://{}:{}", self.host, self.port)
    }
}

/// The PUB socket of one rank, and its address.
pub(super) async fn open(endpoint: &str, rank: u32) -> Result<(PubSocket, String), KvEventsError> {
    let address = Address::parse(endpoint, rank)?;
    let mut socket = PubSocket::new();
    if address.binds {
        let bound = bind(&mut socket, &address).await?;
        return Ok((socket, bound));
    }
    let endpoint = address.text();
    match socket.connect(&endpoint).await {
        Ok(()) => Ok((socket, endpoint)),
        Err(source) => Err(KvEventsError::Socket { endpoint, source }),
    }
}

/// The ROUTER socket of one rank, and its address.
pub(super) async fn open_replay(endpoint: &str, rank: u32) -> Result<(RouterSocket, String), KvEventsError> {
    let address = Address::parse(endpoint, rank)?;
    let mut socket = RouterSocket::new();
    let bound = bind(&mut socket, &address).await?;
    Ok((socket, bound))
}

async fn bind(socket: &mut impl Socket, address: &Address) -> Result<String, KvEventsError> {
    let endpoint = address.text();
    let bound = socket.bind(&endpoint).await;
    bound.map(|bound| bound.to_string()).map_err(|source| KvEventsError::Socket { endpoint, source })
}

/// Sends batches for as long as the rank lives. The socket itself drops what a subscriber does not take in time.
pub(super) async fn publish(mut socket: PubSocket, topic: Bytes, mut batches: mpsc::Receiver<(u64, Bytes)>) {
    while let Some((number, payload)) = batches.recv().await {
        let message = message([topic.clone(), number_frame(number), payload]);
        if let Err(error) = socket.send(message).await {
            tracing::debug!(%error, number, "a batch of KV events was not sent");
        }
    }
}

/// Answers with all batches kept from the number asked for on, one message each, and an end mark.
pub(super) async fn replay(mut socket: RouterSocket, topic: Option<Bytes>, buffer: Arc<Buffer>) {
    loop {
        let asked = match socket.recv().await {
            Ok(asked) => asked,
            Err(error) => {
                tracing::debug!(%error, "a replay was not asked for properly");
                tokio::task::yield_now().await;
                continue;
            }
        };
        let Some((client, from)) = question(&asked) else { continue };
        let end = (END, Bytes::new());
        let batches = buffer.since(from).into_iter().map(|(number, batch)| (number.to_be_bytes(), batch));
        for (number, payload) in batches.chain([end]) {
            // The topic of the end mark is empty.
            let topic = topic.as_ref().map(|topic| if number == END { Bytes::new() } else { topic.clone() });
            let head = [client.clone(), Bytes::new()].into_iter().chain(topic);
            let frames = head.chain([Bytes::copy_from_slice(&number), payload]);
            let sent = tokio::time::timeout(REPLAY_LIMIT, socket.send(message(frames))).await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::debug!("a client does not take its replay");
                break;
            }
        }
    }
}

/// Who asks, from which number on: identity, an empty frame, eight bytes.
fn question(asked: &ZmqMessage) -> Option<(Bytes, u64)> {
    let [client, empty, number] = [asked.get(0)?, asked.get(1)?, asked.get(2)?];
    let number = <[u8; 8]>::try_from(number.as_ref()).ok()?;
    (asked.len() == 3 && empty.is_empty()).then(|| (client.clone(), u64::from_be_bytes(number)))
}

fn number_frame(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn message(frames: impl IntoIterator<Item = Bytes>) -> ZmqMessage {
    let frames: Vec<Bytes> = frames.into_iter().collect();
    ZmqMessage::try_from(frames).expect("a message has frames")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_bound_and_others_connected_to() {
        let parse = |endpoint, rank| Address::parse(endpoint, rank).map(|a| (a.text(), a.binds)).map_err(drop);
        assert_eq!(parse("tcp://*:5557", 2), Ok(("tcp://0.0.0.0:5559".to_owned(), true)));
        assert_eq!(parse("tcp://127.0.0.1:0", 2), Ok(("tcp://127.0.0.1:0".to_owned(), true)));
        assert_eq!(parse("tcp://picker:5557", 0), Ok(("tcp://picker:5557".to_owned(), false)));
        for bad in ["", "tcp://", "tcp://:1", "tcp://*", "tcp://*:x", "ipc:///tmp/x", "tcp://*:70000"] {
            assert_eq!(parse(bad, 0), Err(()), "{bad}");
        }
        assert_eq!(parse("tcp://*:65535", 1), Err(()));
    }

    #[test]
    fn questions_that_are_none_are_not_answered() {
        let frames = |frames: &[&'static [u8]]| message(frames.iter().map(|frame| Bytes::from_static(frame)));
        assert_eq!(question(&frames(&[b"me", b"", &[0, 0, 0, 0, 0, 0, 1, 2]])), Some((Bytes::from_static(b"me"), 258)));
        assert_eq!(question(&frames(&[b"me", b"", b"short"])), None);
        assert_eq!(question(&frames(&[b"me", &[0; 8]])), None);
        assert_eq!(question(&frames(&[b"me", b"", &[0; 8], b"more"])), None);
    }
}
