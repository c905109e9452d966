//! Messages over HTTP/1.1, and the limits on them.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use proxy::serve::{Limits, Refused};

use crate::rig::{Door, answer, soon};

const HEAD_TIMEOUT: Duration = Duration::from_millis(200);
const IDLE: Duration = Duration::from_millis(600);

fn short() -> Limits {
    Limits { head_timeout: HEAD_TIMEOUT, idle: IDLE, body_idle: HEAD_TIMEOUT, ..Limits::default() }
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let door = Door::echo(Limits::default());
    let mut raw = door.connect().await;
    for text in ["one", "two", "three"] {
        let length = text.len();
        raw.send(format!("POST /x HTTP/1.1\r\nHost: g\r\nContent-Length: {length}\r\n\r\n{text}")).await;
        let (head, body) = raw.answer().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(body, text);
    }
    assert_eq!(door.serving.as_ref().unwrap().open_connections(), 1);
    raw.send("GET / HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n").await;
    assert!(raw.rest().await.unwrap().contains("connection: close"));
}

#[tokio::test]
async fn a_request_may_come_byte_by_byte() {
    let door = Door::echo(Limits::default());
    let mut raw = door.connect().await;
    raw.0.set_nodelay(true).unwrap();
    for byte in b"PUT /x HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n" {
        raw.send([*byte]).await;
    }
    assert_eq!(raw.answer().await.1, "abcd");
}

#[tokio::test]
async fn c03_two_length_signals_close_the_connection_and_hide_no_request() {
    let door = Door::echo(Limits::default());
    let mut raw = door.connect().await;
    raw.send(
        "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n",
    )
    .await;
    let all = raw.rest().await.unwrap();
    assert_eq!(all.matches("HTTP/1.1 ").count(), 1, "{all}");
    assert!(all.contains("connection: close") && all.ends_with("hello"), "{all}");
}

#[tokio::test]
async fn c03_requests_that_can_be_read_two_ways_are_refused() {
    let door = Door::echo(Limits::default());
    for fields in [
        "Host: g\r\nContent-Length: 4\r\nContent-Length: 60",
        "Host: g\r\nContent-Length: 4, 4",
        "Host: g\r\nContent-Length: +4",
        "Host: g\r\nTransfer-Encoding: xchunked",
        "Host: g\r\nTransfer-Encoding: gzip, chunked",
        "Host: g\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Host: g\r\nHost: h",
        "X-No: host",
        "Host: g\r\nX : 1",
        "Host: g\r\n folded: 1",
    ] {
        let mut raw = door.connect().await;
        raw.send(format!("POST / HTTP/1.1\r\n{fields}\r\n\r\nabcdGET /smuggled HTTP/1.1\r\nHost: g\r\n\r\n")).await;
        let all = raw.rest().await.unwrap();
        assert_eq!(all.matches("HTTP/1.1 ").count(), 1, "{fields}: {all}");
        assert!(all.starts_with("HTTP/1.1 400 ") && all.contains("connection: close"), "{fields}: {all}");
        assert!(all.ends_with("{\"BadRequest\":1}"), "{fields}: the body is the gateway's own: {all}");
    }
    assert_eq!(door.refused(), [Refused::BadRequest; 10]);
}

#[tokio::test]
async fn c06_a_head_over_the_limits_gets_a_431_that_can_be_read() {
    let door = Door::echo(Limits::default());
    let many = |count: usize| (0..count).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let long = |bytes: usize| format!("x-long: {}\r\n", "a".repeat(bytes));
    for (fields, status) in [
        (long(17_000), "200"),
        (long(60_000), "200"),
        // With `Host` and `Connection`, these are one hundred lines and one more.
        (many(98), "200"),
        (many(99), "431"),
        (many(300), "431"),
        (long(66_000), "431"),
        (long(1_000_000), "431"),
    ] {
        let mut raw = door.connect().await;
        raw.send(format!("GET / HTTP/1.1\r\nHost: g\r\n{fields}")).await;
        raw.send("Connection: close\r\n\r\n").await;
        let all = raw.rest().await.unwrap();
        assert!(all.starts_with(&format!("HTTP/1.1 {status} ")), "{} bytes: {all}", fields.len());
        assert_eq!(all.ends_with("{\"HeadTooLarge\":1}"), status == "431");
    }
    assert_eq!(door.refused(), [Refused::HeadTooLarge; 4]);
}

#[tokio::test]
async fn a_second_head_that_cannot_be_read_is_refused_after_the_first_answer() {
    let door = Door::echo(Limits::default());
    let mut raw = door.connect().await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\nokNONSENSE\r\n\r\n").await;
    let all = raw.rest().await.unwrap();
    assert!(all.starts_with("HTTP/1.1 200 ") && all.contains("okHTTP/1.1 400 "), "{all}");
    assert_eq!(door.refused(), [Refused::BadRequest]);
}

