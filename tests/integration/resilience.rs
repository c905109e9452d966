//! Endpoints that fail, refuse, restart, leave and come: who is tried, who is left alone, who is counted, and who notices.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use harness::{
    Config, Connection, Exchange, Gateway, MetricsPage, ModelServer, Next, Peer, Scheduler, chat_body, eventually,
    post, soon,
};
use serde_json::Value;

use crate::rig::{
    CHAT, CHATS, STREAM, ask, begin, count, count_all, ended, gateway, number, peer, request_bytes, scheduler,
};

/// Failures in a row after which an endpoint is ejected.
const FAILURES: usize = 5;

/// The first pause of an ejected endpoint.
const PAUSE: Duration = Duration::from_secs(10);

fn state(gateway: &Gateway, endpoint: &str) -> String {
    gateway.admin.endpoint("m1", endpoint)["state"].as_str().expect("a state").to_owned()
}

fn ejections(gateway: &Gateway, cause: &str) -> u64 {
    number(gateway, "inference_gateway_ejections_total", &[r#"pool="m1""#, &format!("cause=\"{cause}\"")])
}

fn retries(gateway: &Gateway, cause: &str) -> u64 {
    number(gateway, "inference_gateway_upstream_retries_total", &[&format!("cause=\"{cause}\"")])
}

/// Lines of the log with this beginning of their message.
fn lines(gateway: &Gateway, message: &str) -> usize {
    let log = gateway.log();
    let parsed = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with(message))).count()
}

/// A peer that answers every request with this status, these headers and a body of its own.
fn refusing(status: &'static str, headers: &'static [(&'static str, &'static str)]) -> Peer {
    peer(move |exchange| exchange.answer(status, headers, r#"{"error":{"message":"the engine's own words"}}"#))
}

/// One request after another; those without a prefix go to the endpoint that was chosen longest ago.
fn ask_all(gateway: &Gateway, name: &str, requests: usize, body: &str) -> Vec<u16> {
    (0..requests).map(|n| ask(gateway, &format!("{name}-{n}"), body).status).collect()
}

#[test]
fn e10_4xx_and_501_never_eject_and_an_endpoints_own_failures_do() {
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "404 Not Found",
        "413 Content Too Large",
        "422 Unprocessable",
        "501 Not Implemented",
    ] {
        let (odd, good) = (refusing(status, &[]), Peer::plain());
        let gateway = gateway([&odd, &good]);
        let statuses = ask_all(&gateway, "odd", 40, CHAT);
        assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 20, "{status}: {statuses:?}");
        assert_eq!((odd.seen().len(), state(&gateway, "m1-0").as_str()), (20, "ready"), "{status}");
    }
    for (status, code) in [("500 Internal Server Error", 500), ("502 Bad Gateway", 502), ("504 Gateway Timeout", 504)] {
        let (bad, good) = (refusing(status, &[]), Peer::plain());
        let gateway = gateway([&bad, &good]);
        let statuses = ask_all(&gateway, "bad", 40, CHAT);
        assert_eq!(statuses.iter().filter(|&&status| status == code).count(), FAILURES, "{status}: {statuses:?}");
        assert_eq!((bad.seen().len(), state(&gateway, "m1-0").as_str()), (FAILURES, "ejected"), "{status}");
        assert_eq!((ejections(&gateway, "status"), lines(&gateway, "endpoint is ejected")), (1, 1));
        let decision = gateway.admin.json("/api/v1/decisions/bad-39");
        let left_out = decision["candidates"].as_array().unwrap().iter().find(|c| c["endpoint"] == "m1-0").unwrap();
        assert_eq!(left_out["rejected"], "ejected", "{decision}");
    }
}

