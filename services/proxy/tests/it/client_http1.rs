//! Requests to HTTP/1.1 endpoints that close, stall, lie and die.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, request::Parts};
use http_body::Body;
use http_body_util::BodyExt;
use proxy::{
    client::{AnswerError, Chunks, Clients, Destination, Protocol, ProtocolFault, SendError, Timeouts, Tried},
    headers,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time,
};

use crate::rig::{AT_ONCE, soon};

/// An endpoint that plays one script per connection; requests it read come out of `seen`.
pub(crate) struct Endpoint {
    pub(crate) to: Arc<Destination>,
    pub(crate) connections: Arc<AtomicUsize>,
}

pub(crate) fn destination(address: std::net::SocketAddr, protocol: Protocol) -> Arc<Destination> {
    let authority = address.to_string().parse().unwrap();
    Arc::new(Destination { id: 7, address, protocol, tls: None, authority })
}

pub(crate) async fn endpoint<F, P>(play: F) -> Endpoint
where
    F: Fn(usize, TcpStream) -> P + Send + 'static,
    P: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = destination(listener.local_addr().unwrap(), Protocol::Http1);
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            tokio::spawn(play(counted.fetch_add(1, Ordering::SeqCst), socket));
        }
    });
    Endpoint { to, connections }
}

/// Reads one request: its head, and its body if the length is declared.
pub(crate) async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut all = Vec::new();
    while !all.ends_with(b"\r\n\r\n") {
        all.push(socket.read_u8().await.ok()?);
    }
    let head = String::from_utf8(all).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.ok()?;
    Some(head + &String::from_utf8(body).unwrap())
}

/// The usual endpoint: answers each request with `raw`.
pub(crate) async fn answering(raw: &'static str) -> Endpoint {
    endpoint(move |_, mut socket| async move {
        while read_request(&mut socket).await.is_some() {
            socket.write_all(raw.as_bytes()).await.unwrap();
        }
    })
    .await
}

pub(crate) fn head(method: Method) -> Parts {
    Request::builder().method(method).uri("/v1/x?q=1").header("x-a", "1").body(()).unwrap().into_parts().0
}

pub(crate) fn body() -> Chunks {
    Chunks::from(vec![Bytes::from_static(b"he"), Bytes::from_static(b"llo")])
}

fn quick() -> Timeouts {
    Timeouts {
        connect: Some(Duration::from_millis(300)),
        first_byte: Some(Duration::from_millis(200)),
        stream_idle: Some(Duration::from_millis(200)),
        ..Timeouts::default()
    }
}

