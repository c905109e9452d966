//! Bodies that are sent on while they arrive.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header::HOST};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use proxy::{
    client::{Clients, Destination, Passing, Payload, Protocol, SendError, Timeouts, Tried},
    serve::Limits,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time,
};

use crate::{
    client_http1::{destination, endpoint, head, read_request},
    rig::{Door, Failure, full, soon},
};

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::H2c];

type Piece = Result<Bytes, Failure>;

/// A body of unknown length that a test writes.
struct Fed(UnboundedReceiver<Piece>);

impl Body for Fed {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

fn fed() -> (UnboundedSender<Piece>, Passing) {
    let (feed, body) = unbounded_channel();
    (feed, Passing::new(Fed(body)))
}

/// Answers with the very body that it is being sent, and with what it was told of it.
fn mirror() -> Door {
    Door::open(Limits::default(), |request| async move {
        let (head, body) = request.into_parts();
        let host = head.uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()).unwrap());
        let host = host.or_else(|| head.headers.get(HOST).cloned()).unwrap();
        let length = head.headers.get("content-length").cloned();
        let mut response = Response::new(body.map_err(Into::into).boxed_unsync());
        response.headers_mut().insert("x-host", host);
        response.headers_mut().insert("x-length", length.unwrap_or(HeaderValue::from_static("none")));
        response
    })
}

fn to(door: &Door, protocol: Protocol) -> Arc<Destination> {
    destination(door.address, protocol)
}

#[tokio::test]
async fn a_body_passes_piece_by_piece_while_its_answer_comes_back() {
    let door = mirror();
    for protocol in BOTH {
        for method in [Method::POST, Method::GET] {
            let (feed, passing) = fed();
            let taken = passing.taken_bytes();
            feed.send(Ok(Bytes::from_static(b"one"))).unwrap();
            let mut head = head(method.clone());
            head.headers.insert(HOST, HeaderValue::from_static("kept.example:81"));
            let clients = Clients::new();
            let to = to(&door, protocol);
            let timeouts = Timeouts::default();
            let answer = soon(clients.send(&to, &head, Payload::Passing(passing), &timeouts)).await.unwrap();
            assert_eq!(
                (&answer.headers()["x-host"], &answer.headers()["x-length"]),
                (&HeaderValue::from_static("kept.example:81"), &HeaderValue::from_static("none"))
            );
            let mut body = answer.into_body();
            // An end of its own is an empty piece.
            let mut next = async || {
                let piece = soon(body.frame()).await.map(|frame| frame.unwrap().into_data().unwrap());
                piece.filter(|piece| !piece.is_empty())
            };
            assert_eq!(next().await.unwrap(), "one", "{protocol:?} {method}");
            feed.send(Ok(Bytes::from_static(b"two"))).unwrap();
            assert_eq!(next().await.unwrap(), "two", "{protocol:?} {method}");
            drop(feed);
            assert_eq!(next().await, None);
            assert_eq!(taken.load(Ordering::Relaxed), 6);
            if protocol == Protocol::Http1 {
                assert_eq!(clients.pooled(7), 1, "both messages ended: the connection is used again");
            }
        }
    }
}

#[tokio::test]
async fn a_body_of_known_length_is_sent_with_it() {
    let door = mirror();
    for protocol in BOTH {
        let body = Payload::Passing(Passing::new(full("hello")));
        let sent = Clients::new();
        let answer =
            soon(sent.send(&to(&door, protocol), &head(Method::POST), body, &Timeouts::default())).await.unwrap();
        assert_eq!(answer.headers()["x-length"], "5", "{protocol:?}");
        assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "hello");
    }
}

/// It is not the endpoint's failure, and says so.
#[tokio::test]
async fn a_sender_that_fails_is_named() {
    let door = Door::open(Limits::default(), |request| async move {
        let read = request.into_body().collect().await;
        assert!(read.is_err(), "the endpoint must not take it for a whole body");
        crate::rig::answer(200, "")
    });
    for protocol in BOTH {
        let (feed, passing) = fed();
        feed.send(Ok(Bytes::from_static(b"half"))).unwrap();
        feed.send(Err("unplugged".into())).unwrap();
        let clients = Clients::new();
        let body = Payload::Passing(passing.clone());
        let failed = soon(clients.send(&to(&door, protocol), &head(Method::POST), body, &Timeouts::default())).await;
        assert!(matches!(failed, Err(SendError::RequestBroke)), "{protocol:?}: {failed:?}");
        assert_eq!(passing.take_failure().unwrap().to_string(), "unplugged");
    }
}

/// A slow upload takes as long as it takes: the endpoint's time begins when it has all.
#[tokio::test]
async fn an_endpoints_time_begins_when_the_body_is_there() {
    let timeouts = Timeouts { first_byte: Some(Duration::from_secs(1)), ..Timeouts::default() };
    let door = Door::echo(Limits::default());
    for protocol in BOTH {
        let (feed, passing) = fed();
        tokio::spawn(async move {
            for _ in 0..5 {
                time::sleep(Duration::from_millis(300)).await;
                feed.send(Ok(Bytes::from_static(b"x"))).unwrap();
            }
        });
        let (clients, to) = (Clients::new(), to(&door, protocol));
        let answer = soon(clients.send(&to, &head(Method::POST), Payload::Passing(passing), &timeouts)).await.unwrap();
        assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "xxxxx", "{protocol:?}");
    }
}

/// There is no second copy of what was taken.
#[tokio::test]
async fn c01_what_was_taken_of_a_passing_body_is_not_sent_again() {
    let closing = endpoint(|_, mut socket| async move {
        if read_request(&mut socket).await.is_some() {
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            // Closes in the middle of the second request.
            let mut some = [0; 16];
            let _bytes = socket.read(&mut some).await;
        }
    })
    .await;
    let clients = Clients::new();
    let first = soon(clients.send(&closing.to, &head(Method::GET), Payload::empty(), &Timeouts::default())).await;
    first.unwrap().into_body().collect().await.unwrap();
    let (feed, passing) = fed();
    feed.send(Ok(Bytes::from_static(b"once"))).unwrap();
    let body = Payload::Passing(passing);
    let failed = soon(clients.send(&closing.to, &head(Method::POST), body.clone(), &Timeouts::default())).await;
    let Err(SendError::ClosedBeforeAnswer { tried, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!((tried, body.is_sendable()), (Tried::ReusedAndTaken, false));
    assert_eq!(closing.connections.load(Ordering::SeqCst), 1);
}
