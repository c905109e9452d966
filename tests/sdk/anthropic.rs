//! The official Anthropic client for Python on `/v1/messages`.

use harness::Python;
use serde_json::{Value, json};

use crate::stage::{MODEL, Stage, list, text};

#[test]
fn anthropic_python_reads_messages_streams_counts_and_errors() {
    let stage = Stage::new();
    stage.faults(&json!([{"match": "fault cut", "die_after_events": 6}]));
    let url = format!("http://{}", stage.gateway.data);
    let seen = Python::installed().run("anthropic_python.py", &["messages", &url, MODEL]);
    for (name, tokens) in [("message", 12), ("streamed", 9)] {
        let told = &seen[name];
        assert!(!text(&told["text"]).is_empty(), "{name}: {seen}");
        assert_eq!(told["usage"]["output_tokens"], tokens, "{name}: {seen}");
        let line = stage.logged(told);
        assert_eq!((&line["outcome"], &line["completion_tokens"]), (&json!("ok"), &json!(tokens)), "{name}: {line}");
        assert_eq!(line["prompt_tokens"].as_u64(), Some(prompt_tokens(&told["usage"])), "{name}: {line} {seen}");
    }
    assert_eq!(seen["streamed"]["text"], seen["streamed"]["final"], "{seen}");
    assert_eq!(seen["message"]["stop_reason"], "max_tokens", "{seen}");
    assert!(seen["counted"].as_u64() > Some(0), "{seen}");
    for (name, class, status, kind) in [
        ("unknown_model", "NotFoundError", 404, "not_found_error"),
        ("no_model", "BadRequestError", 400, "invalid_request_error"),
        ("pool_full", "RateLimitError", 429, "overloaded_error"),
    ] {
        let error = &seen[name];
        assert_eq!((&error["class"], &error["status"]), (&json!(class), &json!(status)), "{name}: {error}");
        assert_eq!(
            (&error["body"]["type"], &error["body"]["error"]["type"]),
            (&json!("error"), &json!(kind)),
            "{error}"
        );
        let line = stage.logged(error);
        assert_eq!(line["status"], status, "{name}: {line}");
    }
    let cut = &seen["cut_stream"];
    assert!(list(&cut["kinds"]).contains(&json!("APIStatusError")), "an error event is understood: {cut}");
    assert_eq!(cut["body"]["error"]["type"], "api_error", "{cut}");
    assert_eq!(stage.counted("inference_gateway_requests_total", &[r#"outcome="endpoint_broke""#]), 1.0);
}

/// What was read, from the cache or not: Anthropic counts the two apart.
fn prompt_tokens(usage: &Value) -> u64 {
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    count("input_tokens") + count("cache_read_input_tokens")
}
