//! Requests to endpoints that speak HTTP/2 with prior knowledge.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, server};
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::BodyExt;
use proxy::client::{AnswerError, Chunks, Clients, Destination, Protocol, SendError, Timeouts, Tried};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time,
};

use crate::{
    client_http1::{body, destination, head},
    rig::{AT_ONCE, soon},
};

type Connection = server::Connection<TcpStream, Bytes>;

pub(crate) struct Endpoint {
    to: Arc<Destination>,
    connections: Arc<AtomicUsize>,
}

/// Plays one script per connection, told how many there were before.
async fn endpoint<F, P>(builder: server::Builder, play: F) -> Endpoint
where
    F: Fn(usize, Connection) -> P + Send + Sync + 'static,
    P: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = destination(listener.local_addr().unwrap(), Protocol::H2c);
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let play = Arc::new(play);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (play, builder, n) = (Arc::clone(&play), builder.clone(), counted.fetch_add(1, Ordering::SeqCst));
            tokio::spawn(async move { play(n, builder.handshake(socket).await.unwrap()).await });
        }
    });
    Endpoint { to, connections }
}

fn ok(mut respond: server::SendResponse<Bytes>, text: &'static str) {
    let mut stream = respond.send_response(Response::new(()), false).unwrap();
    stream.send_data(Bytes::from_static(text.as_bytes()), true).unwrap();
}

async fn whole(mut body: h2::RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    all
}

/// Answers each stream, once its body was read, with that body's length.
async fn counting(builder: server::Builder) -> Endpoint {
    endpoint(builder, |_, mut connection| async move {
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            tokio::spawn(async move {
                let read = whole(request.into_body()).await.len();
                let mut stream = respond.send_response(Response::new(()), false).unwrap();
                stream.send_data(Bytes::from(read.to_string()), true).unwrap();
            });
        }
    })
    .await
}

async fn post(clients: &Clients, to: &Arc<Destination>, body: Chunks) -> Result<String, SendError> {
    let answer = soon(clients.send(to, &head(Method::POST), body, &Timeouts::default())).await?;
    Ok(String::from_utf8(soon(answer.into_body().collect()).await.unwrap().to_bytes().to_vec()).unwrap())
}

