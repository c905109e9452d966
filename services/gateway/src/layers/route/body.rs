//! One bounded read of a request's body, with its head read on the way.

use bytes::Bytes;
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::BodyExt;
use protocol::{Api, Head, Reason, head, multipart, path::BodyShape};
use proxy::{client::Chunks, serve::RequestBodyError};

use super::is_multipart;
use crate::{
    body_memory::{BodyMemory, Held},
    decode::{Coding, Decoder},
    errors::chain,
    rejection::Rejection,
    stage::Request,
};

/// Bytes a core reads before it lets others have a turn: at 1 GB/s a quarter of a millisecond.
const TURN_BYTES: usize = 256 * 1024;

/// What nobody reads who left in the middle of a request.
pub(crate) const GONE: &str = "the client left before its request was complete";

/// A body that is there.
pub(super) struct ReadBody {
    /// All of it, decoded.
    pub(super) body: Chunks,
    /// Pays for it.
    pub(super) held: Held,
    /// What it says; nothing where there is no body to read.
    pub(super) head: Option<Head>,
}

/// Reads the body of `request`.
pub(super) async fn read(api: Api, request: &mut Request) -> Result<ReadBody, Rejection> {
    let coding = Coding::of(&request.head.headers)
        .map_err(|error| Rejection::new(Reason::UnsupportedEncoding, error.to_string()))?;
    refuse_ambiguous_type(&request.head.headers)?;
    let limit_bytes = request.routes.body_bytes_max;
    if declared_bytes(&request.head.headers).is_some_and(|declared| declared > limit_bytes) {
        return Err(too_large(limit_bytes));
    }
    let mut reading = Reading::new(reader(api, request)?, request, limit_bytes);
    let sent = reading.receive(request, coding == Coding::Identity).await?;
    if coding != Coding::Identity {
        reading.decode(coding, sent).await?;
        request.head.headers.remove(CONTENT_ENCODING);
    }
    reading.finish()
}

/// Reads a body to be forwarded as it is, whatever it holds: what cannot be understood is the endpoint's to judge.
pub(super) async fn read_as_it_is(api: Api, request: &mut Request, limit_bytes: u64) -> Result<ReadBody, Rejection> {
    let reader = reader(api, request).unwrap_or(Reader::None);
    let mut reading = Reading { faults: Faults::AreTheEndpoints, ..Reading::new(reader, request, limit_bytes) };
    reading.receive(request, true).await?;
    reading.finish()
}

/// Whether this body can be read for what it says: not compressed, and no longer than may be held.
pub(super) fn is_legible(request: &Request) -> bool {
    let headers = &request.head.headers;
    let fits = declared_bytes(headers).is_none_or(|declared| declared <= request.routes.body_bytes_max);
    fits && Coding::of(headers).is_ok_and(|coding| coding == Coding::Identity)
}

/// Whose business it is that a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    /// Ours: it is refused.
    AreRefused,
    /// The endpoint's: it goes on.
    AreTheEndpoints,
}

struct Reading {
    reader: Reader,
    faults: Faults,
    limit_bytes: u64,
    kept_bytes: u64,
    kept: Vec<Bytes>,
    held: Held,
}

enum Reader {
    Json(head::Reader),
    Multipart(multipart::Reader),
    /// A path the operator added may be asked without a body.
    Unlabelled {
        api: Api,
    },
    None,
}

impl Reading {
    fn new(reader: Reader, request: &Request, limit_bytes: u64) -> Self {
        let held = BodyMemory::account(&request.body_memory);
        Self { reader, faults: Faults::AreRefused, limit_bytes, kept_bytes: 0, kept: Vec::new(), held }
    }

    /// Takes the body as it arrives. An identity body is read on the way; a compressed one is given back whole.
    async fn receive(&mut self, request: &mut Request, identity: bool) -> Result<Vec<Bytes>, Rejection> {
        let (mut compressed, mut turn_bytes) = (Vec::new(), 0);
        while let Some(frame) = request.body.frame().await {
            // Trailers of a request say nothing to an engine.
            let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            request.record.bytes_in += data.len() as u64;
            if request.record.bytes_in > self.limit_bytes {
                return Err(too_large(self.limit_bytes));
            }
            turn_bytes += data.len();
            if identity {
                self.keep(data)?;
            } else {
                self.pay(data.len())?;
                compressed.push(data);
            }
            if turn_bytes >= TURN_BYTES {
                turn_bytes = 0;
                tokio::task::yield_now().await;
            }
        }
        Ok(compressed)
    }

