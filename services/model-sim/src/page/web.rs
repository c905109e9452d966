//! The HTTP families of prometheus-fastapi-instrumentator.

use super::exposition::Page;
use crate::web::WebCounts;

const REQUESTS: &str = "Total number of requests by method, status and handler.";
const SIZE_IN: &str = "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. No \
     percentile calculated. ";
const SIZE_OUT: &str = "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. No \
     percentile calculated. ";
const FINE: &str =
    "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ";
const COARSE: &str =
    "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ";

/// Everything counted by the HTTP layer; `started_unix_s` is when families without labels were made.
pub(super) fn write(page: &mut Page, counts: &WebCounts, started_unix_s: f64) {
    requests(page, counts);
    sizes(page, counts, "http_request_size_bytes", SIZE_IN, |sizes| sizes.request_bytes);
    sizes(page, counts, "http_response_size_bytes", SIZE_OUT, |sizes| sizes.response_bytes);
    let name = "http_request_duration_highr_seconds";
    page.family(name, "histogram", FINE);
    page.histogram(name, &[], &counts.all);
    created(page, name, FINE);
    page.sample(&format!("{name}_created"), &[], started_unix_s);
    durations(page, counts);
}

fn requests(page: &mut Page, counts: &WebCounts) {
    page.family("http_requests_total", "counter", REQUESTS);
    let labels = |(handler, method, status): &(&'static str, String, &'static str)| {
        [("handler", *handler), ("status", *status)]
            .map(|(name, value)| (name, value.to_owned()))
            .into_iter()
            .chain([("method", method.clone())])
    };
    for (key, counted) in &counts.requests {
        let owned: Vec<(&str, String)> = labels(key).collect();
        page.sample("http_requests_total", &borrow(&owned), counted.count as f64);
    }
    created(page, "http_requests", REQUESTS);
    for (key, counted) in &counts.requests {
        let owned: Vec<(&str, String)> = labels(key).collect();
        page.sample("http_requests_created", &borrow(&owned), counted.created_unix_s);
    }
}

fn sizes(page: &mut Page, counts: &WebCounts, name: &str, help: &str, bytes: impl Fn(&crate::web::Sizes) -> u64) {
    page.family(name, "summary", help);
    for (handler, sizes) in &counts.sizes {
        page.sample(&format!("{name}_count"), &[("handler", handler)], sizes.count as f64);
        page.sample(&format!("{name}_sum"), &[("handler", handler)], bytes(sizes) as f64);
    }
    created(page, name, help);
    for (handler, sizes) in &counts.sizes {
        page.sample(&format!("{name}_created"), &[("handler", handler)], sizes.created_unix_s);
    }
}

fn durations(page: &mut Page, counts: &WebCounts) {
    let name = "http_request_duration_seconds";
    page.family(name, "histogram", COARSE);
    for ((handler, method), (histogram, _)) in &counts.durations {
        page.histogram(name, &[("handler", handler), ("method", method)], histogram);
    }
    created(page, name, COARSE);
    for ((handler, method), (_, created_unix_s)) in &counts.durations {
        page.sample(&format!("{name}_created"), &[("handler", handler), ("method", method)], *created_unix_s);
    }
}

fn created(page: &mut Page, name: &str, help: &str) {
    page.family(&format!("{name}_created"), "gauge", help);
}

fn borrow<'a>(labels: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
}