#[test]
fn e10_b11_an_endpoint_that_hangs_closes_cuts_or_stalls_is_left_alone() {
    type Script = fn(&mut Exchange) -> Next;
    let hang: Script = |exchange| {
        exchange.wait_for_close(PAUSE);
        Next::Close
    };
    let close: Script = |_| Next::Close;
    let cut: Script = |exchange| {
        exchange.begin_stream();
        exchange.token("a");
        Next::Close
    };
    let unfinished: Script = |exchange| {
        exchange.begin_stream();
        exchange.token("a");
        exchange.end_chunks()
    };
    let stall: Script = |exchange| {
        exchange.begin_stream();
        exchange.token("a");
        exchange.wait_for_close(PAUSE);
        Next::Close
    };
    let error_event: Script = |exchange| {
        exchange.begin_stream();
        exchange.event(r#"{"error":{"message":"boom","code":500}}"#);
        exchange.end_chunks()
    };
    for (cause, script, outcome) in [
        ("timeout", hang, "endpoint_timeout"),
        ("broke", close, "endpoint_broke"),
        ("broke", cut, "endpoint_broke"),
        ("broke", unfinished, "endpoint_broke"),
        ("stall", stall, "endpoint_timeout"),
        ("status", error_event, "upstream_5xx"),
    ] {
        let bad = peer(script);
        let good = peer(|exchange| {
            exchange.begin_stream();
            exchange.token("a");
            exchange.event("[DONE]");
            exchange.end_chunks()
        });
        // By predicted latency it would be left alone for the other's better times, before it is ejected.
        let both = scheduler([&bad, &good]).line("weights: {prefix: 3}");
        let config = Config::new([both]).line("timeouts: {firstByte: 300ms, streamIdle: 300ms}");
        let gateway = Gateway::start(&config);
        ask_all(&gateway, "call", 20, STREAM);
        soon("all are counted", || count_all(&gateway) == 20);
        assert_eq!(
            (count(&gateway, outcome), count(&gateway, "ok")),
            (FAILURES as u64, 20 - FAILURES as u64),
            "{outcome}"
        );
        assert_eq!((bad.seen().len(), ejections(&gateway, cause)), (FAILURES, 1), "{outcome}");
        assert_eq!(state(&gateway, "m1-0"), "ejected", "{outcome}");
    }
}

#[test]
fn e10_clients_that_leave_say_nothing_of_their_endpoint() {
    let hanging = peer(|exchange| {
        exchange.wait_for_close(PAUSE);
        Next::Close
    });
    let free = Peer::plain();
    let gateway = gateway([&hanging, &free]);
    for n in 0..30 {
        let connection = begin(&gateway, &format!("leaves-{n}"), CHAT);
        soon("it was sent or answered", || hanging.seen().len() + usize::try_from(count(&gateway, "ok")).unwrap() > n);
        drop(connection);
        soon("nothing is in flight", || gateway.admin.in_flight("m1") == 0);
    }
    assert!(hanging.seen().len() > FAILURES, "{}", hanging.seen().len());
    assert_eq!(state(&gateway, "m1-0"), "ready");
}

#[test]
fn e10_a_success_ends_a_row_of_failures() {
    // Four, one, four: neither five in a row nor ten answers of which half failed.
    let asked = AtomicUsize::new(0);
    let shaky = peer(move |exchange| {
        if asked.fetch_add(1, Ordering::AcqRel) == FAILURES - 1 {
            return exchange.answer_plainly();
        }
        exchange.answer("500 Internal Server Error", &[], "")
    });
    let good = Peer::plain();
    let gateway = gateway([&shaky, &good]);
    ask_all(&gateway, "shaky", 2 * (2 * FAILURES - 1), CHAT);
    assert_eq!((shaky.seen().len(), state(&gateway, "m1-0").as_str()), (2 * FAILURES - 1, "ready"));
    ask_all(&gateway, "more", 4, CHAT);
    assert_eq!((state(&gateway, "m1-0").as_str(), ejections(&gateway, "status")), ("ejected", 1));
}

#[test]
fn f09_a_replay_was_the_one_more_try() {
    let asked = AtomicUsize::new(0);
    let busy = peer(move |exchange| match asked.fetch_add(1, Ordering::AcqRel) {
        0 => exchange.answer_plainly(),
        1 => Next::Close,
        _ => exchange.answer("429 Too Many Requests", &[("retry-after", "9")], "busy"),
    });
    let free = Peer::plain();
    let gateway = gateway([&busy, &free]);
    let mut connection = Connection::open(gateway.data);
    let mut statuses = Vec::new();
    for n in 0..4 {
        connection.send(request_bytes(CHATS, &format!("turn-{n}"), &[], CHAT)).unwrap();
        statuses.push(connection.answer().unwrap().status);
    }
    // In turns: its connection closed under its second request, which was sent once more and then refused.
    assert_eq!((statuses.iter().filter(|&&status| status == 429).count(), statuses.len()), (1, 4), "{statuses:?}");
    assert_eq!((busy.seen().len(), free.seen().len()), (3, 2), "no third try");
    assert_eq!((retries(&gateway, "reused_closed"), retries(&gateway, "overloaded")), (1, 0));
}

#[test]
fn f09_a_refusal_of_the_only_endpoint_passes_unchanged_and_is_tried_once() {
    for (status, code, outcome) in
        [("429 Too Many Requests", 429, "upstream_4xx"), ("503 Service Unavailable", 503, "upstream_5xx")]
    {
        let engine =
            refusing(status, &[("retry-after", "7"), ("content-type", "application/json"), ("x-engine", "busy")]);
        let gateway = gateway([&engine]);
        let answer = ask(&gateway, "only", CHAT);
        assert_eq!(
            (answer.status, answer.header("retry-after"), answer.header("x-engine")),
            (code, Some("7"), Some("busy"))
        );
        assert_eq!(answer.text(), r#"{"error":{"message":"the engine's own words"}}"#);
        let line = ended(&gateway, "only", outcome);
        assert_eq!((line["tries"].as_u64(), engine.seen().len()), (Some(1), 1), "{line}");
        // It is marked, which is no ejection, and the metric tells its refusal from the gateway's own.
        assert_eq!(
            (state(&gateway, "m1-0").as_str(), count(&gateway, outcome), count(&gateway, "queue_full")),
            ("ready", 1, 0)
        );
        assert_eq!(gateway.admin.pool("m1")["saturation"], 1.0);
    }
}

#[test]
fn f09_a_refused_request_goes_to_another_and_the_mark_holds_for_its_time() {
    const MARK: Duration = Duration::from_secs(2);
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let (busy, free) = (refusing(status, &[("retry-after", "2")]), Peer::plain());
        let gateway = gateway([&busy, &free]);
        let started = Instant::now();
        let mut asked = 0;
        // On one connection, and so one core of the gateway, whose connections to endpoints are its own.
        let mut connection = Connection::open(gateway.data);
        while busy.seen().len() < 2 {
            assert!(started.elapsed() < MARK * 5, "the mark never ends");
            connection.send(request_bytes(CHATS, &format!("busy-{asked}"), &[], CHAT)).unwrap();
            assert_eq!(connection.answer().unwrap().status, 200);
            asked += 1;
        }
        let seen = busy.seen();
        let between = seen[1].at - seen[0].at;
        assert!(between >= MARK && between < MARK * 2, "{between:?}");
        assert_eq!(seen[0].connection, seen[1].connection, "a refusal leaves its connection usable");
        soon("all are counted", || count(&gateway, "ok") == asked);
        assert_eq!((free.seen().len() as u64, retries(&gateway, "overloaded")), (asked, 2));
        let tries = || gateway.requests().iter().map(|line| line["tries"].as_u64().unwrap()).sum::<u64>();
        soon("all lines are written", || tries() == asked + 2);
    }
}

#[test]
fn f09_a_date_is_a_time_too_and_a_refusal_without_one_holds_for_a_second() {
    // A date long ago asks for nothing, and a second is the least.
    let past: &[(&str, &str)] = &[("retry-after", "Mon, 30 Nov 2020 12:00:00 GMT")];
    for headers in [past, &[]] {
        let busy = refusing("503 Service Unavailable", headers);
        let free = Peer::plain();
        let gateway = gateway([&busy, &free]);
        eventually("it is asked again", PAUSE, || {
            assert_eq!(post(gateway.data, CHATS, CHAT).status, 200);
            (busy.seen().len() >= 2).then_some(())
        });
        let between = busy.seen()[1].at - busy.seen()[0].at;
        assert!(between >= Duration::from_secs(1) && between < Duration::from_secs(3), "{between:?}");
    }
}

#[test]
fn f09_a_pool_that_refuses_is_asked_twice_at_most_and_the_last_refusal_passes() {
    let peers: Vec<Peer> = (0..3).map(|_| refusing("429 Too Many Requests", &[("retry-after", "9")])).collect();
    let gateway = gateway(&peers);
    let answer = ask(&gateway, "twice", CHAT);
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("9")));
    let line = ended(&gateway, "twice", "upstream_4xx");
    assert_eq!(
        (line["tries"].as_u64(), peers.iter().map(|peer| peer.seen().len()).sum::<usize>()),
        (Some(2), 2),
        "{line}"
    );
}

