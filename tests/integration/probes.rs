//! Sixteen questions that were put to other gateways from outside, put to this one: what a client and a model server can
//! see of it, row by row. Every one of those gateways failed at least one.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use harness::{
    Answer, Config, Connection, Exchange, Gateway, Http2, Next, Peer, Scheduler, Sim, eventually, post, request, soon,
};
use serde_json::{Value, json};

use crate::rig::{
    AT_ONCE, CHAT, CHATS, STREAM, ask, begin, closing_error, count, count_all, ended, gateway, held, number, peer,
    request_bytes, scheduler,
};

/// A body with what no schema knows, in a notation that nobody would write again.
const ODD: &str = "{ \"model\" : \"m1\",\n\t\"messages\":[{\"role\":\"user\",\"content\":\"caf\\u00e9 \u{1F980}\"}],\
    \"user\":\"u-1\", \"max_tokens\":1E1,\"unknown_field\":{\"b\":1.0000000000000000001,\"a\":null,\"a\":2},\
    \"vllm_xargs\":{\"x\":18446744073709551616} , \"metadata\":{} }\r\n";

/// A chat with a function that takes nothing, and does not say so.
const TOOL: &str = r#"{"model":"m1","max_tokens":4,"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"now"}}]}"#;

#[test]
fn unknown_fields_reach_the_endpoint_byte_for_byte() {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    assert_eq!(post(gateway.data, CHATS, ODD).status, 200);
    assert_eq!(Http2::open(gateway.data).post(CHATS, &[], ODD).status, 200);
    let seen = peer.seen();
    assert_eq!(seen.len(), 2);
    for seen in seen {
        assert_eq!(String::from_utf8_lossy(&seen.body), ODD);
    }
}

#[test]
fn a_tool_without_parameters_is_the_endpoints_business() {
    let sim = Sim::start(&["--served-model-name", "m1"]);
    let gateway = Gateway::start(&Config::new([Scheduler::new("m1", [sim.address])]));
    soon("its page is read", || gateway.admin.endpoint("m1", "m1-0")["state"] == "ready");
    let answer = ask(&gateway, "tool", TOOL);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["object"], "chat.completion");
    ended(&gateway, "tool", "ok");
    let peer = Peer::plain();
    let gateway = self::gateway([&peer]);
    assert_eq!(post(gateway.data, CHATS, TOOL).status, 200);
    assert_eq!(peer.seen()[0].body, TOOL.as_bytes());
}

/// One chat with these headers, as the endpoint saw it, and the answer.
fn with_headers(headers: &[(&str, &str)]) -> (harness::Seen, Answer) {
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    let answer = request(gateway.data, "POST", CHATS, headers, CHAT);
    assert_eq!(answer.status, 200, "{}", answer.text());
    (peer.seen().remove(0), answer)
}

#[test]
fn a_clients_own_headers_reach_the_endpoint() {
    let own =
        [("x-foo", "bar; q=1"), ("user-agent", "probe/1.0 (x)"), ("x-vllm-priority", "3"), ("openai-beta", "a=v2")];
    let (seen, _) = with_headers(&own);
    for (name, value) in own {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
}

#[test]
fn a_trace_and_the_request_id_go_on_and_the_id_comes_back() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", trace), ("tracestate", "vendor=1"), ("x-request-id", "probe-7")];
    let (seen, answer) = with_headers(&headers);
    // Whoever takes part in a trace may name itself as the parent; the trace stays the client's.
    let onward = seen.header("traceparent").expect("the trace goes on");
    assert_eq!(onward.split('-').nth(1), trace.split('-').nth(1), "{onward}");
    assert_eq!(seen.header("tracestate"), Some("vendor=1"));
    assert_eq!(seen.header("x-request-id"), Some("probe-7"));
    assert_eq!(answer.header("x-request-id"), Some("probe-7"));
}

#[test]
fn credentials_for_a_proxy_go_no_further_than_the_proxy() {
    let (seen, _) = with_headers(&[("proxy-authorization", "Basic c2VjcmV0"), ("authorization", "Bearer mine")]);
    assert_eq!(seen.header("proxy-authorization"), None);
    assert_eq!(seen.header("authorization"), Some("Bearer mine"), "the client's own key is for the endpoint");
}

