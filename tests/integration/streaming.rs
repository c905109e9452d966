//! Event streams pass as they are and when they come, and what they say is counted.

use std::{
    io::ErrorKind,
    sync::{Mutex, mpsc},
    time::{Duration, Instant},
};

use harness::{Http2, Next};

use crate::rig::{
    CHAT, CHATS, STREAM, USAGE, ask, begin, count, count_all, ended, gateway, number, peer, request_bytes,
};

/// A stream with letters of two, three and four bytes, and its usage.
fn stream() -> String {
    let token = |text: &str| {
        format!("data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    format!("{}{}data: {USAGE}\n\ndata: [DONE]\n\n", token("你好é😀"), token("b"))
}

#[test]
fn b01_b02_every_split_gives_the_same_bytes_and_the_same_counts() {
    let whole = stream();
    let peer = peer(|exchange| {
        let at: usize = exchange.request.header("x-split").unwrap().parse().unwrap();
        let whole = stream();
        let (first, rest) = whole.as_bytes().split_at(at);
        exchange.begin_stream();
        exchange.chunk(first);
        exchange.chunk(rest);
        exchange.end_chunks()
    });
    let gateway = gateway([&peer]);
    let splits = 1..whole.len();
    let mut connection = harness::Connection::open(gateway.data);
    for at in splits.clone() {
        let at = at.to_string();
        connection.send(request_bytes(CHATS, &format!("split-{at}"), &[("x-split", &at)], STREAM)).unwrap();
        let answer = connection.answer().unwrap();
        assert_eq!((answer.status, answer.text()), (200, whole.clone()), "split at {at}");
        assert!(answer.complete);
    }
    for at in [1, 60, whole.len() - 1] {
        let line = ended(&gateway, &format!("split-{at}"), "ok");
        assert_eq!((line["prompt_tokens"].as_u64(), line["completion_tokens"].as_u64()), (Some(9), Some(2)), "{line}");
        assert_eq!(line["bytes_out"], whole.len(), "{line}");
        assert!(line["ttft_ms"].as_f64().unwrap() <= line["duration_ms"].as_f64().unwrap(), "{line}");
        assert_eq!(line["stream"], true, "{line}");
    }
    let requests = splits.len() as u64;
    assert_eq!((count(&gateway, "ok"), count_all(&gateway)), (requests, requests));
    let tokens = |kind: &str| number(&gateway, "inference_gateway_tokens_total", &[&format!("kind=\"{kind}\"")]);
    assert_eq!((tokens("prompt"), tokens("completion")), (9 * requests, 2 * requests));
    assert_eq!(number(&gateway, "inference_gateway_time_to_first_token_seconds_count", &[]), requests);
    assert_eq!(number(&gateway, "inference_gateway_inter_token_seconds_count", &[]), requests);
    assert_eq!(number(&gateway, "inference_gateway_usage_missing_total", &[]), 0);
}

#[test]
fn b02_one_byte_per_write_on_the_wire() {
    let peer = peer(|exchange| {
        let body = stream();
        let wire = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        wire.as_bytes().iter().for_each(|byte| exchange.send([*byte]));
        Next::KeepAlive
    });
    let gateway = gateway([&peer]);
    let answer = ask(&gateway, "bytes", STREAM);
    assert_eq!(answer.text(), stream());
    assert_eq!(ended(&gateway, "bytes", "ok")["completion_tokens"], 2);
}

#[test]
fn b12_each_event_is_with_the_client_before_the_next_is_made() {
    const EVENTS: usize = 20;
    // The peer writes an event only when the client has the one before: anything held back would stop the whole.
    let (next, turns) = mpsc::channel::<()>();
    let turns = Mutex::new(turns);
    let peer = peer(move |exchange| {
        exchange.begin_stream();
        for event in 0..EVENTS {
            exchange.token(&format!("t{event}."));
            if turns.lock().unwrap().recv_timeout(Duration::from_secs(20)).is_err() {
                return Next::Close;
            }
        }
        exchange.event("[DONE]");
        exchange.end_chunks()
    });
    let gateway = gateway([&peer]);
    let coding = [("accept-encoding", "gzip, br, zstd")];
    let has = |bytes: &[u8], event: usize| String::from_utf8_lossy(bytes).contains(&format!("t{event}."));

    let mut connection = harness::Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, "lag", &coding, STREAM)).unwrap();
    let mut lags = Vec::new();
    for event in 0..EVENTS {
        let made = Instant::now();
        connection.read_until(|bytes| has(bytes, event)).unwrap();
        lags.push(made.elapsed());
        next.send(()).unwrap();
    }
    let answer = connection.answer().unwrap();
    assert_eq!(answer.header("content-encoding"), None);
    assert_eq!(peer.seen()[0].header("accept-encoding"), Some("gzip, br, zstd"));
    // The first one includes the pick; the rest is only the way, with room for a loaded machine.
    lags[1..].sort();
    assert!(lags[1..][EVENTS / 2] < Duration::from_millis(100), "{lags:?}");
    ended(&gateway, "lag", "ok");

    let client = Http2::open(gateway.data);
    let mut open = client.start("POST", CHATS, &[("x-request-id", "lag2"), coding[0]], STREAM);
    for event in 0..EVENTS {
        client.read_until(&mut open, |bytes| has(bytes, event));
        next.send(()).unwrap();
    }
    assert!(client.finish(open).text().ends_with("data: [DONE]\n\n"));
    ended(&gateway, "lag2", "ok");
}

