use std::net::SocketAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap as Headers, Request, Response, StatusCode};
use proptest::{prelude::*, proptest};
use prost::Message;
use proxy::client::Chunks;
use tokio::{net::TcpListener, sync::mpsc};

use super::{
    conversation::{AskError, Decided, PIECE_BYTES_MAX, Pending, ask},
    edits::Edits,
    message::*,
    *,
};

const DESTINATION: &str = "x-gateway-destination-endpoint";

fn option(key: &str, value: &str, append_action: i32) -> HeaderValueOption {
    let header =
        HeaderValue { key: key.into(), value: String::new(), raw_value: Bytes::copy_from_slice(value.as_bytes()) };
    HeaderValueOption { header: Some(header), append: None, append_action }
}

fn picks(endpoints: &str, further: &[HeaderValueOption]) -> ProcessingResponse {
    let set_headers = [&[option(DESTINATION, endpoints, 0)], further].concat();
    let header_mutation = Some(HeaderMutation { set_headers, remove_headers: vec!["x-gone".into()] });
    let response = Some(CommonResponse { header_mutation, ..CommonResponse::default() });
    let said = Some(Said::RequestHeaders(HeadersResponse { response }));
    ProcessingResponse { said, dynamic_metadata: None }
}

fn body(mutation: Option<Mutation>) -> ProcessingResponse {
    let body_mutation = mutation.map(|mutation| BodyMutation { mutation: Some(mutation) });
    let response = Some(CommonResponse { body_mutation, ..CommonResponse::default() });
    ProcessingResponse { said: Some(Said::RequestBody(BodyResponse { response })), dynamic_metadata: None }
}

fn piece(text: &[u8], end_of_stream: bool) -> ProcessingResponse {
    body(Some(Mutation::Streamed(StreamedBodyResponse { body: Bytes::copy_from_slice(text), end_of_stream })))
}

fn joined(mut chunks: Chunks) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(chunk) = chunks.next_chunk() {
        all.extend_from_slice(&chunk);
    }
    all
}

fn hear(pending: &mut Pending, messages: impl IntoIterator<Item = ProcessingResponse>) -> Result<(), AskError> {
    messages.into_iter().try_for_each(|message| pending.hear(message).map(|answer| assert!(answer.is_none())))
}

#[test]
fn a_picker_may_answer_in_either_order_and_repeat_its_end() {
    let sent = Chunks::from(vec![Bytes::from_static(b"hello "), Bytes::from_static(b"world")]);
    let pending = || Pending::new(&sent, 100);
    // Pieces acknowledged as they come, the pick at the end: nothing was changed.
    let mut late = pending();
    hear(&mut late, [body(None), picks("10.0.0.1:80", &[])]).unwrap();
    assert!(late.is_complete() && late.replaced.changed.is_none());
    // The pick first, then the body, whose last piece comes twice.
    let mut first = pending();
    hear(&mut first, [picks("10.0.0.1:80", &[]), piece(b"hell", false)]).unwrap();
    assert!(!first.is_complete(), "more of the body is to come");
    hear(&mut first, [piece(b"o there", true), piece(b"o there", true)]).unwrap();
    assert!(first.is_complete());
    assert_eq!(joined(first.replaced.changed.unwrap().into()), b"hello there");
    // Without a body the pick is all.
    let mut bare = Pending::new(&Chunks::empty(), 100);
    hear(&mut bare, [picks("10.0.0.1:80", &[])]).unwrap();
    assert!(bare.is_complete());
}

