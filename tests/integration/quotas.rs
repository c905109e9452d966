//! Limits of callers, and usage that the gateway asks for: what is charged, given back, told and hidden.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use harness::{Answer, Config, Connection, Gateway, Next, Peer, soon};
use serde_json::Value;

use crate::rig::{CHAT, CHATS, STREAM, USAGE, ended, number, peer, request_bytes};

const OPEN: &str = "inference_gateway_limit_open_requests";
const REJECTIONS: &str = "inference_gateway_limit_rejections_total";
const KEYS: &str = "inference_gateway_limit_keys";

/// `m1` on this peer, under these limits.
fn limited(peer: &Peer, limits: &str) -> Config {
    Config::plain("m1", [peer.address]).line(&format!("limits: [{limits}]"))
}

/// Sends a request and reads nothing.
fn begin(gateway: &Gateway, id: &str, headers: &[(&str, &str)], body: &str) -> Connection {
    let mut connection = Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, id, headers, body)).expect("a request can be sent");
    connection
}

fn ask(gateway: &Gateway, id: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    begin(gateway, id, headers, body).answer().unwrap_or_else(|error| panic!("no answer to {id}: {error}"))
}

/// The number after a rate limit header's name.
fn told(answer: &Answer, header: &str) -> u64 {
    let value = answer.header(header).unwrap_or_else(|| panic!("no {header} in {:?}", answer.headers));
    value.parse().expect("a number")
}

fn refused(answer: &Answer, words: &str) -> u64 {
    assert_eq!((answer.status, answer.code().as_str()), (429, "quota_exceeded"), "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(error["type"], "rate_limit_error");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{words}: {error}");
    let retry_after_s = told(answer, "retry-after");
    assert!(retry_after_s >= 1);
    retry_after_s
}

fn open(gateway: &Gateway) -> u64 {
    number(gateway, OPEN, &[])
}

/// A peer that answers each chat when it is told to, and says that it has it.
fn held() -> (Peer, Receiver<()>, Sender<()>) {
    let ((came, has_come), (go, may_go)) = (channel(), channel::<()>());
    let (came, may_go) = (std::sync::Mutex::new(came), std::sync::Mutex::new(may_go));
    let peer = peer(move |exchange| {
        came.lock().expect("no script panics").send(()).expect("the test waits for it");
        may_go.lock().expect("no script panics").recv().expect("the test lets it go");
        exchange.answer_plainly()
    });
    (peer, has_come, go)
}

