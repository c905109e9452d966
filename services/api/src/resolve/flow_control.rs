//! Flow control of a pool, and the objectives of its requests.

use std::{collections::BTreeMap, num::NonZeroU32};

use serde_json::Value as Json;

use super::{read, typed};
use crate::{
    Band, Bands, EndpointFull, Eviction, Fairness, FlowControl, Objective, Ordering, Scheduler,
    document::{self, InferenceObjective, Kind, PoolRef},
    load::Item,
    place::Findings,
};

/// `spec.flowControl`, and over it what a scheduler says, field by field.
pub(super) fn merged(
    shared: Option<&Json>,
    own: Option<Json>,
    item: &Item<'_>,
    findings: &mut Findings,
) -> Option<FlowControl> {
    let mut written = shared.cloned().unwrap_or_else(|| Json::Object(serde_json::Map::new()));
    if let Some(own) = own {
        merge(&mut written, own);
    }
    read(written, item, findings).map(flow_control)
}

/// Objectives of pools that there are, each once.
pub(super) fn objectives(
    items: &[Item<'_>],
    schedulers: &[Scheduler],
    findings: &mut Findings,
) -> Option<Vec<Objective>> {
    let mut named = BTreeMap::new();
    // Where both API groups have one of this name for this pool, the one of the group to write first counts.
    let versions = Kind::InferenceObjective.api_versions();
    for version in versions.iter().rev() {
        for item in items.iter().filter(|item| item.kind == Kind::InferenceObjective) {
            let document: InferenceObjective = typed(item, findings)?;
            let PoolRef { group, kind, name: pool } = document.spec.pool_ref;
            let is_ours = PoolRef::is_inference_pool(Some(&group), Some(&kind))
                && schedulers.iter().any(|scheduler| scheduler.name == pool);
            if document.api_version == *version && is_ours {
                named.insert((pool, document.metadata.name), document.spec.priority);
            }
        }
    }
    Some(named.into_iter().map(|((pool, name), priority)| Objective { name, pool, priority }).collect())
}

fn merge(shared: &mut Json, own: Json) {
    match (shared, own) {
        (Json::Object(shared), Json::Object(own)) => {
            for (key, value) in own {
                merge(shared.entry(key).or_insert(Json::Null), value);
            }
        }
        (shared, own) => *shared = own,
    }
}

fn flow_control(spec: document::FlowControl) -> FlowControl {
    // The bands have the same fields and different defaults, so each is a struct of its own.
    macro_rules! band {
        ($band:expr) => {
            Band {
                max_saturation: $band.max_saturation,
                max_wait: $band.max_wait.0,
                max_queued_requests: $band.max_queued_requests,
                max_queued_bytes: $band.max_queued_bytes.0,
            }
        };
    }
    FlowControl {
        enabled: spec.enabled,
        endpoint_full: EndpointFull { waiting: spec.endpoint_full.waiting, kv_cache: spec.endpoint_full.kv_cache },
        max_in_flight_per_endpoint: NonZeroU32::new(spec.max_in_flight_per_endpoint),
        bands: Bands {
            critical: band!(spec.bands.critical),
            standard: band!(spec.bands.standard),
            sheddable: band!(spec.bands.sheddable),
        },
        fairness: match spec.fairness {
            document::Fairness::RoundRobin => Fairness::RoundRobin,
            document::Fairness::LeastAttainedService => Fairness::LeastAttainedService,
        },
        ordering: match spec.ordering {
            document::Ordering::Fcfs => Ordering::Fcfs,
            document::Ordering::Deadline => Ordering::Deadline,
        },
        eviction: match spec.eviction {
            document::Eviction::Never => Eviction::Never,
            document::Eviction::BeforeFirstByte => Eviction::BeforeFirstByte,
        },
    }
}
