//! What `demo --check` holds the demo to.
//!
//! Looks at answers, decisions, pools and metrics from outside, as an operator would. Counters are read again until
//! they agree or the time is over: they are settled when a stream's last byte has left, a moment after it arrives.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use super::conversation::{Exchange, Topic};
use super::site::{Gateway, PODS};
use crate::http;

/// The text that operators know for a model that nobody serves.
const NO_MODEL: &str = "no matching model: set the model in the request body or the x-gateway-model-name header";
const SETTLED_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

/// One expectation and whether it held.
#[derive(Debug)]
pub(crate) struct Finding {
    expectation: String,
    verdict: Result<(), String>,
}

/// Checks everything; fails only when the admin API cannot be read.
pub(crate) fn all(gateway: &Gateway, exchanges: &[Exchange]) -> anyhow::Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = exchanges.iter().flat_map(of_exchange).collect();
    findings.push(same_prefix_same_pod(exchanges));
    findings.push(pods_are_ready(gateway)?);
    findings.extend(settled_counts(gateway, exchanges)?);
    Ok(findings)
}

/// Prints every finding; fails when one did not hold.
pub(crate) fn report(findings: &[Finding]) -> anyhow::Result<()> {
    println!();
    for Finding { expectation, verdict } in findings {
        match verdict {
            Ok(()) => println!("  ok      {expectation}"),
            Err(instead) => println!("  BROKEN  {expectation}: {instead}"),
        }
    }
    let broken = findings.iter().filter(|finding| finding.verdict.is_err()).count();
    anyhow::ensure!(broken == 0, "{broken} of {} expectations did not hold; logs are in target/demo", findings.len());
    Ok(())
}

fn finding(expectation: impl Into<String>, held: bool, instead: impl FnOnce() -> String) -> Finding {
    Finding { expectation: expectation.into(), verdict: if held { Ok(()) } else { Err(instead()) } }
}

fn of_exchange(exchange: &Exchange) -> Vec<Finding> {
    let title = exchange.topic.title();
    let answer = &exchange.answer;
    let text = answer.text();
    let shown = || format!("status {}, {}", answer.status, text.chars().take(300).collect::<String>());
    if exchange.topic == Topic::UnknownModel {
        let refused = answer.status == 404 && text.contains(NO_MODEL);
        return vec![
            finding(format!("{title}: 404 with advice"), refused, shown),
            finding(format!("{title}: touches no endpoint"), exchange.endpoint().is_none(), || "one was picked".into()),
        ];
    }
    let complete = match exchange.topic {
        Topic::Stream => text.trim_end().ends_with("data: [DONE]") && text.contains("\"completion_tokens\":"),
        Topic::FirstOfPrefix | Topic::SecondOfPrefix | Topic::Adapter | Topic::UnknownModel => answer
            .json()
            .is_ok_and(|body| body["choices"][0]["message"]["content"].is_string() && body["usage"].is_object()),
    };
    let known = exchange.endpoint().is_some_and(|name| PODS.iter().any(|(pod, _)| *pod == name));
    let explained = exchange.decision.as_ref().is_some_and(explains);
    vec![
        finding(format!("{title}: 200, complete, with usage"), answer.status == 200 && complete, shown),
        finding(format!("{title}: served by one of the pods"), known, || format!("{:?}", exchange.endpoint())),
        finding(format!("{title}: the decision names every pod and a reason"), explained, || {
            exchange.decision.as_ref().map_or("no decision".into(), Value::to_string)
        }),
    ]
}

fn explains(decision: &Value) -> bool {
    let candidates = decision["candidates"].as_array().map_or(0, Vec::len);
    candidates == PODS.len() && decision["reason"].as_str().is_some_and(|reason| !reason.is_empty())
}

fn same_prefix_same_pod(exchanges: &[Exchange]) -> Finding {
    let served = |topic| exchanges.iter().find(|exchange| exchange.topic == topic).and_then(Exchange::endpoint);
    let (first, second) = (served(Topic::FirstOfPrefix), served(Topic::SecondOfPrefix));
    let held = first.is_some() && first == second;
    finding("the same prefix goes to the same pod", held, || format!("{first:?}, then {second:?}"))
}

