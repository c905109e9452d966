//! SGLang's page: always in multi-process mode, so without process families and creation times; gauges are refreshed
//! only on a prefill, every forty decode steps, or when the engine falls idle.

use super::{Show, exposition::Page};
use crate::{driver::Rank, options::Version, sim::Sim};

/// Name, help, first release, and where a rank's number comes from.
type Row<'a, N> = (&'a str, &'a str, Version, &'a dyn Fn(&Rank) -> N);
type GetHistogram = fn(&Rank) -> &engine::Histogram;
/// Labels of one rank's series.
type RankLabels = Vec<(&'static str, String)>;

pub(super) fn render(sim: &Sim, show: Show) -> String {
    let mut page = Page::default();
    if show == Show::NoEngine {
        return page.finish();
    }
    gauges(&mut page, sim, show);
    counters(&mut page, sim);
    histograms(&mut page, sim);
    page.finish()
}

fn gauges(page: &mut Page, sim: &Sim, show: Show) {
    let profile = &sim.options.profile;
    let capacity = f64::from(profile.usable_blocks()) * f64::from(profile.block_tokens);
    let tokens = |blocks: u32| f64::from(blocks) * f64::from(profile.block_tokens);
    let rows: &[Row<'_, f64>] = &[
        ("sglang:num_running_reqs", "The number of running requests.", OLD, &|r| f64::from(r.lazy.running)),
        ("sglang:num_used_tokens", "The number of used tokens.", OLD, &|r| tokens(r.lazy.kv_blocks_used)),
        ("sglang:token_usage", "The token usage.", OLD, &|r| r.lazy.kv_usage),
        ("sglang:full_token_usage", "The token usage for full attention layers.", NEW, &|r| r.lazy.kv_usage),
        ("sglang:kv_used_tokens", "The number of used KV tokens.", NEW, &|r| tokens(r.lazy.kv_blocks_used)),
        ("sglang:kv_available_tokens", "The number of free KV tokens.", NEW, &|r| {
            capacity - tokens(r.lazy.kv_blocks_used + r.lazy.kv_blocks_cached_free)
        }),
        ("sglang:kv_evictable_tokens", "The number of evictable KV tokens.", NEW, &|r| {
            tokens(r.lazy.kv_blocks_cached_free)
        }),
        ("sglang:gen_throughput", "The generation throughput (token/s).", OLD, &|_| 0.0),
        ("sglang:num_queue_reqs", "The number of requests in the waiting queue.", OLD, &|r| f64::from(r.lazy.waiting)),
        ("sglang:num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", V0_4_10, &|_| 0.0),
        ("sglang:cache_hit_rate", "The prefix cache hit rate.", OLD, &|r| {
            let counters = &r.engine.stats().counters;
            counters.prefix_hits as f64 / counters.prefix_queries.max(1) as f64
        }),
        ("sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", V0_5_6, &|_| capacity),
        ("sglang:page_size", "The page size of the KV cache.", NEW, &|_| f64::from(profile.block_tokens)),
        ("sglang:num_pages", "The number of pages of the KV cache.", NEW, &|_| f64::from(profile.usable_blocks())),
        ("sglang:num_retracted_reqs", "The number of retracted requests.", OLD, &|_| 0.0),
    ];
    for (name, help, _, value) in rows.iter().filter(|row| sim.options.version >= row.2) {
        page.family(name, "gauge", help);
        each_rank(sim, |labels, rank| {
            let shown = if show == Show::NanGauges { f64::NAN } else { value(rank) };
            page.sample(name, &borrow(labels), shown);
        });
    }
    cache_config(page, sim);
}

/// Releases around 0.5.9 alone say page size and count as labels.
fn cache_config(page: &mut Page, sim: &Sim) {
    if !(Version(0, 5, 9)..NEW).contains(&sim.options.version) {
        return;
    }
    let profile = &sim.options.profile;
    let (size, pages) = (profile.block_tokens.to_string(), profile.usable_blocks().to_string());
    page.family("sglang:cache_config_info", "gauge", "Information of the KV cache config");
    each_rank(sim, |labels, _| {
        let mut labels = borrow(labels);
        labels.extend([("page_size", size.as_str()), ("num_pages", pages.as_str())]);
        page.sample("sglang:cache_config_info", &labels, 1.0);
    });
}

fn counters(page: &mut Page, sim: &Sim) {
    let rows: &[Row<'_, u64>] = &[
        ("sglang:prompt_tokens_total", "Number of prefill tokens processed.", OLD, &|r| {
            r.engine.stats().counters.prompt_tokens
        }),
        ("sglang:generation_tokens_total", "Number of generation tokens processed.", OLD, &|r| {
            r.engine.stats().counters.generation_tokens
        }),
        ("sglang:num_requests_total", "Number of requests processed.", OLD, &|r| r.engine.stats().counters.finished()),
        ("sglang:num_aborted_requests_total", "Number of requests aborted.", V0_4_10, &|r| {
            r.engine.stats().counters.finished_abort
        }),
        ("sglang:num_retracted_requests_total", "Number of requests retracted.", NEW, &|r| {
            r.engine.stats().counters.preemptions
        }),
    ];
    for (name, help, _, value) in rows.iter().filter(|row| sim.options.version >= row.2) {
        page.family(name, "counter", help);
        each_rank(sim, |labels, rank| page.sample(name, &borrow(labels), value(rank) as f64));
    }
    let name = "sglang:cached_tokens_total";
    page.family(name, "counter", "Number of cached prompt tokens.");
    each_rank(sim, |labels, rank| {
        let mut labels = borrow(labels);
        labels.push(("cache_source", "device"));
        page.sample(name, &labels, rank.engine.stats().counters.prompt_tokens_cached as f64);
    });
}

fn histograms(page: &mut Page, sim: &Sim) {
    let rows: &[(&str, &str, GetHistogram)] = &[
        ("sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.", |r| {
            &r.latencies.time_to_first_token
        }),
        ("sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", |r| {
            &r.latencies.inter_token
        }),
        ("sglang:e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", |r| {
            &r.latencies.e2e
        }),
        ("sglang:queue_time_seconds", "Histogram of queueing time in seconds.", |r| &r.latencies.queue),
    ];
    for (name, help, get) in rows {
        page.family(name, "histogram", help);
        each_rank(sim, |labels, rank| page.histogram(name, &borrow(labels), get(rank)));
    }
}

const OLD: Version = Version(0, 0, 0);
const V0_4_10: Version = Version(0, 4, 10);
const V0_5_6: Version = Version(0, 5, 6);
const NEW: Version = Version(0, 5, 12);

fn each_rank(sim: &Sim, mut write: impl FnMut(&RankLabels, &Rank)) {
    sim.driver.for_each_rank(|index, rank| write(&labels(sim, index), rank));
}

fn labels(sim: &Sim, rank: usize) -> RankLabels {
    let version = sim.options.version;
    let mut labels = vec![("model_name", sim.options.shown_name().to_owned())];
    if version > Version(0, 4, 6) {
        labels.extend([
            ("engine_type", "unified".to_owned()),
            ("tp_rank", "0".to_owned()),
            ("pp_rank", "0".to_owned()),
        ]);
    }
    if version >= NEW {
        labels.push(("moe_ep_rank", "0".to_owned()));
    }
    if sim.options.ranks > 1 {
        labels.push(("dp_rank", rank.to_string()));
    }
    labels
}

fn borrow(labels: &RankLabels) -> Vec<(&str, &str)> {
    labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
}