#[test]
fn f06_a_call_refused_for_concurrency_uses_nothing_of_the_rate() {
    let (peer, has_come, go) = held();
    let limit = "{name: per-team, key: {header: x-team}, concurrentRequests: 1, requestsPerMinute: 2}";
    let gateway = Gateway::start(&limited(&peer, limit));
    let team = [("x-team", "blue")];
    let mut a = begin(&gateway, "a", &team, CHAT);
    has_come.recv().unwrap();
    let b = ask(&gateway, "b", &team, CHAT);
    assert_eq!(refused(&b, "limit `per-team` allows 1 requests at a time"), 1);
    assert_eq!((told(&b, "x-ratelimit-limit-requests"), told(&b, "x-ratelimit-remaining-requests")), (2, 1));
    assert_eq!(open(&gateway), 1);
    go.send(()).unwrap();
    assert_eq!(a.answer().unwrap().status, 200);
    go.send(()).unwrap();
    let c = ask(&gateway, "c", &team, CHAT);
    assert_eq!(c.status, 200, "{}", c.text());
    let d = ask(&gateway, "d", &team, CHAT);
    let retry_after_s = refused(&d, "limit `per-team` allows 2 requests per minute");
    assert!((2..=30).contains(&retry_after_s), "one of two a minute comes back in 30 s: {retry_after_s}");
    assert_eq!(d.header("x-should-retry"), Some("true"));
    assert_eq!(told(&d, "x-ratelimit-remaining-requests"), 0);
    let rejections = |unit: &str| number(&gateway, REJECTIONS, &[r#"limit="per-team""#, &format!("unit=\"{unit}\"")]);
    assert_eq!((rejections("concurrent_requests"), rejections("requests")), (1, 1));
    assert_eq!((open(&gateway), number(&gateway, KEYS, &[])), (0, 1));
    // Another caller, and one without a name, have a quota of their own.
    for other in [&[("x-team", "red")][..], &[]] {
        go.send(()).unwrap();
        assert_eq!(ask(&gateway, "other", other, CHAT).status, 200);
    }
    for line in gateway.requests() {
        assert!(!line.to_string().contains("blue"), "a key is nobody's business: {line}");
    }
    assert!(!gateway.admin.get("/metrics").text().contains("blue"));
}

/// How a call of the storm fails.
const FAILURES: [&str; 9] =
    ["hang", "reset", "500", "400", "cut", "broken", "error-event", "gone-before-head", "gone-in-stream"];

/// Fails as `x-fail` says.
fn failing() -> Peer {
    peer(|exchange| match exchange.request.header("x-fail").unwrap_or("no").to_owned().as_str() {
        "hang" | "gone-before-head" => {
            exchange.wait_for_close(Duration::from_secs(10));
            Next::Close
        }
        "reset" => Next::Reset,
        "500" => exchange.answer("500 Internal Server Error", &[("content-type", "application/json")], "{}"),
        "400" => exchange.answer("400 Bad Request", &[("content-type", "application/json")], "{}"),
        "cut" => {
            exchange.begin_stream();
            exchange.token("half");
            Next::Close
        }
        "broken" => {
            exchange.send("HTTP/1.1 nonsense\r\n\r\n");
            Next::Close
        }
        "error-event" => {
            exchange.begin_stream();
            exchange.event(r#"{"error":{"message":"out of memory","code":500}}"#);
            exchange.event("[DONE]");
            exchange.end_chunks()
        }
        "gone-in-stream" => {
            exchange.begin_stream();
            exchange.token("one");
            exchange.wait_for_close(Duration::from_secs(10));
            Next::Close
        }
        _ => exchange.answer_plainly(),
    })
}

/// One call that fails in this manner, to its end.
fn fail(gateway: &Gateway, id: &str, how: &str) {
    let headers = [("x-fail", how), ("x-team", "blue")];
    let mut connection = begin(gateway, id, &headers, STREAM);
    match how {
        "gone-before-head" => soon("it is at the endpoint", || gateway.admin.in_flight("m1") > 0),
        "gone-in-stream" => {
            let has_token = |read: &[u8]| read.windows(3).any(|part| part == b"one");
            connection.read_until(has_token).expect("a token comes");
        }
        _ => _ = connection.answer(),
    }
}

#[test]
fn f07_whatever_ends_a_request_its_place_comes_back() {
    const ROUNDS: usize = 200;
    // Ejection would keep the failing endpoint out; here it is the only one, and half of one is none.
    let peer = failing();
    let limit = "{name: two, key: {header: x-team}, concurrentRequests: 2}";
    let config = limited(&peer, limit).line("timeouts: {firstByte: 30ms}");
    let gateway = Gateway::start(&config);
    let mut opened = 0;
    for round in 0..ROUNDS {
        let how = FAILURES[round % FAILURES.len()];
        // Twice as many as may be open: if one of them stayed, its second would be refused and the good ones, too.
        for call in 0..2 {
            fail(&gateway, &format!("{how}-{round}-{call}"), how);
            opened += 1;
        }
        soon("nothing is in use", || open(&gateway) == 0);
        if round % FAILURES.len() == FAILURES.len() - 1 {
            for good in 0..2 {
                let answer = ask(&gateway, &format!("good-{round}-{good}"), &[("x-team", "blue")], CHAT);
                assert_eq!(answer.status, 200, "after {how} in round {round}: {}", answer.text());
                opened += 1;
            }
        }
    }
    assert_eq!((open(&gateway), number(&gateway, REJECTIONS, &[])), (0, 0));
    soon("every one is counted", || number(&gateway, "inference_gateway_requests_total", &[]) == opened);
}

/// Asks for more than any limit gives, which is never sent on, for what the answer tells of `team`.
fn probe(gateway: &Gateway, team: &str) -> Answer {
    let body = CHAT.replacen('{', r#"{"max_tokens":1000000000,"#, 1);
    let answer = ask(gateway, "probe", &[("x-team", team)], &body);
    refused(&answer, "it can never pass as it is");
    assert_eq!((answer.header("x-should-retry"), answer.header("retry-after")), (Some("false"), Some("60")));
    answer
}

/// A gateway's limit of tokens per minute, so large that what comes back during a test is small beside it.
const TOKENS: u64 = 60_000;
/// A quarter of the bytes of the prompt of `CHAT` and `STREAM`.
const INPUT: u64 = 8;

/// Checks what `team` has taken of its tokens since `began`, at the latest.
fn took(gateway: &Gateway, team: &str, began: Instant, tokens: u64) {
    let remaining = told(&probe(gateway, team), "x-ratelimit-remaining-tokens");
    let back = u64::try_from(began.elapsed().as_millis()).expect("a test ends") * TOKENS / 60_000 + 1;
    let least = TOKENS - tokens;
    assert!((least..=least + back).contains(&remaining), "{team}: {remaining} left, {tokens} taken, {back} back");
}

#[test]
fn every_answer_is_charged_what_it_took() {
    let peer = peer(|exchange| match exchange.request.header("x-team").unwrap_or_default().to_owned().as_str() {
        "stream-with-usage" => {
            exchange.begin_stream();
            exchange.token("Hi");
            exchange.event(&USAGE.replace(r#""prompt_tokens":9"#, r#""prompt_tokens":2000"#));
            exchange.event("[DONE]");
            exchange.end_chunks()
        }
        "stream-without" | "cut-short" => {
            exchange.begin_stream();
            (0..3_000).for_each(|_| exchange.token("Hi"));
            if exchange.request.header("x-team") == Some("cut-short") {
                return Next::Close;
            }
            exchange.event("[DONE]");
            exchange.end_chunks()
        }
        "silent" => exchange.answer("200 OK", &[("content-type", "application/json")], r#"{"choices":[]}"#),
        "refused" => exchange.answer("400 Bad Request", &[("content-type", "application/json")], "{}"),
        "failed" => exchange.answer("500 Internal Server Error", &[("content-type", "application/json")], "{}"),
        "reset" => Next::Reset,
        "left" => {
            exchange.wait_for_close(Duration::from_secs(10));
            Next::Close
        }
        _ => exchange.answer_plainly(),
    });
    let limits = format!("{{name: t, key: {{header: x-team}}, tokensPerMinute: {TOKENS}, requestsPerMinute: 100}}");
    let gateway = Gateway::start(&limited(&peer, &limits));
    // The estimate, 8 and 512, is in none of them but where nobody says anything better.
    for (team, body, tokens, outcome) in [
        ("plain", CHAT, 11, "ok"),
        ("stream-with-usage", STREAM, 2_002, "ok"),
        ("stream-without", STREAM, INPUT + 3_000, "ok"),
        ("cut-short", STREAM, INPUT + 3_000, "endpoint_broke"),
        ("silent", CHAT, INPUT + 512, "ok"),
        ("refused", CHAT, 0, "upstream_4xx"),
        ("failed", CHAT, 0, "upstream_5xx"),
        ("reset", CHAT, 0, "endpoint_broke"),
        ("left", CHAT, INPUT, "client_gone"),
    ] {
        let began = Instant::now();
        let mut connection = begin(&gateway, team, &[("x-team", team)], body);
        if team == "left" {
            soon("it is at the endpoint", || gateway.admin.in_flight("m1") > 0);
        } else {
            let answer = connection.answer().unwrap();
            assert_eq!(told(&answer, "x-ratelimit-limit-tokens"), TOKENS, "{team}");
        }
        drop(connection);
        ended(&gateway, team, outcome);
        took(&gateway, team, began, tokens);
        // The request itself stays charged, whoever failed.
        assert_eq!(told(&probe(&gateway, team), "x-ratelimit-remaining-requests"), 99, "{team}");
    }
    assert_eq!(open(&gateway), 0);
}

#[test]
fn what_the_gateway_refuses_itself_costs_nothing() {
    // Nobody listens there.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let limits = format!("{{name: t, key: {{header: x-team}}, tokensPerMinute: {TOKENS}, requestsPerMinute: 5}}");
    let gateway = Gateway::start(&Config::plain("m1", [dead]).line(&format!("limits: [{limits}]")));
    for n in 0..20 {
        let answer = ask(&gateway, &format!("dead-{n}"), &[("x-team", "a")], CHAT);
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!(told(&answer, "x-ratelimit-remaining-requests"), 5, "told after it was given back");
        assert_eq!(told(&answer, "x-ratelimit-remaining-tokens"), TOKENS);
        assert_eq!(answer.header("x-ratelimit-reset-tokens"), Some("0s"));
    }
}

#[test]
fn each_limit_counts_and_the_tightest_is_told() {
    let peer = Peer::start(|exchange| {
        if exchange.is_look() {
            return exchange.answer_plainly();
        }
        // An endpoint with limits of its own, as a hosted one has.
        let theirs = [("x-ratelimit-limit-requests", "1"), ("x-ratelimit-remaining-tokens", "2"), ("x-mine", "3")];
        exchange.answer("200 OK", &theirs, "{}")
    });
    let own = "limits: [{name: of-m2, key: {header: x-team}, requestsPerMinute: 3}]";
    let schedulers = ["m1", "m2"].map(|model| {
        let scheduler = harness::Scheduler::new(model, [peer.address]).line("engineType: none");
        if model == "m2" { scheduler.line(own).line("loraAdapters: [m2-sql]") } else { scheduler }
    });
    let config = Config::new(schedulers)
        .line("limits:")
        .line("- {name: per-key, key: {authorization: true}, requestsPerMinute: 6}")
        .line("- {name: scarce, key: {header: x-none}, models: [m2], requestsPerMinute: 4}");
    let gateway = Gateway::start(&config);
    let ask = |key: &str, team: &str, model: &str| {
        let body = CHAT.replace("m1", model);
        ask(&gateway, "r", &[("authorization", key), ("x-team", team)], &body)
    };
    let first = ask("Bearer one", "a", "m1");
    assert_eq!((first.status, told(&first, "x-ratelimit-limit-requests")), (200, 6));
    assert_eq!(told(&first, "x-ratelimit-remaining-requests"), 5);
    assert!(first.header("x-ratelimit-remaining-tokens").is_none(), "theirs is not ours: {:?}", first.headers);
    assert_eq!(first.header("x-mine"), Some("3"));
    let reset = first.header("x-ratelimit-reset-requests").unwrap();
    assert!(["10s", "9s"].contains(&reset), "{reset}");
    // An adapter is of its base model's limits.
    for n in 1..=3 {
        let answer = ask("Bearer two", "a", if n == 2 { "m2-sql" } else { "m2" });
        assert_eq!((answer.status, told(&answer, "x-ratelimit-limit-requests")), (200, 3));
        assert_eq!(told(&answer, "x-ratelimit-remaining-requests"), 3 - n);
    }
    refused(&ask("Bearer two", "a", "m2"), "limit `of-m2`");
    assert_eq!(ask("Bearer two", "b", "m2").status, 200);
    refused(&ask("Bearer two", "c", "m2-sql"), "limit `scarce`");
    // What was refused for another limit used nothing of the caller's own: 4 of 6 so far.
    assert_eq!(told(&ask("Bearer two", "c", "m1"), "x-ratelimit-remaining-requests"), 1);
    assert_eq!(ask("Bearer two", "c", "m1").status, 200);
    refused(&ask("Bearer two", "c", "m1"), "limit `per-key`");
    // Where no limit counts, an endpoint's numbers pass.
    let free = Gateway::start(&Config::plain("m1", [peer.address]));
    let answer = self::ask(&free, "free", &[], CHAT);
    assert_eq!((told(&answer, "x-ratelimit-limit-requests"), told(&answer, "x-ratelimit-remaining-tokens")), (1, 2));
}

#[test]
fn a_reload_forgives_nobody() {
    let (peer, has_come, go) = held();
    let config = |numbers: &str| limited(&peer, &format!("{{name: t, key: {{header: x-team}}, {numbers}}}"));
    let gateway = Gateway::start(&config("requestsPerMinute: 2, concurrentRequests: 1"));
    let generation = || gateway.admin.json("/api/v1/config")["generation"].as_u64();
    let mut inside = begin(&gateway, "inside", &[("x-team", "a")], CHAT);
    has_come.recv().unwrap();
    for (n, change) in [
        config("requestsPerMinute: 2, concurrentRequests: 1").line("timeouts: {connect: 2s}"),
        config("requestsPerMinute: 2, concurrentRequests: 1, tokensPerMinute: 1000000"),
        config("requestsPerMinute: 4, concurrentRequests: 1"),
    ]
    .into_iter()
    .enumerate()
    {
        gateway.apply(&change);
        soon("the change is in force", || generation() == Some(n as u64 + 2));
        let answer = ask(&gateway, "second", &[("x-team", "a")], CHAT);
        refused(&answer, "allows 1 requests at a time");
        // Half of two a minute is used, which is half of four.
        let remaining = told(&answer, "x-ratelimit-remaining-requests");
        assert_eq!((remaining, open(&gateway)), (if n == 2 { 2 } else { 1 }, 1));
    }
    go.send(()).unwrap();
    assert_eq!(inside.answer().unwrap().status, 200);
    soon("nothing is in use", || open(&gateway) == 0);
    // A limit that is gone takes its series along.
    gateway.apply(&Config::plain("m1", [peer.address]));
    soon("the limit is gone", || gateway.admin.metric(OPEN, &[]).is_none());
    assert!(!gateway.admin.get("/metrics").text().contains("limit=\"t\""));
}

#[test]
fn anthropics_clients_are_refused_in_their_own_words() {
    let peer = Peer::plain();
    let gateway = Gateway::start(&limited(&peer, "{name: t, key: {header: x-api-key}, requestsPerMinute: 1}"));
    let ask = |id: &str| {
        let body = r#"{"model":"m1","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}"#;
        let mut connection = Connection::open(gateway.data);
        connection.send(request_bytes("/v1/messages", id, &[("x-api-key", "k")], body)).unwrap();
        connection.answer().unwrap()
    };
    assert_eq!(ask("first").status, 200);
    let answer = ask("second");
    let body: Value = answer.json();
    assert_eq!(
        (answer.status, &body["type"], &body["error"]["type"]),
        (429, &"error".into(), &"rate_limit_error".into())
    );
    assert_eq!(body["error"]["code"], "quota_exceeded");
    assert!(told(&answer, "retry-after") >= 1);
    assert_eq!((told(&answer, "x-ratelimit-remaining-requests"), answer.header("request-id")), (0, Some("second")));
    ended(&gateway, "second", "quota_exceeded");
}

/// Answers as an engine does: usage where it is asked for, and 400 to what has a wrong type.
fn engine() -> Peer {
    peer(|exchange| {
        let body: Value = serde_json::from_slice(&exchange.request.body).expect("the gateway keeps JSON whole");
        let options = &body["stream_options"];
        if !options.is_null() && !options.is_object() {
            let error = r#"{"error":{"message":"stream_options must be an object","code":400}}"#;
            return exchange.answer("400 Bad Request", &[("content-type", "application/json")], error);
        }
        if body["stream"] != true {
            return exchange.answer_plainly();
        }
        exchange.begin_stream();
        exchange.token("Hi");
        exchange.token(" there");
        if options["include_usage"] == true {
            exchange.event(USAGE);
        }
        exchange.event("[DONE]");
        exchange.end_chunks()
    })
}

#[test]
fn j12_usage_is_asked_for_and_shown_to_whom_it_should() {
    const ASKED: &str = r#"{"include_usage":true}"#;
    let body = |stream: &str, options: &str| {
        format!(r#"{{"model":"m1", "stream":{stream}{options}, "messages":[{{"role":"user","content":"hi"}}] }}"#)
    };
    // The body that a client sends, what the engine gets under `always`, and whether the client is to see usage.
    let bodies = [
        (body("true", ""), None, false),
        (
            body("true", r#", "stream_options": null"#),
            Some(body("true", &format!(r#", "stream_options": {ASKED}"#))),
            false,
        ),
        (body("true", r#","stream_options":{}"#), Some(body("true", &format!(r#","stream_options":{ASKED}"#))), false),
        (
            body("true", r#","stream_options":{"include_usage": false }"#),
            Some(body("true", r#","stream_options":{"include_usage": true }"#)),
            false,
        ),
        (body("true", r#","stream_options":{"include_usage":true}"#), None, true),
        (body("true", r#","stream_options":"x""#), None, false),
        (body("false", r#","stream_options":{"include_usage":false}"#), None, true),
    ];
    for mode in ["asAsked", "always"] {
        let peer = engine();
        let gateway =
            Gateway::start(&Config::plain("m1", [peer.address]).line(&format!("dataPlane: {{usage: {mode}}}")));
        for (n, (sent, wished, shown)) in bodies.iter().enumerate() {
            let id = format!("{mode}-{n}");
            let answer = ask(&gateway, &id, &[("accept-encoding", "gzip")], sent);
            let wished = match (mode, n) {
                ("asAsked", _) => sent.clone(),
                (_, 0) => sent.replace(" }", &format!(r#" ,"stream_options":{ASKED}}}"#)),
                _ => wished.clone().unwrap_or_else(|| sent.clone()),
            };
            let seen = peer.seen().pop().expect("it reached the engine");
            assert_eq!(String::from_utf8_lossy(&seen.body), wished, "{id}");
            assert_eq!(seen.header("content-length"), Some(wished.len().to_string().as_str()), "{id}");
            // An event can be hidden only in a stream that can be read.
            assert_eq!(seen.header("accept-encoding").is_none(), wished != *sent, "{id}");
            let is_refused = n == 5;
            assert_eq!(answer.status, if is_refused { 400 } else { 200 }, "{id}: {}", answer.text());
            assert_eq!(answer.text().contains("prompt_tokens"), *shown, "{id}: {}", answer.text());
            let line = ended(&gateway, &id, if is_refused { "upstream_4xx" } else { "ok" });
            if n < 5 {
                assert!(answer.text().ends_with("data: [DONE]\n\n"), "{id}: {}", answer.text());
                assert_eq!(answer.text().matches("data: ").count(), 3 + usize::from(*shown), "{id}: {}", answer.text());
                assert_eq!(line["bytes_out"], answer.body.len(), "{id}");
            }
            let is_counted = !is_refused && (*shown || mode == "always");
            assert_eq!(line["prompt_tokens"].as_u64(), is_counted.then_some(9), "{id}: {line}");
        }
        let missing = number(&gateway, "inference_gateway_usage_missing_total", &[]);
        assert_eq!(missing, if mode == "always" { 0 } else { 4 }, "{mode}");
    }
}

#[test]
fn j12_a_stream_that_breaks_off_keeps_its_form_though_something_is_hidden() {
    let half = &USAGE[..USAGE.len() / 2];
    let peer = peer(move |exchange| {
        exchange.begin_stream();
        exchange.token("Hi");
        match exchange.request.header("x-cut").unwrap_or_default() {
            "behind" => exchange.event(USAGE),
            "inside" => exchange.chunk(format!("data: {half}")),
            _ => {}
        }
        Next::Close
    });
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]).line("dataPlane: {usage: always}"));
    for cut in ["before", "inside", "behind"] {
        let answer = ask(&gateway, cut, &[("x-cut", cut)], STREAM);
        let text = answer.text();
        assert_eq!(crate::rig::closing_error(&text).as_deref(), Some("endpoint_broke"), "{cut}: {text}");
        assert!(!text.contains("completion_tokens"), "{cut}: {text}");
        let line = ended(&gateway, cut, "endpoint_broke");
        assert_eq!(line["prompt_tokens"].as_u64(), (cut == "behind").then_some(9), "{cut}: {line}");
    }
}

#[test]
fn who_waits_in_the_queue_is_counted_as_open() {
    let (peer, has_come, go) = held();
    let limit = "{name: one, key: {header: x-team}, concurrentRequests: 1, requestsPerMinute: 3}";
    let config = limited(&peer, limit).line("flowControl: {maxInFlightPerEndpoint: 1}");
    let gateway = Gateway::start(&config);
    let waiting = || number(&gateway, "inference_gateway_queue_depth", &[]);
    let mut first = begin(&gateway, "first", &[("x-team", "red")], CHAT);
    has_come.recv().unwrap();
    let mut second = begin(&gateway, "second", &[("x-team", "blue")], CHAT);
    soon("it waits", || waiting() == 1);
    assert_eq!(open(&gateway), 2, "it holds its quota while it waits");
    let beyond = ask(&gateway, "beyond", &[("x-team", "blue")], CHAT);
    refused(&beyond, "limit `one` allows 1 requests at a time");
    assert_eq!(told(&beyond, "x-ratelimit-remaining-requests"), 2, "a refused request costs nothing");
    assert_eq!((waiting(), open(&gateway)), (1, 2), "who is beyond a quota does not wait");
    // Who leaves the queue gives the place back, and nothing else: the request was made.
    let green = [("x-team", "green")];
    let left = begin(&gateway, "left", &green, CHAT);
    soon("two wait", || waiting() == 2);
    drop(left);
    soon("it has left", || (waiting(), open(&gateway)) == (1, 2));
    let mut again = begin(&gateway, "again", &green, CHAT);
    soon("two wait again", || (waiting(), open(&gateway)) == (2, 3));
    (0..3).for_each(|_| go.send(()).unwrap());
    for (connection, remaining) in [(&mut first, 2), (&mut second, 2), (&mut again, 1)] {
        let answer = connection.answer().unwrap();
        assert_eq!((answer.status, told(&answer, "x-ratelimit-remaining-requests")), (200, remaining));
    }
    soon("nothing is in use", || open(&gateway) == 0);
    assert_eq!(peer.seen().len(), 3);
}