async fn post(clients: &Clients, to: &Arc<Destination>) -> Result<(http::response::Parts, String), SendError> {
    let answer = soon(clients.send(to, &head(Method::POST), body(), &Timeouts::default())).await?;
    let (head, body) = answer.into_parts();
    Ok((head, String::from_utf8(soon(body.collect()).await.unwrap().to_bytes().to_vec()).unwrap()))
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn a_request_arrives_as_it_was_but_for_host_and_framing() {
    let (seen, mut saw) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |_, mut socket| {
        let seen = seen.clone();
        async move {
            while let Some(request) = read_request(&mut socket).await {
                seen.send(request).unwrap();
                socket.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let clients = Clients::new();
    let mut head = head(Method::POST);
    head.uri = "http://gateway/v1/x?q=1".parse().unwrap();
    head.headers
        .extend([(http::header::HOST, "gateway".parse().unwrap()), (http::header::TE, "trailers".parse().unwrap())]);
    headers::prepare_request(&mut head.headers);
    soon(clients.send(&endpoint.to, &head, body(), &Timeouts::default())).await.unwrap();
    let request = saw.recv().await.unwrap();
    let mut lines: Vec<_> = request.lines().collect();
    assert_eq!((lines.remove(0), lines.pop().unwrap()), ("POST /v1/x?q=1 HTTP/1.1", "hello"));
    lines.sort_unstable();
    let authority = format!("host: {}", endpoint.to.address);
    assert_eq!(lines, ["", "content-length: 5", &authority, "x-a: 1"]);
    for (method, length) in [(Method::POST, true), (Method::GET, false), (Method::DELETE, false)] {
        head.method = method;
        soon(clients.send(&endpoint.to, &head, Chunks::empty(), &Timeouts::default())).await.unwrap();
        assert_eq!(saw.recv().await.unwrap().contains("content-length: 0"), length);
    }
}

#[tokio::test]
async fn connections_are_reused_and_forgotten() {
    let endpoint = answering(OK).await;
    let clients = Clients::new();
    for _ in 0..5 {
        assert_eq!(post(&clients, &endpoint.to).await.unwrap().1, "ok");
    }
    assert_eq!((endpoint.connections.load(Ordering::SeqCst), clients.pooled(7)), (1, 1));
    clients.forget(7);
    assert_eq!(clients.pooled(7), 0);
    post(&clients, &endpoint.to).await.unwrap();
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 2);

    let answer = clients.send(&endpoint.to, &head(Method::POST), body(), &Timeouts::default()).await.unwrap();
    clients.forget(7);
    answer.into_body().collect().await.unwrap();
    assert_eq!(clients.pooled(7), 0, "in use when it was forgotten: not kept");
}

#[tokio::test]
async fn c01_idle_connections_are_closed_before_the_server_does() {
    let (ended, mut end) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |_, mut socket| {
        let ended = ended.clone();
        async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(OK.as_bytes()).await.unwrap();
            let start = Instant::now();
            assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
            ended.send(start.elapsed()).unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    let timeouts = Timeouts { idle_pooled: Duration::from_millis(300), ..Timeouts::default() };
    let answer = clients.send(&endpoint.to, &head(Method::POST), body(), &timeouts).await.unwrap();
    answer.into_body().collect().await.unwrap();
    let idle = soon(end.recv()).await.unwrap();
    assert!(idle >= Duration::from_millis(300) && idle < Duration::from_millis(800), "{idle:?}");
    assert_eq!(clients.pooled(7), 0);
}

/// Closes each connection after its second request was read, without a word, as a server whose time is over just then.
async fn closing_on_the_second() -> (Endpoint, mpsc::UnboundedReceiver<usize>) {
    let (seen, saw) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |n, mut socket| {
        let seen = seen.clone();
        async move {
            read_request(&mut socket).await.unwrap();
            seen.send(n).unwrap();
            socket.write_all(OK.as_bytes()).await.unwrap();
            if read_request(&mut socket).await.is_some() {
                seen.send(n).unwrap();
            }
        }
    })
    .await;
    (endpoint, saw)
}

#[tokio::test]
async fn c01_a_reused_connection_that_closes_without_a_byte_is_replayed_once() {
    let (endpoint, mut saw) = closing_on_the_second().await;
    let clients = Clients::new();
    post(&clients, &endpoint.to).await.unwrap();
    let answer = clients.send(&endpoint.to, &head(Method::POST), body(), &Timeouts::default()).await.unwrap();
    assert!(answer.body().replayed());
    answer.into_body().collect().await.unwrap();
    let answer = clients.send(&endpoint.to, &head(Method::POST), Chunks::empty(), &Timeouts::default()).await.unwrap();
    assert!(answer.body().replayed(), "also an answer without a body says so");
    let seen: Vec<_> = std::iter::from_fn(|| saw.try_recv().ok()).collect();
    assert_eq!(seen, [0, 0, 1, 1, 2], "each request once, and once more where its connection closed");
}

#[tokio::test]
async fn c01_a_connection_closed_while_idle_is_not_even_tried() {
    let close = Arc::new(tokio::sync::Notify::new());
    let (closed, mut closing) = mpsc::unbounded_channel();
    let told = Arc::clone(&close);
    let endpoint = endpoint(move |_, mut socket| {
        let (close, closed) = (Arc::clone(&told), closed.clone());
        async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(OK.as_bytes()).await.unwrap();
            close.notified().await;
            drop(socket);
            closed.send(()).unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    let mut untried = 0;
    for _ in 0..20 {
        let answer = soon(clients.send(&endpoint.to, &head(Method::POST), body(), &Timeouts::default())).await.unwrap();
        untried += usize::from(!answer.body().replayed());
        answer.into_body().collect().await.unwrap();
        assert_eq!(clients.pooled(7), 1);
        close.notify_one();
        soon(closing.recv()).await.unwrap();
        // The kernel delivers the end when it likes; a request that comes before is replayed.
        time::sleep(Duration::from_millis(5)).await;
    }
    assert!(untried > 10, "{untried} of 20");
}

#[tokio::test]
async fn c01_a_fresh_connection_that_dies_is_not_replayed() {
    let endpoint = endpoint(|_, mut socket| async move {
        read_request(&mut socket).await.unwrap();
    })
    .await;
    let error = post(&Clients::new(), &endpoint.to).await.unwrap_err();
    assert!(matches!(error, SendError::ClosedBeforeAnswer { tried: Tried::Fresh, .. }), "{error:?}");
    assert!(!error.nothing_sent());
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn c01_a_replay_that_fails_too_is_the_end() {
    let endpoint = endpoint(|n, mut socket| async move {
        read_request(&mut socket).await.unwrap();
        if n == 0 {
            socket.write_all(OK.as_bytes()).await.unwrap();
            read_request(&mut socket).await.unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    post(&clients, &endpoint.to).await.unwrap();
    let error = post(&clients, &endpoint.to).await.unwrap_err();
    assert!(matches!(error, SendError::ClosedBeforeAnswer { tried: Tried::ReusedThenFresh, .. }), "{error:?}");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn c01_a_connection_that_began_to_answer_is_not_replayed() {
    let endpoint = endpoint(|_, mut socket| async move {
        read_request(&mut socket).await.unwrap();
        socket.write_all(OK.as_bytes()).await.unwrap();
        read_request(&mut socket).await.unwrap();
        socket.write_all(b"HTTP/1.1 200").await.unwrap();
    })
    .await;
    let clients = Clients::new();
    post(&clients, &endpoint.to).await.unwrap();
    let error = post(&clients, &endpoint.to).await.unwrap_err();
    assert!(matches!(error, SendError::ClosedBeforeAnswer { tried: Tried::ReusedAndAnswering, .. }), "{error:?}");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn k01_a_refused_connect_sent_nothing() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = post(&Clients::new(), &destination(closed, Protocol::Http1)).await.unwrap_err();
    assert!(matches!(error, SendError::Connect(_)) && error.nothing_sent(), "{error:?}");
}

#[tokio::test]
async fn k01_a_connect_without_an_answer_ends_at_its_limit() {
    // A listener whose queue is full answers nothing to further connects.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(stream)) = time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        held.push(stream);
    }
    let start = Instant::now();
    let (clients, to) = (Clients::new(), destination(address, Protocol::Http1));
    let error = soon(clients.send(&to, &head(Method::POST), body(), &quick())).await.unwrap_err();
    assert!(matches!(error, SendError::ConnectTimeout) && error.nothing_sent(), "{error:?}");
    assert!(start.elapsed() < Duration::from_millis(600), "{:?}", start.elapsed());
}

#[tokio::test]
async fn b11_a_silent_endpoint_ends_at_the_first_byte_limit_and_is_hung_up_on() {
    let (ended, mut end) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |_, mut socket| {
        let ended = ended.clone();
        async move {
            read_request(&mut socket).await.unwrap();
            let _closed = socket.read(&mut [0]).await;
            ended.send(()).unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    let error = soon(clients.send(&endpoint.to, &head(Method::POST), body(), &quick())).await.unwrap_err();
    assert!(matches!(error, SendError::FirstByteTimeout) && !error.nothing_sent(), "{error:?}");
    time::timeout(AT_ONCE, end.recv()).await.unwrap();
}

#[tokio::test]
async fn b03_dropping_the_request_before_the_head_hangs_up_at_once() {
    let (told, mut tell) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |_, mut socket| {
        let told = told.clone();
        async move {
            read_request(&mut socket).await.unwrap();
            told.send("read").unwrap();
            let _closed = socket.read(&mut [0]).await;
            told.send("closed").unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    let (to, sending) = (Arc::clone(&endpoint.to), clients.clone());
    let sent =
        tokio::spawn(
            async move { sending.send(&to, &head(Method::POST), body(), &Timeouts::default()).await.map(drop) },
        );
    assert_eq!(soon(tell.recv()).await, Some("read"));
    sent.abort();
    assert_eq!(time::timeout(AT_ONCE, tell.recv()).await.unwrap(), Some("closed"));
    assert_eq!(clients.pooled(7), 0);
}

#[tokio::test]
async fn b03_dropping_an_answer_before_its_end_hangs_up_at_once() {
    let (told, mut tell) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |_, mut socket| {
        let told = told.clone();
        async move {
            read_request(&mut socket).await.unwrap();
            socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await.unwrap();
            let _closed = socket.read(&mut [0]).await;
            told.send("closed").unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    let mut answer = clients.send(&endpoint.to, &head(Method::POST), body(), &Timeouts::default()).await.unwrap();
    assert_eq!(soon(answer.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap(), "abc");
    drop(answer);
    assert_eq!(time::timeout(AT_ONCE, tell.recv()).await.unwrap(), Some("closed"));
    assert_eq!(clients.pooled(7), 0);
}

#[tokio::test]
async fn b10_only_silence_ends_a_stream_however_long_it_is() {
    let endpoint = endpoint(|_, mut socket| async move {
        read_request(&mut socket).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        for _ in 0..8 {
            time::sleep(Duration::from_millis(60)).await;
            socket.write_all(b"1\r\nx\r\n").await.unwrap();
        }
        std::future::pending::<()>().await;
    })
    .await;
    let clients = Clients::new();
    let mut answer = clients.send(&endpoint.to, &head(Method::POST), body(), &quick()).await.unwrap();
    for _ in 0..8 {
        assert!(soon(answer.body_mut().frame()).await.unwrap().is_ok());
    }
    let start = Instant::now();
    let error = soon(answer.body_mut().frame()).await.unwrap().unwrap_err();
    assert!(matches!(error, AnswerError::IdleTimeout), "{error:?}");
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    assert!(soon(answer.body_mut().frame()).await.is_none());
}

#[tokio::test]
async fn b10_a_reader_that_takes_its_time_is_not_the_endpoints_silence() {
    let endpoint = answering("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n").await;
    let clients = Clients::new();
    let answer = clients.send(&endpoint.to, &head(Method::POST), body(), &quick()).await.unwrap();
    time::sleep(Duration::from_millis(400)).await;
    assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "x");
}

#[tokio::test]
async fn b07_an_answer_cut_short_is_an_error_and_never_an_end() {
    for raw in [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n30\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n",
    ] {
        for reset in [false, true] {
            let endpoint = endpoint(move |_, mut socket| async move {
                read_request(&mut socket).await.unwrap();
                socket.write_all(raw.as_bytes()).await.unwrap();
                if reset {
                    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
                }
            })
            .await;
            let clients = Clients::new();
            match soon(clients.send(&endpoint.to, &head(Method::POST), body(), &Timeouts::default())).await {
                Ok(answer) => {
                    let error = soon(answer.into_body().collect()).await.unwrap_err();
                    assert!(matches!(error, AnswerError::Broke(_)), "{raw:?} {reset}: {error:?}");
                }
                // A reset may overtake what was sent before it.
                Err(error) => assert!(reset && matches!(error, SendError::ClosedBeforeAnswer { .. }), "{error:?}"),
            }
            assert_eq!(clients.pooled(7), 0);
        }
    }
}

#[tokio::test]
async fn c07_contradicting_lengths_and_strange_codings_are_faults() {
    for raw in [
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\nhello!!",
        "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
    ] {
        let endpoint = answering(raw).await;
        let clients = Clients::new();
        let error = post(&clients, &endpoint.to).await.unwrap_err();
        assert!(matches!(error, SendError::Protocol(_)), "{raw:?}: {error:?}");
        assert_eq!(clients.pooled(7), 0);
    }
}

#[tokio::test]
async fn c07_equal_lengths_pass_and_bytes_too_many_never_become_an_answer() {
    for raw in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok!!",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let endpoint = answering(raw).await;
        let clients = Clients::new();
        for _ in 0..3 {
            assert_eq!(post(&clients, &endpoint.to).await.unwrap().1, "ok", "{raw:?}");
        }
        let reusable = !raw.contains("ok!") && !raw.contains("HTTP/1.1 200 OK\r\n\r\n") && !raw.contains("evil");
        assert_eq!(endpoint.connections.load(Ordering::SeqCst), if reusable { 1 } else { 3 }, "{raw:?}");
    }
}

#[tokio::test]
async fn c06_answers_with_too_large_heads_are_faults_and_those_below_pass() {
    let long = |bytes: usize| format!("x-long: {}\r\n", "a".repeat(bytes));
    let many = |count: usize| (0..count).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    for (fields, passes) in [
        (long(17_000), true),
        (long(60_000), true),
        (many(99), true),
        (many(100), false),
        (long(70_000), false),
        (long(1_000_000), false),
    ] {
        let raw = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{fields}\r\nok").leak();
        let endpoint = answering(raw).await;
        match post(&Clients::new(), &endpoint.to).await {
            Ok(_) => assert!(passes, "{} bytes", fields.len()),
            Err(SendError::Protocol(ProtocolFault::HeadTooLarge)) => assert!(!passes, "{} bytes", fields.len()),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn c09_answers_without_bodies_are_complete_at_once() {
    for (method, raw) in [
        (Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n"),
        (Method::HEAD, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        (Method::GET, "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n"),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n"),
        (Method::POST, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        (
            Method::POST,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ),
    ] {
        let endpoint = answering(raw).await;
        let clients = Clients::new();
        for _ in 0..2 {
            let answer =
                soon(clients.send(&endpoint.to, &head(method.clone()), Chunks::empty(), &quick())).await.unwrap();
            assert!(answer.body().is_end_stream(), "{raw:?}");
            assert_ne!(answer.status(), 100);
        }
        assert_eq!((endpoint.connections.load(Ordering::SeqCst), clients.pooled(7)), (1, 1), "{raw:?}");
    }
}

#[tokio::test]
async fn c12_bytes_pass_as_they_are() {
    let raw = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\u{8}xy";
    let endpoint = answering(raw).await;
    let (head, body) = post(&Clients::new(), &endpoint.to).await.unwrap();
    assert_eq!((head.headers["content-encoding"].as_bytes(), body.as_bytes()), (&b"gzip"[..], &b"\x1f\x08xy"[..]));
}

#[tokio::test]
async fn an_answer_may_come_byte_by_byte() {
    let endpoint = endpoint(|_, mut socket| async move {
        while read_request(&mut socket).await.is_some() {
            for byte in b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n" {
                socket.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let clients = Clients::new();
    for _ in 0..2 {
        assert_eq!(post(&clients, &endpoint.to).await.unwrap().1, "abc");
    }
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
}

const LARGE: usize = 32 * 1024 * 1024;

fn large() -> Chunks {
    Chunks::from(vec![Bytes::from(vec![b'x'; LARGE])])
}

#[tokio::test]
async fn an_answer_complete_before_its_request_frees_both_sides() {
    let (told, mut tell) = mpsc::unbounded_channel();
    let endpoint = endpoint(move |_, mut socket| {
        let told = told.clone();
        async move {
            socket.read_exact(&mut [0; 100]).await.unwrap();
            socket.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nbig").await.unwrap();
            // It does not close, and reads on until we do.
            while socket.read(&mut [0; 65_536]).await.is_ok_and(|bytes| bytes > 0) {}
            told.send("closed").unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    let answer = soon(clients.send(&endpoint.to, &head(Method::POST), large(), &Timeouts::default())).await.unwrap();
    assert_eq!(answer.status(), 413);
    assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "big");
    assert_eq!(clients.pooled(7), 0);
    assert_eq!(time::timeout(AT_ONCE * 10, tell.recv()).await.unwrap(), Some("closed"));
}

#[tokio::test]
async fn an_early_answer_is_read_although_its_sender_closed() {
    for _ in 0..20 {
        let endpoint = endpoint(move |_, mut socket| async move {
            socket.read_exact(&mut [0; 100]).await.unwrap();
            let big = "big".repeat(10_000);
            let head = "HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 30000\r\n\r\n";
            socket.write_all(format!("{head}{big}").as_bytes()).await.unwrap();
            // Closing with bytes unread resets the connection.
        })
        .await;
        let clients = Clients::new();
        let answer =
            soon(clients.send(&endpoint.to, &head(Method::POST), large(), &Timeouts::default())).await.unwrap();
        assert_eq!(answer.status(), 413);
        assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes().len(), 30_000);
    }
}

#[tokio::test]
async fn headers_repeat_in_order() {
    let endpoint = answering("HTTP/1.1 200 OK\r\nset-cookie: a\r\nset-cookie: b\r\ncontent-length: 2\r\n\r\nok").await;
    let (head, _) = post(&Clients::new(), &endpoint.to).await.unwrap();
    let headers: &HeaderMap = &head.headers;
    assert_eq!(headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a", "b"]);
}