#[test]
fn what_the_protocol_does_not_allow_is_a_failure_of_the_picker() {
    let sent = Chunks::from(Bytes::from_static(b"hello"));
    let refuses = |messages: Vec<ProcessingResponse>| hear(&mut Pending::new(&sent, 10), messages).is_err();
    assert!(refuses(vec![body(Some(Mutation::Body("other".into())))]));
    assert!(refuses(vec![body(Some(Mutation::Clear(true)))]));
    assert!(refuses(vec![piece(b"he", false), body(None)]), "a piece is left out");
    assert!(refuses(vec![piece(b"hello hello", true)]), "larger than a body may be");
    assert!(!refuses(vec![piece(b"hello", true)]));
    let nowhere =
        ProcessingResponse { said: Some(Said::RequestHeaders(HeadersResponse::default())), dynamic_metadata: None };
    assert!(refuses(vec![nowhere.clone()]), "no endpoint");
    // The metadata alone names it, as text or as a list.
    let list = ListValue { values: vec![Value { kind: Some(Kind::Text("10.0.0.2:81".into())) }] };
    for kind in [Kind::Text("10.0.0.2:81".into()), Kind::List(list)] {
        let inside = Struct { fields: [(DESTINATION.to_owned(), Value { kind: Some(kind) })].into() };
        let outside = Struct { fields: [("envoy.lb".to_owned(), Value { kind: Some(Kind::Struct(inside)) })].into() };
        let mut pending = Pending::new(&sent, 10);
        hear(&mut pending, [ProcessingResponse { dynamic_metadata: Some(outside), ..nowhere.clone() }]).unwrap();
        assert_eq!(pending.endpoints[..], ["10.0.0.2:81".parse().unwrap()]);
    }
}

#[test]
fn endpoints_are_addresses_in_order_and_anything_else_is_left_out() {
    let mut pending = Pending::new(&Chunks::empty(), 10);
    hear(&mut pending, [picks("10.0.0.1:80, [fd00::1]:81,localhost:80,10.0.0.1,evil", &[])]).unwrap();
    let expected: [SocketAddr; 2] = ["10.0.0.1:80".parse().unwrap(), "[fd00::1]:81".parse().unwrap()];
    assert_eq!(pending.endpoints[..], expected);
}

#[test]
fn i07_edits_are_applied_as_they_are_meant_and_never_to_what_is_ours() {
    let mut headers = Headers::new();
    for (name, value) in [("x-there", "old"), ("x-gone", "old"), ("host", "a"), ("content-length", "5")] {
        headers.insert(http::HeaderName::from_static(name), value.parse().unwrap());
    }
    let mutation = HeaderMutation {
        set_headers: vec![
            option("X-There", "new", 0),
            option("x-there", "not", 1),
            option("x-new", "added", 1),
            option("x-absent", "not", 3),
            option("Host", "evil", 2),
            option(":path", "/evil", 2),
            option("content-length", "1", 2),
            option("transfer-encoding", "chunked", 2),
            option(DESTINATION, "10.0.0.1:80", 2),
            option("bad name", "x", 2),
            option("x-bad-value", "a\nb", 2),
            HeaderValueOption { append: Some(BoolValue { value: true }), ..option("x-new", "again", 0) },
        ],
        remove_headers: vec!["x-gone".into(), "host".into()],
    };
    Edits::of(&mutation).unwrap().change(&mut headers);
    let mut found: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    found.sort_unstable();
    let expected = [("content-length", "5"), ("host", "a"), ("x-new", "added"), ("x-new", "again"), ("x-there", "new")];
    assert_eq!(found, expected);
    let many = HeaderMutation { set_headers: vec![option("a", "b", 0); 257], remove_headers: Vec::new() };
    assert!(Edits::of(&many).is_err());
    let large = HeaderMutation { set_headers: vec![option("a", &"b".repeat(70_000), 0)], remove_headers: Vec::new() };
    assert!(Edits::of(&large).is_err());
}

proptest! {
    /// However a body is cut on its way there and back, what goes on is what the picker sent, and what came back
    /// unchanged costs no memory.
    #[test]
    fn the_body_that_goes_on_is_the_pickers(
        sent in prop::collection::vec("[ab]{0,4}", 0..5),
        back in prop::collection::vec("[ab]{0,4}", 1..5),
    ) {
        let original: Vec<Bytes> = sent.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
        let chunks = Chunks::from(original);
        prop_assume!(!chunks.is_empty());
        let mut pending = Pending::new(&chunks, 1_000);
        for (index, text) in back.iter().enumerate() {
            hear(&mut pending, [piece(text.as_bytes(), index + 1 == back.len())]).unwrap();
        }
        let (sent, back) = (sent.concat(), back.concat());
        match pending.replaced.changed {
            None => prop_assert_eq!(sent, back),
            Some(changed) => {
                prop_assert_eq!(joined(changed.into()), back.as_bytes());
                prop_assert_ne!(sent, back);
            }
        }
    }
}

