//! HTTP/1.1 on both sides of the gateway: framing, heads, early answers, and what may not get through.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use harness::{Answer, Config, Connection, Gateway, Next, Peer, RawPeer, post, request, soon};

use crate::rig::{
    AT_ONCE, CHAT, CHATS, STREAM, USAGE, ask, count, count_all, ended, gateway, number, peer, request_bytes,
};

fn head_with(lines: impl IntoIterator<Item = String>) -> Vec<u8> {
    let mut text = format!("POST {CHATS} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n", CHAT.len());
    lines.into_iter().for_each(|line| text.push_str(&(line + "\r\n")));
    (text + "\r\n" + CHAT).into_bytes()
}

fn send(gateway: &Gateway, bytes: &[u8]) -> Answer {
    let mut connection = Connection::open(gateway.data);
    connection.send(bytes).expect("a request can be sent");
    connection.answer().expect("an answer")
}

#[test]
fn c03_what_two_readers_could_read_in_two_ways_reaches_no_endpoint() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    let inside = "GET /v1/smuggled HTTP/1.1\r\nhost: g\r\n\r\n";
    let chunked = format!("{:x}\r\n{CHAT}\r\n0\r\n\r\n", CHAT.len());
    let line = format!("POST {CHATS} HTTP/1.1\r\nhost: g\r\n");
    let shapes = [
        ("both lengths", format!("{line}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n{chunked}{inside}")),
        (
            "both lengths, turned",
            format!("{line}transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n{chunked}{inside}"),
        ),
        ("two lengths", format!("{line}content-length: 4\r\ncontent-length: {}\r\n\r\n{CHAT}{inside}", CHAT.len())),
        ("unknown coding", format!("{line}transfer-encoding: xchunked\r\n\r\n{chunked}{inside}")),
        ("coding twice", format!("{line}transfer-encoding: chunked, chunked\r\n\r\n{chunked}{inside}")),
        ("signed length", format!("{line}content-length: +{}\r\n\r\n{CHAT}{inside}", CHAT.len())),
        ("space before colon", format!("{line}content-length : {}\r\n\r\n{CHAT}{inside}", CHAT.len())),
        ("folded line", format!("{line}content-length:\r\n {}\r\n\r\n{CHAT}{inside}", CHAT.len())),
    ];
    for (what, bytes) in shapes {
        let mut connection = Connection::open(gateway.data);
        connection.send(&bytes).unwrap();
        let first = connection.answer().unwrap();
        // Chunked rules with the length removed are right too; either way nothing follows on this connection.
        assert!(first.status == 400 || (what.starts_with("both") && first.status == 200), "{what}: {}", first.status);
        assert!(connection.answer().is_err(), "{what}: the pipelined request gets no answer");
    }
    assert!(peer.seen().iter().all(|seen| seen.line == format!("POST {CHATS}")), "{:?}", peer.seen());
    assert_eq!(number(&gateway, "inference_gateway_requests_total", &[r#"outcome="path_not_found""#]), 0);
}

#[test]
fn c03_a_request_inside_a_body_stays_a_body() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    let inside = "POST /v1/smuggled HTTP/1.1\\r\\nhost: g\\r\\ncontent-length: 0\\r\\n\\r\\n";
    let body = CHAT.replace("hi", inside);
    let chunked = format!(
        "POST {CHATS} HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n{:x};ext=\"0\"\r\n{body}\r\n0\r\nx-trailer: 1\r\n\r\n",
        body.len()
    );
    assert_eq!(send(&gateway, chunked.as_bytes()).status, 200);
    assert_eq!(ask(&gateway, "length", &body).status, 200);
    let seen = peer.seen();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        assert_eq!((seen.line, seen.body), (format!("POST {CHATS}"), body.clone().into_bytes()));
        assert!(!seen.headers.iter().any(|(name, _)| name == "transfer-encoding" || name == "x-trailer"));
    }
}

#[test]
fn c04_a_refusal_comes_before_the_body_and_without_a_100() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    let size = 300 * 1024 * 1024;
    for (path, status, code) in [(CHATS, 413, "body_too_large"), ("/v1/unknown", 404, "path_not_found")] {
        let mut connection = Connection::open(gateway.data);
        let asked = Instant::now();
        connection
            .send(format!("POST {path} HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: {size}\r\n\r\n"))
            .unwrap();
        let (first, headers) = connection.head().unwrap();
        assert_eq!(first, status, "no 100 comes first");
        assert!(asked.elapsed() < AT_ONCE);
        assert!(headers.contains(&("connection".into(), "close".into())), "{headers:?}");
        connection.closed_within().unwrap();
        assert!(String::from_utf8(connection.take_read()).unwrap().contains(code));
    }
    assert!(peer.seen().is_empty());
}

