//! vLLM's families as a table: name, help, the releases that show it, and where its numbers come from.

use engine::Histogram;

use crate::{driver::Rank, options::Version};

/// One family.
pub(super) struct Family {
    /// With the suffix it has on the wire.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// First release that shows it.
    pub(super) since: Version,
    /// First release that no longer shows it by default.
    pub(super) until: Version,
    pub(super) values: Values,
}

/// A family's numbers, per rank.
pub(super) enum Values {
    Gauge(fn(&Rank) -> f64),
    Counter(fn(&Rank) -> f64),
    /// A gauge with one more label.
    GaugeBy(&'static str, fn(&Rank) -> Vec<(&'static str, f64)>),
    /// A counter with one more label; a series appears with the release beside it.
    CounterBy(&'static str, fn(&Rank) -> Vec<(&'static str, f64, Version)>),
    Histogram(fn(&Rank) -> &Histogram),
}

const ALWAYS: Version = Version(0, 0, 0);
const FOREVER: Version = Version(u32::MAX, 0, 0);

/// A family that every release shows.
const fn family(name: &'static str, help: &'static str, values: Values) -> Family {
    Family { name, help, since: ALWAYS, until: FOREVER, values }
}

impl Family {
    const fn since(mut self, major: u32, minor: u32, patch: u32) -> Self {
        self.since = Version(major, minor, patch);
        self
    }

    const fn until(mut self, major: u32, minor: u32, patch: u32) -> Self {
        self.until = Version(major, minor, patch);
        self
    }
}

macro_rules! count {
    ($field:ident) => {
        |rank| rank.engine.stats().counters.$field as f64
    };
}

macro_rules! histogram {
    ($field:ident) => {
        Values::Histogram(|rank| &rank.engine.histograms().$field)
    };
}

const BY_REASON: &str = "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling \
capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons \
equals vllm:num_requests_waiting.";
const SLEEP: &str = "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; \
weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.";
const CACHED_BY_SOURCE: &str = "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host \
(offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; \
sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.";
const FLOPS: &str = "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).";
const READ: &str = "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).";
const WRITTEN: &str = "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).";
const QUERIES: &str = "Prefix cache queries, in terms of number of queried tokens.";
const HITS: &str = "Prefix cache hits, in terms of number of cached tokens.";
const EXTERNAL_QUERIES: &str = "External prefix cache queries from KV connector cross-instance cache sharing, in terms \
of number of queried tokens.";
const EXTERNAL_HITS: &str =
    "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.";

/// Families in the order of the page, up to the rejections of requests.
pub(super) const COUNTS: &[Family] = &[
    family("vllm:estimated_flops_per_gpu_total", FLOPS, Values::Counter(|_| 0.0)).since(0, 16, 0),
    family("vllm:estimated_read_bytes_per_gpu_total", READ, Values::Counter(|_| 0.0)).since(0, 16, 0),
    family("vllm:estimated_write_bytes_per_gpu_total", WRITTEN, Values::Counter(|_| 0.0)).since(0, 16, 0),
    family(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        Values::Gauge(|rank| f64::from(rank.engine.stats().gauges.running)),
    ),
    family(
        "vllm:num_requests_waiting",
        "Number of requests waiting to be processed.",
        Values::Gauge(|rank| f64::from(rank.engine.stats().gauges.waiting)),
    ),
    family("vllm:num_requests_waiting_by_reason", BY_REASON, Values::GaugeBy("reason", waiting_by_reason))
        .since(0, 20, 0),
    family("vllm:engine_sleep_state", SLEEP, Values::GaugeBy("sleep_state", awake)).since(0, 11, 1),
    family(
        "vllm:gpu_cache_usage_perc",
        "GPU KV-cache usage. 1 means 100 percent usage.",
        Values::Gauge(|rank| rank.engine.stats().gauges.kv_usage),
    )
    .until(0, 11, 0),
    family(
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        Values::Gauge(|rank| rank.engine.stats().gauges.kv_usage),
    )
    .since(0, 9, 2),
    family("vllm:gpu_prefix_cache_queries_total", QUERIES, Values::Counter(count!(prefix_queries))).until(0, 11, 0),
    family("vllm:gpu_prefix_cache_hits_total", HITS, Values::Counter(count!(prefix_hits))).until(0, 11, 0),
    family("vllm:prefix_cache_queries_total", QUERIES, Values::Counter(count!(prefix_queries))).since(0, 9, 2),
    family("vllm:prefix_cache_hits_total", HITS, Values::Counter(count!(prefix_hits))).since(0, 9, 2),
    family("vllm:external_prefix_cache_queries_total", EXTERNAL_QUERIES, Values::Counter(|_| 0.0)).since(0, 11, 1),
    family("vllm:external_prefix_cache_hits_total", EXTERNAL_HITS, Values::Counter(|_| 0.0)).since(0, 11, 1),
    family(
        "vllm:mm_cache_queries_total",
        "Multi-modal cache queries, in terms of number of queried items.",
        Values::Counter(|_| 0.0),
    )
    .since(0, 11, 1),
    family(
        "vllm:mm_cache_hits_total",
        "Multi-modal cache hits, in terms of number of cached items.",
        Values::Counter(|_| 0.0),
    )
    .since(0, 11, 1),
    family(
        "vllm:num_preemptions_total",
        "Cumulative number of preemption from the engine.",
        Values::Counter(count!(preemptions)),
    ),
    family("vllm:prompt_tokens_total", "Number of prefill tokens processed.", Values::Counter(count!(prompt_tokens))),
    family(
        "vllm:prompt_tokens_by_source_total",
        "Number of prompt tokens by source.",
        Values::CounterBy("source", prompt_by_source),
    )
    .since(0, 16, 0),
    family(
        "vllm:prompt_tokens_cached_total",
        "Number of cached prompt tokens (local + external).",
        Values::Counter(count!(prompt_tokens_cached)),
    )
    .since(0, 16, 0),
    family(
        "vllm:prompt_tokens_cached_by_source_total",
        CACHED_BY_SOURCE,
        Values::CounterBy("source", cached_by_source),
    )
    .since(0, 32, 0),
    family(
        "vllm:generation_tokens_total",
        "Number of generation tokens processed.",
        Values::Counter(count!(generation_tokens)),
    ),
    family(
        "vllm:request_success_total",
        "Count of successfully processed requests.",
        Values::CounterBy("finished_reason", finished),
    ),
];

