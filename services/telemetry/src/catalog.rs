//! The metric catalogue: one row per metric, the only place where a metric name stands in code.
//!
//! `docs/metrics.md` is generated from it; dashboards and alarms are checked against it.

use std::fmt::Write as _;

/// What a metric counts or measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows; starts at 0 with the process.
    Counter,
    /// A counter whose value has fractions: kept as a gauge, shown as a counter.
    FractionCounter,
    /// Goes up and down.
    Gauge,
    /// Observations sorted into these upper bounds (and +Inf).
    Histogram(&'static [f64]),
}

/// Whom one series speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One model-server endpoint.
    Pod,
    /// One pool.
    Pool,
    /// The gateway process.
    Process,
}

/// A label and the values it can take. A value never comes from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The label's name.
    pub name: &'static str,
    /// Its values, for the reader.
    pub values: &'static str,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// The full name as it stands on the page.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// Unit of the value, in words.
    pub unit: &'static str,
    /// Labels, in the order in which handles name their values.
    pub labels: &'static [Label],
    /// One sentence: what it means.
    pub help: &'static str,
    /// Whom a series speaks of.
    pub level: Level,
}

const POOL: Label = Label { name: "pool", values: "name of a scheduler; empty for requests without a pool" };
const MODEL: Label = Label { name: "model", values: "a configured model or adapter name, else `other`" };
const BAND: Label = Label { name: "band", values: "`critical`, `standard`, `sheddable`" };
const LIMIT: Label = Label { name: "limit", values: "name of a limit; limits of several schedulers may share one" };
const LISTENER: Label =
    Label { name: "listener", values: "name of a listener; `https` where the configuration is read from files" };
const ENDPOINT: Label = Label { name: "endpoint", values: "name of an endpoint" };

/// From a cached answer to a long reasoning run; the engines' own latency buckets lie between.
const DURATION_SECONDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0];
/// Follows vLLM's own `time_to_first_token_seconds`, thinned out.
const FIRST_TOKEN_SECONDS: &[f64] =
    &[0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0];
/// Follows vLLM's own `inter_token_latency_seconds`, with finer steps for fast engines.
const INTER_TOKEN_SECONDS: &[f64] =
    &[0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0];

/// From a place that came free at once to the longest wait that can be configured.
const QUEUE_WAIT_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 600.0];

