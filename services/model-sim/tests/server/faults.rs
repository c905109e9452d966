//! Faults switched on and off at run time do what they say, and only that.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use model_sim::{Outcome, Running};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::client::{Connection, PATIENCE, events, eventually, get, post, request, send, start};

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    let messages = json!([{"role": "user", "content": "hello there"}]);
    json!({"model": "llama", "max_tokens": 10, "ignore_eos": true, "stream": stream, "messages": messages})
}

async fn put(server: &Running, faults: Value) {
    let answer = send(server.address(), request(Method::PUT, "/sim/faults", faults.to_string())).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}

#[tokio::test]
async fn statuses_with_retry_after_for_the_next_requests() {
    let server = start(|_| {}).await;
    put(&server, json!({"status": 429, "retry_after_s": 7, "for_next": 2})).await;
    for _ in 0..2 {
        let refused = post(server.address(), CHAT, &chat(false)).await;
        assert_eq!((refused.status.as_u16(), &refused.headers["retry-after"]), (429, &"7".parse().unwrap()));
    }
    assert_eq!(post(server.address(), CHAT, &chat(false)).await.status, StatusCode::OK);
    put(&server, json!({"status": 500, "body": "{\"odd\":1}", "match": "hello"})).await;
    assert_eq!(post(server.address(), CHAT, &chat(false)).await.json(), json!({"odd": 1}));
    let other = json!({"model": "llama", "max_tokens": 1, "prompt": "bye"});
    assert_eq!(post(server.address(), "/v1/completions", &other).await.status, StatusCode::OK);
    // Probes and metrics stay untouched unless named.
    put(&server, json!({"status": 503})).await;
    assert_eq!(get(server.address(), "/health").await.status, StatusCode::OK);
    put(&server, json!({"status": 503, "path": "/health"})).await;
    assert_eq!(get(server.address(), "/health").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let cleared = send(server.address(), request(Method::DELETE, "/sim/faults", "")).await.unwrap();
    assert_eq!(cleared.json()["requests"], json!([]));
    assert_eq!(get(server.address(), "/health").await.status, StatusCode::OK);
    let wrong = send(server.address(), request(Method::PUT, "/sim/faults", "{\"statsu\":1}")).await.unwrap();
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_server_dies_before_its_head_or_after_some_events() {
    let server = start(|_| {}).await;
    put(&server, json!({"die_after_events": 0})).await;
    let error = send(server.address(), request(Method::POST, CHAT, chat(true).to_string())).await.unwrap_err();
    assert!(error.starts_with("head:"), "{error}");
    put(&server, json!({"die_after_events": 3})).await;
    let mut connection = Connection::open(server.address()).await.unwrap();
    let response = connection.send(request(Method::POST, CHAT, chat(true).to_string())).await.unwrap();
    let mut body = response.into_body();
    let mut got = Vec::new();
    let error = loop {
        match body.frame().await {
            Some(Ok(frame)) => got.extend_from_slice(frame.data_ref().unwrap()),
            Some(Err(error)) => break error,
            None => panic!("a reset is no end: {}", String::from_utf8_lossy(&got)),
        }
    };
    assert_eq!(String::from_utf8(got).unwrap().matches("data: ").count(), 3);
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::ConnectionReset));
    // A body that is no stream breaks off in its middle.
    put(&server, json!({"die_after_events": 1})).await;
    let error = send(server.address(), request(Method::POST, CHAT, chat(false).to_string())).await.unwrap_err();
    assert!(error.starts_with("body:"), "{error}");
    let broken = server.requests().iter().filter(|seen| seen.outcome == Outcome::Broken).count();
    assert_eq!(broken, 3);
    eventually(async || server.live_requests(), |live| *live == 0).await;
}

#[tokio::test]
async fn a_server_hangs_before_its_head_or_in_a_stream() {
    let server = start(|_| {}).await;
    for fault in [json!({"hang": true}), json!({"hang_after_events": 2})] {
        put(&server, fault).await;
        let patience = Duration::from_millis(300);
        let exchange = send(server.address(), request(Method::POST, CHAT, chat(true).to_string()));
        assert!(tokio::time::timeout(patience, exchange).await.is_err(), "it does not come to an end");
        eventually(async || server.requests(), |seen| seen.last().unwrap().outcome == Outcome::ClientGone).await;
        eventually(async || server.live_requests(), |live| *live == 0).await;
    }
    assert_eq!(server.requests().last().unwrap().events, 2);
}

#[tokio::test]
async fn delays_are_kept() {
    let server = start(|_| {}).await;
    put(&server, json!({"delay_headers_ms": 120, "delay_first_ms": 120, "gap_ms": 20})).await;
    let began = Instant::now();
    let mut connection = Connection::open(server.address()).await.unwrap();
    let response = connection.send(request(Method::POST, CHAT, chat(true).to_string())).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(120));
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(240));
    body.collect().await.unwrap();
    let events = server.requests().last().unwrap().events;
    assert!(began.elapsed() >= Duration::from_millis(240 + 20 * (events - 1)), "{events} events");
}

