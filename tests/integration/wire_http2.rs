//! HTTP/2 with prior knowledge, in and out.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{RecvStream, server};
use harness::{Config, Connection, Gateway, Http2, Http2Peer, Next, Peer, Scheduler, eventually, respond, soon};
use http::{HeaderMap, HeaderValue, Response};

use crate::rig::{
    AT_ONCE, CHAT, CHATS, STREAM, USAGE, ask, begin, closing_error, count, count_all, ended, gateway, number, peer,
    request_bytes,
};

/// A gateway whose endpoint speaks HTTP/2.
fn h2c(peer: &Http2Peer) -> Gateway {
    let scheduler = Scheduler::new("m1", [peer.address]).line("appProtocol: kubernetes.io/h2c");
    Gateway::start(&Config::new([scheduler.line("engineType: none")]))
}

async fn whole(mut body: RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        all.extend_from_slice(&data);
    }
    all
}

const ANSWER: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;

/// Bodies that came, in order.
type Bodies = Arc<Mutex<Vec<Vec<u8>>>>;

/// Answers each POST plainly and streams to who asks for it.
fn plain(bodies: &Bodies) -> Http2Peer {
    let bodies = Arc::clone(bodies);
    Http2Peer::start(&server::Builder::new(), move |_, mut connection| {
        let bodies = Arc::clone(&bodies);
        async move {
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                let bodies = Arc::clone(&bodies);
                tokio::spawn(async move {
                    let is_post = request.method() == "POST";
                    let body = whole(request.into_body()).await;
                    if is_post {
                        bodies.lock().expect("recording does not panic").push(body.clone());
                    }
                    if body == STREAM.as_bytes() {
                        let events = format!("data: {USAGE}\n\ndata: [DONE]\n\n");
                        respond(&mut answer, 200, "text/event-stream", events);
                    } else {
                        respond(&mut answer, 200, "application/json", ANSWER);
                    }
                });
            }
        }
    })
}

#[test]
fn each_protocol_reaches_each() {
    let bodies = Bodies::default();
    let (h2, h1) = (plain(&bodies), Peer::plain());
    let gateways = [h2c(&h2), gateway([&h1])];
    for gateway in &gateways {
        let client = Http2::open(gateway.data);
        let answer = client.post(CHATS, &[("x-request-id", "h2")], CHAT);
        assert_eq!((answer.status.as_u16(), answer.reset), (200, None));
        assert_eq!(answer.headers["x-request-id"], "h2");
        assert!(!answer.headers.contains_key("connection") && !answer.headers.contains_key("transfer-encoding"));
        ended(gateway, "h2", "ok");
        assert_eq!(ask(gateway, "h1", CHAT).json()["usage"]["total_tokens"], 11);
        ended(gateway, "h1", "ok");
        assert_eq!(number(gateway, "inference_gateway_tokens_total", &[r#"kind="prompt""#]), 18);
        // END_STREAM of a request is not a client that left.
        assert_eq!((count(gateway, "ok"), count_all(gateway)), (2, 2));
    }
    assert_eq!(*bodies.lock().unwrap(), [CHAT.as_bytes(), CHAT.as_bytes()]);
    assert_eq!(h1.seen()[0].header("host"), Some(h1.address.to_string().as_str()), "made of :authority anew");
    let answer = Http2::open(gateways[0].data).post(CHATS, &[("x-request-id", "stream")], STREAM);
    assert_eq!(answer.text(), format!("data: {USAGE}\n\ndata: [DONE]\n\n"));
    assert_eq!(ended(&gateways[0], "stream", "ok")["completion_tokens"], 2);
}

#[test]
fn c02_a_goaway_costs_no_request() {
    const HELD: usize = 10;
    // The first connection says GOAWAY with ten streams open, and answers those only when another connection has served.
    let (bodies, elsewhere) = (Bodies::default(), Arc::new(AtomicUsize::new(0)));
    let (seen, counted) = (Arc::clone(&bodies), Arc::clone(&elsewhere));
    let peer = Http2Peer::start(&server::Builder::new(), move |before, mut connection| {
        let (seen, counted) = (Arc::clone(&seen), Arc::clone(&counted));
        async move {
            let mut requests = 0;
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                if request.method() != "POST" {
                    respond(&mut answer, 200, "text/plain", "");
                    continue;
                }
                requests += 1;
                let (seen, counted) = (Arc::clone(&seen), Arc::clone(&counted));
                let held = before == 0 && requests <= HELD;
                tokio::spawn(async move {
                    let body = whole(request.into_body()).await;
                    seen.lock().unwrap().push(body);
                    while held && counted.load(Ordering::SeqCst) == 0 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    respond(&mut answer, 200, "application/json", ANSWER);
                    counted.fetch_add(usize::from(before > 0), Ordering::SeqCst);
                });
                if before == 0 && requests == HELD {
                    connection.graceful_shutdown();
                }
            }
        }
    });
    let gateway = h2c(&peer);
    let client = Http2::open(gateway.data);
    let start = |n: usize| {
        let id = format!("goaway-{n}");
        client.start("POST", CHATS, &[("x-request-id", &id)], CHAT.replace("hi", &id))
    };
    let open: Vec<_> = (0..HELD).map(start).collect();
    soon("all are on their way", || bodies.lock().unwrap().len() == HELD);
    let mut calls = HELD;
    soon("another connection serves", || {
        let answer = client.finish(start(calls));
        calls += 1;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, ANSWER));
        elsewhere.load(Ordering::SeqCst) > 0
    });
    for open in open {
        let answer = client.finish(open);
        assert_eq!((answer.status.as_u16(), answer.text().as_str(), answer.reset), (200, ANSWER, None));
    }
    for n in 0..calls {
        ended(&gateway, &format!("goaway-{n}"), "ok");
    }
    let mut bodies = bodies.lock().unwrap().clone();
    assert_eq!(bodies.len(), calls, "each body is processed once");
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), calls);
    assert_eq!((count(&gateway, "ok"), count_all(&gateway)), (calls as u64, calls as u64));
}