#[tokio::test]
async fn c11_a_connection_that_sends_nothing_is_closed_at_the_head_limit() {
    let door = Door::echo(short());
    let start = Instant::now();
    assert_eq!(door.connect().await.rest().await.unwrap(), "");
    assert!(start.elapsed() >= HEAD_TIMEOUT && start.elapsed() < IDLE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn c11_a_slow_head_gets_408_at_its_limit_also_byte_by_byte() {
    let door = Door::echo(short());
    let mut raw = door.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\nX: ").await;
    let start = Instant::now();
    let dripping = async {
        // Each byte is progress, and none of it counts.
        while raw.0.try_write(b"a").is_ok() && start.elapsed() < IDLE {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if raw.0.try_read(&mut [0]).is_ok() {
                break;
            }
        }
    };
    soon(dripping).await;
    assert!(start.elapsed() < IDLE, "{:?}", start.elapsed());
    assert_eq!(door.refused(), [Refused::HeadTimeout]);

    let mut raw = door.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\nX: ").await;
    let all = raw.rest().await.unwrap();
    assert!(all.starts_with("HTTP/1.1 408 ") && all.ends_with("{\"HeadTimeout\":1}"), "{all}");
}

#[tokio::test]
async fn c11_idle_connections_have_a_limit_of_their_own() {
    let door = Door::echo(short());
    let mut raw = door.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    raw.answer().await;
    let idle = Instant::now();
    tokio::time::sleep(HEAD_TIMEOUT * 2).await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert!(
        raw.answer().await.0.starts_with("HTTP/1.1 200 "),
        "longer than a head may take is not too long between requests"
    );
    assert_eq!(raw.rest().await.unwrap(), "", "nothing is said to an idle connection");
    let elapsed = idle.elapsed();
    assert!(elapsed >= HEAD_TIMEOUT * 2 + IDLE && elapsed < IDLE * 3, "{elapsed:?}");
    assert_eq!(door.refused(), []);
}

#[tokio::test]
async fn c11_a_slow_second_head_is_cut_as_the_first_is() {
    let door = Door::echo(short());
    let mut raw = door.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    raw.answer().await;
    tokio::time::sleep(HEAD_TIMEOUT * 2).await;
    let start = Instant::now();
    raw.send("GET / HT").await;
    assert!(raw.rest().await.unwrap().starts_with("HTTP/1.1 408 "));
    assert!(start.elapsed() >= HEAD_TIMEOUT && start.elapsed() < IDLE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn c11_a_silent_body_is_an_error_that_the_service_can_answer() {
    let door = Door::echo(short());
    let mut raw = door.connect().await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 100\r\n\r\nsome").await;
    let all = raw.rest().await.unwrap();
    assert!(all.starts_with("HTTP/1.1 408 ") && all.contains("connection: close"), "{all}");
    assert!(all.ends_with("the request's body stalled"), "{all}");
}

#[tokio::test]
async fn c11_live_traffic_is_unhurt_by_two_hundred_slow_sockets() {
    let door = Door::echo(short());
    let mut slow = Vec::new();
    for kind in 0..200 {
        let mut raw = door.connect().await;
        match kind % 3 {
            0 => {}
            1 => raw.send("GET / HTTP/1.1\r\nX: ").await,
            _ => {
                raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
                raw.answer().await;
            }
        }
        slow.push(raw);
    }
    let mut live = door.connect().await;
    let start = Instant::now();
    live.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    live.answer().await;
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    for mut raw in slow {
        raw.rest().await.unwrap();
    }
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_cut() {
    let door = Door::open(Limits { write_stall: HEAD_TIMEOUT, ..Limits::default() }, |_| async {
        answer(200, vec![b'x'; 64 * 1024 * 1024])
    });
    let mut raw = door.connect().await;
    raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    raw.until("\r\n\r\n").await;
    let serving = door.serving.as_ref().unwrap();
    soon(async {
        while serving.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_and_counted() {
    let door = Door::echo(Limits { connections_max: 2, ..Limits::default() });
    let mut held = [door.connect().await, door.connect().await];
    for raw in &mut held {
        raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
        raw.answer().await;
    }
    assert_eq!(door.connect().await.rest().await.unwrap_or_default(), "");
    assert_eq!(door.refused(), [Refused::NoConnection]);
    held[0].send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
    held[0].answer().await;
}

#[tokio::test]
async fn connections_go_to_the_core_with_the_fewest() {
    let door = Door::open(Limits::default(), |_| async {
        answer(200, std::thread::current().name().unwrap_or_default().to_owned())
    });
    let mut held = Vec::new();
    let mut names = Vec::new();
    for _ in 0..6 {
        let mut raw = door.connect().await;
        raw.send("GET / HTTP/1.1\r\nHost: g\r\n\r\n").await;
        names.push(raw.answer().await.1);
        held.push(raw);
    }
    names.sort();
    assert_eq!(names, ["door-0", "door-0", "door-0", "door-1", "door-1", "door-1"]);
}

#[tokio::test]
async fn c09_head_and_empty_answers_leave_the_connection_usable() {
    let door = Door::open(Limits::default(), |request| async move {
        let status = request.uri().path()[1..].parse().unwrap();
        answer(status, if status == 200 { "body" } else { "" })
    });
    let mut raw = door.connect().await;
    for (request, has) in [("HEAD /200", "content-length: 4"), ("GET /204", "204"), ("GET /304", "304")] {
        raw.send(format!("{request} HTTP/1.1\r\nHost: g\r\n\r\n")).await;
        let head = raw.until("\r\n\r\n").await;
        assert!(head.contains(has), "{head}");
    }
    raw.send("GET /200 HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert_eq!(raw.answer().await.1, "body");
}

#[tokio::test]
async fn a_body_read_later_than_the_head_is_whole() {
    let door = Door::open(Limits::default(), |request| async move {
        tokio::task::yield_now().await;
        let mut body = request.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.unwrap().into_data().unwrap().len();
        }
        answer(200, bytes.to_string())
    });
    let mut raw = door.connect().await;
    let body = vec![b'x'; 3_000_000];
    raw.send(format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n", body.len())).await;
    raw.send(&body).await;
    assert_eq!(raw.answer().await.1, "3000000");
}
