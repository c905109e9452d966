//! vLLM's page: families of the table, adapters, cache configuration, and the process and HTTP families around them.

use super::{
    Show,
    exposition::Page,
    process,
    vllm_families::{COUNTS, Family, HISTOGRAMS, Values},
    web,
};
use crate::{driver::Rank, options::Version, sim::Sim};

/// A page is about this long.
const PAGE_BYTES: usize = 64 << 10;

pub(super) fn render(sim: &Sim, show: Show) -> String {
    let mut page = Page::with_capacity(PAGE_BYTES);
    process::write(&mut page, sim);
    if show != Show::NoEngine {
        for family in COUNTS {
            write(&mut page, sim, family, show);
        }
        rejections(&mut page, sim);
        for family in HISTOGRAMS {
            write(&mut page, sim, family, show);
        }
        adapters(&mut page, sim);
        cache_config(&mut page, sim);
    }
    web::write(&mut page, &sim.web.counts(), sim.clock.started_unix_s());
    page.finish()
}

fn write(page: &mut Page, sim: &Sim, family: &Family, show: Show) {
    let version = sim.options.version;
    if version < family.since || version >= family.until {
        return;
    }
    let (name, model) = (family.name, sim.options.shown_name());
    let gauge = |value: f64| if show == Show::NanGauges { f64::NAN } else { value };
    page.family(name, family.kind(), family.help);
    each_rank(sim, |engine, rank| {
        let labels = [("engine", engine), ("model_name", model)];
        let with = |label, value| [labels[0], labels[1], (label, value)];
        match &family.values {
            Values::Gauge(get) => page.sample(name, &labels, gauge(get(rank))),
            Values::Counter(get) => page.sample(name, &labels, get(rank)),
            Values::GaugeBy(label, get) => {
                get(rank).into_iter().for_each(|(series, value)| page.sample(name, &with(label, series), gauge(value)));
            }
            Values::CounterBy(label, get) => {
                let shown = get(rank).into_iter().filter(|(_, _, since)| version >= *since);
                shown.for_each(|(series, value, _)| page.sample(name, &with(label, series), value));
            }
            Values::Histogram(get) => page.histogram(name, &labels, get(rank)),
        }
    });
    created(page, sim, family);
}

/// When each series of a counter or histogram began, as its own family.
fn created(page: &mut Page, sim: &Sim, family: &Family) {
    let base = match &family.values {
        Values::Gauge(_) | Values::GaugeBy(..) => return,
        Values::Counter(_) | Values::CounterBy(..) => family.name.trim_end_matches("_total"),
        Values::Histogram(_) => family.name,
    };
    let (name, model, began) = (format!("{base}_created"), sim.options.shown_name(), sim.clock.started_unix_s());
    page.family(&name, "gauge", family.help);
    each_rank(sim, |engine, rank| {
        let labels = [("engine", engine), ("model_name", model)];
        if let Values::CounterBy(label, get) = &family.values {
            for (series, _, _) in get(rank).into_iter().filter(|(_, _, since)| sim.options.version >= *since) {
                page.sample(&name, &[labels[0], labels[1], (label, series)], began);
            }
        } else {
            page.sample(&name, &labels, began);
        }
    });
}

fn rejections(page: &mut Page, sim: &Sim) {
    if sim.options.version < Version(0, 32, 0) {
        return;
    }
    let help = "Number of admission attempts rejected by a queue limit, by reason.";
    let (model, rejected) = (sim.options.shown_name(), sim.web.counts().rejected_for_queue as f64);
    let reasons = [("max_num_queued_reqs", rejected), ("max_num_queued_tokens", 0.0)];
    page.family("vllm:admission_rejections_total", "counter", help);
    for (reason, value) in reasons {
        page.sample("vllm:admission_rejections_total", &[("model_name", model), ("reason", reason)], value);
    }
    page.family("vllm:admission_rejections_created", "gauge", help);
    for (reason, _) in reasons {
        let labels = [("model_name", model), ("reason", reason)];
        page.sample("vllm:admission_rejections_created", &labels, sim.clock.started_unix_s());
    }
}