#[test]
fn c02_each_body_is_processed_once() {
    // RST_STREAM with REFUSED_STREAM says that a stream was never processed: once more, elsewhere, and no more.
    let refused = Arc::new(AtomicUsize::new(0));
    let (bodies, counted) = (Bodies::default(), Arc::clone(&refused));
    let seen = Arc::clone(&bodies);
    let peer = Http2Peer::start(&server::Builder::new(), move |_, mut connection| {
        let (seen, counted) = (Arc::clone(&seen), Arc::clone(&counted));
        async move {
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                if request.method() == "POST" && counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    answer.send_reset(h2::Reason::REFUSED_STREAM);
                    continue;
                }
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let is_post = request.method() == "POST";
                    let body = whole(request.into_body()).await;
                    if is_post {
                        seen.lock().unwrap().push(body);
                    }
                    respond(&mut answer, 200, "application/json", ANSWER);
                });
            }
        }
    });
    let gateway = h2c(&peer);
    assert_eq!(ask(&gateway, "refused", CHAT).status, 200);
    let line = ended(&gateway, "refused", "ok");
    assert_eq!(line["tries"], 2, "{line}");
    assert_eq!((refused.load(Ordering::SeqCst), bodies.lock().unwrap().len()), (2, 1));
    assert_eq!(number(&gateway, "inference_gateway_upstream_retries_total", &[]), 1);
}

#[test]
fn b07_a_reset_stream_ends_with_an_error_event() {
    let peer = Http2Peer::start(&server::Builder::new(), |_, mut connection| async move {
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            if request.method() != "POST" {
                respond(&mut answer, 200, "text/plain", "");
                continue;
            }
            let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
            let mut stream = answer.send_response(head, false).unwrap();
            stream
                .send_data(Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"), false)
                .unwrap();
            tokio::spawn(async move {
                // The event is to leave before the reset, which overtakes what is queued.
                tokio::time::sleep(Duration::from_millis(50)).await;
                stream.send_reset(h2::Reason::INTERNAL_ERROR);
            });
        }
    });
    let gateway = h2c(&peer);
    let answer = ask(&gateway, "reset", STREAM);
    assert_eq!(closing_error(&answer.text()).as_deref(), Some("endpoint_broke"), "{}", answer.text());
    assert!(answer.text().starts_with("data: {\"choices\""));
    ended(&gateway, "reset", "endpoint_broke");
    let answer = Http2::open(gateway.data).post(CHATS, &[("x-request-id", "reset2")], STREAM);
    assert_eq!(closing_error(&answer.text()).as_deref(), Some("endpoint_broke"));
    ended(&gateway, "reset2", "endpoint_broke");
}

#[test]
fn b03_a_client_that_leaves_resets_its_stream_alone() {
    let reset = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&reset);
    let peer = Http2Peer::start(&server::Builder::new(), move |_, mut connection| {
        let seen = Arc::clone(&seen);
        async move {
            while let Some(Ok((request, mut answer))) = connection.accept().await {
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    if whole(request.into_body()).await != STREAM.as_bytes() {
                        respond(&mut answer, 200, "application/json", ANSWER);
                        return;
                    }
                    let reason = std::future::poll_fn(|cx| answer.poll_reset(cx)).await;
                    *seen.lock().unwrap() = Some((reason.unwrap(), Instant::now()));
                });
            }
        }
    });
    let gateway = h2c(&peer);
    let connection = begin(&gateway, "leaves", STREAM);
    soon("it is on its way", || gateway.admin.in_flight("m1") == 1);
    assert_eq!(ask(&gateway, "other", CHAT).status, 200);
    let left = Instant::now();
    drop(connection);
    let (reason, at) = eventually("the stream is reset", AT_ONCE * 10, || *reset.lock().unwrap());
    assert!(at.duration_since(left) < AT_ONCE);
    assert_eq!(reason, h2::Reason::CANCEL);
    ended(&gateway, "leaves", "client_gone");
    assert_eq!(ask(&gateway, "after", CHAT).status, 200);
}

