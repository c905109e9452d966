//! The settings that a scenario may change, and how they become the product's.

use std::{num::NonZeroU32, time::Duration};

use dispatch::{Eviction, Settings};
use flow_control::{BandSettings, Fairness, Ordering};
use serde::Deserialize;

/// What is not named stays as it was.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Knobs {
    fairness: Option<Sharing>,
    ordering: Option<Order>,
    eviction: Option<Evicts>,
    full_waiting: Option<u32>,
    full_kv_cache: Option<f64>,
    in_flight_max: Option<NonZeroU32>,
    #[serde(default)]
    critical: Band,
    #[serde(default)]
    standard: Band,
    #[serde(default)]
    sheddable: Band,
}

/// As `flowControl.bands` of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Band {
    max_saturation: Option<f64>,
    max_wait_s: Option<f64>,
    queued_requests_max: Option<u32>,
    queued_bytes_max: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sharing {
    RoundRobin,
    LeastAttainedService,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Evicts {
    Never,
    BeforeFirstByte,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Fcfs,
    Deadline,
}

impl Knobs {
    pub fn apply(&self, settings: &mut Settings) {
        let flow = &mut settings.flow;
        if let Some(fairness) = self.fairness {
            flow.fairness = match fairness {
                Sharing::RoundRobin => Fairness::RoundRobin,
                Sharing::LeastAttainedService => Fairness::LeastAttainedService,
            };
        }
        if let Some(ordering) = self.ordering {
            flow.ordering = match ordering {
                Order::Fcfs => Ordering::Fcfs,
                Order::Deadline => Ordering::Deadline,
            };
        }
        for (knobs, band) in [&self.critical, &self.standard, &self.sheddable].into_iter().zip(&mut flow.bands) {
            knobs.apply(band);
        }
        if let Some(eviction) = self.eviction {
            settings.eviction = match eviction {
                Evicts::Never => Eviction::Never,
                Evicts::BeforeFirstByte => Eviction::BeforeFirstByte,
            };
        }
        settings.full.waiting = self.full_waiting.unwrap_or(settings.full.waiting);
        settings.full.kv_cache = self.full_kv_cache.unwrap_or(settings.full.kv_cache);
        settings.max_in_flight_per_endpoint = self.in_flight_max.or(settings.max_in_flight_per_endpoint);
    }
}

impl Band {
    fn apply(&self, band: &mut BandSettings) {
        band.max_saturation = self.max_saturation.unwrap_or(band.max_saturation);
        band.max_wait = self.max_wait_s.map_or(band.max_wait, Duration::from_secs_f64);
        band.queued_requests_max = self.queued_requests_max.unwrap_or(band.queued_requests_max);
        band.queued_bytes_max = self.queued_bytes_max.unwrap_or(band.queued_bytes_max);
    }
}
