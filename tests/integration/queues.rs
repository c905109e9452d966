//! Requests that wait for room: served when there is some, refused in the right words when there is none, and never sent
//! for a client that left.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use harness::{Answer, Config, Connection, Exchange, Gateway, Next, Peer, Scheduler, eventually, soon};
use serde_json::Value;

use crate::rig::{CHAT, CHATS, STREAM, ask, begin, count, count_all, ended, number, peer, request_bytes, scheduler};

/// A server that answers only as its gate lets it, and knows how many requests were inside at a time.
struct Gated {
    peer: Peer,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    inside: AtomicUsize,
    inside_most: AtomicUsize,
}

#[derive(Default)]
struct GateState {
    /// How many more may pass; all once it is open.
    passes: usize,
    open: bool,
}

const QUIET: &str = "nothing panics under the lock";

impl Gate {
    fn pass(&self) {
        let inside = self.inside.fetch_add(1, Ordering::AcqRel) + 1;
        self.inside_most.fetch_max(inside, Ordering::AcqRel);
        let state = self.state.lock().expect(QUIET);
        let shut = |state: &mut GateState| !state.open && state.passes == 0;
        let (mut state, _) = self.changed.wait_timeout_while(state, Duration::from_secs(60), shut).expect(QUIET);
        state.passes = state.passes.saturating_sub(1);
        drop(state);
        self.inside.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gated {
    fn start() -> Self {
        let gate = Arc::new(Gate::default());
        let peer = peer({
            let gate = Arc::clone(&gate);
            move |exchange: &mut Exchange| {
                gate.pass();
                exchange.answer_plainly()
            }
        });
        Self { peer, gate }
    }

    /// One that says the first word of its answer at once, and the rest as its gate lets it.
    fn streams() -> Self {
        let gate = Arc::new(Gate::default());
        let peer = peer({
            let gate = Arc::clone(&gate);
            move |exchange: &mut Exchange| {
                exchange.begin_stream();
                exchange.token("a");
                gate.pass();
                exchange.event("[DONE]");
                exchange.end_chunks()
            }
        });
        Self { peer, gate }
    }

    /// Lets so many requests through, now or when they come.
    fn let_pass(&self, count: usize) {
        self.gate.state.lock().expect(QUIET).passes += count;
        self.gate.changed.notify_all();
    }

    fn open(&self) {
        self.gate.state.lock().expect(QUIET).open = true;
        self.gate.changed.notify_all();
    }

    fn served(&self) -> usize {
        self.peer.seen().len()
    }
}

/// One request at a time at each endpoint.
fn one_at_a_time<'a>(peers: impl IntoIterator<Item = &'a Gated>, flow_control: &str) -> Config {
    let more = if flow_control.is_empty() { String::new() } else { format!(", {flow_control}") };
    let scheduler = scheduler(peers.into_iter().map(|gated| &gated.peer));
    Config::new([scheduler.line(&format!("flowControl: {{maxInFlightPerEndpoint: 1{more}}}"))])
}

fn queue(gateway: &Gateway, band: &str) -> u64 {
    gateway.admin.pool("m1")["queue"][band].as_u64().expect("a count")
}

fn queue_is(gateway: &Gateway, band: &str, wanted: u64) {
    soon(&format!("{wanted} wait as {band}"), || queue(gateway, band) == wanted);
}

fn begin_with(gateway: &Gateway, id: &str, headers: &[(&str, &str)]) -> Connection {
    let mut connection = Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, id, headers, CHAT)).expect("a request can be sent");
    connection
}

/// Begins a request and waits until it has a place.
fn occupy(gateway: &Gateway, server: &Gated, id: &str) -> Connection {
    let before = server.served();
    let connection = begin(gateway, id, CHAT);
    soon("the place is taken", || server.served() == before + 1);
    connection
}

fn dropped(answer: &Answer) -> (u16, String, Option<&str>, Option<&str>) {
    let header = |name| answer.header(name);
    let code = answer.code();
    (answer.status, code, header("x-gateway-request-dropped-reason"), header("x-llm-d-request-dropped-reason"))
}