#[test]
fn c06_heads_over_the_limits_are_431() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    for (bytes, status) in [(17_000, 200), (60_000, 200), (70_000, 431)] {
        let client = Http2::open(gateway.data);
        let answer = client.post(CHATS, &[("x-big", &"a".repeat(bytes))], CHAT);
        assert_eq!(answer.status.as_u16(), status, "{bytes} bytes");
    }
    for (count, status) in [(80, 200), (101, 431), (300, 431)] {
        let names: Vec<_> = (0..count).map(|n| format!("x-{n}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
        let answer = Http2::open(gateway.data).post(CHATS, &headers, CHAT);
        assert_eq!(answer.status.as_u16(), status, "{count} lines");
    }
    assert_eq!(peer.seen().len(), 3);
}

#[test]
fn c08_trailers_reach_an_http2_client_and_are_dropped_for_others() {
    let peer = Http2Peer::start(&server::Builder::new(), |_, mut connection| async move {
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            let size = request.headers().get("x-size").and_then(|size| size.to_str().ok()?.parse::<usize>().ok());
            let Some(size) = size else {
                respond(&mut answer, 200, "text/plain", "");
                continue;
            };
            tokio::spawn(async move {
                whole(request.into_body()).await;
                let head = Response::builder().header("content-type", "application/json").body(()).unwrap();
                let mut stream = answer.send_response(head, false).unwrap();
                stream.send_data(Bytes::from_static(ANSWER.as_bytes()), false).unwrap();
                let mut trailers = HeaderMap::new();
                trailers.insert("x-status", HeaderValue::from_static("7"));
                trailers.insert("x-filler", HeaderValue::from_str(&"t".repeat(size)).unwrap());
                stream.send_trailers(trailers).unwrap();
            });
        }
    });
    let gateway = h2c(&peer);
    let client = Http2::open(gateway.data);
    for size in ["1", "1000", "8000", "12000", "16000", "60000"] {
        let id = format!("trailers-{size}");
        let answer = client.post(CHATS, &[("x-size", size), ("x-request-id", &id), ("te", "trailers")], CHAT);
        assert_eq!((answer.status.as_u16(), answer.text().as_str(), answer.reset), (200, ANSWER, None), "{size}");
        let trailers = answer.trailers.unwrap_or_else(|| panic!("no trailers with {size}"));
        assert_eq!(trailers["x-status"], "7");
        assert_eq!(trailers["x-filler"].len().to_string(), size);
        ended(&gateway, &id, "ok");
    }
    let answer = harness::request(gateway.data, "POST", CHATS, &[("x-size", "1000")], CHAT);
    assert_eq!((answer.text().as_str(), answer.complete), (ANSWER, true));
    // Over the limit: the status is kept, and the end is no clean one.
    for size in ["70000", "100000", "200000"] {
        let answer = client.post(CHATS, &[("x-size", size), ("x-request-id", size)], CHAT);
        assert!(answer.status == 200 && answer.trailers.is_none(), "{size}: {}", answer.status);
        assert!(answer.reset.is_some(), "{size}");
        ended(&gateway, size, "endpoint_broke");
    }
}

#[test]
fn c08_trailers_of_an_http1_endpoint_do_not_spoil_its_stream() {
    let peer = peer(|exchange| {
        exchange.begin_stream();
        exchange.event(USAGE);
        exchange.event("[DONE]");
        exchange.send("0\r\nx-status: 7\r\n\r\n");
        Next::KeepAlive
    });
    let gateway = gateway([&peer]);
    let expected = format!("data: {USAGE}\n\ndata: [DONE]\n\n");
    let mut connection = Connection::open(gateway.data);
    for id in ["h1", "again"] {
        connection.send(request_bytes(CHATS, id, &[], STREAM)).unwrap();
        let answer = connection.answer().unwrap();
        assert_eq!((answer.text(), answer.complete), (expected.clone(), true));
        ended(&gateway, id, "ok");
    }
    assert_eq!(peer.seen()[0].connection, peer.seen()[1].connection, "its connection is used again");
    let answer = Http2::open(gateway.data).post(CHATS, &[("x-request-id", "h2"), ("te", "trailers")], STREAM);
    assert_eq!((answer.text(), answer.reset), (expected, None));
    ended(&gateway, "h2", "ok");
}