#[test]
fn an_endpoints_429_is_asked_once_and_keeps_its_retry_after() {
    const BUSY: &str = r#"{"error":{"message":"slow down","type":"rate_limit_error","code":"busy"}}"#;
    let peer = peer(|exchange| {
        let headers = [("content-type", "application/json"), ("retry-after", "7")];
        exchange.answer("429 Too Many Requests", &headers, BUSY)
    });
    let gateway = gateway([&peer]);
    let answer = ask(&gateway, "busy", CHAT);
    assert_eq!((answer.status, answer.header("retry-after"), answer.text().as_str()), (429, Some("7"), BUSY));
    let line = ended(&gateway, "busy", "upstream_4xx");
    assert_eq!((line["status"].as_u64(), line["tries"].as_u64()), (Some(429), Some(1)), "{line}");
    assert_eq!(peer.seen().len(), 1, "load is never multiplied");
    assert_eq!(number(&gateway, "inference_gateway_upstream_retries_total", &[]), 0);
}

/// Answers as far as `x-stage` says and waits to be hung up on.
fn unfinished(exchange: &mut Exchange) -> Next {
    if exchange.request.header("x-stage") == Some("stream") {
        exchange.begin_stream();
        exchange.token("first");
    }
    exchange.wait_for_close(AT_ONCE * 10);
    Next::Close
}

/// A client leaves at this stage, over both protocols: its endpoint is hung up on at once.
fn leaves_at(stage: &str) {
    let peer = peer(unfinished);
    let gateway = gateway([&peer]);
    let headers = [("x-stage", stage)];
    let begun = |bytes: &[u8]| bytes.windows(5).any(|at| at == b"first");
    let closed = |index: usize| eventually("it is cancelled", AT_ONCE * 10, || peer.seen().get(index)?.closed);

    let mut connection = Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, "h1", &headers, STREAM)).expect("a request can be sent");
    soon("the endpoint is asked", || peer.seen().len() == 1);
    if stage == "stream" {
        connection.read_until(begun).expect("the stream begins");
    }
    let left = Instant::now();
    drop(connection);
    let mut took = vec![closed(0).duration_since(left)];

    let client = Http2::open(gateway.data);
    let headers = [("x-stage", stage), ("x-request-id", "h2")];
    let mut open = client.start("POST", CHATS, &headers, STREAM);
    soon("the endpoint is asked", || peer.seen().len() == 2);
    if stage == "stream" {
        client.read_until(&mut open, begun);
    }
    let left = Instant::now();
    open.reset();
    took.push(closed(1).duration_since(left));
    assert!(took.iter().all(|took| *took < AT_ONCE), "{took:?}");
    for id in ["h1", "h2"] {
        assert_eq!(ended(&gateway, id, "client_gone")["tries"], 1);
    }
}

#[test]
fn a_client_that_leaves_mid_stream_cancels_its_endpoint_at_once() {
    leaves_at("stream");
}

#[test]
fn a_client_that_leaves_before_the_first_byte_cancels_its_endpoint_at_once() {
    leaves_at("nothing");
}

#[test]
fn a_stream_whose_endpoint_dies_ends_with_an_error_and_without_done() {
    let peer = peer(|exchange| {
        exchange.begin_stream();
        exchange.token("one");
        exchange.token("two");
        Next::Close
    });
    let gateway = gateway([&peer]);
    let answer = ask(&gateway, "cut", STREAM);
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("one") && answer.text().contains("two"), "what came is the client's");
    assert_eq!(closing_error(&answer.text()).as_deref(), Some("endpoint_broke"), "{}", answer.text());
    assert!(!answer.text().contains("[DONE]"), "{}", answer.text());
    let line = ended(&gateway, "cut", "endpoint_broke");
    assert_eq!((line["tries"].as_u64(), peer.seen().len()), (Some(1), 1), "{line}");
}

/// Calls that the endpoints refuse as the client's mistake.
const MISTAKES: usize = 15;

/// Calls after one of two endpoints died.
const AFTER_A_DEATH: usize = 80;

