//! The straight line, once.

use harness::{Config, Gateway, Peer, post};

const CHAT: &str = r#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#;

#[test]
fn a_request_is_answered_by_its_pool_and_leaves_one_line_and_one_count() {
    let peer = Peer::plain();
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    let answer = post(gateway.data, "/v1/chat/completions", CHAT);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let [seen] = &peer.seen()[..] else { panic!("{:?}", peer.seen()) };
    assert_eq!(seen.body, CHAT.as_bytes());
    assert_eq!(seen.header("x-gateway-model-name"), Some("m1"));
    let line = gateway.request(answer.header("x-request-id").expect("an id"));
    assert_eq!((line["outcome"].as_str(), line["completion_tokens"].as_u64()), (Some("ok"), Some(2)), "{line}");
    let counted = gateway.admin.metric("inference_gateway_requests_total", &[r#"model="m1""#, r#"outcome="ok""#]);
    assert_eq!(counted, Some(1.0));
    assert_eq!(gateway.admin.in_flight("m1"), 0);
}