#[tokio::test]
async fn a_stream_may_end_with_an_error_event() {
    let server = start(|_| {}).await;
    put(&server, json!({"error_event_after": 2})).await;
    let events = events(&post(server.address(), CHAT, &chat(true)).await);
    assert_eq!((events.len(), &events[2]["error"]["code"], &events[3]), (4, &json!(500), &json!("[DONE]")));
}

#[tokio::test]
async fn an_early_answer_does_not_wait_for_the_body() {
    let server = start(|_| {}).await;
    put(&server, json!({"early_answer": true, "status": 413})).await;
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: sim\r\ncontent-length: 1000000\r\n\r\nbegin");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    assert!(!server.requests().last().unwrap().body_complete);
}

#[tokio::test]
async fn what_reached_the_server_is_written_down() {
    let server = start(|_| {}).await;
    let body = Bytes::from(chat(false).to_string());
    let mut sent = request(Method::POST, &format!("{CHAT}?a=1"), body.clone());
    sent.headers_mut().append("x-twice", "one".parse().unwrap());
    sent.headers_mut().append("x-twice", "two".parse().unwrap());
    send(server.address(), sent).await.unwrap();
    let seen = get(server.address(), "/sim/requests").await.json()["requests"][0].clone();
    assert_eq!(seen["target"], format!("{CHAT}?a=1"));
    assert_eq!((&seen["body_bytes"], &seen["body_complete"]), (&json!(body.len()), &json!(true)));
    assert_eq!(seen["body_xxh3"], format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&body)));
    assert_eq!((&seen["status"], &seen["outcome"]), (&json!(200), &json!("answered")));
    let twice: Vec<&Value> =
        seen["headers"].as_array().unwrap().iter().filter(|h| h[0] == "x-twice").map(|h| &h[1]).collect();
    assert_eq!(twice, [&json!("one"), &json!("two")]);
    post(server.address(), "/sim/reset", &json!({})).await;
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_refusing_server_comes_back_on_the_same_port() {
    let server = start(|options| options.admin = Some(([127, 0, 0, 1], 0).into())).await;
    let admin = server.admin_address().unwrap();
    let refuse = |yes: bool| async move {
        let faults = json!({"refuse": yes}).to_string();
        assert_eq!(send(admin, request(Method::PUT, "/sim/faults", faults)).await.unwrap().status, StatusCode::OK);
    };
    let mut idle = Connection::open(server.address()).await.unwrap();
    idle.send(request(Method::GET, "/health", "")).await.unwrap();
    refuse(true).await;
    idle.closed().await;
    eventually(async || Connection::open(server.address()).await.is_err(), |refused| *refused).await;
    refuse(false).await;
    eventually(async || Connection::open(server.address()).await.is_ok(), |accepted| *accepted).await;
    assert_eq!(get(server.address(), "/health").await.status, StatusCode::OK);
}

#[tokio::test]
async fn metrics_pages_go_wrong_in_every_way() {
    let server = start(|_| {}).await;
    let page = async |fault: &str| {
        put(&server, json!({"metrics": fault})).await;
        send(server.address(), request(Method::GET, "/metrics", "")).await
    };
    let running = "vllm:num_requests_running{engine=\"0\",model_name=\"llama\"} ";
    assert!(page("ok").await.unwrap().text().contains(&format!("{running}0.0")));
    assert!(page("nan").await.unwrap().text().contains(&format!("{running}NaN")));
    let missing = page("missing").await.unwrap().text();
    assert!(!missing.contains("vllm:") && missing.contains("python_info"));
    assert!(page("empty").await.unwrap().body.is_empty());
    assert!(std::str::from_utf8(&page("broken").await.unwrap().body).is_err());
    assert!(page("half").await.unwrap_err().starts_with("body:"));
    assert_eq!(page("404").await.unwrap().status, StatusCode::NOT_FOUND);
    assert_eq!(page("500").await.unwrap().status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(page("redirect").await.unwrap().status, StatusCode::TEMPORARY_REDIRECT);
    put(&server, json!({"metrics": "hang"})).await;
    let hanging = tokio::time::timeout(Duration::from_millis(100), get(server.address(), "/metrics"));
    assert!(hanging.await.is_err());
    let frozen = page("frozen").await.unwrap().text();
    post(server.address(), CHAT, &chat(false)).await;
    assert_eq!(get(server.address(), "/metrics").await.text(), frozen);
    assert_ne!(page("ok").await.unwrap().text(), frozen);
}

#[tokio::test]
async fn idle_time_can_be_shortened() {
    let server = start(|_| {}).await;
    put(&server, json!({"close_idle_ms": 10})).await;
    let mut connection = Connection::open(server.address()).await.unwrap();
    connection.send(request(Method::GET, "/health", "")).await.unwrap();
    connection.closed().await;
}
