//! Headers on their way in and out: what crosses, what is the gateway's own, what ends at a connection.

use harness::{Connection, Next, Seen, post, request};

use crate::two_models::{CHAT, TwoModels};

const PATH: &str = "/v1/chat/completions";

fn values<'a>(seen: &'a Seen, name: &str) -> Vec<&'a str> {
    seen.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
}

/// Sends [`CHAT`] with these header lines and gives what the endpoint saw.
fn seen_with(scene: &TwoModels, lines: &[(&str, &str)]) -> Seen {
    scene.m1.forget();
    let answer = request(scene.gateway.data, "POST", PATH, lines, CHAT);
    assert_eq!(answer.status, 200, "{lines:?}: {}", answer.text());
    let [seen] = &scene.m1.seen()[..] else { panic!("{lines:?}") };
    seen.clone()
}

#[test]
fn a_clients_copies_of_control_headers_never_reach_an_endpoint() {
    let scene = TwoModels::start();
    let steering = [
        "x-gateway-destination-endpoint",
        "x-gateway-destination-endpoint-served",
        "x-gateway-destination-endpoint-subset",
        "x-gateway-inference-objective",
        "x-llm-d-inference-objective",
        "x-gateway-inference-fairness-id",
        "x-llm-d-inference-fairness-id",
        "X-Gateway-Model-Name-Rewrite",
        "x-llm-d-model-name-rewrite",
        "x-llm-d-anything-later",
        "x-prefiller-host-port",
        "x-data-parallel-host-port",
        "x-slo-ttft-ms",
    ];
    let mut lines: Vec<_> = steering.iter().map(|name| (*name, "10.0.0.1:1")).collect();
    // Twice each, so that the gateway's own value replaces all of them.
    let model = [("X-Gateway-Model-Name", "m2"), ("x-gateway-base-model-name", "m2")];
    lines.extend(model.iter().chain(&model));
    let seen = seen_with(&scene, &lines);
    for name in steering {
        assert_eq!(values(&seen, &name.to_ascii_lowercase()), [""; 0], "{name}");
    }
    assert_eq!(values(&seen, "x-gateway-model-name"), ["m1"]);
    assert_eq!(values(&seen, "x-gateway-base-model-name"), ["m1"]);
    assert!(scene.m2.seen().is_empty(), "the body decides");
}

