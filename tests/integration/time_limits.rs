//! Time limits, scaled: each ends what it is about and nothing else.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use harness::{Config, Exchange, Gateway, Next, Peer, Scheduler, blackhole, post};

use crate::rig::{AT_ONCE, CHAT, STREAM, ask, begin, closing_error, count, count_all, ended, peer, scheduler};

/// Waits to be hung up on.
fn hang(exchange: &mut Exchange) -> Next {
    exchange.wait_for_close(AT_ONCE * 20);
    Next::Close
}

fn limited<'a>(peers: impl IntoIterator<Item = &'a Peer>, timeouts: &str) -> Gateway {
    Gateway::start(&Config::new([scheduler(peers)]).line(&format!("timeouts: {timeouts}")))
}

fn routed<'a>(peers: impl IntoIterator<Item = &'a Peer>, route_timeout: &str) -> Gateway {
    Gateway::start(&Config::new([scheduler(peers).line(&format!("routeTimeout: {route_timeout}"))]))
}

/// The time a request took, which must be at least `limit` and not much more.
fn took(started: Instant, limit: Duration) {
    let took = started.elapsed();
    assert!(took >= limit && took < limit + AT_ONCE * 2, "{took:?} for a limit of {limit:?}");
}

#[test]
fn b10_a_healthy_stream_outlives_every_limit_on_silence() {
    const EVENTS: usize = 40;
    let peer = peer(|exchange| {
        exchange.begin_stream();
        for event in 0..EVENTS {
            exchange.token(&format!("t{event}."));
            // The pace of a slow engine: all of them together are far longer than any limit.
            thread::sleep(Duration::from_millis(50));
        }
        exchange.event("[DONE]");
        exchange.end_chunks()
    });
    let gateway = limited([&peer], "{connect: 500ms, firstByte: 1s, streamIdle: 1s}");
    let started = Instant::now();
    let answer = ask(&gateway, "long", STREAM);
    assert!(started.elapsed() > Duration::from_millis(1900));
    assert_eq!(answer.text().matches("chat.completion.chunk").count(), EVENTS);
    assert!(answer.complete && answer.text().ends_with("data: [DONE]\n\n"));
    ended(&gateway, "long", "ok");
}

#[test]
fn b10_silence_inside_a_stream_ends_it_marked() {
    let peer = peer(|exchange| {
        if exchange.request.body == STREAM.as_bytes() {
            exchange.begin_stream();
            exchange.token("a");
        } else {
            exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"id\":");
        }
        hang(exchange)
    });
    let gateway = limited([&peer], "{streamIdle: 300ms}");
    let started = Instant::now();
    let answer = ask(&gateway, "stalled", STREAM);
    took(started, Duration::from_millis(300));
    assert_eq!(closing_error(&answer.text()).as_deref(), Some("endpoint_timeout"), "{}", answer.text());
    let line = ended(&gateway, "stalled", "endpoint_timeout");
    assert_eq!(line["status"], 200, "{line}");
    let answer = ask(&gateway, "stalled-json", CHAT);
    assert!(!answer.complete);
    ended(&gateway, "stalled-json", "endpoint_timeout");
    harness::soon("the endpoint is hung up on", || peer.seen().iter().all(|seen| seen.closed.is_some()));
    assert_eq!((count(&gateway, "endpoint_timeout"), count_all(&gateway), peer.seen().len()), (2, 2, 2));
}

#[test]
fn b11_an_endpoint_that_never_answers_is_a_504_and_is_hung_up_on() {
    let peers = [peer(hang), peer(hang)];
    let gateway = limited(&peers, "{firstByte: 300ms}");
    let started = Instant::now();
    let answer = ask(&gateway, "hangs", CHAT);
    took(started, Duration::from_millis(300));
    assert_eq!((answer.status, answer.code().as_str()), (504, "endpoint_timeout"));
    assert_eq!(answer.json()["error"]["type"], "timeout_error");
    let line = ended(&gateway, "hangs", "endpoint_timeout");
    assert_eq!((line["status"].as_u64(), line["tries"].as_u64()), (Some(504), Some(1)), "{line}");
    let seen: Vec<_> = peers.iter().flat_map(Peer::seen).collect();
    assert_eq!(seen.len(), 1, "a request that an endpoint has is not sent again");
    harness::soon("the endpoint is hung up on", || peers.iter().flat_map(Peer::seen).all(|seen| seen.closed.is_some()));
}

