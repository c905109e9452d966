//! From what a configuration says of a pool to what its dispatcher runs on.

use std::time::Duration;

use api::{Config, EngineType, Scheduler};
use dispatch::{FlowControl, Full, HasPage, Settings, Weights};
use flow_control::{BandSettings, Fairness, Ordering};

/// Health is asked for once a second, so a passed check stands at least this long, however soon a page would be stale:
/// else an endpoint would be left out between any two checks.
const HEALTH_STANDS_FOR_MIN: Duration = Duration::from_secs(2);

/// Memory for the prefix indexes of all pools together, in bytes; a pool takes what it uses of its share.
const PREFIX_BYTES_MAX: usize = 256 << 20;
/// A pool's share at most, in bytes: the history of 17 endpoints of the usual size.
const PREFIX_BYTES_PER_POOL_MAX: usize = 32 << 20;

pub(super) fn of_scheduler(scheduler: &Scheduler, config: &Config) -> Settings {
    let weights = scheduler.weights;
    let stale_after = config.signals.stale_after;
    let (has_page, stale_after) = match scheduler.engine {
        EngineType::None => (HasPage::No, stale_after.max(HEALTH_STANDS_FOR_MIN)),
        EngineType::Vllm
        | EngineType::Sglang
        | EngineType::Tgi
        | EngineType::Trtllm
        | EngineType::Triton
        | EngineType::Llamacpp
        | EngineType::Auto => (HasPage::Yes, stale_after),
    };
    let weights = Weights {
        queue: weights.queue,
        kv_cache: weights.kv_cache,
        prefix: weights.prefix,
        lora_affinity: weights.lora_affinity,
        running_requests: weights.running_requests,
        lru: weights.lru,
        predicted_latency: weights.predicted_latency,
    };
    Settings { weights, stale_after, has_page, ..of_pool(&scheduler.flow_control, config) }
}

/// The default backend is no scheduler's: nothing is known of its engine.
pub(super) fn of_default_backend(config: &Config) -> Settings {
    Settings {
        stale_after: config.signals.stale_after.max(HEALTH_STANDS_FOR_MIN),
        has_page: HasPage::No,
        ..of_pool(&config.flow_control, config)
    }
}

fn of_pool(flow_control: &api::FlowControl, config: &Config) -> Settings {
    let full = flow_control.endpoint_full;
    Settings {
        full: Full { waiting: full.waiting, kv_cache: full.kv_cache },
        max_in_flight_per_endpoint: flow_control.max_in_flight_per_endpoint,
        prefix_budget_bytes: prefix_share_bytes(config),
        flow_control: if flow_control.enabled { FlowControl::On } else { FlowControl::Off },
        flow: flow(flow_control),
        eviction: match flow_control.eviction {
            api::Eviction::Never => dispatch::Eviction::Never,
            api::Eviction::BeforeFirstByte => dispatch::Eviction::BeforeFirstByte,
        },
        ..Settings::default()
    }
}

fn flow(flow_control: &api::FlowControl) -> flow_control::Settings {
    let api::Bands { critical, standard, sheddable } = flow_control.bands;
    let band = |band: api::Band| BandSettings {
        max_saturation: band.max_saturation,
        max_wait: band.max_wait,
        queued_requests_max: band.max_queued_requests,
        queued_bytes_max: band.max_queued_bytes,
    };
    flow_control::Settings {
        bands: [critical, standard, sheddable].map(band),
        fairness: match flow_control.fairness {
            api::Fairness::RoundRobin => Fairness::RoundRobin,
            api::Fairness::LeastAttainedService => Fairness::LeastAttainedService,
        },
        ordering: match flow_control.ordering {
            api::Ordering::Fcfs => Ordering::Fcfs,
            api::Ordering::Deadline => Ordering::Deadline,
        },
    }
}

fn prefix_share_bytes(config: &Config) -> usize {
    let pools = config.schedulers.len() + usize::from(config.bbr.default_backend.is_some());
    (PREFIX_BYTES_MAX / pools.max(1)).min(PREFIX_BYTES_PER_POOL_MAX)
}