/// Many requests at once, on one task each.
fn burst(
    clients: &Clients,
    to: &Arc<Destination>,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Result<String, SendError>>> {
    let one = |_| {
        let (clients, to) = (clients.clone(), Arc::clone(to));
        tokio::spawn(async move { post(&clients, &to, body()).await })
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn a_burst_onto_a_cold_endpoint_opens_one_connection() {
    let endpoint = counting(server::Builder::new()).await;
    let clients = Clients::new();
    for sent in burst(&clients, &endpoint.to, 50) {
        assert_eq!(soon(sent).await.unwrap().unwrap(), "5");
    }
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn more_connections_are_opened_when_one_is_full() {
    let (hold, held) = tokio::sync::watch::channel(true);
    let mut builder = server::Builder::new();
    builder.max_concurrent_streams(4);
    let endpoint = endpoint(builder, move |_, mut connection| {
        let held = held.clone();
        async move {
            while let Some(Ok((_, respond))) = connection.accept().await {
                let mut held = held.clone();
                tokio::spawn(async move {
                    held.wait_for(|held| !held).await.unwrap();
                    ok(respond, "ok");
                });
            }
        }
    })
    .await;
    let clients = Clients::new();
    let first = burst(&clients, &endpoint.to, 1);
    soon(async {
        while clients.pooled(7) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The settings of the first connection are known after its first exchange with the peer.
    time::sleep(Duration::from_millis(50)).await;
    let rest = burst(&clients, &endpoint.to, 11);
    soon(async {
        while endpoint.connections.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    hold.send(false).unwrap();
    for sent in first.into_iter().chain(rest) {
        assert_eq!(soon(sent).await.unwrap().unwrap(), "ok");
    }
    // Until a fresh connection's settings arrive, one hundred streams are assumed; never fewer connections than needed.
    assert!(endpoint.connections.load(Ordering::SeqCst) >= 2);
}

#[tokio::test]
async fn a_large_body_passes_through_flow_control() {
    let endpoint = counting(server::Builder::new()).await;
    let chunks: Vec<Bytes> = (0..40).map(|n| Bytes::from(vec![n; 100_000])).collect();
    assert_eq!(post(&Clients::new(), &endpoint.to, Chunks::from(chunks)).await.unwrap(), "4000000");
}

#[tokio::test]
async fn c02_goaway_lets_the_streams_below_end_and_moves_those_above_once() {
    let (seen, mut saw) = mpsc::unbounded_channel();
    let endpoint = endpoint(server::Builder::new(), move |n, mut connection| {
        let seen = seen.clone();
        async move {
            let mut held = Vec::new();
            while let Some(Ok((_, respond))) = connection.accept().await {
                seen.send(n).unwrap();
                held.push(respond);
                if n > 0 {
                    ok(held.pop().unwrap(), "moved");
                } else if held.len() == 10 {
                    // Streams after these ten are not looked at any more.
                    connection.graceful_shutdown();
                    for respond in held.drain(..) {
                        ok(respond, "stayed");
                    }
                }
            }
        }
    })
    .await;
    let clients = Clients::new();
    let mut answers = Vec::new();
    for sent in burst(&clients, &endpoint.to, 20) {
        answers.push(soon(sent).await.unwrap().unwrap());
    }
    let count = |text: &str| answers.iter().filter(|answer| *answer == text).count();
    assert_eq!(count("stayed") + count("moved"), 20);
    assert!(count("stayed") >= 10);
    let requests = std::iter::from_fn(|| saw.try_recv().ok()).count();
    assert_eq!(requests, 20, "each request was seen once");
}

/// Sends frames by hand: a GOAWAY whose last stream is in the middle of those open.
#[tokio::test]
async fn c02_goaway_in_the_middle_of_open_streams() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = destination(listener.local_addr().unwrap(), Protocol::H2c);
    let script = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut preface = [0; 24];
        socket.read_exact(&mut preface).await.unwrap();
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
        let mut ended = Vec::new();
        while ended.len() < 6 {
            let mut frame = [0; 9];
            socket.read_exact(&mut frame).await.unwrap();
            let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
            socket.read_exact(&mut vec![0; length]).await.unwrap();
            let (kind, flags, stream) = (frame[3], frame[4], u32::from_be_bytes(frame[5..9].try_into().unwrap()));
            if kind == 4 && flags & 1 == 0 {
                socket.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
            }
            if kind <= 1 && flags & 1 == 1 {
                ended.push(stream);
            }
        }
        ended.sort_unstable();
        let last = ended[2];
        let mut goaway = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
        goaway.extend(last.to_be_bytes());
        goaway.extend(0_u32.to_be_bytes());
        socket.write_all(&goaway).await.unwrap();
        for stream in &ended[..3] {
            // `:status: 200` from the static table, and the end of the stream.
            let mut headers = vec![0, 0, 1, 1, 5];
            headers.extend(stream.to_be_bytes());
            headers.push(0x88);
            socket.write_all(&headers).await.unwrap();
        }
        let (second, _) = listener.accept().await.unwrap();
        let mut connection = server::handshake(second).await.unwrap();
        let mut moved = 0;
        while let Some(Ok((_, respond))) = connection.accept().await {
            moved += 1;
            ok(respond, "moved");
            if moved == 3 {
                connection.graceful_shutdown();
            }
        }
        drop(socket);
        moved
    });
    let clients = Clients::new();
    let mut answers = Vec::new();
    for sent in burst(&clients, &to, 6) {
        answers.push(soon(sent).await.unwrap().unwrap());
    }
    answers.sort();
    assert_eq!(answers, ["", "", "", "moved", "moved", "moved"]);
    drop(clients);
    assert_eq!(soon(script).await.unwrap(), 3);
}

#[tokio::test]
async fn c02_a_refused_stream_is_tried_once_more_and_no_other_reset_is() {
    for (reason, tries, answered) in
        [(Reason::REFUSED_STREAM, 2, true), (Reason::INTERNAL_ERROR, 1, false), (Reason::CANCEL, 1, false)]
    {
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&seen);
        let endpoint = endpoint(server::Builder::new(), move |_, mut connection| {
            let seen = Arc::clone(&counted);
            async move {
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    if seen.fetch_add(1, Ordering::SeqCst) == 0 {
                        respond.send_reset(reason);
                    } else {
                        ok(respond, "ok");
                    }
                }
            }
        })
        .await;
        let answer = post(&Clients::new(), &endpoint.to, body()).await;
        assert_eq!((answer.is_ok(), seen.load(Ordering::SeqCst)), (answered, tries), "{reason:?}: {answer:?}");
    }
}

#[tokio::test]
async fn c01_a_connection_that_dies_with_a_request_is_replaced_only_if_it_was_reused() {
    let endpoint = endpoint(server::Builder::new(), |n, mut connection| async move {
        let mut answered = 0;
        while let Some(Ok((_, respond))) = connection.accept().await {
            if answered == 1 || n == 2 {
                return;
            }
            answered += 1;
            ok(respond, "ok");
        }
    })
    .await;
    let clients = Clients::new();
    assert_eq!(post(&clients, &endpoint.to, body()).await.unwrap(), "ok");
    assert_eq!(post(&clients, &endpoint.to, body()).await.unwrap(), "ok");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 2);
    clients.forget(7);
    let error = post(&clients, &endpoint.to, body()).await.unwrap_err();
    assert!(matches!(error, SendError::ClosedBeforeAnswer { tried: Tried::Fresh, .. }), "{error:?}");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn c01_a_fresh_connection_that_dies_silently_is_not_replaced() {
    use tokio::io::AsyncReadExt;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = destination(listener.local_addr().unwrap(), Protocol::H2c);
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let mut read = Vec::new();
            // Until the body has come; not a byte goes back.
            while !read.ends_with(b"hello") && !read.ends_with(b"llo") {
                read.push(socket.read_u8().await.unwrap());
            }
        }
    });
    let error = post(&Clients::new(), &to, body()).await.unwrap_err();
    assert!(matches!(error, SendError::ClosedBeforeAnswer { tried: Tried::Fresh, .. }), "{error:?}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn b03_dropping_a_request_or_an_answer_resets_its_stream_alone() {
    let (told, mut tell) = mpsc::unbounded_channel();
    let endpoint = endpoint(server::Builder::new(), move |_, mut connection| {
        let told = told.clone();
        async move {
            let mut first = true;
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let told = told.clone();
                let answering = !std::mem::take(&mut first);
                tokio::spawn(async move {
                    let reset = if answering {
                        let mut stream = respond.send_response(Response::new(()), false).unwrap();
                        stream.send_data(Bytes::from_static(b"abc"), false).unwrap();
                        std::future::poll_fn(|cx| stream.poll_reset(cx)).await
                    } else {
                        told.send("waiting").unwrap();
                        std::future::poll_fn(|cx| respond.poll_reset(cx)).await
                    };
                    assert_eq!(reset.unwrap(), Reason::CANCEL);
                    told.send("reset").unwrap();
                });
            }
        }
    })
    .await;
    let clients = Clients::new();
    let (sending, to) = (clients.clone(), Arc::clone(&endpoint.to));
    let sent = tokio::spawn(async move { post(&sending, &to, body()).await });
    assert_eq!(soon(tell.recv()).await, Some("waiting"));
    sent.abort();
    assert_eq!(time::timeout(AT_ONCE, tell.recv()).await.unwrap(), Some("reset"));
    let mut answer = clients.send(&endpoint.to, &head(Method::POST), body(), &Timeouts::default()).await.unwrap();
    assert_eq!(soon(answer.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap(), "abc");
    drop(answer);
    assert_eq!(time::timeout(AT_ONCE, tell.recv()).await.unwrap(), Some("reset"));
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1, "the connection lives on");
}