    async fn decode(&mut self, coding: Coding, sent: Vec<Bytes>) -> Result<(), Rejection> {
        let mut decoder = Decoder::new(coding, sent).map_err(invalid)?;
        let mut turn_bytes = 0;
        loop {
            let piece = decoder.next_piece().map_err(invalid)?;
            if piece.is_empty() {
                return Ok(());
            }
            turn_bytes += piece.len();
            self.keep(piece)?;
            if turn_bytes >= TURN_BYTES {
                turn_bytes = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    fn keep(&mut self, data: Bytes) -> Result<(), Rejection> {
        if data.is_empty() {
            return Ok(());
        }
        self.kept_bytes += data.len() as u64;
        if self.kept_bytes > self.limit_bytes {
            return Err(too_large(self.limit_bytes));
        }
        self.pay(data.len())?;
        if let Reader::Unlabelled { api } = self.reader {
            self.reader = Reader::Json(head::Reader::new(api));
        }
        let fed = match &mut self.reader {
            Reader::Json(reader) => reader.feed(&data).map_err(invalid),
            Reader::Multipart(reader) => reader.feed(&data).map_err(invalid),
            Reader::Unlabelled { .. } | Reader::None => Ok(()),
        };
        match (fed, self.faults) {
            (Ok(()), _) => {}
            (Err(fault), Faults::AreRefused) => return Err(fault),
            (Err(_), Faults::AreTheEndpoints) => self.reader = Reader::None,
        }
        self.kept.push(data);
        Ok(())
    }

    fn pay(&mut self, bytes: usize) -> Result<(), Rejection> {
        let message = "the gateway holds as many request bodies as it may: try again in a moment";
        self.held.take(bytes).map_err(|_| Rejection::new(Reason::BodyMemory, message))
    }

    fn finish(self) -> Result<ReadBody, Rejection> {
        let head = match self.reader {
            Reader::Json(reader) => Some(reader.finish().map_err(invalid)),
            Reader::Multipart(reader) => Some(reader.finish().map_err(invalid)),
            Reader::Unlabelled { .. } | Reader::None => None,
        };
        let head = match self.faults {
            Faults::AreRefused => head.transpose()?,
            Faults::AreTheEndpoints => head.and_then(Result::ok),
        };
        Ok(ReadBody { body: Chunks::from(self.kept), held: self.held, head })
    }
}

fn reader(api: Api, request: &Request) -> Result<Reader, Rejection> {
    let content_type = request.head.headers.get(CONTENT_TYPE);
    let shape = api.body();
    Ok(match shape {
        _ if is_multipart(shape, content_type) => {
            let value = content_type.map(|value| value.to_str().unwrap_or_default()).unwrap_or_default();
            Reader::Multipart(multipart::Reader::new(value).map_err(invalid)?)
        }
        BodyShape::Json | BodyShape::JsonOrMultipart | BodyShape::Multipart => Reader::Json(head::Reader::new(api)),
        BodyShape::Any => Reader::Unlabelled { api },
        BodyShape::None => Reader::None,
    })
}

fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// An engine may believe a label that says UTF-16, or the other one of two labels, and then read another text than the
/// gateway did.
fn refuse_ambiguous_type(headers: &HeaderMap) -> Result<(), Rejection> {
    let mut labels = headers.get_all(CONTENT_TYPE).iter().map(|value| value.as_bytes().to_ascii_lowercase());
    let Some(label) = labels.next() else { return Ok(()) };
    if labels.next().is_some() {
        let message = "the content type is given twice: send it once, since servers differ in which one they take";
        return Err(Rejection::new(Reason::InvalidRequest, message));
    }
    let charset = label.split(|byte| *byte == b';').find_map(|part| part.trim_ascii().strip_prefix(b"charset="));
    match charset.map(|name| name.trim_ascii().trim_ascii_start().strip_prefix(b"\"").unwrap_or(name)) {
        Some(name) if !name.starts_with(b"utf-8") && !name.starts_with(b"utf8") && !name.starts_with(b"us-ascii") => {
            Err(Rejection::new(Reason::UnsupportedEncoding, "this charset is not supported: send the body as UTF-8"))
        }
        Some(_) | None => Ok(()),
    }
}

fn too_large(limit_bytes: u64) -> Rejection {
    let message = format!(
        "the request body is larger than {limit_bytes} bytes (bbr.maxRequestBodyBytes): send less, or have the operator \
         raise it"
    );
    Rejection::new(Reason::BodyTooLarge, message)
}

fn invalid(error: impl std::fmt::Display) -> Rejection {
    Rejection::new(Reason::InvalidRequest, error.to_string())
}

pub(crate) fn broken(error: &RequestBodyError) -> Rejection {
    match error {
        RequestBodyError::Idle => Rejection::new(
            Reason::RequestTimeout,
            "nothing came of the request body for too long: send it without long pauses",
        ),
        // A body that is cut is a client that left; hyper calls only that an incomplete message.
        RequestBodyError::Broke(error) if error.is_parse() || error.is_user() => {
            let message = "the request body's framing is broken: check its length or its chunks";
            Rejection::new(Reason::InvalidRequest, message).detail(chain(error))
        }
        RequestBodyError::Broke(error) => Rejection::new(Reason::ClientGone, GONE).detail(chain(error)),
    }
}