#[test]
fn c04_a_100_comes_when_the_body_is_wanted_and_what_follows_from_the_body_comes_after_it() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    for (body, status) in [(CHAT.to_owned(), 200), (CHAT.replace("m1", "m9"), 404)] {
        let mut connection = Connection::open(gateway.data);
        let length = body.len();
        connection
            .send(format!(
                "POST {CHATS} HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"
            ))
            .unwrap();
        assert_eq!(connection.head().unwrap().0, 100);
        connection.send(&body).unwrap();
        assert_eq!(connection.answer().unwrap().status, status);
    }
    assert_eq!(peer.seen().len(), 1);
    assert!(peer.seen()[0].header("expect").is_none(), "the body is at hand: nobody has to ask for it");
}

#[test]
fn c05_a_client_cannot_strip_what_the_gateway_sets() {
    let peer = peer(|exchange| {
        exchange.answer(
            "200 OK",
            &[("connection", "x-r"), ("x-r", "1"), ("keep-alive", "timeout=5"), ("trailer", "t"), ("x-kept", "1")],
            "{}",
        )
    });
    let gateway = gateway([&peer]);
    let headers = [
        ("connection", "keep-alive, x-drop, x-request-id, x-gateway-model-name, content-type"),
        ("x-drop", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("proxy-authorization", "x"),
        ("x-kept", "1"),
    ];
    let mut connection = Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, "hop", &headers, CHAT)).unwrap();
    let answer = connection.answer().unwrap();
    for name in ["connection", "x-r", "keep-alive", "trailer"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!((answer.header("x-kept"), answer.header("x-request-id")), (Some("1"), Some("hop")));
    let seen = &peer.seen()[0];
    for name in ["connection", "x-drop", "keep-alive", "te", "proxy-authorization", "transfer-encoding"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("x-gateway-model-name"), Some("m1"));
    assert_eq!((seen.header("x-request-id"), seen.header("x-kept")), (Some("hop"), Some("1")));
    assert_eq!(seen.header("host"), Some(peer.address.to_string().as_str()));
}

#[test]
fn c06_heads_up_to_the_limit_pass_and_larger_ones_are_nobodys_5xx() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    let one = |bytes: usize| vec![format!("x-big: {}", "a".repeat(bytes))];
    let many = |count: usize| (0..count).map(|n| format!("x-{n}: 1")).collect::<Vec<_>>();
    let cases = [
        (one(17_000), 200),
        (one(60_000), 200),
        (one(70_000), 431),
        (one(1_000_000), 431),
        (many(90), 200),
        (many(101), 431),
        (many(300), 431),
    ];
    for (lines, status) in cases {
        let (count, bytes) = (lines.len(), lines[0].len());
        let answer = send(&gateway, &head_with(lines));
        assert_eq!(answer.status, status, "{count} lines, the first of {bytes} bytes");
        if status == 431 {
            assert_eq!(answer.code(), "head_too_large");
        }
    }
    assert_eq!(peer.seen().len(), 3);
    assert_eq!(peer.seen()[1].header("x-big").map(str::len), Some(60_000), "what passes is whole");
    let refused = || number(&gateway, "inference_gateway_requests_total", &[r#"outcome="head_too_large""#]);
    soon("each refusal is counted", || refused() == 4);
}

#[test]
fn c06_c07_an_endpoints_answer_that_cannot_be_passed_on_is_a_502() {
    let raws = [
        ("too large", format!("HTTP/1.1 200 OK\r\nx-big: {}\r\ncontent-length: 0\r\n\r\n", "a".repeat(70_000))),
        ("too many", format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "x-a: 1\r\n".repeat(300))),
        ("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\nhello!!".to_owned()),
        ("no HTTP", "220 mail.example.com ESMTP\r\n\r\n".to_owned()),
        ("a switch", "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n".to_owned()),
        ("a coding", "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n".to_owned()),
    ];
    let raw = Arc::new(Mutex::new(String::new()));
    let told = Arc::clone(&raw);
    let peer = peer(move |exchange| {
        let raw = told.lock().unwrap().clone();
        if raw.is_empty() {
            return exchange.answer_plainly();
        }
        exchange.send(raw);
        exchange.wait_for_close(AT_ONCE * 5);
        Next::Close
    });
    let gateway = gateway([&peer]);
    for (n, (what, answer)) in raws.into_iter().enumerate() {
        *raw.lock().unwrap() = answer;
        let (id, good) = (format!("bad-{n}"), format!("good-{n}"));
        let answer = ask(&gateway, &id, CHAT);
        assert_eq!((answer.status, answer.code().as_str()), (502, "endpoint_broke"), "{what}");
        let line = ended(&gateway, &id, "endpoint_broke");
        assert!(line["detail"].as_str().is_some_and(|detail| detail.starts_with("m1-0: ")), "{what}: {line}");
        soon("that connection is closed", || peer.seen()[2 * n].closed.is_some());
        raw.lock().unwrap().clear();
        assert_eq!(
            ask(&gateway, &good, CHAT).json()["usage"]["total_tokens"],
            11,
            "{what}: the next answer is its own"
        );
        ended(&gateway, &good, "ok");
    }
}

