//! Flow control as it is merged, the rule across bands, and objectives.

use std::{num::NonZeroU32, time::Duration};

use super::{ENDPOINT, MINIMAL, config, load_texts, violations, with_spec};
use crate::{Eviction, Fairness, Loaded, Objective, Ordering};

fn objective(api_group: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: {api_group}/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

const GROUP: &str = "llm-d.ai";
const OLDER_GROUP: &str = "inference.networking.x-k8s.io";

/// What is loaded of the minimal configuration and these documents.
fn loaded(documents: &[String]) -> Loaded {
    let text = format!("{MINIMAL}{ENDPOINT}{}", documents.concat());
    load_texts(&[&text]).unwrap_or_else(|violations| panic!("{violations}"))
}

#[test]
fn a_schedulers_flow_control_goes_over_the_shared_one_field_by_field() {
    let shared = "\
flowControl:
  maxInFlightPerEndpoint: 32
  fairness: leastAttainedService
  eviction: beforeFirstByte
  bands: {standard: {maxWait: 3s, maxQueuedBytes: 1Mi}, sheddable: {maxSaturation: 0.5}}";
    let own = "    flowControl: {enabled: false, ordering: deadline, bands: {standard: {maxWait: 0s}}}\n";
    let text = with_spec(shared).replace("  flowControl:\n", &format!("{own}  flowControl:\n"));
    let config = config(&text);
    let (shared, own) = (config.flow_control, config.schedulers[0].flow_control);
    assert_eq!((shared.enabled, own.enabled), (true, false));
    assert_eq!((shared.ordering, own.ordering), (Ordering::Fcfs, Ordering::Deadline));
    for flow_control in [shared, own] {
        assert_eq!(flow_control.max_in_flight_per_endpoint, NonZeroU32::new(32));
        assert_eq!(flow_control.fairness, Fairness::LeastAttainedService);
        assert_eq!(flow_control.eviction, Eviction::BeforeFirstByte);
        assert_eq!(flow_control.bands.standard.max_queued_bytes, 1 << 20);
        assert!((flow_control.bands.sheddable.max_saturation - 0.5).abs() < f64::EPSILON);
    }
    assert_eq!(shared.bands.standard.max_wait, Duration::from_secs(3));
    assert_eq!(own.bands.standard.max_wait, Duration::ZERO);
}

#[test]
fn a_lower_band_never_gets_more_of_a_pool() {
    let shared = "flowControl: {bands: {standard: {maxSaturation: 0.7}, sheddable: {maxSaturation: 0.6}}}";
    let with_own = |own: &str| {
        with_spec(shared).replace("  flowControl:", &format!("    flowControl: {{bands: {own}}}\n  flowControl:"))
    };
    // Right alone, and wrong with what is shared; or the other way round.
    assert_eq!(
        violations(&with_own("{sheddable: {maxSaturation: 0.8}}")),
        [
            "0.yaml:10: spec.schedulers[0].flowControl.bands.sheddable.maxSaturation: maxSaturation of sheddable (0.8) must \
             not be more than that of standard (0.7): the lower band would be served while the higher one waits"
        ]
    );
    assert_eq!(violations(&with_own("{standard: {maxSaturation: 0.5}}")).len(), 1);
    config(&with_own("{critical: {maxSaturation: 0.7}}"));
    // Against a default.
    let alone = with_spec("flowControl: {bands: {standard: {maxSaturation: 0.7}}}");
    assert!(violations(&alone)[0].contains("standard.maxSaturation: maxSaturation of sheddable (0.8)"));
    // Said once where it stands, not again for every scheduler that says nothing of its own.
    let both = with_spec("flowControl: {bands: {critical: {maxSaturation: 0.5}}}");
    assert_eq!(violations(&both).len(), 1);
    config(&with_spec("flowControl: {bands: {critical: {maxSaturation: 0.8}, standard: {maxSaturation: 0.8}}}"));
}

#[test]
fn objectives_of_both_groups_are_read() {
    let found = loaded(&[
        objective(GROUP, "gold", "{priority: 10, poolRef: {name: llama}}"),
        objective(OLDER_GROUP, "free", "{priority: -1, poolRef: {group: inference.networking.x-k8s.io, name: llama}}"),
        objective(GROUP, "plain", "{poolRef: {kind: InferencePool, name: llama}}"),
    ]);
    let of = |name: &str, priority| Objective { name: name.into(), pool: "llama".into(), priority };
    assert_eq!(found.config.objectives, [of("free", -1), of("gold", 10), of("plain", 0)]);
    assert_eq!(found.notices, Vec::<String>::new());
}

/// A cluster applies an objective whose pool it does not know; it just has no effect.
#[test]
fn an_objective_of_another_pool_is_left_out_and_said() {
    let found = loaded(&[
        objective(GROUP, "gold", "{priority: 10, poolRef: {name: lama}}"),
        objective(GROUP, "other", "{priority: 10, poolRef: {kind: Service, name: llama}}"),
    ]);
    assert_eq!(found.config.objectives, []);
    assert_eq!(
        found.notices,
        [
            "0.yaml:19: spec.poolRef.name: not used: no scheduler is called \"lama\"; did you mean `llama`?",
            "0.yaml:24: spec.poolRef: not used: it is for no InferencePool",
        ]
    );
}

#[test]
fn of_two_objectives_of_one_name_the_newer_groups_counts_and_in_one_group_there_cannot_be_two() {
    let older = objective(OLDER_GROUP, "gold", "{priority: -5, poolRef: {name: llama}}");
    let newer = objective(GROUP, "gold", "{priority: 10, poolRef: {name: llama}}");
    for documents in [[older.clone(), newer.clone()], [newer.clone(), older]] {
        let found = loaded(&documents);
        assert_eq!(found.config.objectives, [Objective { name: "gold".into(), pool: "llama".into(), priority: 10 }]);
        assert_eq!(found.notices.len(), 1, "{:?}", found.notices);
        assert!(found.notices[0].contains("not used"), "{:?}", found.notices);
    }
    let text = format!("{MINIMAL}{newer}{newer}");
    assert_eq!(violations(&text), ["0.yaml:18: metadata.name: another InferenceObjective has this name, in 0.yaml:11"]);
}