/// Families after the rejections.
pub(super) const HISTOGRAMS: &[Family] = &[
    family("vllm:request_prompt_tokens", "Number of prefill tokens processed.", histogram!(prompt_tokens)),
    family("vllm:request_generation_tokens", "Number of generation tokens processed.", histogram!(generation_tokens)),
    family(
        "vllm:iteration_tokens_total",
        "Histogram of number of tokens per engine_step.",
        histogram!(iteration_tokens),
    ),
    family(
        "vllm:request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        Values::Histogram(|rank| &rank.parents.longest_tokens),
    ),
    family(
        "vllm:request_params_n",
        "Histogram of the n request parameter.",
        Values::Histogram(|rank| &rank.parents.choices),
    ),
    family(
        "vllm:request_params_max_tokens",
        "Histogram of the max_tokens request parameter.",
        histogram!(params_max_tokens),
    ),
    family(
        "vllm:time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        histogram!(time_to_first_token),
    ),
    family(
        "vllm:time_per_output_token_seconds",
        "Histogram of time per output token in seconds.",
        histogram!(inter_token_latency),
    )
    .until(0, 13, 0),
    family(
        "vllm:inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        histogram!(inter_token_latency),
    )
    .since(0, 10, 2),
    family(
        "vllm:request_time_per_output_token_seconds",
        "Histogram of time_per_output_token_seconds per request.",
        histogram!(time_per_output_token),
    )
    .since(0, 11, 0),
    family("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", histogram!(e2e_latency)),
    family(
        "vllm:request_queue_time_seconds",
        "Histogram of time spent in WAITING phase for request.",
        histogram!(queue_time),
    ),
    family(
        "vllm:request_inference_time_seconds",
        "Histogram of time spent in RUNNING phase for request.",
        histogram!(inference_time),
    ),
    family(
        "vllm:request_prefill_time_seconds",
        "Histogram of time spent in PREFILL phase for request.",
        histogram!(prefill_time),
    ),
    family(
        "vllm:request_decode_time_seconds",
        "Histogram of time spent in DECODE phase for request.",
        histogram!(decode_time),
    ),
    family(
        "vllm:request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        histogram!(preemptions),
    )
    .since(0, 30, 0),
    family(
        "vllm:request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        histogram!(prefill_computed_tokens),
    )
    .since(0, 13, 0),
];

fn waiting_by_reason(rank: &Rank) -> Vec<(&'static str, f64)> {
    let gauges = &rank.engine.stats().gauges;
    let capacity = gauges.waiting - gauges.waiting_deferred;
    vec![("capacity", f64::from(capacity)), ("deferred", f64::from(gauges.waiting_deferred))]
}

fn awake(_: &Rank) -> Vec<(&'static str, f64)> {
    vec![("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)]
}

fn prompt_by_source(rank: &Rank) -> Vec<(&'static str, f64, Version)> {
    let counters = &rank.engine.stats().counters;
    let computed = counters.prompt_tokens - counters.prompt_tokens_cached;
    vec![
        ("local_compute", computed as f64, ALWAYS),
        ("local_cache_hit", counters.prompt_tokens_cached as f64, ALWAYS),
        ("external_kv_transfer", 0.0, ALWAYS),
    ]
}

fn cached_by_source(rank: &Rank) -> Vec<(&'static str, f64, Version)> {
    let hits = rank.engine.stats().counters.prefix_hits as f64;
    let others = ["host", "p2p", "disk", "external_unspecified"].map(|source| (source, 0.0, ALWAYS));
    [("device", hits, ALWAYS)].into_iter().chain(others).collect()
}

fn finished(rank: &Rank) -> Vec<(&'static str, f64, Version)> {
    let counters = &rank.engine.stats().counters;
    vec![
        ("stop", counters.finished_stop as f64, ALWAYS),
        ("length", counters.finished_length as f64, ALWAYS),
        ("abort", counters.finished_abort as f64, ALWAYS),
        ("error", 0.0, Version(0, 14, 0)),
        ("repetition", 0.0, Version(0, 20, 0)),
    ]
}
