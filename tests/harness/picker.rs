//! An endpoint picker of another make, in the few words of `ext_proc` that such pickers speak: told of a request, it says
//! where to; told of the answer, it hears who served.
//!
//! It speaks HTTP/2 in plain text, sends bodies back as it got them, in pieces, and does nothing wrong on purpose.

mod message;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::{RecvStream, SendStream, server};
use http::{Request, Response};
use prost::Message as _;
use tokio::{net::TcpListener, net::TcpStream};

use self::message::{Said, ToldPicker};
use crate::http2::Background;

/// On answers: who served, as the gateway told the picker.
pub const SERVED: &str = "x-served-as-told";

/// What a picker knows when it picks.
#[derive(Clone, Debug, Default)]
pub struct PickerAsked {
    /// Names in lower case, those that begin with a colon included.
    pub headers: Vec<(String, String)>,
    /// All of it.
    pub body: Vec<u8>,
}

impl PickerAsked {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A running picker. Dropping it closes its port and breaks its connections.
pub struct Picker {
    /// Where it listens.
    pub address: SocketAddr,
    asked: Arc<AtomicUsize>,
    _runtime: Background,
}

type Picks = dyn Fn(&PickerAsked) -> Vec<SocketAddr> + Send + Sync;

impl Picker {
    /// Listens at an address. `picks` names endpoints, best first; with none the request is refused with 503.
    ///
    /// # Panics
    /// When it cannot listen there.
    pub fn start_at(at: SocketAddr, picks: impl Fn(&PickerAsked) -> Vec<SocketAddr> + Send + Sync + 'static) -> Self {
        let runtime = Background::start();
        let listener = runtime.handle().block_on(TcpListener::bind(at)).expect("the address is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let (counted, picks): (_, Arc<Picks>) = (Arc::clone(&asked), Arc::new(picks));
        runtime.handle().spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(attend(socket, Arc::clone(&picks), Arc::clone(&counted)));
            }
        });
        Self { address, asked, _runtime: runtime }
    }

    /// Requests that it was asked about.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Acquire)
    }
}

async fn attend(socket: TcpStream, picks: Arc<Picks>, counted: Arc<AtomicUsize>) {
    // Whoever tries TLS first is not understood, and comes again.
    let Ok(mut connection) = server::handshake(socket).await else { return };
    while let Some(Ok((request, mut answer))) = connection.accept().await {
        let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a head");
        let Ok(out) = answer.send_response(head, false) else { continue };
        counted.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(talk(request, out, Arc::clone(&picks)));
    }
}

/// One request, from its head to the end of its answer.
async fn talk(request: Request<RecvStream>, mut out: SendStream<Bytes>, picks: Arc<Picks>) {
    let (mut stream, mut buffer) = (request.into_body(), BytesMut::new());
    let mut asked = PickerAsked::default();
    while let Some(Ok(data)) = stream.data().await {
        // A stream that has ended needs no more room.
        let _ = stream.flow_control().release_capacity(data.len());
        buffer.extend_from_slice(&data);
        while let Some(told) = take(&mut buffer) {
            for said in hear(&mut asked, told, &*picks) {
                if out.send_data(framed(&said), false).is_err() {
                    return;
                }
            }
        }
    }
    let ended = http::HeaderMap::from_iter([("grpc-status".parse().expect("a name"), http::HeaderValue::from(0))]);
    // The gateway may be gone by now.
    let _ = out.send_trailers(ended);
}

fn hear(asked: &mut PickerAsked, told: ToldPicker, picks: &Picks) -> Vec<Said> {
    let ended = if let Some(headers) = told.request_headers {
        asked.headers = headers.pairs();
        headers.end_of_stream
    } else if let Some(body) = told.request_body {
        asked.body.extend_from_slice(&body.body);
        body.end_of_stream
    } else if told.response_headers.is_some() {
        return vec![Said::served(SERVED, told.served().unwrap_or_default())];
    } else {
        false
    };
    if !ended {
        return Vec::new();
    }
    let picked = picks(asked);
    if picked.is_empty() { vec![Said::refusal()] } else { Said::pick(&picked, &asked.body) }
}

/// A whole message from the front of what was read: a flag, a length, the message.
fn take(buffer: &mut BytesMut) -> Option<ToldPicker> {
    let length = buffer.get(1..5).map(|mut length| length.get_u32() as usize)?;
    if buffer.len() < 5 + length {
        return None;
    }
    buffer.advance(5);
    ToldPicker::decode(buffer.split_to(length)).ok()
}

fn framed(said: &Said) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(said.encoded_len()).expect("far below 4 GiB"));
    said.encode(&mut bytes).expect("a buffer that grows takes any message");
    bytes.freeze()
}
