//! Any OpenAI server behind the gateway: no metrics page, a key of its own.

use harness::{Config, Gateway, Python, Scheduler, Sim};
use serde_json::json;

use crate::stage::{list, text};

const KEY: &str = "key-of-the-server";

#[test]
fn an_openai_server_with_a_key_and_without_metrics_serves_the_openai_client() {
    let server = Sim::start(&["--model", "m1", "--api-key", KEY]);
    // As `vllm serve --disable-log-stats`, or any other server, would answer.
    server.faults(&json!({"metrics": "404"}));
    let closed = Sim::start(&["--model", "closed", "--api-key", KEY]);
    let config = Config::new([
        Scheduler::new("m1", [server.address]).line("engineType: none").endpoint_line("apiKey: {env: SERVER_KEY}"),
        Scheduler::new("closed", [closed.address]).line("engineType: none"),
    ]);
    let gateway = Gateway::start_in(&config, &[("SERVER_KEY", KEY)]);
    let seen = Python::installed().run("openai_python.py", &["plain", &format!("http://{}/v1", gateway.data), "m1"]);
    assert!(!text(&seen["text"]).is_empty(), "{seen}");
    assert_eq!(seen["usage"]["completion_tokens"], 4, "{seen}");
    assert_eq!(seen["models"], json!(["closed", "m1"]), "{seen}");
    // Where the endpoint has no key of its own the client's goes on, and what the server says of it comes back.
    let denied = &seen["denied"];
    assert_eq!((&denied["class"], &denied["status"]), (&json!("AuthenticationError"), &json!(401)), "{seen}");
    let [asked] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    assert!(list(&asked["headers"]).contains(&json!(["authorization", format!("Bearer {KEY}")])), "{asked}");
    assert_eq!(gateway.admin.endpoint("m1", "m1-0")["state"], "ready");
    let denials =
        gateway.admin.metric("inference_gateway_requests_total", &[r#"pool="closed""#, r#"outcome="upstream_4xx""#]);
    assert_eq!(denials, Some(1.0));
}
