//! When a request is sent again, and when not.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use harness::{Config, Gateway, Next, Peer, Scheduler, soon};

use crate::rig::{CHAT, CHATS, ask, count, count_all, ended, gateway, number, peer, request_bytes};

/// An address where nobody listens.
fn dead() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound socket has an address")
}

/// A peer that shows a metrics page with so many waiting, and serves.
fn waiting(count: u32) -> Peer {
    Peer::start(move |exchange| {
        if exchange.request.line == "GET /metrics" {
            let page = format!(
                "vllm:num_requests_running{{model_name=\"m1\"}} 0\nvllm:num_requests_waiting{{model_name=\"m1\"}} {count}\n\
                 vllm:kv_cache_usage_perc{{model_name=\"m1\"}} 0.1\n"
            );
            return exchange.answer("200 OK", &[("content-type", "text/plain; version=0.0.4")], page);
        }
        exchange.answer_plainly()
    })
}

/// An endpoint whose page is that of `page` and whose serving port is dead: always the first choice, never reachable.
fn unreachable_favourite(page: &Peer) -> String {
    format!(
        "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: m1-dead, labels: {{app: m1}}}}\n\
         spec: {{address: 127.0.0.1, port: {}, metricsPort: {}}}\n",
        dead().port(),
        page.address.port()
    )
}