/// A picker that does what its script says: what it hears goes into the script, what comes out is sent.
struct Scripted {
    address: SocketAddr,
    heard: mpsc::UnboundedReceiver<ProcessingRequest>,
}

/// How a picker ends a stream.
enum Ends {
    Never,
    With(&'static str),
}

impl Scripted {
    /// Speaks HTTP/2 in plain text, which is found out.
    async fn start(says: impl Fn(&ProcessingRequest) -> Vec<ProcessingResponse> + Send + 'static, ends: Ends) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let Ok(mut connection) = h2::server::handshake(tcp).await else { continue };
                let Some(Ok((request, mut respond))) = connection.accept().await else { continue };
                tokio::spawn(async move { while connection.accept().await.is_some() {} });
                assert_eq!(request.uri().path(), "/envoy.service.ext_proc.v3.ExternalProcessor/Process");
                let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut out = respond.send_response(head, false).unwrap();
                if let Ends::With(status) = ends {
                    let trailers = [("grpc-status", status), ("grpc-message", "as told")];
                    let trailers =
                        trailers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
                    out.send_trailers(trailers.collect()).unwrap();
                    continue;
                }
                let (mut stream, mut buffer) = (request.into_body(), BytesMut::new());
                while let Some(Ok(data)) = stream.data().await {
                    stream.flow_control().release_capacity(data.len()).unwrap();
                    buffer.extend_from_slice(&data);
                    while let Some(message) = take(&mut buffer) {
                        for said in says(&message) {
                            out.send_data(super::grpc::frame(&said), false).unwrap();
                        }
                        tell.send(message).unwrap();
                    }
                }
            }
        });
        Self { address, heard }
    }

    fn link(&self) -> Link {
        let link = Link::new();
        link.follow(vec![self.address]);
        link
    }
}

fn take(buffer: &mut BytesMut) -> Option<ProcessingRequest> {
    let length = buffer.get(1..5).map(|mut length| length.get_u32() as usize)?;
    if buffer.len() < 5 + length {
        return None;
    }
    buffer.advance(5);
    Some(ProcessingRequest::decode(buffer.split_to(length)).unwrap())
}

fn request() -> http::request::Parts {
    let request = Request::post("/v1/chat/completions").header("host", "g").header("x-mine", "1");
    let request = request.header("connection", "close").header("X-Gateway-Destination-Endpoint", "127.0.0.1:9999");
    request.body(()).unwrap().into_parts().0
}

#[tokio::test]
async fn a04_a_large_body_goes_in_pieces_with_one_end_and_the_pick_comes_back() {
    let last = |message: &ProcessingRequest| match &message.told {
        Some(Told::RequestBody(body)) if body.end_of_stream => vec![picks("10.0.0.1:80", &[]), self::body(None)],
        _ => Vec::new(),
    };
    let mut picker = Scripted::start(last, Ends::Never).await;
    let link = picker.link();
    let sent = Bytes::from(vec![b'x'; 1_300_000]);
    let decided = ask(&link, &request(), &Chunks::from(sent.clone()), u64::MAX).await.unwrap();
    let Decided::Picked(picked) = decided else { panic!("it picks") };
    assert_eq!(picked.endpoints[..], ["10.0.0.1:80".parse().unwrap()]);
    assert!(picked.body.is_none());
    let head = picker.heard.recv().await.unwrap();
    let Some(Told::RequestHeaders(HttpHeaders { headers: Some(headers), end_of_stream: false })) = head.told else {
        panic!("the head first: {head:?}")
    };
    // One form of each value, and nothing that steers or is of the connection.
    assert!(headers.headers.iter().all(|header| header.value.is_empty()));
    let keys: Vec<_> = headers.headers.iter().map(|header| header.key.as_str()).collect();
    assert_eq!(keys, [":method", ":scheme", ":path", ":authority", "x-mine"]);
    let config = head.protocol_config.unwrap();
    assert_eq!((config.request_body_mode, config.response_body_mode), (SEND_FULL_DUPLEX, SEND_NONE));
    let (mut all, mut ends) = (BytesMut::new(), 0);
    while all.len() < sent.len() {
        let Some(Told::RequestBody(piece)) = picker.heard.recv().await.unwrap().told else { panic!("the body next") };
        assert!(piece.body.len() <= PIECE_BYTES_MAX);
        all.put_slice(&piece.body);
        ends += u32::from(piece.end_of_stream);
    }
    assert!(all == sent && ends == 1);
}

