//! An endpoint that dies inside its answer: the client can tell, nobody asks again, and it is counted as what it was.

use harness::{Config, Gateway, Http2, Next, Peer, Scheduler};

use crate::rig::{
    CHAT, CHATS, STREAM, ask, begin, closing_error, count, count_all, ended, gateway, number, peer, request_bytes,
};

/// Cut in the way and after the number of events that `x-cut` says.
fn cutting() -> Peer {
    peer(|exchange| {
        let how = exchange.request.header("x-cut").unwrap_or("clean 2").to_owned();
        let (how, events) = how.split_once(' ').expect("a way and a count");
        exchange.begin_stream();
        for event in 0..events.parse::<usize>().expect("a count") {
            exchange.token(&format!("t{event}."));
        }
        match how {
            "clean" => exchange.end_chunks(),
            "close" => Next::Close,
            "reset" => Next::Reset,
            "chunk" => {
                exchange.send("40\r\ndata: {\"choi");
                Next::Close
            }
            other => panic!("{other}"),
        }
    })
}

#[test]
fn b07_a_stream_that_was_cut_ends_with_an_error_event() {
    let peers = [cutting(), cutting()];
    let gateway = gateway(&peers);
    let mut asked = 0;
    for how in
        ["clean 0", "clean 2", "close 0", "close 1", "close 2", "reset 0", "reset 1", "reset 2", "chunk 0", "chunk 2"]
    {
        let mut connection = harness::Connection::open(gateway.data);
        let id = how.replace(' ', "-");
        connection.send(request_bytes(CHATS, &id, &[("x-cut", how)], STREAM)).unwrap();
        let answer = connection.answer().unwrap();
        assert_eq!(answer.status, 200, "{how}");
        assert_eq!(closing_error(&answer.text()).as_deref(), Some("endpoint_broke"), "{how}: {}", answer.text());
        assert!(!answer.text().contains("[DONE]"), "{how}");
        // What was whole before the cut is whole for the client. A reset may take what it overtakes.
        if !how.starts_with("reset") {
            let events = how.split_once(' ').unwrap().1.parse::<usize>().unwrap();
            assert_eq!(answer.text().matches("chat.completion.chunk").count(), events, "{how}: {}", answer.text());
        }
        let line = ended(&gateway, &id, "endpoint_broke");
        assert_eq!((line["status"].as_u64(), line["tries"].as_u64()), (Some(200), Some(1)), "{line}");
        assert_eq!(line["bytes_out"], answer.body.len(), "{how}: {line}");
        asked += 1;
    }
    let seen: usize = peers.iter().map(|peer| peer.seen().len()).sum();
    assert_eq!(seen, asked, "nothing was asked twice");
    assert_eq!((count(&gateway, "endpoint_broke"), count_all(&gateway)), (asked as u64, asked as u64));
    assert_eq!(number(&gateway, "inference_gateway_upstream_retries_total", &[]), 0);
}