#[test]
fn b06_an_error_to_a_streaming_call_keeps_its_status_its_json_and_its_length() {
    const ERROR: &str = r#"{"object":"error","message":"too long","type":"BadRequestError","code":400}"#;
    let peer = peer(|exchange| exchange.answer("400 Bad Request", &[("content-type", "application/json")], ERROR));
    let gateway = gateway([&peer]);
    let answer = ask(&gateway, "refused", STREAM);
    assert_eq!((answer.status, answer.text().as_str()), (400, ERROR));
    assert_eq!(answer.header("content-length"), Some(ERROR.len().to_string().as_str()));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let line = ended(&gateway, "refused", "upstream_4xx");
    assert_eq!((line["status"].as_u64(), line["stream"].as_bool()), (Some(400), Some(false)), "{line}");
    assert_eq!((count(&gateway, "upstream_4xx"), count_all(&gateway)), (1, 1));
    assert_eq!(number(&gateway, "inference_gateway_usage_missing_total", &[]), 0, "an error takes no tokens");
}

#[test]
fn b08_an_error_event_inside_200_is_an_error_and_its_bytes_pass() {
    let peer = peer(|exchange| {
        let code = exchange.request.header("x-code").unwrap().to_owned();
        exchange.begin_stream();
        exchange.event(&format!(r#"{{"error":{{"message":"too long","type":"BadRequestError","code":{code}}}}}"#));
        exchange.event("[DONE]");
        exchange.end_chunks()
    });
    let gateway = gateway([&peer]);
    for n in 0..10 {
        let mut connection = harness::Connection::open(gateway.data);
        connection.send(request_bytes(CHATS, &format!("bad-{n}"), &[("x-code", "400")], STREAM)).unwrap();
        let answer = connection.answer().unwrap();
        let sent = r#"data: {"error":{"message":"too long","type":"BadRequestError","code":400}}"#;
        assert_eq!((answer.status, answer.text()), (200, format!("{sent}\n\ndata: [DONE]\n\n")));
        assert_eq!(ended(&gateway, &format!("bad-{n}"), "upstream_4xx")["completion_tokens"], serde_json::Value::Null);
    }
    let mut connection = harness::Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, "worse", &[("x-code", "500")], STREAM)).unwrap();
    connection.answer().unwrap();
    ended(&gateway, "worse", "upstream_5xx");
    assert_eq!(number(&gateway, "inference_gateway_tokens_total", &[]), 0);
    peer.follow(|exchange| exchange.answer_plainly());
    assert_eq!(ask(&gateway, "good", CHAT).status, 200, "the endpoint is not punished for its clients' errors");
    assert_eq!((count(&gateway, "upstream_4xx"), count(&gateway, "upstream_5xx"), count(&gateway, "ok")), (10, 1, 1));
}

#[test]
fn b09_a_silent_engine_is_a_silent_stream() {
    let (go, gone) = mpsc::channel::<()>();
    let gone = Mutex::new(gone);
    let peer = peer(move |exchange| {
        exchange.begin_stream();
        let _ = gone.lock().unwrap().recv();
        exchange.token("a");
        exchange.event("[DONE]");
        exchange.end_chunks()
    });
    let gateway = gateway([&peer]);
    let mut connection = begin(&gateway, "silence", STREAM);
    let (status, _) = connection.head().unwrap();
    assert_eq!(status, 200, "the head passes at once");
    connection.patience(Duration::from_secs(2));
    let error = connection.read_until(|bytes| !bytes.is_empty()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    go.send(()).unwrap();
    connection.patience(Duration::from_secs(20));
    connection.read_until(|bytes| bytes.ends_with(b"0\r\n\r\n")).unwrap();
    assert!(String::from_utf8(connection.take_read()).unwrap().contains("\r\ndata: {"));
    ended(&gateway, "silence", "ok");
}

#[test]
fn b14_usage_is_read_by_what_the_answer_is() {
    let peer = peer(|exchange| {
        if exchange.request.body == CHAT.as_bytes() {
            exchange.begin_stream();
            exchange.chunk(stream());
            exchange.end_chunks()
        } else {
            exchange.answer_plainly()
        }
    });
    let gateway = gateway([&peer]);
    let answer = ask(&gateway, "sse", CHAT);
    assert_eq!(answer.text(), stream());
    let line = ended(&gateway, "sse", "ok");
    assert_eq!((line["prompt_tokens"].as_u64(), line["stream"].as_bool()), (Some(9), Some(true)), "{line}");
    let answer = ask(&gateway, "json", STREAM);
    assert_eq!(answer.json()["usage"]["total_tokens"], 11);
    let line = ended(&gateway, "json", "ok");
    assert_eq!((line["completion_tokens"].as_u64(), line["stream"].as_bool()), (Some(2), Some(false)), "{line}");
    assert_eq!(number(&gateway, "inference_gateway_tokens_total", &[r#"kind="prompt""#]), 18);
}

#[test]
fn an_answer_without_usage_is_counted_as_such_and_never_guessed() {
    let peer = peer(|exchange| {
        exchange.begin_stream();
        exchange.token("a");
        exchange.event("[DONE]");
        exchange.end_chunks()
    });
    let gateway = gateway([&peer]);
    ask(&gateway, "none", STREAM);
    assert_eq!(ended(&gateway, "none", "ok")["completion_tokens"], serde_json::Value::Null);
    assert_eq!(number(&gateway, "inference_gateway_usage_missing_total", &[r#"model="m1""#]), 1);
    assert_eq!(number(&gateway, "inference_gateway_tokens_total", &[]), 0);
}