#[test]
fn mistakes_of_clients_and_then_the_death_of_one_of_two_endpoints_cost_no_request() {
    let serve = |exchange: &mut Exchange| {
        if !exchange.is_look() && exchange.request.body.windows(7).any(|at| at == b"mistake") {
            let json = [("content-type", "application/json")];
            return exchange.answer("400 Bad Request", &json, r#"{"error":{"message":"too long"}}"#);
        }
        exchange.answer_plainly()
    };
    let mut peers = vec![Peer::start(serve), Peer::start(serve)];
    let gateway = gateway(&peers);
    // On one connection, so that there are idle connections to both endpoints when one of them goes.
    let mut connection = Connection::open(gateway.data);
    for n in 0..MISTAKES {
        let body = CHAT.replace("hi", &format!("mistake {n}"));
        connection.send(request_bytes(CHATS, &format!("mistake-{n}"), &[], &body)).unwrap();
        assert_eq!(connection.answer().unwrap().status, 400);
    }
    assert_eq!(number(&gateway, "inference_gateway_ejections_total", &[]), 0, "no endpoint is blamed for it");
    let dead = peers.pop().expect("there are two");
    drop(dead);
    let mut refused = Vec::new();
    for n in 0..AFTER_A_DEATH {
        let body = CHAT.replace("hi", &format!("question {n}"));
        connection.send(request_bytes(CHATS, &format!("after-{n}"), &[], &body)).unwrap();
        let answer = connection.answer().unwrap();
        if answer.status != 200 {
            refused.push((n, answer.status, answer.text()));
        }
    }
    assert!(refused.is_empty(), "{refused:?}");
    soon("all are counted", || count_all(&gateway) == (MISTAKES + AFTER_A_DEATH) as u64);
    assert_eq!((count(&gateway, "ok"), count(&gateway, "upstream_4xx")), (AFTER_A_DEATH as u64, MISTAKES as u64));
}

/// Checks one of our refusals: JSON, a time to come back, and not a word about what lies behind the gateway.
fn honest(answer: &Answer, status: u16, code: &str, hidden: &[SocketAddr]) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let after = answer.header("retry-after").and_then(|after| after.parse::<u32>().ok());
    assert!(after.is_some_and(|after| (1..=60).contains(&after)), "{after:?}");
    let whole = format!("{:?} {}", answer.headers, answer.text());
    for address in hidden {
        for secret in [address.to_string(), format!(":{}", address.port()), "http://".into(), "m1-0".into()] {
            assert!(!whole.contains(&secret), "{secret} is shown: {whole}");
        }
    }
}

#[test]
fn with_every_endpoint_dead_the_answer_is_503_says_when_and_shows_no_address() {
    let peers = [Peer::plain(), Peer::plain()];
    let gateway = gateway(&peers);
    for n in 0..4 {
        assert_eq!(ask(&gateway, &format!("alive-{n}"), CHAT).status, 200);
    }
    let addresses = peers.each_ref().map(|peer| peer.address);
    drop(peers);
    for n in 0..20 {
        let id = format!("dead-{n}");
        let answer = ask(&gateway, &id, CHAT);
        // Whichever way it is known by now that nobody is there.
        let code = if answer.code() == "no_endpoint" { "no_endpoint" } else { "endpoint_unreachable" };
        honest(&answer, 503, code, &addresses);
        ended(&gateway, &id, code);
    }
}

#[test]
fn with_two_places_and_no_queue_a_third_request_is_429_says_when_and_is_json() {
    let peers = [(); 2].map(|()| peer(unfinished));
    let no_queue = "{critical: {maxWait: 0s}, standard: {maxWait: 0s}, sheddable: {maxWait: 0s}}";
    let config = Config::new([scheduler(&peers)])
        .line(&format!("flowControl: {{maxInFlightPerEndpoint: 1, bands: {no_queue}}}"));
    let gateway = Gateway::start(&config);
    let mut held: Vec<_> = (0..2).map(|n| begin(&gateway, &format!("held-{n}"), CHAT)).collect();
    soon("both places are taken", || gateway.admin.in_flight("m1") == 2);
    soon("each has one", || peers.iter().all(|peer| peer.seen().len() == 1));
    let addresses = peers.each_ref().map(|peer| peer.address);
    let asked = Instant::now();
    for n in 0..10 {
        let id = format!("third-{n}");
        honest(&ask(&gateway, &id, CHAT), 429, "queue_full", &addresses);
        let line = gateway.request(&id);
        assert_eq!((line["outcome"].as_str(), line["tries"].as_u64()), (Some("queue_full"), Some(0)), "{line}");
    }
    assert!(asked.elapsed() < AT_ONCE * 5, "at once, ten times: {:?}", asked.elapsed());
    assert_eq!(count(&gateway, "queue_full"), 10);
    drop(held.pop());
    soon("the place is free", || gateway.admin.in_flight("m1") == 1);
    for peer in &peers {
        peer.follow(|exchange| exchange.answer_plainly());
    }
    assert_eq!(ask(&gateway, "fourth", CHAT).status, 200, "and there is room again");
}