#[test]
fn f09_when_the_other_is_dead_the_first_ones_refusal_passes() {
    // Both show a page; the second takes no connections.
    let busy = refusing_with_page("429 Too Many Requests", 0);
    let page = page_only(2);
    let config = Config::new([Scheduler::new("m1", [busy.address])]).document(&dead_endpoint("m1-dead", &page));
    let gateway = Gateway::start(&config);
    soon("both pages are read", || ["m1-0", "m1-dead"].iter().all(|name| state(&gateway, name) == "ready"));
    let answer = ask(&gateway, "first", CHAT);
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")), "{}", answer.text());
    assert_eq!(answer.text(), "busy");
    let line = ended(&gateway, "first", "upstream_4xx");
    assert_eq!((line["endpoint"].as_str(), line["tries"].as_u64()), (Some("m1-0"), Some(2)), "{line}");
}

/// Shows so many waiting, and refuses.
fn refusing_with_page(status: &'static str, waiting: u32) -> Peer {
    Peer::start(move |exchange| {
        if exchange.request.line == "GET /metrics" {
            return exchange.answer("200 OK", &[("content-type", "text/plain")], vllm(waiting, 0.0));
        }
        exchange.answer(status, &[("retry-after", "7")], "busy")
    })
}

/// Shows so many waiting, and nothing else.
fn page_only(waiting: u32) -> Peer {
    refusing_with_page("500 Internal Server Error", waiting)
}