#[test]
fn other_headers_cross_with_repeats_in_order_and_host_is_the_endpoints() {
    let scene = TwoModels::start();
    let lines = [
        ("x-tag", "one"),
        ("accept", "text/event-stream"),
        ("X-Tag", "two, three"),
        ("cookie", "a=1"),
        ("x-tag", "four"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-vllm-priority", "3"),
        ("x-session-id", "s"),
        ("x-empty", ""),
        ("cookie", "b=2"),
        ("user-agent", "t/1"),
        ("x-obs", "caf\u{e9}"),
    ];
    let seen = seen_with(&scene, &lines);
    assert_eq!(values(&seen, "x-tag"), ["one", "two, three", "four"]);
    assert_eq!(values(&seen, "cookie"), ["a=1", "b=2"]);
    for (name, value) in [lines[1], lines[5], lines[6], lines[7], lines[8], lines[10], lines[11]] {
        assert_eq!(values(&seen, name), [value], "{name}");
    }
    assert_eq!(values(&seen, "host"), [scene.m1.address.to_string()]);
    assert_eq!(values(&seen, "content-length"), ["58"]);
}

#[test]
fn an_answers_headers_cross_with_repeats_in_order() {
    let scene = TwoModels::start();
    scene.m1.follow(|exchange| {
        let headers = [
            ("set-cookie", "a=1"),
            ("x-r", "1"),
            ("set-cookie", "b=2"),
            ("server", "uvicorn"),
            ("date", "then"),
            ("x-request-id", "the-engines-own"),
        ];
        exchange.answer("201 Created", &headers, "{}")
    });
    let answer = request(scene.gateway.data, "POST", PATH, &[("x-request-id", "mine")], CHAT);
    let all = |name: &str| {
        answer.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        (answer.status, all("set-cookie"), all("x-r"), all("server")),
        (201, vec!["a=1", "b=2"], vec!["1"], vec!["uvicorn"])
    );
    assert_eq!(all("date"), ["then"], "one date, the endpoint's");
    assert_eq!(all("x-request-id"), ["mine"], "the id is the request's, once");
}

#[test]
fn c05_what_is_about_one_connection_ends_at_it_both_ways() {
    let scene = TwoModels::start();
    scene.m1.follow(|exchange| {
        if exchange.is_look() {
            return exchange.answer_plainly();
        }
        exchange.send(
            "HTTP/1.1 200 OK\r\nConnection: X-R, keep-alive\r\nX-R: 1\r\nX-Stays: 1\r\nKeep-Alive: timeout=5\r\nTrailer: T\r\n\
             Proxy-Authenticate: Basic\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nT: 1\r\n\r\n",
        );
        Next::KeepAlive
    });
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: g\r\nConnection: keep-alive, X-Drop\r\nConnection: x-drop-too\r\nX-Drop: 1\r\nX-Drop-Too: 1\r\n\
         Keep-Alive: timeout=5\r\nTE: trailers\r\nProxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\n\
         X-Kept: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let mut connection = Connection::open(scene.gateway.data);
    connection.send(head + &format!("3a\r\n{CHAT}\r\n0\r\n\r\n")).unwrap();
    let answer = connection.answer().unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "{}"));
    let [seen] = &scene.m1.seen()[..] else { panic!() };
    for name in [
        "connection",
        "x-drop",
        "x-drop-too",
        "keep-alive",
        "te",
        "proxy-authorization",
        "proxy-connection",
        "upgrade",
        "transfer-encoding",
        "trailer",
    ] {
        assert_eq!(values(seen, name), [""; 0], "{name}");
    }
    assert_eq!(
        (values(seen, "x-kept"), values(seen, "content-length")),
        (vec!["1"], vec!["58"]),
        "framing is made anew"
    );
    for name in ["x-r", "keep-alive", "trailer", "proxy-authenticate", "upgrade", "t"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!((answer.header("x-stays"), answer.header("connection")), (Some("1"), None));
    // The client's connection goes on whatever the endpoint's does.
    connection.send(format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: 58\r\n\r\n{CHAT}")).unwrap();
    assert_eq!(connection.answer().unwrap().status, 200);
}

#[test]
fn c05_connection_cannot_name_away_what_the_gateway_or_the_request_stands_on() {
    let scene = TwoModels::start();
    let naming = "x-gateway-model-name, x-request-id, content-length, host, content-type, authorization";
    let lines = [("connection", naming), ("authorization", "Bearer k"), ("content-type", "application/json")];
    let seen = seen_with(&scene, &lines);
    assert_eq!(values(&seen, "x-gateway-model-name"), ["m1"]);
    assert_eq!(values(&seen, "x-request-id").len(), 1);
    assert_eq!(values(&seen, "content-length"), ["58"]);
    assert_eq!(values(&seen, "host").len(), 1);
    assert_eq!(seen.body, CHAT.as_bytes());
}

#[test]
fn the_request_id_is_kept_or_made_sent_on_and_echoed_on_every_kind_of_answer() {
    let scene = TwoModels::start();
    let echoed = |id: &str, path: &str, body: &str| {
        let answer = request(scene.gateway.data, "POST", path, &[("x-request-id", id)], body);
        answer.header("x-request-id").expect("an id").to_owned()
    };
    for (path, body) in [(PATH, CHAT), (PATH, "{"), (PATH, r#"{"model":"bogus"}"#), ("/sleep", ""), ("/v1/models", "")]
    {
        assert_eq!(echoed("given-1_{x}", path, body), "given-1_{x}", "{path} {body}");
    }
    assert_eq!(values(&scene.m1.seen()[0], "x-request-id"), ["given-1_{x}"]);
    for odd in ["", "a b", &"x".repeat(129), "a\tb", "caf\u{e9}"] {
        scene.m1.forget();
        let made = echoed(odd, PATH, CHAT);
        assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{odd:?} became {made:?}");
        assert_eq!(values(&scene.m1.seen()[0], "x-request-id"), [made.as_str()]);
        assert_eq!(scene.gateway.request(&made)["outcome"], "ok");
    }
    let twice = [("x-request-id", "first"), ("x-request-id", "second")];
    assert_eq!(values(&seen_with(&scene, &twice), "x-request-id"), ["first"]);
    let unasked = [post(scene.gateway.data, PATH, CHAT), post(scene.gateway.data, PATH, CHAT)];
    assert_ne!(unasked[0].header("x-request-id"), unasked[1].header("x-request-id"));
}

#[test]
fn one_log_line_proves_where_a_request_went() {
    let scene = TwoModels::start();
    request(scene.gateway.data, "POST", PATH, &[("x-request-id", "proof")], CHAT);
    let line = scene.gateway.request("proof");
    assert_eq!(
        (line["modelName"].as_str(), line["pool"].as_str(), line["endpoint"].as_str()),
        (Some("m1"), Some("m1"), Some("m1-0")),
        "{line}"
    );
    for field in
        ["status", "outcome", "prompt_tokens", "completion_tokens", "queue_ms", "duration_ms", "bytes_in", "bytes_out"]
    {
        assert!(!line[field].is_null(), "{field}: {line}");
    }
    let mentions = scene.gateway.log().lines().filter(|line| line.contains("proof")).count();
    assert_eq!(mentions, 1, "no other line carries the id");
}

/// A request of `count` short headers and one of `long` bytes.
fn head_of(count: usize, long: usize) -> String {
    let mut head = format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: 58\r\n");
    for index in 0..count {
        head += &format!("x-h{index}: 1\r\n");
    }
    if long > 0 {
        head += &format!("x-long: {}\r\n", "a".repeat(long));
    }
    head + "\r\n"
}

#[test]
fn c06_large_heads_pass_up_to_the_limit_and_are_431_above_it() {
    let scene = TwoModels::start();
    for (count, long, status) in [
        (0, 17_000, 200),
        (0, 60_000, 200),
        (60, 0, 200),
        (0, 66_000, 431),
        (0, 1_000_000, 431),
        (101, 0, 431),
        (300, 0, 431),
    ] {
        let mut connection = Connection::open(scene.gateway.data);
        // A refusal may come while this is still being written.
        let _ = connection.send(head_of(count, long) + CHAT);
        let answer = connection.answer().unwrap_or_else(|error| panic!("{count} headers, {long} bytes: {error}"));
        assert_eq!(answer.status, status, "{count} headers, {long} bytes: {}", answer.text());
        if status == 431 {
            assert_eq!(answer.code(), "head_too_large");
            assert!(answer.text().contains("64 KiB"), "{}", answer.text());
            let line = scene.gateway.request(answer.header("x-request-id").expect("an id"));
            assert_eq!(
                (line["outcome"].as_str(), line["status"].as_u64()),
                (Some("head_too_large"), Some(431)),
                "{line}"
            );
        }
    }
    assert_eq!(scene.m1.seen().len(), 3);
    assert_eq!(scene.counted("head_too_large"), 4.0);
    assert_eq!(scene.counted("ok"), 3.0);
}

#[test]
fn c06_an_answers_large_head_passes_up_to_the_limit_and_is_502_above_it() {
    let scene = TwoModels::start();
    for (count, long, status) in [(0, 17_000, 200), (0, 60_000, 200), (60, 0, 200), (0, 1_000_000, 502), (3000, 0, 502)]
    {
        scene.m1.follow(move |exchange| {
            if exchange.is_look() {
                return exchange.answer_plainly();
            }
            let names: Vec<_> = (0..count).map(|index| format!("x-h{index}")).collect();
            let value = "a".repeat(long);
            let mut headers: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
            if long > 0 {
                headers.push(("x-long", &value));
            }
            exchange.answer("200 OK", &headers, "{}")
        });
        let answer = post(scene.gateway.data, PATH, CHAT);
        assert_eq!(answer.status, status, "{count} headers, {long} bytes: {}", answer.text());
        if status == 502 {
            assert_eq!(answer.code(), "endpoint_broke");
            let line = scene.gateway.request(answer.header("x-request-id").unwrap());
            assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("m1-0")), "{line}");
        } else {
            assert_eq!(answer.headers.iter().filter(|(name, _)| name.starts_with("x-h")).count(), count);
        }
    }
}