/// How long the listener stays open after SIGTERM in the test below.
const GRACE: Duration = Duration::from_millis(1500);

#[test]
fn sigterm_mid_stream_ends_readiness_first_then_new_work_and_the_stream_never() {
    let (peer, end) = held();
    let config = Config::new([scheduler([&peer])]);
    let mut gateway = Gateway::start_with(&config, &["--drain-grace", &format!("{}ms", GRACE.as_millis())]);
    let mut stream = begin(&gateway, "stream", STREAM);
    stream.read_until(|bytes| bytes.windows(5).any(|at| at == b"first")).unwrap();
    let mut kept = begin(&gateway, "kept", CHAT);
    assert_eq!(kept.answer().unwrap().status, 200);

    let told = Instant::now();
    gateway.process.signal("TERM");
    soon("readiness fails", || gateway.admin.get("/readyz").status == 503);
    assert_eq!(request(gateway.data, "GET", "/readyz", &[], "").status, 503, "for balancers that ask the data port");
    let during = ask(&gateway, "during", CHAT);
    assert!(told.elapsed() < GRACE, "the machine is too slow for this test's grace");
    assert_eq!(during.status, 200, "whoever has not noticed yet is served");
    soon("the listener is closed", || TcpStream::connect(gateway.data).is_err());
    assert!(told.elapsed() >= GRACE, "{:?}", told.elapsed());

    kept.send(request_bytes(CHATS, "late", &[], CHAT)).unwrap();
    let late = kept.answer().unwrap();
    honest(&late, 503, "draining", &[peer.address]);
    assert_eq!(late.header("connection"), Some("close"));
    end.send(()).unwrap();
    let answer = stream.answer().unwrap();
    assert!(answer.complete && answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    assert!(answer.text().contains("last"), "{}", answer.text());
    let code = eventually("the process ends", Duration::from_secs(10), || gateway.process.ended());
    assert_eq!(code, Some(0));
    for (id, outcome) in [("stream", "ok"), ("kept", "ok"), ("during", "ok"), ("late", "draining")] {
        assert_eq!(gateway.request(id)["outcome"], outcome, "{id}");
    }
}

/// How soon after a worker listens its gateway must serve.
const SERVES_WITHIN: Duration = Duration::from_secs(2);

/// An address that will be listened at later.
fn reserved() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port on loopback")
}

/// A model server with a metrics page.
fn with_page(exchange: &mut Exchange) -> Next {
    if exchange.request.line.starts_with("GET /metrics") {
        let page = "vllm:num_requests_running{model_name=\"m1\"} 0\nvllm:num_requests_waiting{model_name=\"m1\"} 0\n\
                    vllm:kv_cache_usage_perc{model_name=\"m1\"} 0\n";
        return exchange.answer("200 OK", &[("content-type", "text/plain; version=0.0.4")], page);
    }
    exchange.answer_plainly()
}

#[test]
fn a_gateway_that_starts_before_its_workers_serves_as_soon_as_one_listens() {
    for engine in ["vllm", "none"] {
        let places = [reserved(), reserved()];
        let config = Config::new([Scheduler::new("m1", places).line(&format!("engineType: {engine}"))]);
        let gateway = Gateway::start(&config);
        // It has looked for its workers in vain, and so have its clients.
        for n in 0..10 {
            assert_eq!(ask(&gateway, &format!("early-{n}"), CHAT).status, 503, "{engine}");
        }
        let worker = Peer::start_again_at(places[1], with_page);
        let listens = Instant::now();
        let mut tries = 0;
        eventually("it is served", SERVES_WITHIN * 5, || {
            tries += 1;
            (ask(&gateway, &format!("now-{tries}"), CHAT).status == 200).then_some(())
        });
        let took = listens.elapsed();
        assert!(took < SERVES_WITHIN, "{engine}: {took:?}");
        drop(worker);
    }
}

