//! The messages of `envoy.service.ext_proc.v3` as a picker meets them, with the fields that one uses.

use std::{collections::BTreeMap, net::SocketAddr};

use bytes::Bytes;
use prost::{Message, Oneof};

/// Most bytes of a body in one message.
const PIECE_BYTES: usize = 62_000;
const DESTINATION: &str = "x-gateway-destination-endpoint";

#[derive(Clone, PartialEq, Message)]
pub(super) struct ToldPicker {
    #[prost(message, optional, tag = "2")]
    pub(super) request_headers: Option<Headers>,
    #[prost(message, optional, tag = "3")]
    pub(super) response_headers: Option<Headers>,
    #[prost(message, optional, tag = "4")]
    pub(super) request_body: Option<Body>,
    #[prost(message, optional, tag = "8")]
    metadata_context: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Headers {
    #[prost(message, optional, tag = "1")]
    headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    headers: Vec<Header>,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
    #[prost(bytes = "bytes", tag = "3")]
    raw_value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Body {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) body: Bytes,
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, Struct>,
}

#[derive(Clone, PartialEq, Message)]
struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(oneof = "Kind", tags = "3, 5")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Kind {
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(message, tag = "5")]
    Struct(Struct),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Said {
    #[prost(message, optional, tag = "1")]
    request_headers: Option<Response>,
    #[prost(message, optional, tag = "2")]
    response_headers: Option<Response>,
    #[prost(message, optional, tag = "3")]
    request_body: Option<Response>,
    #[prost(message, optional, tag = "7")]
    immediate: Option<Immediate>,
    #[prost(message, optional, tag = "8")]
    dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    response: Option<Common>,
}

#[derive(Clone, PartialEq, Message)]
struct Common {
    #[prost(message, optional, tag = "2")]
    header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    body_mutation: Option<BodyMutation>,
}

#[derive(Clone, PartialEq, Message)]
struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    set_headers: Vec<SetHeader>,
}

#[derive(Clone, PartialEq, Message)]
struct SetHeader {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
struct BodyMutation {
    #[prost(message, optional, tag = "3")]
    streamed: Option<Body>,
}

#[derive(Clone, PartialEq, Message)]
struct Immediate {
    #[prost(message, optional, tag = "1")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
}

impl ToldPicker {
    /// Who served, where that is told.
    pub(super) fn served(&self) -> Option<&str> {
        let fields = &self.metadata_context.as_ref()?.filter_metadata.get("envoy.lb")?.fields;
        match fields.get("x-gateway-destination-endpoint-served")?.kind.as_ref()? {
            Kind::Text(served) => Some(served),
            Kind::Struct(_) => None,
        }
    }
}

impl Headers {
    pub(super) fn pairs(&self) -> Vec<(String, String)> {
        let all = self.headers.iter().flat_map(|map| &map.headers);
        all.map(|header| (header.key.to_lowercase(), String::from_utf8_lossy(&header.raw_value).into_owned())).collect()
    }
}

impl Said {
    /// Where to, in a header and in metadata, and the body as it came.
    pub(super) fn pick(endpoints: &[SocketAddr], body: &[u8]) -> Vec<Self> {
        let text = endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let inside = Struct { fields: [(DESTINATION.into(), Value { kind: Some(Kind::Text(text.clone())) })].into() };
        let outside = Struct { fields: [("envoy.lb".into(), Value { kind: Some(Kind::Struct(inside)) })].into() };
        let head = Self {
            request_headers: Some(sets(DESTINATION, &text)),
            dynamic_metadata: Some(outside),
            ..Self::default()
        };
        let pieces = body.chunks(PIECE_BYTES).collect::<Vec<_>>();
        let count = pieces.len();
        let piece = |(number, piece): (usize, &[u8])| {
            let streamed = Some(Body { body: Bytes::copy_from_slice(piece), end_of_stream: number + 1 == count });
            let common = Common { header_mutation: None, body_mutation: Some(BodyMutation { streamed }) };
            Self { request_body: Some(Response { response: Some(common) }), ..Self::default() }
        };
        std::iter::once(head).chain(pieces.into_iter().enumerate().map(piece)).collect()
    }

    /// A header on the answer.
    pub(super) fn served(name: &str, value: &str) -> Self {
        Self { response_headers: Some(sets(name, value)), ..Self::default() }
    }

    /// 503, by the picker itself.
    pub(super) fn refusal() -> Self {
        Self { immediate: Some(Immediate { status: Some(Status { code: 503 }) }), ..Self::default() }
    }
}

fn sets(name: &str, value: &str) -> Response {
    let raw_value = Bytes::copy_from_slice(value.as_bytes());
    let header = Header { key: name.into(), value: String::new(), raw_value };
    let mutation = HeaderMutation { set_headers: vec![SetHeader { header: Some(header) }] };
    Response { response: Some(Common { header_mutation: Some(mutation), body_mutation: None }) }
}