#[tokio::test]
async fn the_answers_head_is_shown_with_who_served_and_may_be_changed() {
    let says = |message: &ProcessingRequest| match &message.told {
        Some(Told::RequestHeaders(_)) => vec![picks("10.0.0.1:80", &[])],
        Some(Told::ResponseHeaders(_)) => {
            let metadata = message.metadata_context.as_ref().unwrap();
            let Some(Kind::Text(served)) =
                &metadata.filter_metadata["envoy.lb"].fields["x-gateway-destination-endpoint-served"].kind
            else {
                panic!("who served")
            };
            let mutation =
                HeaderMutation { set_headers: vec![option("x-served", served, 0)], remove_headers: Vec::new() };
            let response = Some(CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() });
            let said = Some(Said::ResponseHeaders(HeadersResponse { response }));
            vec![ProcessingResponse { said, dynamic_metadata: None }]
        }
        _ => Vec::new(),
    };
    let picker = Scripted::start(says, Ends::Never).await;
    let link = picker.link();
    let Decided::Picked(mut picked) = ask(&link, &request(), &Chunks::empty(), 1).await.unwrap() else {
        panic!("it picks")
    };
    let (mut head, ()) = Response::builder().status(201).body(()).unwrap().into_parts();
    picked.conversation.answered(&mut head, "10.0.0.1:80".parse().unwrap()).await;
    assert_eq!(head.headers["x-served"], "10.0.0.1:80");
}

#[tokio::test]
async fn a_picker_may_answer_itself() {
    let says = |_: &ProcessingRequest| {
        let headers = HeaderMutation { set_headers: vec![option("retry-after", "7", 0)], remove_headers: Vec::new() };
        let answer = ImmediateResponse {
            status: Some(HttpStatus { code: 429 }),
            headers: Some(headers),
            body: Bytes::from_static(b"full"),
        };
        vec![ProcessingResponse { said: Some(Said::Immediate(answer)), dynamic_metadata: None }]
    };
    let picker = Scripted::start(says, Ends::Never).await;
    let Decided::Answered(answer) = ask(&picker.link(), &request(), &Chunks::empty(), 1).await.unwrap() else {
        panic!("it answers")
    };
    assert_eq!((answer.status(), &answer.body()[..]), (StatusCode::TOO_MANY_REQUESTS, &b"full"[..]));
    assert_eq!(
        (&answer.headers()["retry-after"], &answer.headers()["content-length"]),
        (&"7".parse::<http::HeaderValue>().unwrap(), &"4".parse().unwrap())
    );
}

#[tokio::test]
async fn a_picker_that_fails_ends_without_a_pick_or_is_not_there_is_told_apart() {
    let why = async |link: &Link| match ask(link, &request(), &Chunks::empty(), 1).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("there is no pick"),
    };
    let silent = |_: &ProcessingRequest| Vec::new();
    let failing = Scripted::start(silent, Ends::With("13")).await;
    assert_eq!(why(&failing.link()).await, "the endpoint picker: it failed with status 13: as told");
    let ending = Scripted::start(silent, Ends::With("0")).await;
    assert_eq!(why(&ending.link()).await, "the endpoint picker ended without a pick");
    assert_eq!(why(&Link::new()).await, "the endpoint picker: it has no ready endpoint");
    let gone = Link::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    gone.follow(vec![listener.local_addr().unwrap()]);
    drop(listener);
    assert!(why(&gone).await.starts_with("the endpoint picker: cannot connect"));
}
