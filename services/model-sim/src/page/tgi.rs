//! TGI's page, as metrics-rs writes it: no labels but a method, whole numbers without a point, and no family before its
//! first use. Only the size of the cache is there from the start.

use engine::Histogram;

use super::Show;
use crate::{driver::Rank, sim::Sim};

pub(super) fn render(sim: &Sim, show: Show) -> String {
    let mut page = String::new();
    if show == Show::NoEngine {
        return page;
    }
    let profile = &sim.options.profile;
    let capacity = f64::from(profile.usable_blocks()) * f64::from(profile.block_tokens);
    sample(&mut page, "tgi_batch_max_total_tokens", "gauge", capacity);
    sim.driver.for_each_rank(|index, rank| {
        if index == 0 && used(rank) {
            write(&mut page, rank, show, f64::from(profile.block_tokens));
        }
    });
    let rejected = sim.web.counts().rejected_for_queue;
    if rejected > 0 {
        page.push_str("# TYPE tgi_request_failure counter\n");
        page.push_str(&format!("tgi_request_failure{{err=\"overloaded\"}} {rejected}\n\n"));
    }
    page
}

fn used(rank: &Rank) -> bool {
    let counters = &rank.engine.stats().counters;
    rank.engine.live() > 0 || counters.finished() > 0
}

fn write(page: &mut String, rank: &Rank, show: Show, block_tokens: f64) {
    let (gauges, counters) = (&rank.engine.stats().gauges, &rank.engine.stats().counters);
    let gauge = |value: f64| if show == Show::NanGauges { f64::NAN } else { value };
    sample(page, "tgi_queue_size", "gauge", gauge(f64::from(gauges.waiting)));
    sample(page, "tgi_batch_current_size", "gauge", gauge(f64::from(gauges.running)));
    let held = f64::from(gauges.kv_blocks_used) * block_tokens;
    sample(page, "tgi_batch_current_max_tokens", "gauge", gauge(held));
    let served = counters.finished_stop + counters.finished_length;
    sample(page, "tgi_request_count", "counter", (counters.finished() as usize + rank.engine.live()) as f64);
    if served > 0 {
        sample(page, "tgi_request_success", "counter", served as f64);
    }
    let latencies = &rank.latencies;
    for (name, observed) in [
        ("tgi_request_duration", &latencies.e2e),
        ("tgi_request_queue_duration", &latencies.queue),
        ("tgi_request_inference_duration", &latencies.inference),
        ("tgi_request_mean_time_per_token_duration", &latencies.per_token),
        ("tgi_request_input_length", &latencies.prompt_tokens),
        ("tgi_request_generated_tokens", &latencies.generated_tokens),
        ("tgi_request_max_new_tokens", &latencies.tokens_max),
    ] {
        if observed.count() > 0 {
            histogram(page, name, observed);
        }
    }
}

fn sample(page: &mut String, name: &str, kind: &str, value: f64) {
    page.push_str(&format!("# TYPE {name} {kind}\n{name} {value}\n\n"));
}

fn histogram(page: &mut String, name: &str, histogram: &Histogram) {
    page.push_str(&format!("# TYPE {name} histogram\n"));
    for (bound, count) in histogram.cumulative() {
        page.push_str(&format!("{name}_bucket{{le=\"{bound}\"}} {count}\n"));
    }
    page.push_str(&format!("{name}_bucket{{le=\"+Inf\"}} {}\n", histogram.count()));
    page.push_str(&format!("{name}_sum {}\n{name}_count {}\n\n", histogram.sum(), histogram.count()));
}