macro_rules! catalog {
    ($($(#[$doc:meta])* $id:ident: $name:literal, $kind:expr, $unit:literal, [$($label:expr),*], $level:ident, $help:literal;)*) => {
        $(#[doc = $help] pub static $id: Metric = Metric {
            name: $name, kind: $kind, unit: $unit, labels: &[$($label),*], help: $help, level: Level::$level,
        };)*
        /// Every metric, in the order of the documentation.
        pub static ALL: &[&Metric] = &[$(&$id),*];
    };
}

catalog! {
    REQUESTS: "inference_gateway_requests_total", Kind::Counter, "requests",
        [POOL, MODEL, BAND, Label { name: "outcome", values: "`ok`, `redirect`, `upstream_4xx`, `upstream_5xx`, `client_gone`, else a reason of docs/errors.md" }],
        Pool, "Requests answered or abandoned on the data port, by their one outcome.";
    REQUEST_DURATION: "inference_gateway_request_duration_seconds", Kind::Histogram(DURATION_SECONDS), "seconds",
        [POOL, MODEL], Pool, "From the end of the request's head to the last byte of its answer.";
    TIME_TO_FIRST_TOKEN: "inference_gateway_time_to_first_token_seconds", Kind::Histogram(FIRST_TOKEN_SECONDS), "seconds",
        [POOL, MODEL], Pool, "From the end of the request's head to the first content event of a streamed answer.";
    INTER_TOKEN: "inference_gateway_inter_token_seconds", Kind::Histogram(INTER_TOKEN_SECONDS), "seconds",
        [POOL, MODEL], Pool, "Mean time between the content events of one streamed answer.";
    TOKENS: "inference_gateway_tokens_total", Kind::Counter, "tokens",
        [POOL, MODEL, Label { name: "kind", values: "`prompt` (cached ones included), `cached`, `completion`" }],
        Pool, "Model tokens, as the engines' usage says.";
    USAGE_MISSING: "inference_gateway_usage_missing_total", Kind::Counter, "answers",
        [POOL, MODEL], Pool, "Answers of an endpoint that carried no usage; their tokens are counted nowhere.";
    SATURATION: "inference_gateway_saturation", Kind::Gauge, "ratio",
        [POOL], Pool, "Load of the pool's least loaded endpoint over what makes it full: 1 is full.";
    QUEUE_DEPTH: "inference_gateway_queue_depth", Kind::Gauge, "requests",
        [POOL, BAND], Pool, "Requests waiting in the gateway for room at an endpoint.";
    QUEUE_BYTES: "inference_gateway_queue_bytes", Kind::Gauge, "bytes",
        [POOL, BAND], Pool, "Bodies of the requests waiting in the gateway.";
    QUEUE_WAIT: "inference_gateway_queue_wait_seconds", Kind::Histogram(QUEUE_WAIT_SECONDS), "seconds",
        [POOL, BAND], Pool, "Time in the gateway's queue, however it ended; only of requests that had to wait.";
    UNKNOWN_OBJECTIVES: "inference_gateway_unknown_objectives_total", Kind::Counter, "requests",
        [POOL], Pool, "Requests that named an InferenceObjective which the pool does not have; they are served as standard ones.";
    EVICTIONS: "inference_gateway_evictions_total", Kind::Counter, "requests",
        [POOL], Pool, "Sheddable requests ended at an endpoint, before its first byte, for those of higher bands.";
    OWN_SIGNALS_ONLY: "inference_gateway_own_signals_only", Kind::Gauge, "0 or 1",
        [POOL], Pool, "1 while every endpoint's signals are stale and picks rest on the gateway's own in-flight counts.";
    RETRIES: "inference_gateway_upstream_retries_total", Kind::Counter, "tries",
        [POOL, Label { name: "cause", values: "of `upstream_retries`: `connect` (next endpoint, nothing was sent), `reused_closed` (fresh connection), `overloaded` (next endpoint after a 429 or 503)" }],
        Pool, "Further tries of a request after one that got no answer, or a refusal.";
    EJECTIONS: "inference_gateway_ejections_total", Kind::Counter, "ejections",
        [POOL, Label { name: "cause", values: "the last failure: `connect`, `status` (500, 502, 504), `timeout`, `broke`, `stall`" }],
        Pool, "Times an endpoint was taken out after failures of its own.";
    PREFIX_INDEX_BYTES: "inference_gateway_prefix_index_bytes", Kind::Gauge, "bytes",
        [POOL], Pool, "Memory set aside for the pool's prefix index; it hardly moves, watch the entries.";
    PREFIX_INDEX_ENTRIES: "inference_gateway_prefix_index_entries", Kind::Gauge, "blocks",
        [POOL], Pool, "Prefix blocks known to the pool's prefix index.";
    PREFIX_INDEX_EVICTIONS: "inference_gateway_prefix_index_evictions_total", Kind::Counter, "blocks",
        [POOL], Pool, "Prefix blocks forgotten to stay within an endpoint's cache size or the byte budget.";

    IN_FLIGHT: "inference_gateway_in_flight_requests", Kind::Gauge, "requests",
        [POOL, ENDPOINT], Pod, "Requests of this gateway that the endpoint has not finished answering.";
    PICKS: "inference_gateway_picks_total", Kind::Counter, "picks",
        [POOL, ENDPOINT], Pod, "Times the endpoint was chosen first for a request.";
    ENDPOINT_WAITING: "inference_gateway_endpoint_waiting", Kind::Gauge, "requests",
        [POOL, ENDPOINT], Pod, "Requests queued in the engine, as its metrics page last said.";
    ENDPOINT_RUNNING: "inference_gateway_endpoint_running", Kind::Gauge, "requests",
        [POOL, ENDPOINT], Pod, "Requests in the engine's running batch, as its metrics page last said.";
    ENDPOINT_KV_CACHE: "inference_gateway_endpoint_kv_cache_ratio", Kind::Gauge, "ratio",
        [POOL, ENDPOINT], Pod, "Share of the engine's KV cache held by live requests, 0 to 1, as its metrics page last said.";
    ENDPOINT_SIGNAL_AGE: "inference_gateway_endpoint_signal_age_seconds", Kind::Gauge, "seconds",
        [POOL, ENDPOINT], Pod, "Age of the newest signal read from the endpoint; absent before the first.";
    ENDPOINT_TYPICAL_TTFT: "inference_gateway_endpoint_predicted_ttft_seconds", Kind::Gauge, "seconds",
        [POOL, ENDPOINT], Pod, "Time to first token predicted for a request of the pool's usual length, sent to the endpoint now; absent before a first token was seen there.";
    ENDPOINT_TTFT_ERROR: "inference_gateway_endpoint_ttft_prediction_error_ratio", Kind::Gauge, "ratio",
        [POOL, ENDPOINT], Pod, "Mean error of the last few hundred predicted times to first token at the endpoint, as a share of their mean; absent before the first.";
    ENDPOINT_STATE: "inference_gateway_endpoint_state", Kind::Gauge, "0 or 1",
        [POOL, ENDPOINT, Label { name: "state", values: "`ready` (a candidate), `stale` (its signals are too old, or nobody listens there: used only if no other is better), `starting` (never read yet), `draining` (finishes what it has), `ejected` (taken out after failures: gets one request to prove itself when its time is over)" }],
        Pod, "1 for the state the endpoint is in, 0 for the others.";
    ENDPOINT_ADAPTER_RESIDENT: "inference_gateway_endpoint_adapter_resident", Kind::Gauge, "0 or 1",
        [POOL, ENDPOINT, Label { name: "adapter", values: "a configured adapter name" }],
        Pod, "1 while the adapter is taken to be loaded on the endpoint.";
    SCRAPE_SAMPLES_SKIPPED: "inference_gateway_scrape_samples_skipped_total", Kind::Counter, "samples",
        [ENDPOINT], Pod, "Samples on an endpoint's metrics page that could not be read; the rest of the page was used.";
    SCRAPE_FAILURES: "inference_gateway_scrape_failures_total", Kind::Counter, "scrapes",
        [ENDPOINT, Label { name: "cause", values: "of `scrape_failures`: `connect`, `timeout`, `status`, `too_large`, `encoding`, `redirect`, `protocol`, `no_known_family`" }],
        Pod, "Looks at an endpoint's metrics page that brought nothing.";

    MODEL_REWRITES: "inference_gateway_model_rewrites_total", Kind::Counter, "requests",
        [POOL, Label { name: "target", values: "model that requests are sent to in place of the one they name" }],
        Pool, "Requests that a rewrite has sent to this model; those that kept their name, too.";
    LIMIT_REJECTIONS: "inference_gateway_limit_rejections_total", Kind::Counter, "requests",
        [LIMIT, Label { name: "unit", values: "`requests`, `tokens`, `input_tokens`, `output_tokens`, `concurrent_requests`" }],
        Process, "Requests refused since their caller was beyond a limit, by the number that kept them out longest.";
    LIMIT_OPEN: "inference_gateway_limit_open_requests", Kind::Gauge, "requests",
        [LIMIT], Process, "Requests let in under a limit, waiting ones too, whose answer is not over.";
    LIMIT_KEYS: "inference_gateway_limit_keys", Kind::Gauge, "keys",
        [LIMIT], Process, "Callers with an account of their own under a limit; those with nothing used are forgotten as others come.";
    LIMIT_KEYS_SHARED: "inference_gateway_limit_keys_shared_total", Kind::Counter, "requests",
        [LIMIT], Process, "Requests of callers for whom no account of their own was left: they share one. Somebody invents keys, or a limit has too many callers.";

    CONFIG_VALID: "inference_gateway_config_valid", Kind::Gauge, "0 or 1",
        [], Process, "1 while the newest configuration seen is the one in force, 0 while it was refused.";
    CONFIG_GENERATION: "inference_gateway_config_generation", Kind::Gauge, "number",
        [], Process, "Number of the configuration in force; grows by one with each change applied.";
    AUTH_KEY_FETCHES: "inference_gateway_auth_key_fetches_total", Kind::Counter, "fetches",
        [Label { name: "outcome", values: "of `auth_key_fetches`: `ok`, `unreachable`, `timeout`, `status`, `body`, `no_key_set`" }],
        Process, "Fetches of the key set that the identity provider publishes; known keys stay in use while they fail.";
    AUTH_KEYS: "inference_gateway_auth_keys", Kind::Gauge, "keys",
        [], Process, "Keys of the identity provider that tokens are checked by, as of the last good fetch.";
    AUTH_KEYS_FETCHED: "inference_gateway_auth_keys_fetched_timestamp_seconds", Kind::Gauge, "seconds since 1970",
        [], Process, "When the identity provider's keys were last fetched with success.";
    CONNECTIONS: "inference_gateway_connections", Kind::Gauge, "connections",
        [], Process, "Client connections open on the data port.";
    CONNECTIONS_REFUSED: "inference_gateway_connections_refused_total", Kind::Counter, "connections",
        [Label { name: "cause", values: "of `connections_refused`: `bad_head`, `head_too_large`, `head_timeout`, `limit`, `tls_handshake` (no TLS was agreed on), `tls_timeout`" }],
        Process, "Client connections closed by the gateway before or between requests.";
    CERTIFICATE_NOT_AFTER: "inference_gateway_certificate_not_after_seconds", Kind::Gauge, "seconds since 1970",
        [LISTENER], Process, "When the first of the certificates that the listener shows expires.";
    CERTIFICATES_REFUSED: "inference_gateway_certificates_refused_total", Kind::Counter, "certificates",
        [LISTENER], Process, "New pairs of certificate and key that could not be used, or had expired: the former pair stays.";
    BODY_MEMORY: "inference_gateway_body_memory_bytes", Kind::Gauge, "bytes",
        [], Process, "Request bodies held in memory now; bounded by --body-memory.";
    LOG_LINES_DROPPED: "inference_gateway_log_lines_dropped_total", Kind::Counter, "lines",
        [], Process, "Lines of the log not written because its reader was too slow.";
    BUILD_INFO: "inference_gateway_build_info", Kind::Gauge, "always 1",
        [Label { name: "version", values: "the release" }], Process, "The running build.";
    PROCESS_CPU: "process_cpu_seconds_total", Kind::FractionCounter, "seconds",
        [], Process, "User and system CPU time of the process.";
    PROCESS_MEMORY: "process_resident_memory_bytes", Kind::Gauge, "bytes",
        [], Process, "Resident memory of the process.";
    PROCESS_START: "process_start_time_seconds", Kind::Gauge, "seconds since 1970",
        [], Process, "When the process started.";
    CONTROLLER_LEADER: "inference_gateway_controller_leader", Kind::Gauge, "0 or 1",
        [], Process, "1 in the copy of the controller that writes.";
    CONTROLLER_PASSES: "inference_gateway_controller_passes_total", Kind::Counter, "passes",
        [Label { name: "result", values: "`settled` (nothing to write), `written`, `failed` (tried again later)" }],
        Process, "Looks of the controller at one config or Gateway, by how they ended.";
    CONTROLLER_WRITES: "inference_gateway_controller_writes_total", Kind::Counter, "calls",
        [Label { name: "verb", values: "`apply`, `delete`, `status`, `event`, `finalizer`" },
         Label { name: "result", values: "`ok`, `conflict`, `refused`, `unavailable`" }],
        Process, "Writing calls of the controller to the API server.";
    CONTROLLER_WAITING: "inference_gateway_controller_waiting", Kind::Gauge, "objects",
        [], Process, "Configs and Gateways whose last pass failed, and that wait for the next try.";
}

/// The row of a name, if there is one.
pub fn find(name: &str) -> Option<&'static Metric> {
    ALL.iter().copied().find(|metric| metric.name == name)
}