fn retry_after_s(answer: &Answer) -> u32 {
    answer.header("retry-after").expect("when to come back").parse().expect("whole seconds")
}

fn nothing_left(gateway: &Gateway) {
    soon("nothing waits and nothing is in flight", || {
        let waiting: u64 = ["critical", "standard", "sheddable"].iter().map(|band| queue(gateway, band)).sum();
        waiting == 0 && gateway.admin.in_flight("m1") == 0
    });
    assert_eq!(number(gateway, "inference_gateway_queue_depth", &[r#"pool="m1""#]), 0);
    assert_eq!(number(gateway, "inference_gateway_queue_bytes", &[r#"pool="m1""#]), 0);
    assert_eq!(number(gateway, "inference_gateway_body_memory_bytes", &[]), 0);
}

#[test]
fn who_finds_no_room_waits_and_is_served_in_turn() {
    let server = Gated::start();
    let gateway = Gateway::start(&one_at_a_time([&server], ""));
    let mut first = occupy(&gateway, &server, "first");
    let mut others: Vec<Connection> = (0..3).map(|n| begin(&gateway, &format!("waits-{n}"), CHAT)).collect();
    queue_is(&gateway, "standard", 3);
    assert_eq!(number(&gateway, "inference_gateway_queue_depth", &[r#"pool="m1""#, r#"band="standard""#]), 3);
    assert_eq!(gateway.admin.pool("m1")["saturation"], 1.0);
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    for other in &mut others {
        assert_eq!(other.answer().unwrap().status, 200);
    }
    assert_eq!(server.gate.inside_most.load(Ordering::Acquire), 1, "never two at a time");
    let waited = ended(&gateway, "waits-2", "ok");
    assert!(waited["queue_ms"].as_f64() > Some(0.0) && waited["band"] == "standard", "{waited}");
    let decision = gateway.admin.json("/api/v1/decisions/waits-2");
    assert_eq!(decision["picked"][0], "m1-0", "{decision}");
    assert_eq!(
        (&decision["band"], &decision["queue_ms"]),
        (&waited["band"], &waited["queue_ms"]),
        "it says that it waited"
    );
    let waits = [r#"pool="m1""#, r#"band="standard""#];
    assert_eq!(number(&gateway, "inference_gateway_queue_wait_seconds_count", &waits), 3, "only those that waited");
    assert_eq!(count(&gateway, "ok"), 4);
    nothing_left(&gateway);
}

/// F01: no endpoint is no overload.
#[test]
fn f01_without_an_endpoint_it_is_503_and_with_one_it_serves() {
    let gateway = Gateway::start(&Config::new([scheduler([])]));
    let answers: Vec<Answer> = thread::scope(|scope| {
        let ask = |n: usize| ask(&gateway, &format!("nobody-{n}"), CHAT);
        let asked: Vec<_> = (0..20).map(|n| scope.spawn(move || ask(n))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    for answer in &answers {
        assert_eq!(
            dropped(answer),
            (503, "no_endpoint".into(), Some("no_endpoint"), Some("rejected-no-endpoints")),
            "{}",
            answer.text()
        );
        assert!(retry_after_s(answer) >= 1);
    }
    assert_eq!((count(&gateway, "no_endpoint"), count_all(&gateway)), (20, 20));
    assert_eq!(waits_so_far(&gateway), 0, "nobody waits for what is not there");
    let peer = Peer::plain();
    gateway.apply(&Config::new([scheduler([&peer])]));
    soon("the next call is served", || ask_any(&gateway).status == 200);
}

/// Requests that have waited, however that ended.
fn waits_so_far(gateway: &Gateway) -> u64 {
    number(gateway, "inference_gateway_queue_wait_seconds_count", &[r#"pool="m1""#])
}

fn ask_any(gateway: &Gateway) -> Answer {
    let mut connection = Connection::open(gateway.data);
    let head = format!("POST {CHATS} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{CHAT}", CHAT.len());
    connection.send(head).expect("a request can be sent");
    connection.answer().expect("an answer")
}

/// F02: all endpoints are out for another reason than load, on the pick's path and on the queue's.
#[test]
fn f02_a_pool_whose_endpoints_all_went_is_one_outcome_whether_one_waited_or_not() {
    let server = Gated::start();
    let settings = "bands: {standard: {maxWait: 3s}}";
    let gateway = Gateway::start(&one_at_a_time([&server], settings));
    let mut first = occupy(&gateway, &server, "first");
    let mut waiting = begin(&gateway, "waiting", CHAT);
    queue_is(&gateway, "standard", 1);
    // It leaves, and what it has goes on.
    gateway.apply(&one_at_a_time([], settings));
    let at_once = ask(&gateway, "at-once", CHAT);
    let expected = (503, "no_endpoint".to_owned(), Some("no_endpoint"), Some("rejected-no-endpoints"));
    assert_eq!(dropped(&at_once), expected);
    assert_eq!(waits_so_far(&gateway), 0, "it did not wait, though another does");
    let waited = waiting.answer().unwrap();
    assert_eq!(dropped(&waited), expected);
    for id in ["at-once", "waiting"] {
        assert_eq!(gateway.request(id)["outcome"], "no_endpoint");
    }
    assert_eq!((count(&gateway, "no_endpoint"), waits_so_far(&gateway)), (2, 1));
    server.open();
    assert_eq!(first.answer().unwrap().status, 200, "what was there is finished");
    nothing_left(&gateway);
}

/// F03: time over or client gone around the moment of joining.
#[test]
fn f03_waits_that_end_in_time_outs_and_abandoned_requests_are_never_a_server_error() {
    let server = Gated::start();
    let gateway = Gateway::start(&one_at_a_time([&server], "bands: {standard: {maxWait: 100ms}}"));
    let mut first = occupy(&gateway, &server, "first");
    for round in 0..3 {
        let mut patient = Vec::new();
        for n in 0..50 {
            let mut connection = begin(&gateway, &format!("gone-{round}-{n}"), CHAT);
            patient.push(begin(&gateway, &format!("patient-{round}-{n}"), CHAT));
            // Some leave before they are read, some while they wait.
            if n % 2 == 0 {
                connection.patience(Duration::from_millis(20));
                assert!(connection.answer().is_err(), "nobody has room");
            }
        }
        for mut connection in patient {
            let answer = connection.answer().unwrap();
            assert_eq!(
                dropped(&answer),
                (429, "expired_in_queue".into(), Some("expired_in_queue"), Some("rejected-ttl-expired")),
            );
            assert!((1..=60).contains(&retry_after_s(&answer)));
        }
    }
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    soon("every request has its one outcome", || count_all(&gateway) == 301);
    // Who left before its body was read had no pool yet.
    let of = |outcome| number(&gateway, "inference_gateway_requests_total", &[&format!("outcome=\"{outcome}\"")]);
    assert_eq!((of("ok"), of("expired_in_queue"), of("client_gone")), (1, 150, 150));
    assert_eq!(server.served(), 1);
    nothing_left(&gateway);
}

/// F04: bytes are bounded, too, and come back whichever way a wait ends.
#[test]
fn f04_the_bytes_that_wait_are_bounded_and_end_at_zero() {
    let server = Gated::start();
    // A wait far longer than the test: nothing leaves the queue because its time is over.
    let settings = "bands: {standard: {maxQueuedBytes: 1Mi, maxWait: 10m}}";
    let gateway = Gateway::start(&one_at_a_time([&server], settings));
    let body =
        format!(r#"{{"model":"m1","messages":[{{"role":"user","content":"{}"}}]}}"#, "a".repeat(100 * 1024 - 58));
    for client_leaves in [false, true] {
        let mut first = occupy(&gateway, &server, &format!("first-{client_leaves}"));
        let mut waiting = Vec::new();
        let mut refused = 0;
        for n in 0..30 {
            let mut connection = begin(&gateway, &format!("large-{client_leaves}-{n}"), &body);
            if waiting.len() < 10 {
                waiting.push(connection);
                queue_is(&gateway, "standard", waiting.len() as u64);
            } else {
                let answer = connection.answer().unwrap();
                assert_eq!(
                    dropped(&answer),
                    (429, "queue_full".into(), Some("queue_full"), Some("rejected-saturated"))
                );
                refused += 1;
            }
        }
        assert_eq!((waiting.len(), refused), (10, 20));
        let bytes = number(&gateway, "inference_gateway_queue_bytes", &[r#"pool="m1""#, r#"band="standard""#]);
        assert!((1_000_000..=1 << 20).contains(&bytes), "{bytes}");
        if client_leaves {
            drop(waiting);
            queue_is(&gateway, "standard", 0);
            server.let_pass(1);
        } else {
            server.let_pass(11);
            for mut connection in waiting {
                assert_eq!(connection.answer().unwrap().status, 200);
            }
        }
        assert_eq!(first.answer().unwrap().status, 200);
        nothing_left(&gateway);
    }
    // One that is larger than all that may wait does not wait.
    let mut first = occupy(&gateway, &server, "last");
    let larger = body.replace("aaaa", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert!(larger.len() > 1 << 20);
    assert_eq!(ask(&gateway, "too-large", &larger).code(), "queue_full");
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    assert_eq!(ask(&gateway, "there-is-room", &larger).status, 200);
}

/// F05: whoever leaves the queue is not sent.
#[test]
fn f05_a_request_whose_client_left_while_it_waited_never_reaches_an_endpoint() {
    let server = Gated::start();
    let gateway = Gateway::start(&one_at_a_time([&server], ""));
    let mut first = occupy(&gateway, &server, "first");
    let waiting: Vec<Connection> = (0..50).map(|n| begin(&gateway, &format!("leaves-{n}"), CHAT)).collect();
    queue_is(&gateway, "standard", 50);
    let left = Instant::now();
    drop(waiting);
    // The aim is 100 ms; tests share the machine.
    eventually("the queue is empty", Duration::from_secs(1), || (queue(&gateway, "standard") == 0).then_some(()));
    let took = left.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    assert_eq!(ask(&gateway, "after", CHAT).status, 200);
    assert_eq!(server.served(), 2, "the first and the last, and none of those that left");
    soon("all are counted", || count(&gateway, "client_gone") == 50);
    let line = gateway.request("leaves-7");
    assert_eq!((&line["endpoint"], &line["tries"], &line["status"]), (&Value::Null, &0.into(), &499.into()), "{line}");
    assert!(line["queue_ms"].as_f64() > Some(0.0), "{line}");
    nothing_left(&gateway);
}

/// F08: nothing forgets a request that is silent, before its answer or within it, so nobody is let in beside it.
#[test]
fn f08_a_silent_request_keeps_its_place_for_as_long_as_it_lives() {
    let (server, streams) = (Gated::start(), Gated::streams());
    // All that looks for what is old does so far more often than in life, and longer than 10 s nothing in the gateway that
    // is not a limit on silence waits: reports, marks, sweeps of series.
    let silent_for = Duration::from_secs(13);
    let config = one_at_a_time([&server, &streams], "bands: {standard: {maxWait: 10m}}");
    let gateway = Gateway::start(&config.line("signals: {staleAfter: 500ms}"));
    let mut open = vec![begin(&gateway, "first", STREAM), begin(&gateway, "second", STREAM)];
    soon("both places are taken", || (server.served(), streams.served()) == (1, 1));
    open.push(begin(&gateway, "third", CHAT));
    queue_is(&gateway, "standard", 1);
    let started = Instant::now();
    eventually("they are silent for long", silent_for * 2, || {
        assert_eq!((server.served(), streams.served(), gateway.admin.in_flight("m1")), (1, 1, 2));
        assert_eq!(queue(&gateway, "standard"), 1);
        (started.elapsed() > silent_for).then_some(())
    });
    server.open();
    streams.open();
    for connection in &mut open {
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    for gated in [&server, &streams] {
        assert_eq!(gated.gate.inside_most.load(Ordering::Acquire), 1);
    }
    nothing_left(&gateway);
}

const OBJECTIVES: &str = "\
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: gold}
spec: {priority: 10, poolRef: {name: m1}}
---
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceObjective
metadata: {name: free}
spec: {priority: -1, poolRef: {name: m1}}";

#[test]
fn objectives_say_who_goes_first_who_waits_and_who_is_refused() {
    let server = Gated::start();
    let gateway = Gateway::start(&one_at_a_time([&server], "").document(OBJECTIVES));
    let mut first = occupy(&gateway, &server, "first");
    let objective = |name| [("x-gateway-inference-objective", name)];
    let mut standard = begin_with(&gateway, "standard", &[]);
    queue_is(&gateway, "standard", 1);
    let mut unknown = begin_with(&gateway, "unknown", &objective("silver"));
    queue_is(&gateway, "standard", 2);
    let mut gold = begin_with(&gateway, "gold", &[("x-llm-d-inference-objective", "gold")]);
    queue_is(&gateway, "critical", 1);
    let free = begin_with(&gateway, "free", &objective("free")).answer().unwrap();
    assert_eq!(dropped(&free), (429, "shed".into(), Some("shed"), Some("rejected-saturated")));
    assert!((1..=60).contains(&retry_after_s(&free)));
    for connection in [&mut first, &mut gold, &mut standard, &mut unknown] {
        server.let_pass(1);
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    let order: Vec<String> =
        server.peer.seen().iter().filter_map(|seen| Some(seen.header("x-request-id")?.to_owned())).collect();
    assert_eq!(order, ["first", "gold", "standard", "unknown"]);
    let seen = &server.peer.seen()[1];
    assert!(seen.header("x-llm-d-inference-objective").is_none(), "never sent on");
    for (id, band) in [("gold", "critical"), ("unknown", "standard"), ("free", "sheddable")] {
        assert_eq!(gateway.request(id)["band"], band);
    }
    let of_band = |band: &str| number(&gateway, "inference_gateway_requests_total", &[&format!("band=\"{band}\"")]);
    assert_eq!((of_band("critical"), of_band("standard"), of_band("sheddable")), (1, 3, 1));
    assert_eq!(number(&gateway, "inference_gateway_unknown_objectives_total", &[r#"pool="m1""#]), 1);
    nothing_left(&gateway);
}

#[test]
fn flows_take_turns() {
    let server = Gated::start();
    let gateway = Gateway::start(&one_at_a_time([&server], ""));
    let mut first = occupy(&gateway, &server, "first");
    let mut open = Vec::new();
    for n in 0..6 {
        open.push(begin_with(&gateway, &format!("greedy-{n}"), &[("x-gateway-inference-fairness-id", "greedy")]));
        queue_is(&gateway, "standard", open.len() as u64);
    }
    for n in 0..2 {
        open.push(begin_with(&gateway, &format!("modest-{n}"), &[("x-llm-d-inference-fairness-id", "modest")]));
        queue_is(&gateway, "standard", open.len() as u64);
    }
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    for connection in &mut open {
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    let order: Vec<String> =
        server.peer.seen().iter().filter_map(|seen| Some(seen.header("x-request-id")?.to_owned())).collect();
    let places: Vec<_> = (0..2).map(|n| order.iter().position(|id| *id == format!("modest-{n}")).unwrap()).collect();
    assert!(places[0] <= 2 && places[1] <= 4, "not behind all that came before them: {order:?}");
}

#[test]
fn a_full_queue_gives_way_to_a_caller_with_less_in_it() {
    let server = Gated::start();
    let gateway = Gateway::start(&one_at_a_time([&server], "bands: {standard: {maxQueuedRequests: 3}}"));
    let mut first = occupy(&gateway, &server, "first");
    let greedy = [("x-gateway-inference-fairness-id", "greedy")];
    let mut open = Vec::new();
    for n in 0..3 {
        open.push(begin_with(&gateway, &format!("greedy-{n}"), &greedy));
        queue_is(&gateway, "standard", n + 1);
    }
    let full = begin_with(&gateway, "greedy-3", &greedy).answer().unwrap();
    assert_eq!(dropped(&full).1, "queue_full");
    let mut modest = begin_with(&gateway, "modest", &[("x-gateway-inference-fairness-id", "modest")]);
    let pushed_out = open.pop().unwrap().answer().unwrap();
    assert_eq!(dropped(&pushed_out), (429, "queue_full".into(), Some("queue_full"), Some("rejected-saturated")));
    server.open();
    for connection in open.iter_mut().chain([&mut first, &mut modest]) {
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    assert_eq!((count(&gateway, "queue_full"), count(&gateway, "ok")), (2, 4));
    nothing_left(&gateway);
}

#[test]
fn sigterm_tells_those_who_wait_to_go_elsewhere_and_lets_the_others_end() {
    let server = Gated::start();
    let mut gateway = Gateway::start(&one_at_a_time([&server], ""));
    let mut first = occupy(&gateway, &server, "first");
    let mut waiting = begin(&gateway, "waiting", CHAT);
    queue_is(&gateway, "standard", 1);
    gateway.process.signal("TERM");
    let answer = waiting.answer().unwrap();
    assert_eq!(dropped(&answer), (503, "draining".into(), Some("draining"), Some("rejected-shutting-down")));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(gateway.request("waiting")["outcome"], "draining");
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    let code = eventually("the process ends", Duration::from_secs(10), || gateway.process.ended());
    assert_eq!(code, Some(0));
    assert_eq!(server.served(), 1);
}

#[test]
fn an_endpoint_that_comes_serves_who_waits_and_a_reload_forgets_nobody() {
    let (server, other) = (Gated::start(), Gated::start());
    let gateway = Gateway::start(&one_at_a_time([&server], ""));
    let mut first = occupy(&gateway, &server, "first");
    let mut waiting = begin(&gateway, "waiting", CHAT);
    queue_is(&gateway, "standard", 1);
    gateway.apply(&one_at_a_time([&server], "fairness: leastAttainedService, bands: {standard: {maxWait: 3s}}"));
    assert_eq!((queue(&gateway, "standard"), server.served()), (1, 1), "it waits on");
    other.open();
    gateway.apply(&one_at_a_time([&server, &other], ""));
    assert_eq!(waiting.answer().unwrap().status, 200);
    assert_eq!(ended_at(&gateway, "waiting"), "m1-1");
    let mut late = begin(&gateway, "late", CHAT);
    assert_eq!(late.answer().unwrap().status, 200);
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    nothing_left(&gateway);
}

#[test]
fn a_pool_that_is_taken_out_and_comes_back_serves_who_waits_there() {
    let (server, other, elsewhere) = (Gated::start(), Gated::start(), Peer::plain());
    let gateway = Gateway::start(&one_at_a_time([&server], ""));
    let mut first = occupy(&gateway, &server, "first");
    let mut waiting = begin(&gateway, "waiting", CHAT);
    queue_is(&gateway, "standard", 1);
    let without = Config::new([Scheduler::new("m2", [elsewhere.address]).line("engineType: none")]);
    gateway.apply(&without);
    assert_eq!(ask(&gateway, "meanwhile", CHAT).code(), "model_not_found");
    other.open();
    gateway.apply(&one_at_a_time([&other], ""));
    assert_eq!(waiting.answer().unwrap().status, 200, "at who is there now");
    assert_eq!(gateway.admin.in_flight("m1"), 1, "the first is not forgotten");
    server.open();
    assert_eq!(first.answer().unwrap().status, 200);
    nothing_left(&gateway);
}

#[test]
fn a_wait_is_no_longer_than_its_route_allows() {
    let busy = peer(|exchange: &mut Exchange| exchange.answer("429 Busy", &[("retry-after", "60")], "{}"));
    let gateway = Gateway::start(&Config::new([scheduler([&busy]).line("routeTimeout: 500ms")]));
    assert_eq!(ask(&gateway, "marks", CHAT).status, 429);
    let begun = Instant::now();
    let answer = ask(&gateway, "waits", CHAT);
    assert_eq!(dropped(&answer).1, "expired_in_queue");
    assert!(begun.elapsed() < Duration::from_secs(5), "not the band's ten seconds: {:?}", begun.elapsed());
    assert_eq!(busy.seen().len(), 1);
    nothing_left(&gateway);
}

fn ended_at(gateway: &Gateway, id: &str) -> String {
    gateway.request(id)["endpoint"].as_str().expect("an endpoint").to_owned()
}

#[test]
fn turned_off_it_lets_everyone_who_waits_go_and_queues_nobody() {
    let server = Gated::start();
    let gateway = Gateway::start(&one_at_a_time([&server], ""));
    let mut first = occupy(&gateway, &server, "first");
    let mut waiting: Vec<Connection> = (0..5).map(|n| begin(&gateway, &format!("waiting-{n}"), CHAT)).collect();
    queue_is(&gateway, "standard", 5);
    gateway.apply(&one_at_a_time([&server], "enabled: false"));
    soon("all are sent on", || server.served() == 6);
    waiting.push(begin(&gateway, "further", CHAT));
    soon("so is the next", || server.served() == 7);
    server.open();
    for connection in waiting.iter_mut().chain([&mut first]) {
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    nothing_left(&gateway);
}

#[test]
fn sheddable_work_without_a_byte_of_answer_gives_way_where_that_is_wanted() {
    // Sends the head of a stream at once, as engines do, and its first token when it may.
    let gate = Arc::new(Gate::default());
    let peer = peer({
        let gate = Arc::clone(&gate);
        move |exchange: &mut Exchange| {
            exchange.begin_stream();
            if exchange.request.header("x-request-id").is_some_and(|id| id.starts_with("free")) {
                exchange.wait_for_close(Duration::from_secs(30));
                return Next::Close;
            }
            gate.pass();
            exchange.token("a");
            exchange.event("[DONE]");
            exchange.end_chunks()
        }
    });
    let lines = "flowControl: {maxInFlightPerEndpoint: 1, eviction: beforeFirstByte}";
    let config = Config::new([Scheduler::new("m1", [peer.address]).line("engineType: none").line(lines)]);
    let gateway = Gateway::start(&config.document(OBJECTIVES));
    let mut free = Connection::open(gateway.data);
    let objective = [("x-gateway-inference-objective", "free")];
    free.send(request_bytes(CHATS, "free", &objective, STREAM)).unwrap();
    soon("it is at the endpoint", || peer.seen().len() == 1);
    gate.state.lock().unwrap().open = true;
    let mut standard = begin(&gateway, "standard", STREAM);
    let evicted = free.answer().unwrap();
    assert_eq!(dropped(&evicted), (429, "evicted".into(), Some("evicted"), Some("evicted")));
    assert!((1..=60).contains(&retry_after_s(&evicted)));
    assert_eq!(standard.answer().unwrap().status, 200);
    let line = gateway.request("free");
    assert_eq!(
        (&line["outcome"], &line["status"], &line["bytes_out"]),
        (&"evicted".into(), &429.into(), &(evicted.body.len() as u64).into()),
        "{line}"
    );
    assert_eq!(number(&gateway, "inference_gateway_evictions_total", &[r#"pool="m1""#]), 1);
    assert_eq!(gateway.admin.endpoint("m1", "m1-0")["state"], "ready", "it is no fault of the endpoint's");
    nothing_left(&gateway);
}

#[test]
fn when_nobody_of_the_list_can_be_reached_the_others_are_asked() {
    let gated = Gated::start();
    gated.open();
    let dead: Vec<Peer> = (0..4).map(|_| Peer::plain()).collect();
    // They were there when they were looked at, and are gone when they are asked.
    let peers = dead.iter().chain([&gated.peer]).collect::<Vec<_>>();
    let config = Config::new([scheduler(peers)]).line("signals: {scrapeInterval: 30s, staleAfter: 60s}");
    let gateway = Gateway::start(&config);
    soon("all are ready", || (0..5).all(|n| gateway.admin.endpoint("m1", &format!("m1-{n}"))["state"] == "ready"));
    drop(dead);
    for n in 0..5 {
        let answer = ask(&gateway, &format!("asked-{n}"), CHAT);
        assert_eq!(answer.status, 200, "{n}: {}", answer.text());
        assert_eq!(ended_at(&gateway, &format!("asked-{n}")), "m1-4");
    }
    assert_eq!(gated.served(), 5);
    nothing_left(&gateway);
}
