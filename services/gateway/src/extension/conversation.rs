//! What is said about one request: its head and body to the picker, the pick and what it changes back; later the answer's
//! head, and who gave it.

use std::{net::SocketAddr, time::Duration};

use bytes::{Buf, Bytes};
use http::{HeaderName, Response, StatusCode, request, response};
use protocol::headers::{DESTINATION, DESTINATION_SERVED, is_hop_by_hop};
use proxy::client::Chunks;
use smallvec::SmallVec;
use thiserror::Error;
use tokio::time::timeout;

use super::{
    call::Call,
    edits::{Edits, TooMany, value_of},
    grpc::GrpcError,
    link::{Link, LinkError},
    message::{
        BodyMutation, CONTINUE_AND_REPLACE, CommonResponse, HeaderMap, HeaderValue, HttpBody, HttpHeaders,
        ImmediateResponse, Kind, Metadata, Mutation, ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
        SEND_FULL_DUPLEX, SEND_NONE, Said, Struct, Told, Value,
    },
};

/// Bytes of a body in one message: with its frame below the 64 KiB that peers read at once.
pub(super) const PIECE_BYTES_MAX: usize = 62_000;
/// How long a pick may take. Pickers let requests wait for room, by default up to a minute.
const PICK_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a picker may look at an answer's head, which waits for it meanwhile.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Endpoints of a pick that are looked at.
const ENDPOINTS_MAX: usize = 16;
/// Where picks and who served are said, besides headers.
const NAMESPACE: &str = "envoy.lb";

/// Headers that a client could steer a picker's choice past its rules with.
const STEERING: [&str; 6] = [
    "x-gateway-destination-endpoint",
    "x-gateway-model-name",
    "x-gateway-base-model-name",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
];

/// Why there is no pick.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    /// It cannot be asked.
    #[error("the endpoint picker: {0}")]
    Link(#[from] LinkError),
    /// It failed.
    #[error("the endpoint picker: {0}")]
    Grpc(#[from] GrpcError),
    /// It took too long.
    #[error("the endpoint picker gave no answer within {} s", PICK_TIMEOUT.as_secs())]
    Timeout,
    /// It ended the stream before it picked.
    #[error("the endpoint picker ended without a pick")]
    NoPick,
    /// It says what the protocol does not allow.
    #[error("the endpoint picker: {0}")]
    Broken(&'static str),
    /// It changes too much.
    #[error("the endpoint picker: {0}")]
    TooMany(#[from] TooMany),
}

/// What a picker decided.
pub(super) enum Decided {
    Picked(Box<Picked>),
    /// It answers itself.
    Answered(Response<Bytes>),
}

pub(super) struct Picked {
    /// Best first; of the pool or not.
    pub(super) endpoints: SmallVec<[SocketAddr; 4]>,
    /// What it changes of the request's head.
    pub(super) edits: Edits,
    /// The body in place of the client's.
    pub(super) body: Option<Chunks>,
    pub(super) conversation: Conversation,
}

/// A stream that is open until the answer has ended.
pub struct Conversation(Call);

/// Asks which endpoint a request goes to. `body_bytes_max` bounds a body that the picker puts in place of the client's.
pub(super) async fn ask(
    link: &Link,
    head: &request::Parts,
    body: &Chunks,
    body_bytes_max: u64,
) -> Result<Decided, AskError> {
    let asking = async {
        let mut call = link.call().await?;
        tell_request(&mut call, head, body.clone());
        let mut pending = Pending::new(body, body_bytes_max);
        while !pending.is_complete() {
            let said = call.next().await?.ok_or(AskError::NoPick)?;
            if let Some(answer) = pending.hear(said)? {
                return Ok(Decided::Answered(answer));
            }
        }
        let Pending { endpoints, edits, replaced, .. } = pending;
        let body = replaced.changed.map(Chunks::from);
        Ok(Decided::Picked(Box::new(Picked { endpoints, edits, body, conversation: Conversation(call) })))
    };
    timeout(PICK_TIMEOUT, asking).await.unwrap_or(Err(AskError::Timeout))
}

fn tell_request(call: &mut Call, head: &request::Parts, mut body: Chunks) {
    let pseudo = [
        (":method", head.method.as_str()),
        (":scheme", "http"),
        (":path", head.uri.path_and_query().map_or("/", |path| path.as_str())),
        (":authority", crate::by_hand::host(head).unwrap_or_default()),
    ];
    let headers = head.headers.iter().filter(|(name, _)| **name != http::header::HOST);
    call.tell(&ProcessingRequest {
        told: Some(Told::RequestHeaders(HttpHeaders {
            headers: Some(header_map(&pseudo, headers)),
            end_of_stream: body.is_empty(),
        })),
        metadata_context: None,
        protocol_config: Some(ProtocolConfiguration {
            request_body_mode: SEND_FULL_DUPLEX,
            response_body_mode: SEND_NONE,
        }),
    });
    while let Some(mut chunk) = body.next_chunk() {
        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(PIECE_BYTES_MAX));
            let end_of_stream = chunk.is_empty() && body.is_empty();
            let told = Some(Told::RequestBody(HttpBody { body: piece, end_of_stream }));
            call.tell(&ProcessingRequest { told, ..ProcessingRequest::default() });
        }
    }
}

fn header_map<'a>(
    pseudo: &[(&str, &str)],
    headers: impl Iterator<Item = (&'a HeaderName, &'a http::HeaderValue)>,
) -> HeaderMap {
    let header = |key: &str, value: &[u8]| HeaderValue {
        key: key.to_owned(),
        value: String::new(),
        raw_value: Bytes::copy_from_slice(value),
    };
    let passed = headers.filter(|(name, _)| {
        !is_hop_by_hop(name) && !STEERING.iter().any(|steering| name.as_str().starts_with(steering))
    });
    let pseudo = pseudo.iter().map(|(key, value)| header(key, value.as_bytes()));
    HeaderMap { headers: pseudo.chain(passed.map(|(name, value)| header(name.as_str(), value.as_bytes()))).collect() }
}

