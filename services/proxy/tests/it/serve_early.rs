//! Answers given before the request was read.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use proxy::serve::Limits;

use crate::rig::{Door, Raw, answer, soon};

/// More than is read for the sake of the connection.
const LARGE: usize = 3 * 1024 * 1024;

fn refusing() -> Door {
    Door::open(Limits::default(), |_| async { answer(413, "too large") })
}

async fn write_all_then_read(raw: &mut Raw, head: &str, tail: &str) -> String {
    raw.send(head).await;
    raw.send(vec![b'x'; LARGE]).await;
    raw.send(tail).await;
    raw.rest().await.expect("an end, not a reset")
}

#[tokio::test]
async fn a03_a_413_can_be_read_by_who_writes_everything_first() {
    let door = refusing();
    for _ in 0..25 {
        let head = format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {LARGE}\r\n\r\n");
        let all = write_all_then_read(&mut door.connect().await, &head, "").await;
        assert!(all.starts_with("HTTP/1.1 413 ") && all.ends_with("too large"), "{all}");
        assert!(all.contains("connection: close"), "{all}");
        let head = format!("POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n{LARGE:x}\r\n");
        let all = write_all_then_read(&mut door.connect().await, &head, "\r\n0\r\n\r\n").await;
        assert!(all.starts_with("HTTP/1.1 413 ") && all.ends_with("too large"), "{all}");
    }
}

#[tokio::test]
async fn a03_also_when_the_answer_is_larger_than_any_buffer() {
    let door = Door::open(Limits::default(), |_| async { answer(413, vec![b'a'; 16 * 1024 * 1024]) });
    let head = format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n", 20 * LARGE);
    let mut raw = door.connect().await;
    raw.send(head).await;
    for _ in 0..20 {
        raw.send(vec![b'x'; LARGE]).await;
    }
    assert!(raw.rest().await.unwrap().len() > 16 * 1024 * 1024);
}

#[tokio::test]
async fn lingering_ends_at_its_limits() {
    let limits = Limits { linger: Duration::from_millis(150), ..Limits::default() };
    let door = Door::open(limits, |_| async { answer(413, "too large") });
    let mut raw = door.connect().await;
    raw.send(format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {LARGE}\r\n\r\nsome")).await;
    assert!(raw.rest().await.unwrap().ends_with("too large"));
    // Our end is not closed and nothing more is sent: the server does not wait for ever.
    let serving = door.serving.as_ref().unwrap();
    soon(async {
        while serving.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_small_unread_body_does_not_cost_the_connection() {
    let door = Door::open(Limits::default(), |_| async { answer(401, "who?") });
    let mut raw = door.connect().await;
    for _ in 0..3 {
        raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 5000\r\n\r\n").await;
        let (head, body) = raw.answer().await;
        assert!(head.starts_with("HTTP/1.1 401 ") && !head.contains("connection: close"), "{head}");
        assert_eq!(body, "who?");
        raw.send(vec![b'x'; 5000]).await;
    }
}

#[tokio::test]
async fn a_small_unread_body_that_never_comes_does() {
    let limits = Limits { linger: Duration::from_millis(150), ..Limits::default() };
    let door = Door::open(limits, |_| async { answer(401, "who?") });
    let mut raw = door.connect().await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 5000\r\n\r\n").await;
    assert!(raw.rest().await.unwrap().ends_with("who?"));
}

#[tokio::test]
async fn c04_a_refusal_comes_at_once_without_a_100_and_closes() {
    let door = refusing();
    let mut raw = door.connect().await;
    let start = Instant::now();
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 2000\r\nExpect: 100-continue\r\n\r\n").await;
    let (head, _) = raw.answer().await;
    assert!(start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
    assert!(head.starts_with("HTTP/1.1 413 ") && head.contains("connection: close"), "{head}");
}

#[tokio::test]
async fn c04_the_100_comes_when_the_body_is_wanted_and_not_before() {
    let (want, wanted) = tokio::sync::watch::channel(false);
    let door = Door::open(Limits::default(), move |request| {
        let mut wanted = wanted.clone();
        async move {
            wanted.wait_for(|wanted| *wanted).await.unwrap();
            answer(200, request.into_body().collect().await.unwrap().to_bytes())
        }
    });
    let mut raw = door.connect().await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n").await;
    let early = tokio::time::timeout(Duration::from_millis(50), raw.0.readable()).await;
    assert!(early.is_err(), "nothing is said before the body is wanted");
    want.send(true).unwrap();
    assert_eq!(raw.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    raw.send("body").await;
    assert_eq!(raw.answer().await.1, "body");
}

#[tokio::test]
async fn c04_other_expectations_are_ignored() {
    let door = Door::echo(Limits::default());
    let mut raw = door.connect().await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\nExpect: foo\r\n\r\nok").await;
    assert_eq!(raw.answer().await.1, "ok");
}

#[tokio::test]
async fn a_request_body_may_outlive_the_head_of_its_answer() {
    let door = Door::open(Limits::default(), |request| async move {
        let body = request.into_body().map_err(Into::into).boxed_unsync();
        http::Response::new(body)
    });
    let mut raw = door.connect().await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 6\r\n\r\nabc").await;
    raw.until("abc").await;
    raw.send("def").await;
    raw.until("def").await;
}