#[test]
fn each_model_goes_to_its_own_backend_and_the_list_has_both() {
    const CALLS: usize = 12;
    let (first, second) = (Peer::plain(), Peer::plain());
    let pool = |model: &str, peer: &Peer| Scheduler::new(model, [peer.address]).line("engineType: none");
    let gateway = Gateway::start(&Config::new([pool("m-a", &first), pool("m-b", &second)]));
    for n in 0..CALLS {
        let body = CHAT.replace("m1", "m-b").replace("hi", &format!("question {n}"));
        assert_eq!(ask(&gateway, &format!("b-{n}"), &body).status, 200);
    }
    assert_eq!((first.seen().len(), second.seen().len()), (0, CALLS));
    let list = request(gateway.data, "GET", "/v1/models", &[], "").json();
    let mut models: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    models.sort_by_key(Value::to_string);
    assert_eq!(models, [json!("m-a"), json!("m-b")], "{list}");
}

#[test]
fn a_body_of_24_mb_passes_whole() {
    const BYTES: usize = 24 << 20;
    let peer = Peer::plain();
    let gateway = gateway([&peer]);
    // No two places of it are alike, so that nothing lost, doubled or swapped goes unseen.
    let text: String = (0..BYTES / 8).map(|n| format!("{n:07} ")).collect();
    let body = CHAT.replace("hi", &text);
    assert!(body.len() >= BYTES);
    let h1 = ask(&gateway, "h1", &body);
    assert_eq!(h1.status, 200, "{}", h1.text());
    let h2 = Http2::open(gateway.data).post(CHATS, &[("x-request-id", "h2")], &body);
    assert_eq!(h2.status, 200, "{}", h2.text());
    for (seen, id) in peer.seen().iter().zip(["h1", "h2"]) {
        assert!(seen.body == body.as_bytes(), "{id}: {} of {} bytes", seen.body.len(), body.len());
        assert_eq!(ended(&gateway, id, "ok")["bytes_in"], body.len());
    }
    soon("nothing is held", || gateway.admin.metric("inference_gateway_body_memory_bytes", &[]) == Some(0.0));
}

#[test]
fn events_keep_their_distance() {
    const EVENTS: usize = 12;
    const GAP: Duration = Duration::from_millis(100);
    let written = Arc::new(Mutex::new(Vec::new()));
    let peer = peer({
        let written = Arc::clone(&written);
        move |exchange| {
            exchange.begin_stream();
            for event in 0..EVENTS {
                // The pace of a model.
                thread::sleep(GAP);
                written.lock().unwrap().push(Instant::now());
                exchange.token(&format!("t{event}."));
            }
            exchange.event("[DONE]");
            exchange.end_chunks()
        }
    });
    let gateway = gateway([&peer]);
    let mut stream = begin(&gateway, "paced", STREAM);
    let mut read = Vec::new();
    for event in 0..EVENTS {
        let wanted = format!("t{event}.");
        stream.read_until(|bytes| bytes.windows(wanted.len()).any(|at| at == wanted.as_bytes())).unwrap();
        read.push(Instant::now());
    }
    assert!(stream.answer().unwrap().text().ends_with("data: [DONE]\n\n"));
    let written = written.lock().unwrap();
    let gaps = |times: &[Instant]| -> Vec<Duration> { times.windows(2).map(|two| two[1] - two[0]).collect() };
    let mut off: Vec<_> = gaps(&written).iter().zip(gaps(&read)).map(|(made, seen)| made.abs_diff(seen)).collect();
    off.sort();
    // Of a gap, not of the clock: what the machine adds to one it takes from the next.
    assert!(off[off.len() / 2] < GAP / 4, "{off:?}");
    for (event, pair) in read.iter().zip(&written[1..]).enumerate() {
        assert!(pair.0 < pair.1, "event {event} was held until the next was made");
    }
}
