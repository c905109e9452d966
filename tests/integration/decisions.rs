//! Each pick can be looked up by its request's id: what was known, what it was worth, what was chosen, what came of it.

use std::thread;

use harness::{Answer, Config, Connection, Gateway, MetricsPage, ModelServer, Scheduler, chat_body, post, soon};
use serde_json::Value;

fn start(servers: &[&ModelServer], more: &str) -> Gateway {
    let mut scheduler = Scheduler::new("m1", servers.iter().map(|server| server.address()));
    if !more.is_empty() {
        scheduler = scheduler.line(more);
    }
    let gateway = Gateway::start(&Config::new([scheduler]).line("signals: {scrapeInterval: 50ms, staleAfter: 1s}"));
    soon("all are read", || {
        let pool = gateway.admin.pool("m1");
        pool["endpoints"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|endpoint| endpoint["signals"]["waiting"]["value"].is_number())
    });
    gateway
}

fn of_id(gateway: &Gateway, id: &str) -> Value {
    gateway.admin.json(&format!("/api/v1/decisions/{id}"))
}

fn of(gateway: &Gateway, answer: &Answer) -> Value {
    of_id(gateway, answer.header("x-request-id").expect("each answer has an id"))
}

/// Waits for what came of a request.
fn outcome(gateway: &Gateway, id: &str) -> String {
    soon("its outcome is known", || of_id(gateway, id)["outcome"].is_string());
    of_id(gateway, id)["outcome"].as_str().expect("a text").to_owned()
}

#[test]
fn a_served_request_shows_every_number_that_counted() {
    let [busy, idle] = [MetricsPage::vllm(2, 3, 0.5), MetricsPage::vllm(0, 1, 0.25)].map(ModelServer::start);
    let gateway = start(&[&busy, &idle], "weights: {queue: 1, kvCache: 2, prefix: 3, runningRequests: 4}");
    let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", "hello"));
    assert_eq!(answer.status, 200);
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(outcome(&gateway, id), "ok");
    let decision = of(&gateway, &answer);
    let expected = [
        ("request_id", Value::from(id)),
        ("pool", "m1".into()),
        ("model", "m1".into()),
        ("reason", "highest_score".into()),
        ("basis", "reports".into()),
        ("status", 200.into()),
        ("endpoint", "m1-1".into()),
        ("picked", ["m1-1", "m1-0"].into_iter().collect()),
    ];
    for (field, value) in expected {
        assert_eq!(decision[field], value, "{field} of {decision}");
    }
    assert!(decision["time"].as_str().is_some_and(|time| time.contains('T') && time.ends_with('Z')), "{decision}");
    let candidates = decision["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    for (candidate, [waiting, running, kv_cache]) in candidates.iter().zip([[0.0, 1.0, 0.25], [2.0, 3.0, 0.5]]) {
        assert_eq!(candidate["rejected"], Value::Null);
        for (name, value) in [("waiting", waiting), ("running", running), ("kv_cache", kv_cache)] {
            let signal = &candidate["signals"][name];
            assert_eq!(signal["value"], value, "{name} of {candidate}");
            assert!(
                signal["age_ms"].as_u64() < Some(1000) && signal["source"].as_str().unwrap().starts_with("vllm:"),
                "{signal}"
            );
        }
        let mut total = 0.0;
        for (name, raw, weight) in
            [("queue", waiting, 1), ("kvCache", kv_cache, 2), ("prefix", 0.0, 3), ("runningRequests", running, 4)]
        {
            let score = &candidate["scores"][name];
            assert_eq!((&score["raw"], &score["weight"]), (&raw.into(), &weight.into()), "{name} of {candidate}");
            let normalised = score["score"].as_f64().unwrap();
            assert!((0.0..=1.0).contains(&normalised), "{name} of {candidate}");
            total += normalised * f64::from(weight);
        }
        assert!((candidate["total"].as_f64().unwrap() - total).abs() < 1e-6, "{candidate}");
    }
    assert!(candidates[0]["total"].as_f64() > candidates[1]["total"].as_f64());
    assert!(decision["explanation"].as_str().unwrap().contains("m1-1"), "{decision}");
}

#[test]
fn a_refused_request_shows_why_nobody_could_take_it() {
    let full = ModelServer::start(MetricsPage::vllm(7, 3, 0.5));
    let gateway = start(&[&full], "flowControl: {bands: {standard: {maxWait: 0s}}}");
    let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", "hello"));
    assert_eq!(answer.status, 429);
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(outcome(&gateway, id), "queue_full");
    let decision = of(&gateway, &answer);
    assert_eq!(
        (&decision["picked"], &decision["reason"]),
        (&Value::Array(Vec::new()), &"pool_full".into()),
        "{decision}"
    );
    assert_eq!((&decision["status"], &decision["endpoint"]), (&429.into(), &Value::Null), "{decision}");
    let candidate = &decision["candidates"][0];
    assert_eq!((&candidate["endpoint"], &candidate["rejected"]), (&"m1-0".into(), &"full".into()), "{decision}");
    assert_eq!(candidate["signals"]["waiting"]["value"], 7.0);
}

