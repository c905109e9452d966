//! The table of refusals, row by row: what a client gets for each reason that can be brought about from outside.

use std::time::Duration;

use harness::{Answer, Config, Exchange, Gateway, Next, Peer, Scheduler, post, request, soon};

use crate::two_models::CHAT;

const PATH: &str = "/v1/chat/completions";

/// Checks a refusal against its row, and that it is counted and logged once under its reason.
fn check(gateway: &Gateway, answer: &Answer, status: u16, kind: &str, code: &str) {
    let text = answer.text();
    let error = &answer.json()["error"];
    assert_eq!(
        (answer.status, error["type"].as_str(), error["code"].as_str()),
        (status, Some(kind), Some(code)),
        "{text}"
    );
    let members = error.as_object().expect("an error object");
    assert!(members.contains_key("param") && members.len() == 4, "{text}");
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 20), "{text}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    let after = answer.header("retry-after").map(|after| after.parse::<u32>().expect("whole seconds"));
    assert_eq!(after.is_some_and(|seconds| seconds >= 1), matches!(status, 429 | 503), "{code}: {after:?}");
    if let Some(verdict) = answer.header("x-should-retry") {
        assert_eq!(verdict, if matches!(status, 429 | 503) { "true" } else { "false" }, "{code}");
    }
    let line = gateway.request(answer.header("x-request-id").expect("an id"));
    assert_eq!((line["outcome"].as_str(), line["status"].as_u64()), (Some(code), Some(status.into())), "{line}");
    let label = format!(r#"outcome="{code}""#);
    assert_eq!(
        gateway.admin.metric("inference_gateway_requests_total", &[&label]),
        Some(1.0),
        "{code} is counted once"
    );
    assert_eq!(gateway.admin.in_flight("m1"), 0, "{code} leaves nothing behind");
}

#[test]
fn mistakes_of_the_client() {
    let (peer, other) = (Peer::plain(), Peer::plain());
    let pools = [("m1", &peer), ("m2", &other)]
        .map(|(model, peer)| Scheduler::new(model, [peer.address]).line("engineType: none"));
    let gateway = Gateway::start(&Config::new(pools).bbr("{enabled: true, maxRequestBodyBytes: 1000}"));
    let coded = request(gateway.data, "POST", PATH, &[("content-encoding", "lzma")], CHAT);
    let kind = "invalid_request_error";
    check(&gateway, &post(gateway.data, PATH, "{"), 400, kind, "invalid_request");
    check(&gateway, &post(gateway.data, PATH, "{}"), 400, kind, "model_required");
    check(&gateway, &coded, 415, kind, "unsupported_encoding");
    check(&gateway, &post(gateway.data, PATH, CHAT.replace("m1", "x")), 404, "not_found_error", "model_not_found");
    check(&gateway, &post(gateway.data, "/pause", CHAT), 404, "not_found_error", "path_not_found");
    check(&gateway, &post(gateway.data, PATH, vec![b' '; 1001]), 413, kind, "body_too_large");
    assert!(peer.seen().is_empty() && other.seen().is_empty());
}

#[test]
fn a_pool_whose_every_endpoint_is_full_and_where_nobody_waits_is_429_at_once_and_serves_again_when_there_is_room() {
    let page = |waiting: u32| {
        format!(
            "vllm:num_requests_waiting{{model_name=\"m1\"}} {waiting}.0\nvllm:num_requests_running{{model_name=\"m1\"}} 8.0\nvllm:kv_cache_usage_perc{{model_name=\"m1\"}} 0.5\n"
        )
    };
    let serving = move |waiting: u32| {
        move |exchange: &mut Exchange| {
            if exchange.request.line.starts_with("GET /metrics") {
                return exchange.answer("200 OK", &[("content-type", "text/plain; version=0.0.4")], page(waiting));
            }
            exchange.answer_plainly()
        }
    };
    let peer = Peer::start(serving(5));
    let no_waiting = "flowControl: {bands: {standard: {maxWait: 0s}}}";
    let gateway = Gateway::start(&Config::new([Scheduler::new("m1", [peer.address])]).line(no_waiting));
    soon("its page was read", || gateway.admin.endpoint("m1", "m1-0")["signals"]["waiting"]["value"] == 5.0);
    let answer = post(gateway.data, PATH, CHAT);
    check(&gateway, &answer, 429, "overloaded_error", "queue_full");
    assert!(peer.seen().is_empty());
    peer.follow(serving(0));
    soon("there is room again", || post(gateway.data, PATH, CHAT).status == 200);
}

#[test]
fn a_pool_that_has_no_endpoint_or_reaches_none_is_503() {
    let empty = Gateway::start(&Config::new([Scheduler::new("m1", [])]));
    let kind = "service_unavailable_error";
    check(&empty, &post(empty.data, PATH, CHAT), 503, kind, "no_endpoint");
    let peer = Peer::plain();
    let config = Config::plain("m1", [peer.address]).line("signals: {scrapeInterval: 5s, staleAfter: 30s}");
    let gateway = Gateway::start(&config);
    soon("its endpoint is ready", || gateway.admin.endpoint("m1", "m1-0")["state"] == "ready");
    drop(peer);
    check(&gateway, &post(gateway.data, PATH, CHAT), 503, kind, "endpoint_unreachable");
}

#[test]
fn an_endpoint_that_breaks_off_is_502_and_one_that_is_silent_504() {
    let peer = Peer::start(|exchange| {
        if exchange.is_look() {
            return exchange.answer_plainly();
        }
        match exchange.request.header("x-do") {
            Some("close") => Next::Close,
            _ => {
                exchange.wait_for_close(Duration::from_secs(10));
                Next::Close
            }
        }
    });
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]).line("timeouts: {firstByte: 300ms}"));
    let broke = request(gateway.data, "POST", PATH, &[("x-do", "close")], CHAT);
    check(&gateway, &broke, 502, "api_error", "endpoint_broke");
    let silent = request(gateway.data, "POST", PATH, &[("x-do", "nothing")], CHAT);
    check(&gateway, &silent, 504, "timeout_error", "endpoint_timeout");
    assert_eq!(peer.seen().len(), 2, "neither was sent again");
}