fn pods_are_ready(gateway: &Gateway) -> anyhow::Result<Finding> {
    let pools = http::get(gateway.admin, "/api/v1/pools")?.json()?;
    let endpoints = pools["pools"][0]["endpoints"].as_array().context("/api/v1/pools has no endpoints")?;
    let ready = endpoints.iter().filter(|endpoint| endpoint["state"] == "ready").count();
    Ok(finding("every pod is ready, by its own metrics", ready == PODS.len(), || pools.to_string()))
}

/// Reads the metrics until they agree with what was asked, or the time is over.
fn settled_counts(gateway: &Gateway, exchanges: &[Exchange]) -> anyhow::Result<Vec<Finding>> {
    let deadline = Instant::now() + SETTLED_WITHIN;
    loop {
        let page = http::get(gateway.admin, "/metrics")?.text();
        let findings = counts(&page, exchanges);
        if findings.iter().all(|finding| finding.verdict.is_ok()) || Instant::now() >= deadline {
            return Ok(findings);
        }
        std::thread::sleep(POLL);
    }
}

fn counts(page: &str, exchanges: &[Exchange]) -> Vec<Finding> {
    let served = exchanges.iter().filter(|exchange| exchange.topic != Topic::UnknownModel).count() as f64;
    let refused = exchanges.len() as f64 - served;
    let mut picks: BTreeMap<&str, f64> = BTreeMap::new();
    exchanges.iter().filter_map(Exchange::endpoint).for_each(|name| *picks.entry(name).or_default() += 1.0);
    let expected = [
        ("inference_gateway_requests_total", r#"outcome="ok""#, served),
        ("inference_gateway_requests_total", r#"outcome="model_not_found""#, refused),
        ("inference_gateway_config_valid", "", 1.0),
        ("inference_gateway_in_flight_requests", "", 0.0),
    ];
    let of_pods =
        picks.iter().map(|(name, count)| ("inference_gateway_picks_total", format!(r#"endpoint="{name}""#), *count));
    let all = expected.map(|(metric, label, count)| (metric, label.to_owned(), count)).into_iter().chain(of_pods);
    let findings = all.map(|(metric, label, count)| {
        let seen = sum(page, metric, &label);
        let series = if label.is_empty() { metric.to_owned() } else { format!("{metric}{{{label}}}") };
        finding(format!("metrics: {series} is {count}"), seen == Some(count), || format!("it is {seen:?}"))
    });
    findings.collect()
}

/// The sum over a metric's series that carry `label`; `None` when there is none.
fn sum(page: &str, metric: &str, label: &str) -> Option<f64> {
    let series = page.lines().filter(|line| {
        let rest = line.strip_prefix(metric);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
    });
    let values = series.filter_map(|line| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok()));
    values.reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_label() {
        let page = "# TYPE a_total counter\na_total{pool=\"x\",outcome=\"ok\"} 3\na_total{pool=\"y\",outcome=\"ok\"} 1\n\
                    a_total{pool=\"\",outcome=\"shed\"} 7\na_total_more{outcome=\"ok\"} 9\nb 1\n";
        assert_eq!(sum(page, "a_total", "outcome=\"ok\""), Some(4.0));
        assert_eq!(sum(page, "b", ""), Some(1.0));
        assert_eq!(sum(page, "c", ""), None);
    }

    #[test]
    fn a_broken_expectation_fails_the_check() {
        assert!(report(&[finding("sky is up", true, String::new)]).is_ok());
        let error =
            report(&[finding("sky is up", true, String::new), finding("pigs fly", false, || "they do not".into())]);
        assert!(error.unwrap_err().to_string().contains("1 of 2"));
    }

    #[test]
    fn a_missing_pick_is_not_the_same_pod() {
        assert!(same_prefix_same_pod(&[]).verdict.is_err());
    }
}