fn vllm(waiting: u32, started_unix_s: f64) -> String {
    format!(
        "vllm:num_requests_running{{model_name=\"m1\"}} 0\nvllm:num_requests_waiting{{model_name=\"m1\"}} {waiting}\n\
         vllm:kv_cache_usage_perc{{model_name=\"m1\"}} 0.1\nprocess_start_time_seconds {started_unix_s}\n"
    )
}

/// An endpoint with a page, at whose serving port nobody listens.
fn dead_endpoint(name: &str, page: &Peer) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    format!(
        "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: {name}, labels: {{app: m1}}}}\n\
         spec: {{address: 127.0.0.1, port: {port}, metricsPort: {}}}\n",
        page.address.port()
    )
}

#[test]
fn g11_a_port_that_refuses_is_503_alone_and_unnoticed_beside_one_that_serves() {
    let page = page_only(0);
    let config = Config::new([Scheduler::new("m1", [])]).document(&dead_endpoint("m1-dead", &page));
    let gateway = Gateway::start(&config);
    soon("its page is read", || state(&gateway, "m1-dead") == "ready");
    for n in 0..10 {
        let started = Instant::now();
        let answer = ask(&gateway, &format!("alone-{n}"), CHAT);
        assert_eq!((answer.status, answer.code().as_str()), (503, "endpoint_unreachable"), "{}", answer.text());
        assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
    // The only one of a pool is never ejected.
    assert_eq!((state(&gateway, "m1-dead").as_str(), ejections(&gateway, "connect")), ("ready", 0));
    let good = ModelServer::start(MetricsPage::vllm(1, 0, 0.1));
    let config = Config::new([Scheduler::new("m1", [good.address()])]).document(&dead_endpoint("m1-dead", &page));
    gateway.apply(&config);
    soon("both are read", || {
        let pool = gateway.admin.pool("m1");
        let endpoints = pool["endpoints"].as_array().unwrap();
        endpoints.len() == 2 && endpoints.iter().all(|endpoint| endpoint["state"] == "ready")
    });
    assert_eq!(ask_all(&gateway, "beside", 50, CHAT), [200; 50]);
    assert_eq!((state(&gateway, "m1-dead").as_str(), ejections(&gateway, "connect")), ("ejected", 1));
}

#[test]
fn at_most_half_are_out_and_each_comes_back_by_one_probe_and_slowly() {
    // Three of four fail until told otherwise, and hold what they have while the gate is closed.
    let (broken, gate) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let make = |fails: bool| {
        let (broken, gate) = (Arc::clone(&broken), Arc::clone(&gate));
        peer(move |exchange| {
            if fails && broken.load(Ordering::Acquire) {
                return exchange.answer("500 Internal Server Error", &[], "");
            }
            let started = Instant::now();
            while gate.load(Ordering::Acquire) && started.elapsed() < PAUSE * 2 {
                thread::sleep(Duration::from_millis(2));
            }
            exchange.answer_plainly()
        })
    };
    let peers = [make(true), make(true), make(true), make(false)];
    let gateway = gateway(&peers);
    let started = Instant::now();
    ask_all(&gateway, "broken", 60, CHAT);
    let last_ejected_before = Instant::now();
    let states: Vec<String> = (0..4).map(|n| state(&gateway, &format!("m1-{n}"))).collect();
    let out: Vec<usize> = (0..4).filter(|&n| states[n] == "ejected").collect();
    assert_eq!((out.len(), states[3].as_str()), (2, "ready"), "half of four, and not the third that fails: {states:?}");
    assert_eq!((ejections(&gateway, "status"), lines(&gateway, "endpoint is ejected")), (2, 2));
    let left_alone: Vec<usize> = out.iter().map(|&n| peers[n].seen().len()).collect();
    assert_eq!(left_alone, [FAILURES, FAILURES]);
    broken.store(false, Ordering::Release);
    ask_all(&gateway, "mended", 20, CHAT);
    assert!(started.elapsed() < PAUSE, "the pause is not over: {:?}", started.elapsed());
    assert_eq!(out.iter().map(|&n| peers[n].seen().len()).collect::<Vec<_>>(), left_alone, "a pause is a pause");
    // Once it is over, a burst finds room for one probe at each.
    thread::sleep((PAUSE + Duration::from_millis(100)).saturating_sub(last_ejected_before.elapsed()));
    gate.store(true, Ordering::Release);
    let mut open: Vec<Connection> = (0..24).map(|n| begin(&gateway, &format!("burst-{n}"), CHAT)).collect();
    soon("all have a place", || gateway.admin.in_flight("m1") == 24);
    soon("all have arrived", || peers.iter().map(|peer| peer.seen().len()).sum::<usize>() == 80 + 24);
    assert_eq!(out.iter().map(|&n| peers[n].seen().len() - FAILURES).collect::<Vec<_>>(), [1, 1], "one probe each");
    gate.store(false, Ordering::Release);
    for connection in &mut open {
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    for n in &out {
        assert_eq!(state(&gateway, &format!("m1-{n}")), "ready");
    }
    assert_eq!(lines(&gateway, "endpoint is back"), 2);
    // And a second burst, no more than two each: one success, and one more.
    gate.store(true, Ordering::Release);
    let mut open: Vec<Connection> = (0..24).map(|n| begin(&gateway, &format!("again-{n}"), CHAT)).collect();
    soon("all have arrived", || peers.iter().map(|peer| peer.seen().len()).sum::<usize>() == 80 + 48);
    assert_eq!(out.iter().map(|&n| peers[n].seen().len() - FAILURES - 1).collect::<Vec<_>>(), [2, 2], "slowly");
    gate.store(false, Ordering::Release);
    for connection in &mut open {
        assert_eq!(connection.answer().unwrap().status, 200);
    }
}

#[test]
fn when_everything_refuses_retries_stay_within_their_budget() {
    const ENDPOINTS: usize = 40;
    let peers: Vec<Peer> =
        (0..ENDPOINTS).map(|_| refusing("503 Service Unavailable", &[("retry-after", "60")])).collect();
    let gateway = gateway(&peers);
    let started = Instant::now();
    let mut requests = 0;
    // Until none is left that has not refused: each refusal is a mark for a minute.
    let seen = || peers.iter().map(|peer| peer.seen().len()).sum::<usize>();
    while seen() < ENDPOINTS {
        assert_eq!(post(gateway.data, CHATS, CHAT).status, 503);
        requests += 1;
    }
    let (retried, took_s) = (retries(&gateway, "overloaded"), started.elapsed().as_secs());
    assert_eq!(retried as usize, ENDPOINTS - requests, "one more try at most for each");
    let allowed = 10 + requests as u64 / 10 + took_s + 1;
    assert!((10..=allowed).contains(&retried), "{retried} retries of {requests} requests in {took_s} s");
}

#[test]
fn g05_an_endpoint_that_leaves_and_returns_while_a_call_runs_keeps_its_accounts_apart() {
    let gate = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&gate);
    let engine = peer(move |exchange| {
        let started = Instant::now();
        while held.load(Ordering::Acquire) && started.elapsed() < PAUSE * 2 {
            thread::sleep(Duration::from_millis(2));
        }
        exchange.answer_plainly()
    });
    let config = Config::plain("m1", [engine.address]);
    let gateway = Gateway::start(&config);
    let in_flight = |gateway: &Gateway| -> Vec<i64> {
        let pool = gateway.admin.pool("m1");
        let endpoints = pool["endpoints"].as_array().unwrap();
        endpoints.iter().map(|endpoint| endpoint["in_flight"]["requests"].as_i64().unwrap()).collect()
    };
    let mut old = begin(&gateway, "old", CHAT);
    soon("it is there", || engine.seen().len() == 1);
    gateway.apply(&Config::plain("m1", []));
    soon("it drains", || state(&gateway, "m1-0") == "draining");
    gateway.apply(&config);
    soon("it is back beside its former life", || in_flight(&gateway) == [1, 0]);
    let mut new = begin(&gateway, "new", CHAT);
    soon("it is there too", || engine.seen().len() == 2);
    assert_eq!(in_flight(&gateway), [1, 1]);
    let metric =
        |gateway: &Gateway| gateway.admin.metric("inference_gateway_in_flight_requests", &[r#"endpoint="m1-0""#]);
    assert_eq!(metric(&gateway), Some(2.0));
    gate.store(false, Ordering::Release);
    assert_eq!((old.answer().unwrap().status, new.answer().unwrap().status), (200, 200));
    soon("the former life is over", || in_flight(&gateway) == [0]);
    assert_eq!((metric(&gateway), state(&gateway, "m1-0").as_str()), (Some(0.0), "ready"));
}

#[test]
fn g12_another_model_at_a_reused_address_inherits_nothing() {
    let (reused, other) = (Peer::plain(), Peer::plain());
    let two = |m1: &[&Peer], m2: &[&Peer]| {
        Config::new([("m1", m1), ("m2", m2)].map(|(model, peers)| {
            Scheduler::new(model, peers.iter().map(|peer| peer.address)).line("engineType: none")
        }))
    };
    let gateway = Gateway::start(&two(&[&reused, &other], &[]));
    assert_eq!(ask_all(&gateway, "before", 20, CHAT), [200; 20]);
    let picks = gateway.admin.endpoint("m1", "m1-0")["picks"].as_u64().unwrap();
    assert!(picks > 0);
    // It joins the other pool first, and leaves the former one after that.
    gateway.apply(&two(&[&reused, &other], &[&reused]));
    gateway.apply(&two(&[&other], &[&reused]));
    soon("one is left", || gateway.admin.pool("m1")["endpoints"].as_array().unwrap().len() == 1);
    let joined = gateway.admin.endpoint("m2", "m2-0");
    assert_eq!((joined["picks"].as_u64(), joined["in_flight"]["requests"].as_u64()), (Some(0), Some(0)), "{joined}");
    reused.forget();
    for n in 0..50 {
        assert_eq!(post(gateway.data, CHATS, CHAT).status, 200, "m1 {n}");
        assert_eq!(post(gateway.data, CHATS, CHAT.replace("m1", "m2")).status, 200, "m2 {n}");
    }
    let models: Vec<bool> =
        reused.seen().iter().map(|seen| seen.body.windows(4).any(|part| part == b"\"m2\"")).collect();
    assert_eq!(models, [true; 50], "no request of the former model goes there, and all of the new one do");
}

#[test]
fn an_engine_that_restarts_at_its_address_is_taken_for_a_new_one() {
    let broken = Arc::new(AtomicBool::new(false));
    let started_unix_s = Arc::new(AtomicUsize::new(1_796_000_000));
    let engine = Peer::start({
        let (broken, started) = (Arc::clone(&broken), Arc::clone(&started_unix_s));
        move |exchange| {
            if exchange.request.line == "GET /metrics" {
                let page = vllm(0, started.load(Ordering::Acquire) as f64);
                return exchange.answer("200 OK", &[("content-type", "text/plain")], page);
            }
            if broken.load(Ordering::Acquire) {
                return exchange.answer("500 Internal Server Error", &[], "");
            }
            exchange.answer_plainly()
        }
    });
    let busy = ModelServer::start(MetricsPage::vllm(3, 0, 0.2));
    let gateway = Gateway::start(&Config::new([Scheduler::new("m1", [engine.address, busy.address()])]));
    soon("both are read", || ["m1-0", "m1-1"].iter().all(|name| state(&gateway, name) == "ready"));
    let prompt = chat_body("m1", &"all the words of a long system prompt ".repeat(60));
    let matched = |id: &str| {
        ask(&gateway, id, &prompt);
        let decision = gateway.admin.json(&format!("/api/v1/decisions/{id}"));
        let mine = decision["candidates"].as_array().unwrap().iter().find(|c| c["endpoint"] == "m1-0").unwrap().clone();
        mine["matched_blocks"].as_u64().unwrap()
    };
    assert_eq!(matched("cold"), 0);
    assert!(matched("warm") > 3);
    broken.store(true, Ordering::Release);
    let mut asked = 0;
    soon("it is ejected", || {
        asked += 1;
        ask(&gateway, &format!("broken-{asked}"), CHAT);
        state(&gateway, "m1-0") == "ejected"
    });
    broken.store(false, Ordering::Release);
    let ejected_at = Instant::now();
    started_unix_s.fetch_add(60, Ordering::AcqRel);
    soon("it is a new one", || state(&gateway, "m1-0") == "ready");
    assert!(ejected_at.elapsed() < PAUSE, "{:?}", ejected_at.elapsed());
    assert_eq!(matched("restarted"), 0, "its cache is empty");
    assert_eq!(lines(&gateway, "endpoint is back"), 0);
}

#[test]
fn replacing_every_endpoint_under_load_loses_no_request() {
    const ENDPOINTS: usize = 3;
    const CLIENTS: usize = 6;
    let make = || {
        peer(|exchange| {
            // Long enough that some are always under way.
            thread::sleep(Duration::from_millis(15));
            exchange.answer_plainly()
        })
    };
    let mut peers: Vec<(String, Peer)> = (0..ENDPOINTS).map(|n| (format!("first-{n}"), make())).collect();
    let config = |peers: &[(String, Peer)]| {
        let documents: String = peers
            .iter()
            .map(|(name, peer)| {
                format!(
                    "---\napiVersion: inference-gateway/v1alpha1\nkind: Endpoint\n\
                     metadata: {{name: {name}, labels: {{app: m1}}}}\nspec: {{address: 127.0.0.1, port: {}}}\n",
                    peer.address.port()
                )
            })
            .collect();
        Config::plain("m1", []).document(documents.trim_start_matches("---\n"))
    };
    let gateway = Gateway::start(&config(&peers));
    let (stopping, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let statuses = thread::scope(|scope| {
        let client = |client: usize| {
            let (stopping, served, gateway) = (&stopping, &served, &gateway);
            move || {
                let mut statuses = BTreeMap::<u16, usize>::new();
                let mut connection = Connection::open(gateway.data);
                for n in 0.. {
                    connection.send(request_bytes(CHATS, &format!("load-{client}-{n}"), &[], CHAT)).unwrap();
                    *statuses.entry(connection.answer().unwrap().status).or_default() += 1;
                    served.fetch_add(1, Ordering::AcqRel);
                    if stopping.load(Ordering::Acquire) {
                        break;
                    }
                }
                statuses
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(client(n))).collect();
        for n in 0..ENDPOINTS {
            let now = served.load(Ordering::Acquire);
            soon("requests are served", || served.load(Ordering::Acquire) >= now + 20);
            let name = format!("second-{n}");
            peers.push((name.clone(), make()));
            gateway.apply(&config(&peers));
            let served_by = |name: &str| {
                gateway.admin.metric("inference_gateway_picks_total", &[&format!("endpoint=\"{name}\"")]).unwrap_or(0.0)
            };
            soon("the new one serves", || served_by(&name) >= 5.0);
            let (old, leaving) = peers.remove(0);
            gateway.apply(&config(&peers));
            soon("the old one has nothing in flight", || {
                let pool = gateway.admin.pool("m1");
                !pool["endpoints"].as_array().unwrap().iter().any(|endpoint| endpoint["name"] == old.as_str())
            });
            drop(leaving);
        }
        let now = served.load(Ordering::Acquire);
        soon("requests are served", || served.load(Ordering::Acquire) >= now + 20);
        stopping.store(true, Ordering::Release);
        let mut all = BTreeMap::<u16, usize>::new();
        for client in clients {
            for (status, times) in client.join().unwrap() {
                *all.entry(status).or_default() += times;
            }
        }
        all
    });
    assert_eq!(statuses.keys().copied().collect::<Vec<_>>(), [200], "{statuses:?}");
    let asked = statuses.values().sum::<usize>() as u64;
    soon("all are counted", || count(&gateway, "ok") == asked);
    assert_eq!((count_all(&gateway), gateway.admin.in_flight("m1")), (asked, 0));
}

/// The comment that is sent into a silent stream.
const COMMENT: &str = ": keep-alive\n\n";

/// Silent before its first event, inside an event, and between two.
fn hesitant() -> Peer {
    const SILENCE: Duration = Duration::from_millis(400);
    peer(|exchange| {
        exchange.begin_stream();
        thread::sleep(SILENCE);
        exchange.token("a");
        exchange.chunk("data: {\"id\":\"c\",\"choices\":[{\"index\":0,");
        thread::sleep(SILENCE);
        exchange.chunk("\"delta\":{\"content\":\"b\"}}]}\n");
        thread::sleep(SILENCE);
        exchange.chunk("\n");
        thread::sleep(SILENCE);
        exchange.event("[DONE]");
        exchange.end_chunks()
    })
}

#[test]
fn a_silent_stream_is_kept_alive_between_events_and_never_inside_one() {
    let engine = hesitant();
    let plain = ask(&gateway([&engine]), "without", STREAM).text();
    assert!(!plain.contains(COMMENT) && plain.ends_with("data: [DONE]\n\n"), "off unless asked for: {plain}");
    let config = Config::new([scheduler([&engine])]).line("dataPlane: {streamKeepAlive: 100ms}");
    let gateway = Gateway::start(&config);
    let answer = ask(&gateway, "kept-alive", STREAM);
    let text = answer.text();
    assert_eq!((answer.complete, text.replace(COMMENT, "")), (true, plain));
    let (before, rest) = text.split_once("data: ").expect("events");
    assert!((2..=4).contains(&before.matches(COMMENT).count()), "before the first event: {text}");
    let (_, after) = rest.split_once("\"content\":\"b\"").expect("the event that was cut");
    assert!(after.starts_with("}}]}\n\n") && (2..=4).contains(&after.matches(COMMENT).count()), "{text}");
    let line = ended(&gateway, "kept-alive", "ok");
    assert_eq!(line["bytes_out"].as_u64(), Some(text.len() as u64), "{line}");
    assert!(line["ttft_ms"].as_f64().unwrap() >= 390.0, "a comment is no content: {line}");
}

#[test]
fn a_whole_answer_is_never_kept_alive() {
    let engine = peer(|exchange| {
        exchange.send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n");
        thread::sleep(Duration::from_millis(300));
        exchange.send("{\"a\":\"bc\"}");
        Next::KeepAlive
    });
    let config = Config::new([scheduler([&engine])]).line("dataPlane: {streamKeepAlive: 50ms}");
    let answer = ask(&Gateway::start(&config), "whole", CHAT);
    assert_eq!((answer.status, answer.text().as_str()), (200, "{\"a\":\"bc\"}"));
}
