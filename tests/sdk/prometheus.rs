//! The metrics page as Prometheus itself reads it.

use std::time::Duration;

use harness::{Config, Gateway, Prometheus, Scheduler, Sim, eventually, post, soon};
use serde_json::{Value, json};

use crate::stage::{Client, MODEL, Stage, list};

/// A removed endpoint's series may stay that long; the rest is for a machine under load.
const GONE_MAX: Duration = Duration::from_secs(90);

#[test]
fn promtool_has_nothing_to_say_about_the_page_of_a_busy_gateway() {
    let stage = Stage::new();
    stage.faults(&json!([{"match": "fault reset", "die_after_events": 0}, {"match": "fault 500", "status": 500}]));
    Client::OpenAiPython.run("apis", &stage);
    for text in ["fault reset", "fault 500", "hello"] {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2});
        post(stage.gateway.data, "/v1/chat/completions", body.to_string());
    }
    let page = stage.gateway.admin.get("/metrics").text();
    for metric in
        ["requests_total", "time_to_first_token_seconds_bucket", "tokens_total", "endpoint_state", "picks_total"]
    {
        assert!(page.contains(&format!("\ninference_gateway_{metric}{{")), "no {metric} in\n{page}");
    }
    assert_eq!(Prometheus::check(&page), "");
    assert_ne!(Prometheus::check("a_metric{ 1\n"), "", "promtool reads what it is given");
}

#[test]
fn prometheus_reads_openmetrics_and_forgets_a_removed_endpoint() {
    let sims = [(); 2].map(|()| Sim::start(&["--model", "m1"]));
    let both = Config::new([Scheduler::new("m1", sims.iter().map(|sim| sim.address))]);
    let one = Config::new([Scheduler::new("m1", [sims[0].address])]);
    let gateway = Gateway::start(&both);
    let prometheus = Prometheus::watching(gateway.admin.address);
    for number in 0..6 {
        let mut body =
            json!({"model": "m1", "messages": [{"role": "user", "content": format!("{number}")}], "max_tokens": 3});
        if number % 2 == 0 {
            body["stream"] = true.into();
            body["stream_options"] = json!({"include_usage": true});
        }
        assert_eq!(post(gateway.data, "/v1/chat/completions", body.to_string()).status, 200);
    }
    let value = |expression: &str| prometheus.query(expression).first().and_then(value_of);
    soon("all requests are seen", || value(r#"sum(inference_gateway_requests_total{outcome="ok"})"#) == Some(6.0));
    soon("the gateway is a healthy target", || {
        let targets = prometheus.ask("/api/v1/targets");
        let [target] = list(&targets["activeTargets"]) else { panic!("{targets}") };
        (&target["health"], &target["lastError"]) == (&json!("up"), &json!(""))
    });
    // Only OpenMetrics names a family of counters without its suffix.
    let metadata = prometheus.ask("/api/v1/metadata?metric=inference_gateway_requests");
    assert_eq!(metadata["inference_gateway_requests"][0]["type"], "counter", "{metadata}");
    for (expression, expected) in [
        (r#"sum(inference_gateway_tokens_total{kind="completion"})"#, 18.0),
        ("sum(inference_gateway_picks_total)", 6.0),
        ("sum(inference_gateway_in_flight_requests)", 0.0),
        ("inference_gateway_config_valid", 1.0),
        ("sum(inference_gateway_time_to_first_token_seconds_count)", 3.0),
        (r#"count(inference_gateway_endpoint_state{state="ready"} == 1)"#, 2.0),
    ] {
        soon(expression, || value(expression) == Some(expected));
    }
    let median = "histogram_quantile(0.5, sum by (le) (inference_gateway_request_duration_seconds_bucket))";
    soon(median, || value(median).is_some_and(|seconds| seconds > 0.0 && seconds < 30.0));

    let series = |endpoint: &str| prometheus.query(&format!("{{job=\"gateway\", endpoint=\"{endpoint}\"}}")).len();
    soon("both endpoints have series", || series("m1-0") > 3 && series("m1-1") > 3);
    gateway.apply(&one);
    // A look that fails makes everything stale, so the other endpoint's series must be there at the same time.
    eventually("only the series of the removed endpoint are stale", GONE_MAX, || {
        (series("m1-1") == 0 && series("m1-0") > 3).then_some(())
    });
}

fn value_of(series: &Value) -> Option<f64> {
    series["value"][1].as_str()?.parse().ok()
}