#[test]
fn c07_bytes_beyond_an_answers_end_never_become_the_next() {
    let peer = peer(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil");
        Next::KeepAlive
    });
    let gateway = gateway([&peer]);
    for n in 0..20 {
        assert_eq!(ask(&gateway, &format!("extra-{n}"), CHAT).text(), "{}");
    }
}

#[test]
fn c09_answers_without_a_body_leave_the_connection_usable() {
    let peer = peer(|exchange| {
        let status = exchange.request.header("x-status").unwrap().to_owned();
        exchange.send(format!("HTTP/1.1 {status}\r\ncontent-length: 999\r\n\r\n"));
        Next::KeepAlive
    });
    let gateway = gateway([&peer]);
    let mut connection = Connection::open(gateway.data);
    for n in 0..3 {
        connection.send("HEAD /v1/models HTTP/1.1\r\nhost: g\r\n\r\n").unwrap();
        let answer = connection.answer_to("HEAD").unwrap();
        assert_eq!(answer.status, 200);
        connection.send("GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n").unwrap();
        let answer = connection.answer_to("GET").unwrap();
        assert_eq!(answer.json()["object"], "list");
        for status in ["204 No Content", "304 Not Modified"] {
            let id = format!("{}-{n}", &status[..3]);
            connection.send(request_bytes(CHATS, &id, &[("x-status", status)], CHAT)).unwrap();
            let answer = connection.answer().unwrap();
            assert_eq!(answer.status.to_string(), status[..3]);
        }
        ended(&gateway, &format!("204-{n}"), "ok");
        ended(&gateway, &format!("304-{n}"), "redirect");
    }
    assert!(
        peer.seen().iter().all(|seen| seen.connection == peer.seen()[0].connection),
        "one connection served them all"
    );
}