#[test]
fn a_failed_connect_goes_to_the_next_of_the_list() {
    const CALLS: usize = 20;
    const EJECTED_AFTER: usize = 5;
    let (idle, busy) = (waiting(0), waiting(3));
    let config = Config::new([Scheduler::new("m1", [busy.address])]).document(&unreachable_favourite(&idle));
    let gateway = Gateway::start(&config);
    soon("both pages are read", || {
        gateway.admin.pool("m1")["endpoints"].as_array().unwrap().iter().all(|endpoint| endpoint["state"] == "ready")
    });
    for n in 0..CALLS {
        let id = format!("next-{n}");
        let answer = ask(&gateway, &id, CHAT);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let line = ended(&gateway, &id, "ok");
        // Five failures in a row, and it is left alone.
        let tries = if n < EJECTED_AFTER { 2 } else { 1 };
        assert_eq!((line["endpoint"].as_str(), line["tries"].as_u64()), (Some("m1-0"), Some(tries)), "{line}");
    }
    assert_eq!(busy.seen().len(), CALLS);
    assert!(busy.seen().iter().all(|seen| seen.body == CHAT.as_bytes()));
    let retries = number(&gateway, "inference_gateway_upstream_retries_total", &[r#"cause="connect""#]);
    assert_eq!(retries, EJECTED_AFTER as u64);
    assert_eq!((count(&gateway, "ok"), count_all(&gateway)), (CALLS as u64, CALLS as u64));
    let picks =
        |endpoint: &str| number(&gateway, "inference_gateway_picks_total", &[&format!("endpoint=\"{endpoint}\"")]);
    assert_eq!((picks("m1-dead"), picks("m1-0")), (EJECTED_AFTER as u64, (CALLS - EJECTED_AFTER) as u64));
}

#[test]
fn nobody_reachable_is_a_503_that_says_when_to_come_back() {
    let gateway = Gateway::start(&Config::plain("m1", [dead(), dead(), dead()]));
    let answer = ask(&gateway, "dead", CHAT);
    assert_eq!((answer.status, answer.code().as_str()), (503, "endpoint_unreachable"), "{}", answer.text());
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    assert_eq!(answer.json()["error"]["type"], "service_unavailable_error");
    let line = ended(&gateway, "dead", "endpoint_unreachable");
    assert_eq!((line["status"].as_u64(), line["tries"].as_u64()), (Some(503), Some(3)), "{line}");
    assert!(!answer.text().contains("127.0.0.1"), "a client learns no address: {}", answer.text());
    assert_eq!(count_all(&gateway), 1);
}

#[test]
fn c01_a_reused_connection_that_closes_is_replaced_once_and_counted() {
    const CALLS: usize = 60;
    // Closes at the second request of each connection, as a server whose idle limit ends just then.
    let seen_on = Mutex::new(std::collections::BTreeMap::<usize, u32>::new());
    let peer = peer(move |exchange| {
        let mut seen_on = seen_on.lock().unwrap();
        let seen = seen_on.entry(exchange.request.connection).or_default();
        *seen += 1;
        if *seen > 1 { Next::Close } else { exchange.answer_plainly() }
    });
    let gateway = gateway([&peer]);
    let mut replayed = 0;
    let mut connection = harness::Connection::open(gateway.data);
    for n in 0..CALLS {
        let (id, body) = (format!("reused-{n}"), CHAT.replace("hi", &format!("question {n}")));
        connection.send(request_bytes(CHATS, &id, &[], &body)).unwrap();
        let answer = connection.answer().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let sent = peer.seen().iter().filter(|seen| seen.body == body.as_bytes()).count();
        let line = ended(&gateway, &id, "ok");
        assert_eq!(line["tries"].as_u64(), Some(sent as u64), "{line}");
        assert!((1..=2).contains(&sent));
        replayed += sent - 1;
    }
    assert!(replayed >= CALLS / 2, "most calls found a connection in the pool: {replayed} of {CALLS}");
    assert_eq!(
        number(&gateway, "inference_gateway_upstream_retries_total", &[r#"cause="reused_closed""#]),
        replayed as u64
    );
    assert_eq!((count(&gateway, "ok"), peer.seen().len()), (CALLS as u64, CALLS + replayed));
}

#[test]
fn c01_calls_spaced_like_the_servers_idle_limit_all_succeed() {
    const CALLS: u64 = 150;
    const IDLE: Duration = Duration::from_millis(40);
    let peer = peer(|exchange| {
        exchange.answer_plainly();
        Next::KeepAliveFor(IDLE)
    });
    let gateway = gateway([&peer]);
    let mut connection = harness::Connection::open(gateway.data);
    for n in 0..CALLS {
        let (id, body) = (format!("spaced-{n}"), CHAT.replace("hi", &format!("question {n}")));
        connection.send(request_bytes(CHATS, &id, &[], &body)).unwrap();
        assert_eq!(connection.answer().unwrap().status, 200, "call {n}");
        // The gap is the input here: around the server's limit, a tenth of a millisecond further each time.
        std::thread::sleep(IDLE - Duration::from_millis(4) + Duration::from_micros(100 * (n % 80)));
    }
    soon("all are counted", || count(&gateway, "ok") == CALLS);
    assert_eq!(count_all(&gateway), CALLS);
    let replays = number(&gateway, "inference_gateway_upstream_retries_total", &[r#"cause="reused_closed""#]);
    let bodies: Vec<_> = peer.seen().into_iter().map(|seen| seen.body).collect();
    let doubled = bodies.len() as u64 - CALLS;
    assert!(doubled <= replays, "{doubled} bodies came twice, {replays} replays were counted");
}

#[test]
fn c01_a_replay_that_fails_too_is_a_502() {
    let answered = Mutex::new(false);
    let peer = peer(move |exchange| {
        let mut answered = answered.lock().unwrap();
        if std::mem::replace(&mut *answered, true) { Next::Close } else { exchange.answer_plainly() }
    });
    let gateway = gateway([&peer]);
    let mut connection = harness::Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, "first", &[], CHAT)).unwrap();
    assert_eq!(connection.answer().unwrap().status, 200);
    connection.send(request_bytes(CHATS, "second", &[], CHAT)).unwrap();
    let answer = connection.answer().unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (502, "endpoint_broke"));
    let line = ended(&gateway, "second", "endpoint_broke");
    assert_eq!(line["tries"], 2, "{line}");
    assert_eq!(peer.seen().len(), 3, "the first call, and the second one twice");
    assert_eq!(number(&gateway, "inference_gateway_upstream_retries_total", &[r#"cause="reused_closed""#]), 1);
}

#[test]
fn c01_a_reused_connection_that_began_to_answer_is_not_tried_again() {
    let answered = Mutex::new(false);
    let peer = peer(move |exchange| {
        let mut answered = answered.lock().unwrap();
        if std::mem::replace(&mut *answered, true) {
            exchange.send("HTTP/1.1 200 OK\r\nconte");
            return Next::Close;
        }
        exchange.answer_plainly()
    });
    let gateway = gateway([&peer]);
    let mut connection = harness::Connection::open(gateway.data);
    for (id, status) in [("first", 200), ("second", 502)] {
        connection.send(request_bytes(CHATS, id, &[], CHAT)).unwrap();
        assert_eq!(connection.answer().unwrap().status, status);
    }
    ended(&gateway, "second", "endpoint_broke");
    assert_eq!(peer.seen().len(), 2);
    assert_eq!(number(&gateway, "inference_gateway_upstream_retries_total", &[r#"cause="reused_closed""#]), 0);
}

#[test]
fn c01_a_request_that_may_have_killed_its_endpoint_goes_to_no_other() {
    // Whoever gets the deadly request dies of it: its connections close and its port is given up.
    let peers = Arc::new(Mutex::new([None, None]));
    let mortal = |index: usize| {
        let peers = Arc::clone(&peers);
        Peer::start(move |exchange| {
            if exchange.request.body.windows(6).any(|at| at == b"deadly") {
                peers.lock().unwrap()[index] = None::<Peer>;
                return Next::Close;
            }
            exchange.answer_plainly()
        })
    };
    let made = [mortal(0), mortal(1)];
    let gateway = gateway(&made);
    *peers.lock().unwrap() = made.map(Some);
    let mut connection = harness::Connection::open(gateway.data);
    // Each endpoint serves some, so that there are connections to be used again.
    for n in 0..8 {
        connection.send(request_bytes(CHATS, &format!("warm-{n}"), &[], &CHAT.replace("hi", &n.to_string()))).unwrap();
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    connection.send(request_bytes(CHATS, "deadly", &[], &CHAT.replace("hi", "deadly"))).unwrap();
    let answer = connection.answer().unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (502, "endpoint_broke"), "{}", answer.text());
    let line = ended(&gateway, "deadly", "endpoint_broke");
    assert_eq!(line["tries"], 2, "{line}");
    let alive = peers.lock().unwrap().iter().flatten().count();
    assert_eq!(alive, 1, "the other endpoint lives");
}