#[test]
fn b11_an_endpoint_that_never_answers_slows_no_other() {
    const CALLS: usize = 120;
    let hanging = peer(hang);
    let peers = [Peer::plain(), Peer::plain(), Peer::plain()];
    let gateway = limited([&hanging].into_iter().chain(&peers), "{firstByte: 1s}");
    let (done, all) = mpsc::channel();
    thread::scope(|scope| {
        for n in 0..CALLS {
            // The pace of open-loop load, 100 calls a second; nothing waits for this time to pass.
            thread::sleep(Duration::from_millis(10));
            let (done, at) = (done.clone(), gateway.data);
            scope.spawn(move || {
                let started = Instant::now();
                let answer = post(at, "/v1/chat/completions", CHAT.replace("hi", &format!("question {n}")));
                done.send((answer.status, started.elapsed())).unwrap();
            });
        }
    });
    drop(done);
    let (mut served, timed_out): (Vec<_>, Vec<_>) = all.iter().partition(|(status, _)| *status == 200);
    served.sort_by_key(|(_, took)| *took);
    assert!(timed_out.iter().all(|(status, _)| *status == 504), "{timed_out:?}");
    // It keeps being tried while it is not ejected, but its open requests weigh: less than an equal share.
    assert!((1..CALLS / 4).contains(&timed_out.len()), "{} of {CALLS} timed out", timed_out.len());
    let median = served[served.len() / 2].1;
    assert!(median < Duration::from_millis(100), "{median:?}");
    assert!(served[served.len() - 1].1 < Duration::from_millis(900), "{served:?}");
    harness::soon("all are counted", || count_all(&gateway) == CALLS as u64);
    assert_eq!(
        (count(&gateway, "ok"), count(&gateway, "endpoint_timeout")),
        (served.len() as u64, timed_out.len() as u64)
    );
}

#[test]
fn route_timeout_ends_a_request_before_its_answer() {
    let peer = peer(hang);
    let gateway = routed([&peer], "300ms");
    let started = Instant::now();
    let answer = ask(&gateway, "route", CHAT);
    took(started, Duration::from_millis(300));
    assert_eq!((answer.status, answer.code().as_str()), (504, "endpoint_timeout"));
    ended(&gateway, "route", "endpoint_timeout");
    harness::soon("the endpoint is hung up on", || peer.seen()[0].closed.is_some());
}

#[test]
fn route_timeout_ends_a_stream_that_is_healthy() {
    let peer = peer(|exchange| {
        if exchange.request.body != STREAM.as_bytes() {
            exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"id\":");
            return hang(exchange);
        }
        exchange.begin_stream();
        let started = Instant::now();
        while started.elapsed() < AT_ONCE * 5 {
            exchange.token("t");
            if exchange.wait_for_close(Duration::from_millis(20)) {
                break;
            }
        }
        Next::Close
    });
    let gateway = routed([&peer], "400ms");
    let started = Instant::now();
    let answer = ask(&gateway, "route", STREAM);
    took(started, Duration::from_millis(400));
    assert!(answer.complete);
    assert_eq!(closing_error(&answer.text()).as_deref(), Some("endpoint_timeout"), "{}", answer.text());
    ended(&gateway, "route", "endpoint_timeout");
    let started = Instant::now();
    assert!(!ask(&gateway, "route-json", CHAT).complete);
    took(started, Duration::from_millis(400));
    ended(&gateway, "route-json", "endpoint_timeout");
    harness::soon("the endpoint is hung up on", || peer.seen().iter().all(|seen| seen.closed.is_some()));
}

#[test]
fn route_timeout_covers_connecting() {
    let (address, _held) = blackhole();
    let config = Config::new([Scheduler::new("m1", [address]).line("engineType: none").line("routeTimeout: 300ms")]);
    let gateway = Gateway::start(&config.line("timeouts: {connect: 30s}"));
    let started = Instant::now();
    let answer = ask(&gateway, "route", CHAT);
    took(started, Duration::from_millis(300));
    assert_eq!((answer.status, answer.code().as_str()), (504, "endpoint_timeout"));
    ended(&gateway, "route", "endpoint_timeout");
}

#[test]
fn a_connection_that_is_not_made_in_time_is_a_503() {
    let (address, _held) = blackhole();
    let gateway = Gateway::start(&Config::plain("m1", [address]).line("timeouts: {connect: 300ms}"));
    let started = Instant::now();
    let answer = ask(&gateway, "connect", CHAT);
    took(started, Duration::from_millis(300));
    assert_eq!((answer.status, answer.code().as_str()), (503, "endpoint_unreachable"));
    ended(&gateway, "connect", "endpoint_unreachable");
}

#[test]
fn no_limit_is_no_limit() {
    let (go, gone) = mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let peer = peer(move |exchange| {
        let _ = gone.lock().unwrap().recv();
        exchange.answer_plainly()
    });
    let gateway = Gateway::start(
        &Config::new([scheduler([&peer]).line("routeTimeout: 0s")])
            .line("timeouts: {connect: 0s, firstByte: 0s, streamIdle: 0s}"),
    );
    let mut connection = begin(&gateway, "patient", CHAT);
    connection.patience(Duration::from_millis(500));
    assert!(connection.head().is_err(), "still waiting");
    go.send(()).unwrap();
    connection.patience(Duration::from_secs(20));
    assert_eq!(connection.answer().unwrap().status, 200);
    ended(&gateway, "patient", "ok");
}