#[test]
fn c10_an_upgrade_is_refused_at_once() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    let asked = Instant::now();
    let headers = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    let answer = request(gateway.data, "GET", "/v1/realtime?model=m1", &headers, "");
    assert!((400..=501).contains(&answer.status) && asked.elapsed() < AT_ONCE, "{}", answer.status);
    // On a path that is served the request is an ordinary one: nobody is told to switch.
    let headers = [("connection", "Upgrade"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABk")];
    let answer = request(gateway.data, "POST", CHATS, &headers, CHAT);
    assert_eq!(answer.status, 200);
    assert_eq!(peer.seen()[0].header("upgrade"), None);
}

#[test]
fn c12_compressed_answers_pass_untouched_and_their_usage_is_not_guessed() {
    let gzip = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let json = gzip(r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#);
    let stream = gzip(&format!("data: {USAGE}\n\ndata: [DONE]\n\n"));
    let (sent_json, sent_stream) = (json.clone(), stream.clone());
    let peer = peer(move |exchange| {
        let (kind, body) = if exchange.request.body == STREAM.as_bytes() {
            ("text/event-stream", &sent_stream)
        } else {
            ("application/json", &sent_json)
        };
        exchange.answer(
            "200 OK",
            &[("content-type", kind), ("content-encoding", "gzip"), ("vary", "accept-encoding")],
            body,
        )
    });
    let gateway = gateway([&peer]);
    for (n, accept) in [Some("gzip"), None].into_iter().enumerate() {
        for (kind, body, compressed) in [("json", CHAT, &json), ("stream", STREAM, &stream)] {
            let id = format!("{kind}-{n}");
            let headers: Vec<_> = accept.map(|coding| ("accept-encoding", coding)).into_iter().collect();
            let mut connection = Connection::open(gateway.data);
            connection.send(request_bytes(CHATS, &id, &headers, body)).unwrap();
            let answer = connection.answer().unwrap();
            assert_eq!(&answer.body, compressed);
            assert_eq!(answer.header("content-encoding"), Some("gzip"));
            assert_eq!(answer.header("content-length"), Some(compressed.len().to_string().as_str()));
            assert_eq!(answer.header("vary"), Some("accept-encoding"));
            assert_eq!(ended(&gateway, &id, "ok")["prompt_tokens"], serde_json::Value::Null);
        }
    }
    let asked_with: Vec<_> = peer.seen().iter().map(|seen| seen.header("accept-encoding").map(str::to_owned)).collect();
    assert_eq!(asked_with, [Some("gzip".into()), Some("gzip".into()), None, None], "none is added");
    assert_eq!(number(&gateway, "inference_gateway_usage_missing_total", &[]), 4);
    assert_eq!(number(&gateway, "inference_gateway_tokens_total", &[]), 0);
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let peer = peer(|exchange| {
        let body = exchange.request.body.clone();
        exchange.answer("200 OK", &[("content-type", "application/json")], body)
    });
    let gateway = gateway([&peer]);
    let bodies: Vec<_> = (0..10).map(|n| CHAT.replace("hi", &format!("question {n}"))).collect();
    let all: Vec<u8> =
        bodies.iter().enumerate().flat_map(|(n, body)| request_bytes(CHATS, &format!("pipe-{n}"), &[], body)).collect();
    let mut connection = Connection::open(gateway.data);
    connection.send(all).unwrap();
    for (n, body) in bodies.iter().enumerate() {
        let answer = connection.answer().unwrap();
        assert_eq!((answer.text(), answer.header("x-request-id")), (body.clone(), Some(format!("pipe-{n}").as_str())));
    }
    assert_eq!(count(&gateway, "ok"), 10);
}

#[test]
fn a_request_may_come_one_byte_at_a_time() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    let mut connection = Connection::open(gateway.data);
    for round in ["length", "chunked"] {
        let bytes = if round == "length" {
            request_bytes(CHATS, round, &[], CHAT)
        } else {
            let chunks: String = CHAT.chars().map(|letter| format!("1\r\n{letter}\r\n")).collect();
            format!("POST {CHATS} HTTP/1.1\r\nhost: g\r\nx-request-id: {round}\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
                .into_bytes()
        };
        bytes.iter().for_each(|byte| connection.send([*byte]).unwrap());
        assert_eq!(connection.answer().unwrap().status, 200);
        assert_eq!(ended(&gateway, round, "ok")["bytes_in"], CHAT.len());
    }
    assert!(peer.seen().iter().all(|seen| seen.body == CHAT.as_bytes()));
}

/// Reads a request's head, and what of its body comes along.
fn read_head(stream: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    while !read.windows(4).any(|at| at == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => read.extend_from_slice(&buffer[..count]),
            _ => return false,
        }
    }
    read.starts_with(b"POST")
}

#[test]
fn an_endpoints_early_answer_passes_and_frees_both_sides() {
    // It answers after the head of a request far larger than any buffer, and reads no more of it.
    let (closed, was_closed) = mpsc::channel();
    let closed = Mutex::new(closed);
    let peer = RawPeer::start(move |mut stream| {
        stream.set_read_timeout(Some(AT_ONCE * 10)).unwrap();
        if !read_head(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            return;
        }
        let answer = b"HTTP/1.1 413 Payload Too Large\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer).unwrap();
        // Nothing more is read; that the gateway lets go shows as an error of a further write.
        let started = Instant::now();
        while stream.write_all(b" ").is_ok() && started.elapsed() < AT_ONCE * 5 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = closed.lock().unwrap().send(started.elapsed());
    });
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    let body = CHAT.replace("hi", &"x".repeat(32 << 20));
    let asked = Instant::now();
    let answer = post(gateway.data, CHATS, &body);
    assert_eq!((answer.status, answer.text().as_str(), answer.complete), (413, "{}", true));
    assert!(asked.elapsed() < AT_ONCE * 10, "{:?}", asked.elapsed());
    let line = ended(&gateway, answer.header("x-request-id").unwrap(), "upstream_4xx");
    assert_eq!(line["status"], 413, "{line}");
    assert!(was_closed.recv_timeout(AT_ONCE * 6).unwrap() < AT_ONCE * 2, "the upload is given up");
    let memory = || number(&gateway, "inference_gateway_body_memory_bytes", &[]);
    soon("the body's memory is given back", || memory() == 0);
    assert_eq!(count_all(&gateway), 1);
}