#[tokio::test]
async fn c08_trailers_pass_and_too_large_ones_break_the_answer() {
    for (bytes, passes) in
        [(1_000, true), (12_000, true), (60_000, true), (70_000, false), (100_000, false), (200_000, false)]
    {
        let endpoint = endpoint(server::Builder::new(), move |_, mut connection| async move {
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut stream = respond.send_response(Response::new(()), false).unwrap();
                stream.send_data(Bytes::from_static(b"data"), false).unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("7"));
                trailers.insert("grpc-message", HeaderValue::from_str(&"m".repeat(bytes)).unwrap());
                // A client may have said how much it takes; then the server's library refuses, and cuts the stream.
                let _sent = stream.send_trailers(trailers);
            }
        })
        .await;
        let clients = Clients::new();
        let answer = soon(clients.send(&endpoint.to, &head(Method::POST), body(), &Timeouts::default())).await.unwrap();
        let collected = soon(answer.into_body().collect()).await;
        match collected {
            Ok(collected) => {
                assert!(passes, "{bytes}");
                assert_eq!(collected.trailers().unwrap()["grpc-message"].len(), bytes);
            }
            Err(error) => assert!(!passes && matches!(error, AnswerError::Broke(_)), "{bytes}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn limits_hold_and_an_early_answer_frees_the_upload() {
    let endpoint = endpoint(server::Builder::new(), |_, mut connection| async move {
        let mut held = Vec::new();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            match request.uri().path() {
                "/early" => ok(respond, "early"),
                "/stall" => held.push((respond.send_response(Response::new(()), false).unwrap(), request)),
                _ => {
                    tokio::spawn(async move {
                        let _reset = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                    });
                }
            }
        }
    })
    .await;
    let clients = Clients::new();
    let timeouts = Timeouts {
        first_byte: Some(Duration::from_millis(100)),
        stream_idle: Some(Duration::from_millis(100)),
        ..Timeouts::default()
    };
    let mut head = head(Method::POST);
    let error = soon(clients.send(&endpoint.to, &head, body(), &timeouts)).await.unwrap_err();
    assert!(matches!(error, SendError::FirstByteTimeout), "{error:?}");
    head.uri = "/stall".parse().unwrap();
    let answer = soon(clients.send(&endpoint.to, &head, body(), &timeouts)).await.unwrap();
    let error = soon(answer.into_body().collect()).await.unwrap_err();
    assert!(matches!(error, AnswerError::IdleTimeout), "{error:?}");
    head.uri = "/early".parse().unwrap();
    let large = Chunks::from(Bytes::from(vec![0; 32 * 1024 * 1024]));
    let answer = soon(clients.send(&endpoint.to, &head, large, &timeouts)).await.unwrap();
    assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "early");
    assert_eq!(endpoint.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (ended, mut end) = mpsc::unbounded_channel();
    let endpoint = endpoint(server::Builder::new(), move |_, mut connection| {
        let ended = ended.clone();
        async move {
            while let Some(Ok((_, respond))) = connection.accept().await {
                ok(respond, "ok");
            }
            ended.send(()).unwrap();
        }
    })
    .await;
    let clients = Clients::new();
    let timeouts = Timeouts { idle_pooled: Duration::from_millis(100), ..Timeouts::default() };
    let answer = soon(clients.send(&endpoint.to, &head(Method::POST), body(), &timeouts)).await.unwrap();
    answer.into_body().collect().await.unwrap();
    soon(end.recv()).await.unwrap();
    assert_eq!(clients.pooled(7), 0);
}