#[test]
fn b07_the_error_event_speaks_the_clients_api_on_both_protocols() {
    let peer = peer(|exchange| {
        exchange.begin_stream();
        exchange.event(r#"{"type":"ping"}"#);
        exchange.chunk("data: {\"half");
        Next::Reset
    });
    let gateway = gateway([&peer]);
    let client = Http2::open(gateway.data);
    for (path, name) in
        [(CHATS, ""), ("/v1/completions", ""), ("/v1/messages", "event: error\n"), ("/v1/responses", "event: error\n")]
    {
        for id in [format!("h1{path}"), format!("h2{path}")] {
            let text = if id.starts_with("h1") {
                let mut connection = harness::Connection::open(gateway.data);
                connection.send(request_bytes(path, &id, &[], STREAM)).unwrap();
                let answer = connection.answer().unwrap();
                assert!(answer.complete, "{id}");
                answer.text()
            } else {
                let answer = client.post(path, &[("x-request-id", &id)], STREAM);
                assert_eq!(answer.reset, None, "{id}");
                answer.text()
            };
            let code = closing_error(&text);
            assert_eq!(code.as_deref(), Some("endpoint_broke"), "{id}: {text}");
            let last = text.trim_end().rsplit("\n\n").next().unwrap();
            assert!(last.starts_with(&format!("{name}data: ")), "{id}: the half event is closed first: {text}");
            ended(&gateway, &id, "endpoint_broke");
        }
    }
}

#[test]
fn b07_a_cut_answer_that_is_no_stream_ends_uncleanly() {
    let peer = peer(|exchange| {
        match exchange.request.header("x-cut").unwrap() {
            "length" => {
                exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 90\r\n\r\n{\"id\":")
            }
            _ => {
                exchange
                    .send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n");
                exchange.chunk("{\"id\":");
            }
        }
        Next::Close
    });
    let gateway = gateway([&peer]);
    for framing in ["length", "chunked"] {
        let (h1, h2) = (format!("{framing}-h1"), format!("{framing}-h2"));
        let mut connection = harness::Connection::open(gateway.data);
        connection.send(request_bytes(CHATS, &h1, &[("x-cut", framing)], CHAT)).unwrap();
        let answer = connection.answer().unwrap();
        assert!(!answer.complete, "{framing}: {}", answer.text());
        assert_eq!(answer.text(), "{\"id\":");
        ended(&gateway, &h1, "endpoint_broke");
        let answer = Http2::open(gateway.data).post(CHATS, &[("x-request-id", &h2), ("x-cut", framing)], CHAT);
        assert!(answer.reset.is_some(), "{framing}");
        assert_eq!(answer.text(), "{\"id\":");
        ended(&gateway, &h2, "endpoint_broke");
    }
    assert_eq!((count(&gateway, "endpoint_broke"), peer.seen().len()), (4, 4));
}

#[test]
fn b07_c01_a_fresh_connection_that_dies_is_a_502_and_no_replay() {
    for end in [Next::Close, Next::Reset] {
        let peers = [(); 2].map(|()| peer(move |_| end));
        let gateway = gateway(&peers);
        let answer = ask(&gateway, "dies", STREAM);
        assert_eq!((answer.status, answer.code().as_str()), (502, "endpoint_broke"), "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let line = ended(&gateway, "dies", "endpoint_broke");
        assert_eq!((line["status"].as_u64(), line["tries"].as_u64()), (Some(502), Some(1)), "{line}");
        let seen: usize = peers.iter().map(|peer| peer.seen().len()).sum();
        assert_eq!(seen, 1, "the request may be what killed it");
        assert_eq!(count_all(&gateway), 1);
    }
}

#[test]
fn b07_the_tail_of_an_answer_that_a_length_closes_is_no_cut() {
    // Streams without chunks end by length or with the connection: neither is a fault once the terminator was there.
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    let peer = peer(move |exchange| {
        if exchange.request.header("x-framing") == Some("length") {
            return exchange.answer("200 OK", &[("content-type", "text/event-stream")], body);
        }
        exchange.send(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}"));
        Next::Close
    });
    let gateway = gateway([&peer]);
    for framing in ["length", "close"] {
        let mut connection = harness::Connection::open(gateway.data);
        connection.send(request_bytes(CHATS, framing, &[("x-framing", framing)], STREAM)).unwrap();
        let answer = connection.answer().unwrap();
        assert_eq!((answer.text().as_str(), answer.complete), (body, true), "{framing}");
        ended(&gateway, framing, "ok");
    }
}

#[test]
fn an_endpoint_that_dies_leaves_the_others_alone() {
    // One model breaks every stream, the other goes on meanwhile.
    let (broken, whole) = (cutting(), Peer::plain());
    let config = Config::new([
        Scheduler::new("m1", [broken.address]).line("engineType: none"),
        Scheduler::new("m2", [whole.address]).line("engineType: none"),
    ]);
    let gateway = Gateway::start(&config);
    for n in 0..20 {
        let broken = begin(&gateway, &format!("b-{n}"), STREAM);
        let answer = ask(&gateway, &format!("w-{n}"), &CHAT.replace("m1", "m2"));
        assert_eq!(answer.status, 200);
        drop(broken);
    }
    for n in 0..20 {
        gateway.request(&format!("b-{n}"));
    }
    assert_eq!(number(&gateway, "inference_gateway_requests_total", &[r#"model="m2""#, r#"outcome="ok""#]), 20);
}
