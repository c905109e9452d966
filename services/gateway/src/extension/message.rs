//! The few messages of `envoy.service.ext_proc.v3` that are spoken here, with the fields that are used: what else a peer
//! sends is skipped, as protocol buffers intend.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

/// `BodySendMode.NONE`.
pub(super) const SEND_NONE: i32 = 0;
/// `BodySendMode.FULL_DUPLEX_STREAMED`.
pub(super) const SEND_FULL_DUPLEX: i32 = 4;
/// `CommonResponse.ResponseStatus.CONTINUE_AND_REPLACE`.
pub(super) const CONTINUE_AND_REPLACE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessingRequest {
    #[prost(oneof = "Told", tags = "2, 3, 4")]
    pub(super) told: Option<Told>,
    #[prost(message, optional, tag = "8")]
    pub(super) metadata_context: Option<Metadata>,
    #[prost(message, optional, tag = "11")]
    pub(super) protocol_config: Option<ProtocolConfiguration>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Told {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProtocolConfiguration {
    #[prost(int32, tag = "1")]
    pub(super) request_body_mode: i32,
    #[prost(int32, tag = "2")]
    pub(super) response_body_mode: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(super) headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) body: bytes::Bytes,
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(super) headers: Vec<HeaderValue>,
}

/// Peers refuse one with both values: `raw_value` is what is sent, and read first.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) raw_value: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) filter_metadata: BTreeMap<String, Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(oneof = "Kind", tags = "3, 5, 6")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Kind {
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(ListValue),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub(super) values: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessingResponse {
    #[prost(oneof = "Said", tags = "1, 2, 3, 7")]
    pub(super) said: Option<Said>,
    #[prost(message, optional, tag = "8")]
    pub(super) dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Said {
    #[prost(message, tag = "1")]
    RequestHeaders(HeadersResponse),
    #[prost(message, tag = "2")]
    ResponseHeaders(HeadersResponse),
    #[prost(message, tag = "3")]
    RequestBody(BodyResponse),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeadersResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BodyResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CommonResponse {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub(super) body_mutation: Option<BodyMutation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub(super) set_headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "2")]
    pub(super) remove_headers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<HeaderValue>,
    #[prost(message, optional, tag = "2")]
    pub(super) append: Option<BoolValue>,
    #[prost(int32, tag = "3")]
    pub(super) append_action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BoolValue {
    #[prost(bool, tag = "1")]
    pub(super) value: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BodyMutation {
    #[prost(oneof = "Mutation", tags = "1, 2, 3")]
    pub(super) mutation: Option<Mutation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Mutation {
    #[prost(bytes = "bytes", tag = "1")]
    Body(bytes::Bytes),
    #[prost(bool, tag = "2")]
    Clear(bool),
    #[prost(message, tag = "3")]
    Streamed(StreamedBodyResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StreamedBodyResponse {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) body: bytes::Bytes,
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) headers: Option<HeaderMutation>,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) body: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}
