//! What the pages say, in which words and shapes.

use serde_json::json;

use super::*;

/// Ages grow while a test runs: they are checked and taken out.
fn without_ages(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            if let Some(age) = members.remove("age_ms").filter(|age| !age.is_null()) {
                assert!(age.as_u64().is_some_and(|ms| ms < 60_000), "{age}");
            }
            members.values_mut().for_each(|member| *member = without_ages(member.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_ages(item.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

fn signal(value: f64, source: &str) -> Value {
    json!({"value": value, "source": source})
}

#[tokio::test]
async fn health_says_why() {
    let site = Site::new();
    assert_eq!(site.text("/healthz").await, (StatusCode::OK, "ok".into()));
    let starting = "starting: endpoints have not been read yet".into();
    assert_eq!(site.text("/readyz").await, (StatusCode::SERVICE_UNAVAILABLE, starting));
    site.world.readiness.start();
    assert_eq!(site.text("/readyz").await, (StatusCode::OK, "ready".into()));
    site.world.readiness.drain.announce();
    let draining = "draining: this process is shutting down".into();
    assert_eq!(site.text("/readyz").await, (StatusCode::SERVICE_UNAVAILABLE, draining));
    assert_eq!(site.text("/healthz").await.0, StatusCode::OK, "a draining process is not to be killed");
    assert!(site.get("/healthz").await.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
}

#[tokio::test]
async fn pools_have_the_shape_that_scripts_read() {
    let (site, pool) = Site::with_llama();
    let (lease, _) = site.pick(&pool, "a");
    let picked = lease.ranked[0].get();
    let pools = site.json("/api/v1/pools").await;
    let ages = pools["pools"][0]["endpoints"][0]["signals"]["waiting"]["age_ms"].clone();
    assert!(ages.is_u64(), "{ages}");
    let pools = without_ages(pools);
    let got = &pools["pools"][0];
    assert_eq!(got["name"], "llama");
    assert_eq!(got["models"], json!(["meta/llama", "sql"]));
    assert!(got["saturation"].as_f64().is_some_and(|saturation| (0.0..1.0).contains(&saturation)));
    assert_eq!(got["queue"], json!({"critical": 0, "standard": 0, "sheddable": 0}));
    assert!(got["prefix_index"]["bytes"].as_u64() <= got["prefix_index"]["budget_bytes"].as_u64());
    assert_eq!(got["prefix_index"]["blocks"], 2);
    let endpoint = &got["endpoints"][0];
    assert_eq!((&endpoint["name"], &endpoint["address"]), (&json!("llama-0"), &json!("10.0.0.1:8000")));
    assert_eq!(endpoint["state"], "ready");
    assert_eq!(endpoint["cache"], json!({"block_tokens": 16, "blocks": 1000}));
    assert_eq!(
        endpoint["signals"],
        json!({
            "waiting": signal(1.0, "vllm:num_requests_waiting"),
            "running": signal(4.0, "vllm:num_requests_running"),
            "kv_cache": signal(0.25, "vllm:kv_cache_usage_perc"),
            "loras": {"value": ["sql"], "source": "history", "in_flight": 0},
        })
    );
    let busy = &got["endpoints"][picked as usize - 1];
    assert_eq!(busy["in_flight"], json!({"requests": 1, "unanswered": 1, "prompt_tokens": 130}));
    assert_eq!(busy["picks"], 1);
}

#[tokio::test]
async fn what_was_never_read_is_null_and_never_zero() {
    let site = Site::new();
    let pool = site.pool("new", Settings::default());
    site.endpoints(&pool, &[("new-0", 1)]);
    site.serve(&[(&pool, &["m"])]);
    let pools = site.json("/api/v1/pools").await;
    let endpoint = &pools["pools"][0]["endpoints"][0];
    assert_eq!(endpoint["state"], "starting");
    for signal in ["waiting", "running", "kv_cache"] {
        assert_eq!(endpoint["signals"].get(signal), Some(&Value::Null), "{signal}");
    }
    assert_eq!(endpoint.get("cache"), Some(&Value::Null));
    assert_eq!(endpoint["signals"]["loras"]["value"], json!([]));
}

#[tokio::test]
async fn a_decision_explains_itself_and_says_what_came_of_it() {
    let (site, pool) = Site::with_llama();
    let (lease, kept) = site.pick(&pool, "req-1");
    let open = site.json("/api/v1/decisions/req-1").await;
    let winner = format!("llama-{}", lease.ranked[0].get() - 1);
    assert_eq!(
        (&open["request_id"], &open["pool"], &open["model"]),
        (&json!("req-1"), &json!("llama"), &json!("meta/llama"))
    );
    assert_eq!(open["picked"][0], json!(winner));
    assert_eq!(open["picked"].as_array().unwrap().len(), 2);
    assert_eq!(open["reason"], "highest_score");
    assert_eq!((&open["basis"], &open["omitted"], &open["prompt_blocks"]), (&json!("reports"), &json!(0), &json!(2)));
    assert!(open["explanation"].as_str().is_some_and(|text| text.contains(&winner)), "{open}");
    for after in ["outcome", "status", "endpoint", "band", "queue_ms"] {
        assert_eq!(open.get(after), Some(&Value::Null), "{after}");
    }
    let best = &open["candidates"][0];
    assert_eq!((&best["endpoint"], &best["rejected"]), (&json!(winner), &Value::Null));
    let scores = best["scores"].as_object().unwrap();
    let names = ["kvCache", "loraAffinity", "lru", "predictedLatency", "prefix", "queue", "runningRequests"];
    let mut got: Vec<_> = scores.keys().map(String::as_str).collect();
    got.sort_unstable();
    assert_eq!(got, names);
    assert_eq!(scores["queue"]["weight"], 2);
    assert_eq!(scores["lru"]["weight"], 0, "what does not count is shown as not counting");
    let total: f64 = scores.values().map(|s| s["score"].as_f64().unwrap() * s["weight"].as_f64().unwrap()).sum();
    assert!((total - best["total"].as_f64().unwrap()).abs() < 1e-9);
    assert_eq!(best["signals"]["waiting"]["source"], "vllm:num_requests_waiting");
    assert!(best["signals"]["waiting"]["age_ms"].is_u64() && best["signals"]["waiting_used"].is_f64());

    let (endpoint, queue_ms) = (Some("llama-1".into()), 8_200.25);
    let after = After { endpoint, status: 200, outcome: "ok", band: "critical", queue_ms };
    site.world.observer.decisions.complete(kept, after);
    let ended = site.json("/api/v1/decisions/req-1").await;
    assert_eq!(
        (&ended["outcome"], &ended["status"], &ended["endpoint"]),
        (&json!("ok"), &json!(200), &json!("llama-1"))
    );
    assert_eq!((&ended["band"], &ended["queue_ms"]), (&json!("critical"), &json!(8_200.25)));
}

#[tokio::test]
async fn a_decision_names_its_moment_on_the_wall_clock() {
    let (site, pool) = Site::with_llama();
    let before = SystemTime::now() - Duration::from_millis(50);
    drop(site.pick(&pool, "req-1"));
    let decision = site.json("/api/v1/decisions/req-1").await;
    let time: jiff::Timestamp = decision["time"].as_str().unwrap().parse().unwrap();
    let after = SystemTime::now() + Duration::from_millis(50);
    assert!((before..after).contains(&SystemTime::from(time)), "{decision}");
    assert!(decision["time"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn a_rejected_endpoint_says_why_and_has_no_scores() {
    let (site, pool) = Site::with_llama();
    site.report(&pool, 1, load(50.0, 4.0, 0.9));
    drop(site.pick(&pool, "req-1"));
    let decision = site.json("/api/v1/decisions/req-1").await;
    assert_eq!(decision["reason"], "only_candidate");
    let left_out = &decision["candidates"][1];
    assert_eq!((&left_out["endpoint"], &left_out["rejected"]), (&json!("llama-0"), &json!("full")));
    assert_eq!((&left_out["scores"], &left_out["total"]), (&json!({}), &json!(0.0)));
}

#[tokio::test]
async fn a_refusal_is_a_decision_too() {
    let site = Site::new();
    let pool = site.pool("llama", Settings::default());
    let mut decision = Decision::default();
    let asked = pool.admit(&dispatch::Request::default(), &dispatch::Ask::default(), &mut decision);
    assert!(matches!(asked, Asked::Refused(_)));
    let (shard, _) = site.world.observer.decisions.buffer();
    let kept = site.world.observer.decisions.keep(shard, entry("req-1", Moment::ORIGIN, decision));
    let after = After { endpoint: None, status: 503, outcome: "no_endpoint", band: "standard", queue_ms: 0.0 };
    site.world.observer.decisions.complete(kept, after);
    let decision = site.json("/api/v1/decisions/req-1").await;
    assert_eq!((&decision["picked"], &decision["candidates"]), (&json!([]), &json!([])));
    assert_eq!((&decision["reason"], &decision["outcome"]), (&json!("no_endpoint"), &json!("no_endpoint")));
    assert_eq!((&decision["status"], &decision["endpoint"]), (&json!(503), &Value::Null));
}

#[tokio::test]
async fn ids_of_clients_are_found_escaped_or_not() {
    let (site, pool) = Site::with_llama();
    drop(site.pick(&pool, "job/7:{x}%41"));
    for path in ["job%2F7:%7Bx%7D%2541", "job/7:%7bx%7d%2541"] {
        let decision = site.json(&format!("/api/v1/decisions/{path}")).await;
        assert_eq!(decision["request_id"], "job/7:{x}%41", "{path}");
    }
}

#[tokio::test]
async fn an_unknown_decision_is_a_404_that_says_what_to_do() {
    let site = Site::new();
    for id in ["nobody", "%ff%fe", "a/b", "%zz"] {
        let response = site.get(&format!("/api/v1/decisions/{id}")).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{id}");
        let body: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(body["error"]["code"], "decision_not_found", "{id}");
        assert!(body["error"]["message"].as_str().unwrap().contains("x-request-id"));
    }
}

#[tokio::test]
async fn config_has_the_shape_that_scripts_read() {
    let site = Site::new();
    let good = json!({
        "generation": 3, "source": "/etc/gateway", "loaded_at": "2026-11-30T14:02:58.250Z", "error": null,
    });
    assert_eq!(site.json("/api/v1/config").await, good);
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_047_400);
    let mut status = ConfigStatus::clone(&site.world.config.load());
    status.error = Some(ConfigError { message: "a\nb".into(), path: "spec.bbr".into(), at });
    site.world.config.store(Arc::new(status));
    let refused = site.json("/api/v1/config").await;
    assert_eq!(refused["generation"], 3);
    assert_eq!(refused["error"], json!({"message": "a\nb", "path": "spec.bbr", "at": "2026-11-30T14:03:20.000Z"}));
}

#[tokio::test]
async fn the_page_needs_nothing_from_outside() {
    let site = Site::new();
    let root = site.get("/").await;
    assert_eq!(
        (root.status(), &root.headers()["location"]),
        (StatusCode::TEMPORARY_REDIRECT, &"/docs".parse().unwrap())
    );
    let page = site.get("/docs").await;
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert_eq!(
        page.headers()["content-security-policy"],
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
    );
    let page = text(page).await;
    for outside in ["http://", "https://", "//cdn", "src=", "@import", " url(", ":url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // Texts of the description become text nodes; markup in one would be shown, not run.
    for unsafe_way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!page.contains(unsafe_way), "{unsafe_way}");
    }
    let document = site.json("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
}

#[tokio::test]
async fn what_is_not_there_and_what_cannot_be_changed() {
    let site = Site::new();
    let lost = site.json("/api/v2/pools").await;
    assert_eq!(lost["error"]["code"], "page_not_found");
    assert_eq!(site.get("/api/v1/decisions/").await.status(), StatusCode::NOT_FOUND);
    let request = Request::builder().method(Method::POST).uri("/api/v1/config").body(Body::empty()).unwrap();
    let refused = site.ask(request).await;
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(refused.headers()["allow"].to_str().unwrap().contains("GET"));
    let body: Value = serde_json::from_str(&text(refused).await).unwrap();
    assert_eq!(body["error"]["code"], "method_not_allowed");
}