#[test]
fn a_request_whose_client_left_is_open_first_and_then_says_so() {
    let server = ModelServer::start(MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&[&server], "");
    server.close();
    let body = chat_body("m1", "hello");
    let mut client = Connection::open(gateway.data);
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nx-request-id: mine-1\r\ncontent-type: application/json";
    client.send(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())).unwrap();
    soon("it is with the endpoint", || server.inside() == 1);
    let open = of_id(&gateway, "mine-1");
    assert_eq!(
        (&open["outcome"], &open["status"], &open["endpoint"]),
        (&Value::Null, &Value::Null, &Value::Null),
        "{open}"
    );
    assert_eq!(open["picked"][0], "m1-0");
    assert_eq!(gateway.admin.in_flight("m1"), 1);
    drop(client);
    assert_eq!(outcome(&gateway, "mine-1"), "client_gone");
    let gone = of_id(&gateway, "mine-1");
    assert_eq!((&gone["status"], &gone["endpoint"]), (&499.into(), &"m1-0".into()), "{gone}");
    assert_eq!(gateway.admin.in_flight("m1"), 0);
    server.open();
}

#[test]
fn an_id_that_is_unknown_is_404_and_one_used_twice_shows_the_newer() {
    let server = ModelServer::start(MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&[&server], "");
    let unknown = gateway.admin.get("/api/v1/decisions/never-seen");
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["error"].is_object() || unknown.json()["error"].is_string(), "{}", unknown.text());
    let send = |body: &str| {
        let headers = [("content-type", "application/json"), ("x-request-id", "twice/1")];
        harness::request(gateway.data, "POST", "/v1/chat/completions", &headers, body)
    };
    assert_eq!(send(&chat_body("m1", "short")).status, 200);
    server.peer.follow(|exchange| {
        if exchange.request.line.starts_with("GET") {
            return exchange.answer_plainly();
        }
        exchange.answer("500 Internal Server Error", &[], "{}")
    });
    assert_eq!(send(&chat_body("m1", &"long ".repeat(500))).status, 500);
    assert_eq!(outcome(&gateway, "twice%2F1"), "upstream_5xx");
    assert!(of_id(&gateway, "twice%2F1")["prompt_blocks"].as_u64() >= Some(9));
    // A request that never came to a pick has none.
    let lost = post(gateway.data, "/v1/chat/completions", chat_body("nobody", "hello"));
    assert_eq!(
        (lost.status, gateway.admin.get(&format!("/api/v1/decisions/{}", lost.header("x-request-id").unwrap())).status),
        (404, 404)
    );
}

#[test]
fn own_work_shows_in_later_decisions() {
    let server = ModelServer::start(MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&[&server], "");
    server.close();
    let data = gateway.data;
    let long = chat_body("m1", &"word ".repeat(1_000));
    let first = thread::spawn(move || post(data, "/v1/chat/completions", long));
    soon("it is there", || server.inside() == 1);
    let second = thread::spawn(move || post(data, "/v1/chat/completions", chat_body("m1", "hello")));
    soon("both are there", || server.inside() == 2);
    server.open();
    assert_eq!(first.join().unwrap().status, 200);
    let decision = of(&gateway, &second.join().unwrap());
    let work = &decision["candidates"][0]["in_flight"];
    assert_eq!((&work["requests"], &work["unanswered"]), (&1.into(), &1.into()), "{decision}");
    assert!((1_000..=1_400).contains(&work["prompt_tokens"].as_u64().unwrap()), "{decision}");
    assert!(decision["candidates"][0]["scores"]["queue"]["raw"].as_f64() > Some(0.4), "{decision}");
    soon("all is done", || gateway.admin.endpoint("m1", "m1-0")["in_flight"]["prompt_tokens"] == 0);
}

#[test]
fn changed_weights_are_those_of_the_next_decision() {
    let server = ModelServer::start(MetricsPage::vllm(0, 0, 0.0));
    let with = |weights: &str| Config::new([Scheduler::new("m1", [server.address()]).line(weights)]);
    let gateway = Gateway::start(&with("weights: {queue: 2}"));
    let weights = || {
        let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", "hello"));
        let scores = of(&gateway, &answer)["candidates"][0]["scores"].clone();
        ["queue", "kvCache", "prefix"].map(|name| scores[name]["weight"].as_u64())
    };
    assert_eq!(weights(), [Some(2), Some(2), Some(3)]);
    gateway.apply(&with("weights: {queue: 5, kvCache: 0, prefix: 1}"));
    assert_eq!(weights(), [Some(5), Some(0), Some(1)]);
}

#[test]
fn a_raised_log_level_says_in_the_requests_own_line_why_its_endpoint_was_picked() {
    let peer = harness::Peer::plain();
    for (level, explained) in [(3, false), (4, true)] {
        let scheduler = harness::Scheduler::new("m1", [peer.address]).line("engineType: none");
        let gateway = harness::Gateway::start(&harness::Config::new([scheduler.line(&format!("logLevel: {level}"))]));
        let body = r#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#;
        let answer = harness::post(gateway.data, "/v1/chat/completions", body);
        let line = gateway.request(answer.header("x-request-id").unwrap());
        assert_eq!(line["detail"].as_str().is_some_and(|why| why.contains("m1-0")), explained, "{line}");
        harness::soon("connections are counted", || {
            gateway.admin.metric("inference_gateway_connections", &[]).is_some()
        });
    }
}