/// `docs/metrics.md`.
pub fn metrics_markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\nGenerated from `services/telemetry/src/catalog.rs` by `cargo xtask codegen`; do not edit.\n\n\
         `GET /metrics` on the admin port answers in the Prometheus text format, and in OpenMetrics when asked for it by \
         `Accept`. The series of an endpoint that was removed go within a minute of its last request's end.\n",
    );
    for (title, level) in [("Pool", Level::Pool), ("Pod (endpoint)", Level::Pod), ("Process", Level::Process)] {
        let _ = write!(out, "\n## {title}\n\n| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|\n");
        for metric in ALL.iter().filter(|m| m.level == level) {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {} |",
                metric.name,
                kind_name(metric.kind),
                metric.unit,
                label_names(metric),
                metric.help
            );
        }
    }
    out.push_str("\n## Labels\n\n| label | values |\n|---|---|\n");
    let mut seen = Vec::new();
    for label in ALL.iter().flat_map(|m| m.labels) {
        if !seen.contains(label) {
            seen.push(*label);
            let _ = writeln!(out, "| `{}` | {} |", label.name, label.values);
        }
    }
    out.push_str("\n## Histogram buckets\n\n| metric | upper bounds, then +Inf |\n|---|---|\n");
    for metric in ALL {
        if let Kind::Histogram(bounds) = metric.kind {
            let bounds: Vec<String> = bounds.iter().map(f64::to_string).collect();
            let _ = writeln!(out, "| `{}` | {} |", metric.name, bounds.join(" "));
        }
    }
    out
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter | Kind::FractionCounter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

fn label_names(metric: &Metric) -> String {
    if metric.labels.is_empty() {
        return "–".into();
    }
    metric.labels.iter().map(|l| format!("`{}`", l.name)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_field() {
        let mut names = BTreeSet::new();
        for metric in ALL {
            assert!(names.insert(metric.name), "{} stands twice", metric.name);
            let counts = matches!(metric.kind, Kind::Counter | Kind::FractionCounter);
            assert_eq!(counts, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert!(metric.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
            if let Kind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted() && bounds.len() <= 20, "{}", metric.name);
            }
        }
    }

    #[test]
    fn the_documentation_names_every_metric() {
        let text = metrics_markdown();
        assert!(ALL.iter().all(|m| text.contains(m.name)));
    }
}