/// What has been said so far.
pub(super) struct Pending {
    pub(super) endpoints: SmallVec<[SocketAddr; 4]>,
    pub(super) edits: Edits,
    pub(super) replaced: Replaced,
    heard_head: bool,
    body: BodyIs,
}

/// What becomes of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyIs {
    /// Not yet known.
    Awaited,
    /// Being streamed.
    Coming,
    /// All there, or as the client sent it.
    Settled,
}

impl Pending {
    pub(super) fn new(body: &Chunks, bytes_max: u64) -> Self {
        Self {
            endpoints: SmallVec::new(),
            edits: Edits::default(),
            replaced: Replaced::new(body.clone(), bytes_max),
            heard_head: false,
            body: if body.is_empty() { BodyIs::Settled } else { BodyIs::Awaited },
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.heard_head && self.body == BodyIs::Settled
    }

    /// Takes in a message; an answer of the picker's own ends everything.
    pub(super) fn hear(&mut self, message: ProcessingResponse) -> Result<Option<Response<Bytes>>, AskError> {
        let ProcessingResponse { said, dynamic_metadata } = message;
        match said {
            Some(Said::RequestHeaders(said)) => {
                self.heard_head = true;
                self.hear_head(said.response.unwrap_or_default(), dynamic_metadata)?;
            }
            Some(Said::RequestBody(said)) => self.hear_body(said.response.unwrap_or_default())?,
            Some(Said::Immediate(answer)) => return Ok(Some(immediate(&answer)?)),
            Some(Said::ResponseHeaders(_)) => return Err(AskError::Broken("it speaks of an answer that there is not")),
            None => {}
        }
        Ok(None)
    }

    fn hear_head(&mut self, said: CommonResponse, metadata: Option<Struct>) -> Result<(), AskError> {
        let mutation = said.header_mutation.unwrap_or_default();
        let set = mutation.set_headers.iter().filter_map(|option| option.header.as_ref());
        // The last one counts, as it would in a request.
        let picked = set.filter(|header| header.key.eq_ignore_ascii_case(DESTINATION.as_str())).last();
        let picked = picked.map(|header| String::from_utf8_lossy(value_of(header)).into_owned());
        let picked = picked.or_else(|| metadata.as_ref().and_then(in_metadata));
        let picked = picked.ok_or(AskError::Broken("it named no endpoint"))?;
        let endpoints = picked.split(',').filter_map(|endpoint| endpoint.trim().parse().ok());
        self.endpoints = endpoints.take(ENDPOINTS_MAX).collect();
        self.edits = Edits::of(&mutation)?;
        if said.status == CONTINUE_AND_REPLACE {
            if let Some(Mutation::Body(body)) = said.body_mutation.and_then(|body| body.mutation) {
                self.replaced.extend(body)?;
            }
            self.replaced.finish();
            self.body = BodyIs::Settled;
        }
        Ok(())
    }

    fn hear_body(&mut self, said: CommonResponse) -> Result<(), AskError> {
        match (said.body_mutation.and_then(|BodyMutation { mutation }| mutation), self.body) {
            // Some picker repeats its last piece.
            (_, BodyIs::Settled) => {}
            (Some(Mutation::Streamed(piece)), _) => {
                self.replaced.extend(piece.body)?;
                self.body = BodyIs::Coming;
                if piece.end_of_stream {
                    self.replaced.finish();
                    self.body = BodyIs::Settled;
                }
            }
            // Nothing changed: the client's body goes on as it is.
            (None, BodyIs::Awaited) => self.body = BodyIs::Settled,
            (None, BodyIs::Coming) => return Err(AskError::Broken("it left a piece of the body out")),
            (Some(Mutation::Body(_) | Mutation::Clear(_)), _) => {
                return Err(AskError::Broken("it changes the body in a way that does not fit full duplex"));
            }
        }
        Ok(())
    }
}

/// The body that a picker sends back, kept only from where it differs: most send back what they got.
pub(super) struct Replaced {
    original: Chunks,
    rest: Bytes,
    same_bytes: u64,
    bytes: u64,
    bytes_max: u64,
    whole: Chunks,
    /// Set from the first difference on.
    pub(super) changed: Option<Vec<Bytes>>,
}

impl Replaced {
    fn new(original: Chunks, bytes_max: u64) -> Self {
        let whole = original.clone();
        Self { original, rest: Bytes::new(), same_bytes: 0, bytes: 0, bytes_max, whole, changed: None }
    }