/// One series per combination ever reported; its value is when that was last true. Ranks share the page's series.
fn adapters(page: &mut Page, sim: &Sim) {
    if !sim.adapters.enabled() {
        return;
    }
    let name = "vllm:lora_requests_info";
    let slots = sim.options.profile.max_loras.to_string();
    page.family(name, "gauge", "Running stats on lora requests.");
    let mut series: Vec<([String; 2], f64)> = Vec::new();
    each_rank(sim, |_, rank| {
        for (report, unix_s) in &rank.adapter_reports.series {
            let lists = [&report.running, &report.waiting].map(|ids| sim.adapters.names(ids));
            match series.iter_mut().find(|(known, _)| *known == lists) {
                Some((_, latest)) => *latest = latest.max(*unix_s),
                None => series.push((lists, *unix_s)),
            }
        }
    });
    for ([running, waiting], unix_s) in &series {
        let labels =
            [("max_lora", slots.as_str()), ("running_lora_adapters", running), ("waiting_lora_adapters", waiting)];
        page.sample(name, &labels, *unix_s);
    }
}

fn cache_config(page: &mut Page, sim: &Sim) {
    let profile = &sim.options.profile;
    let ranks = sim.options.ranks.max(1) as u32;
    let block = profile.block_tokens.to_string();
    // The number of blocks is the sum over ranks, repeated on each rank's series.
    let blocks = (profile.kv_blocks * ranks).to_string();
    let tokens = (profile.kv_blocks * profile.block_tokens).to_string();
    let concurrency = profile.context_tokens_max().max(1);
    let concurrency = format!("{:?}", f64::from(profile.kv_blocks * profile.block_tokens) / f64::from(concurrency));
    let own: [(&str, &str); 6] = [
        ("block_size", &block),
        ("effective_attention_block_size", &block),
        ("gpu_memory_utilization", if sim.options.version >= Version(0, 20, 0) { "0.92" } else { "0.9" }),
        ("kv_cache_max_concurrency", &concurrency),
        ("kv_cache_size_tokens", &tokens),
        ("num_gpu_blocks", &blocks),
    ];
    page.family("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");
    each_rank(sim, |engine, _| {
        let labels: Vec<(&str, &str)> = CACHE_CONFIG.iter().copied().chain(own).chain([("engine", engine)]).collect();
        page.sample("vllm:cache_config_info", &labels, 1.0);
    });
}

/// Fields of the cache configuration that are the same on every simulated server.
const CACHE_CONFIG: &[(&str, &str)] = &[
    ("_block_size_resolved", "True"),
    ("cache_dtype", "auto"),
    ("cache_hit_alignment_tokens", "None"),
    ("enable_mamba_shared_prefix_checkpoint", "False"),
    ("enable_prefix_caching", "True"),
    ("hash_block_size", "None"),
    ("is_attention_free", "False"),
    ("kv_cache_dtype_skip_layers", "[]"),
    ("kv_cache_layout", "None"),
    ("kv_cache_memory_bytes", "None"),
    ("kv_offloading_backend", "native"),
    ("kv_offloading_size", "None"),
    ("kv_sharing_fast_prefill", "False"),
    ("mamba_block_size", "None"),
    ("mamba_cache_dtype", "auto"),
    ("mamba_cache_mode", "none"),
    ("mamba_page_size_padded", "None"),
    ("mamba_ssm_cache_dtype", "float32"),
    ("num_cpu_blocks", "None"),
    ("num_gpu_blocks_override", "None"),
    ("prefix_cache_retention_interval", "0"),
    ("prefix_caching_hash_algo", "sha256"),
    ("prefix_match_unit", "None"),
    ("replayssm_buffer_len", "16"),
    ("skip_page_size_padded", "None"),
    ("sliding_window", "None"),
    ("swa_bounded_replay", "True"),
    ("use_kda_recoverssm", "False"),
    ("use_replayssm", "False"),
    ("user_specified_block_size", "False"),
];

impl Family {
    fn kind(&self) -> &'static str {
        match self.values {
            Values::Gauge(_) | Values::GaugeBy(..) => "gauge",
            Values::Counter(_) | Values::CounterBy(..) => "counter",
            Values::Histogram(_) => "histogram",
        }
    }
}

fn each_rank(sim: &Sim, mut write: impl FnMut(&str, &Rank)) {
    sim.driver.for_each_rank(|index, rank| write(&index.to_string(), rank));
}