    fn extend(&mut self, mut piece: Bytes) -> Result<(), AskError> {
        self.bytes += piece.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(AskError::Broken("it makes the body larger than a body may be"));
        }
        if let Some(changed) = &mut self.changed {
            changed.push(piece);
            return Ok(());
        }
        while !piece.is_empty() {
            if self.rest.is_empty() {
                self.rest = self.original.next_chunk().unwrap_or_default();
            }
            let both = self.rest.len().min(piece.len());
            if both == 0 || self.rest[..both] != piece[..both] {
                let mut changed = self.unchanged();
                changed.push(piece);
                self.changed = Some(changed);
                return Ok(());
            }
            self.rest.advance(both);
            piece.advance(both);
            self.same_bytes += both as u64;
        }
        Ok(())
    }

    /// It ends here: if the original goes on, that is a change, too.
    fn finish(&mut self) {
        if self.changed.is_none() && self.same_bytes < self.whole.len_bytes() {
            self.changed = Some(self.unchanged());
        }
    }

    /// The bytes of the original that came back.
    fn unchanged(&self) -> Vec<Bytes> {
        let (mut whole, mut left, mut same) = (self.whole.clone(), self.same_bytes, Vec::new());
        while left > 0
            && let Some(mut chunk) = whole.next_chunk()
        {
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= chunk.len() as u64;
            same.push(chunk);
        }
        same
    }
}

fn in_metadata(metadata: &Struct) -> Option<String> {
    let Some(Kind::Struct(inside)) = &metadata.fields.get(NAMESPACE)?.kind else { return None };
    match &inside.fields.get(DESTINATION.as_str())?.kind {
        Some(Kind::Text(text)) => Some(text.clone()),
        Some(Kind::List(list)) => {
            let texts = list.values.iter().filter_map(|value| match &value.kind {
                Some(Kind::Text(text)) => Some(text.as_str()),
                Some(Kind::Struct(_) | Kind::List(_)) | None => None,
            });
            Some(texts.collect::<Vec<_>>().join(","))
        }
        Some(Kind::Struct(_)) | None => None,
    }
}

/// The picker's own answer. One without a status that can be sent is a 500, as an absent one is 200 nowhere.
fn immediate(answer: &ImmediateResponse) -> Result<Response<Bytes>, AskError> {
    let code = answer.status.as_ref().and_then(|status| u16::try_from(status.code).ok());
    let status = code.and_then(|code| StatusCode::from_u16(code).ok()).filter(|status| status.as_u16() >= 200);
    let mut response = Response::new(answer.body.clone());
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(headers) = &answer.headers {
        Edits::of(headers)?.change(response.headers_mut());
    }
    response.headers_mut().insert(http::header::CONTENT_LENGTH, answer.body.len().into());
    Ok(response)
}

impl Conversation {
    /// Tells the picker which endpoint served and what the answer's head is, and changes the head as it wishes. An answer
    /// is never thrown away for what goes wrong here.
    pub(crate) async fn answered(&mut self, head: &mut response::Parts, served: SocketAddr) {
        let place = Struct {
            fields: [(DESTINATION_SERVED.to_string(), Value { kind: Some(Kind::Text(served.to_string())) })].into(),
        };
        let status = head.status.as_str().to_owned();
        self.0.tell(&ProcessingRequest {
            told: Some(Told::ResponseHeaders(HttpHeaders {
                headers: Some(header_map(&[(":status", &status)], head.headers.iter())),
                end_of_stream: false,
            })),
            metadata_context: Some(Metadata { filter_metadata: [(NAMESPACE.to_owned(), place)].into() }),
            protocol_config: None,
        });
        let heard = async {
            loop {
                match self.0.next().await {
                    Ok(Some(ProcessingResponse { said: Some(Said::ResponseHeaders(said)), .. })) => {
                        let mutation = said.response.and_then(|response| response.header_mutation).unwrap_or_default();
                        return Edits::of(&mutation).map_err(|error| error.to_string());
                    }
                    // Of the request, late.
                    Ok(Some(_)) => {}
                    // It wanted no more than to pick.
                    Ok(None) => return Ok(Edits::default()),
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        match timeout(ANSWER_TIMEOUT, heard).await {
            Ok(Ok(edits)) => edits.change(&mut head.headers),
            Ok(Err(error)) => tracing::debug!(error, "an endpoint picker failed when it was told of an answer"),
            Err(_) => tracing::debug!("an endpoint picker said nothing when it was told of an answer"),
        }
    }
}
