use proptest::prelude::*;

use super::*;
use crate::{Prediction, Residency, name_hash};

fn idle(slot: u32) -> Candidate {
    Candidate {
        slot,
        name_hash: name_hash(&slot.to_string()),
        waiting: 0.0,
        answered_since: 0,
        uncached_tokens: 0,
        running: 0.0,
        kv_cache: 0.0,
        matched_blocks: 0,
        residency: Residency::Absent,
        last_picked: 0,
        predicted: Prediction { ttft_s: 0.05, confidence: 1.0, usual_error: 0.1 },
    }
}

fn ask(blocks: u32, model: Model) -> Ask {
    Ask { blocks, head: None, model, tie: 0 }
}

fn rated(candidates: &[Candidate], ask: &Ask, weights: Weights) -> Vec<Scores> {
    let mut sorted = Vec::new();
    ages(candidates, &mut sorted);
    let field = Field::over(candidates);
    candidates.iter().map(|c| field.rate(c, ask, weights, &sorted)).collect()
}

fn score_of(scorer: Scorer, candidates: &[Candidate], ask: &Ask) -> Vec<f64> {
    let at = Scorer::ALL.iter().position(|&s| s == scorer).unwrap();
    rated(candidates, ask, Weights::default()).iter().map(|s| s[at].score).collect()
}

fn total(scores: &Scores) -> f64 {
    scores.iter().map(|s| f64::from(s.weight) * s.score).sum()
}

#[test]
fn places_in_scores_follow_the_list_of_scorers() {
    let weights = Weights {
        queue: 1,
        kv_cache: 2,
        prefix: 3,
        lora_affinity: 4,
        running_requests: 5,
        lru: 6,
        predicted_latency: 7,
    };
    let scores = rated(&[idle(0)], &ask(1, Model::Adapter), weights)[0];
    assert_eq!(scores.map(|s| s.weight), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn one_waiting_request_decides_between_equals_and_never_outweighs_a_full_match() {
    let busy_and_warm = Candidate { waiting: 1.0, matched_blocks: 10, ..idle(0) };
    let cold = idle(1);
    let scores = rated(&[busy_and_warm, cold], &ask(10, Model::Base), Weights::default());
    assert!(total(&scores[0]) > total(&scores[1]) + 2.0);
    let scores =
        rated(&[Candidate { matched_blocks: 0, ..busy_and_warm }, cold], &ask(10, Model::Base), Weights::default());
    assert!(total(&scores[0]) < total(&scores[1]) - 0.1);
}

#[test]
fn the_queue_counts_uncached_tokens_in_prefill_steps() {
    let long_prompt = Candidate { uncached_tokens: 100_000, ..idle(0) };
    let three_waiting = Candidate { waiting: 3.0, ..idle(1) };
    let scores = score_of(Scorer::Queue, &[long_prompt, three_waiting, idle(2)], &ask(0, Model::Base));
    assert_eq!(scores[0], 0.0, "49 steps lie beyond the span");
    assert_eq!(scores[1], 1.0 - 3.0 / QUEUE_SPAN);
    assert_eq!(scores[2], 1.0);
}

#[test]
fn e03_the_prefix_rating_fades_between_12_and_16_waiting_above_the_least_loaded() {
    for (beyond, expected) in [(0.0, 0.5), (12.0, 0.5), (13.0, 0.375), (14.0, 0.25), (16.0, 0.0), (90.0, 0.0)] {
        for least in [0.0, 7.0] {
            let warm = Candidate { waiting: least + beyond, matched_blocks: 5, ..idle(0) };
            let other = Candidate { waiting: least, ..idle(1) };
            let scores = score_of(Scorer::Prefix, &[warm, other], &ask(10, Model::Base));
            assert_eq!(scores, [expected, 0.0], "{beyond} beyond {least}");
        }
    }
}

#[test]
fn kv_cache_and_running_requests() {
    let scores = score_of(Scorer::KvCache, &[Candidate { kv_cache: 0.25, ..idle(0) }], &ask(0, Model::Base));
    assert_eq!(scores, [0.75]);
    let running = |running| Candidate { running, ..idle(0) };
    let scores = score_of(Scorer::RunningRequests, &[running(0.0), running(4.0)], &ask(0, Model::Base));
    assert_eq!(scores, [1.0, 0.75], "small differences are not blown up");
    let scores = score_of(Scorer::RunningRequests, &[running(100.0), running(200.0)], &ask(0, Model::Base));
    assert_eq!(scores, [1.0, 0.5]);
}

#[test]
fn lora_affinity_counts_for_adapters_only_and_keeps_its_classes_apart() {
    let of = |residency| Candidate { residency, ..idle(0) };
    let classes = [
        of(Residency::Loaded),
        of(Residency::Room { free_share: 1.0 }),
        of(Residency::Room { free_share: 0.25 }),
        of(Residency::Queued),
        of(Residency::Absent),
    ];
    let scores = score_of(Scorer::LoraAffinity, &classes, &ask(0, Model::Adapter));
    assert_eq!(scores, [1.0, 0.8, 0.65, 0.6, 0.0]);
    let base = rated(&classes, &ask(0, Model::Base), Weights::default());
    assert!(base.iter().all(|s| total(s) == total(&base[0])), "a request for the base model does not care");
}

#[test]
fn lru_ranks_cold_prompts_and_is_silent_about_warm_ones() {
    let picked = |last_picked| Candidate { last_picked, ..idle(0) };
    let cold = [picked(9), picked(0), picked(0), picked(4), picked(7)];
    assert_eq!(score_of(Scorer::Lru, &cold, &ask(3, Model::Base)), [0.0, 1.0, 1.0, 0.5, 0.25]);
    let mut warm = cold;
    warm[0].matched_blocks = 1;
    assert_eq!(score_of(Scorer::Lru, &warm, &ask(3, Model::Base)), [0.5; 5]);
    assert_eq!(score_of(Scorer::Lru, &cold[..1], &ask(3, Model::Base)), [1.0]);
}

fn any_candidate() -> impl Strategy<Value = Candidate> {
    let load = prop_oneof![Just(0.0), 0.0..50.0, 0.0..1e12];
    let residency = prop_oneof![
        Just(Residency::Loaded),
        (0.0..=1.0).prop_map(|free_share| Residency::Room { free_share }),
        Just(Residency::Queued),
        Just(Residency::Absent),
    ];
    let counts = (any::<u32>(), any::<u64>(), any::<u32>(), any::<u64>());
    let predicted = (0.000_5..=3_600.0, 0.0..=1.0, 0.0..10.0)
        .prop_map(|(ttft_s, confidence, usual_error)| Prediction { ttft_s, confidence, usual_error });
    let loads = (load.clone(), load, 0.0..=1.0);
    (loads, residency, counts, predicted).prop_map(|((waiting, running, kv_cache), residency, counts, predicted)| {
        let (answered_since, uncached_tokens, matched_blocks, last_picked) = counts;
        Candidate {
            waiting,
            running,
            kv_cache,
            residency,
            answered_since,
            uncached_tokens,
            matched_blocks,
            last_picked,
            predicted,
            ..idle(0)
        }
    })
}

proptest! {
    #[test]
    fn scores_are_from_0_to_1(
        candidates in prop::collection::vec(any_candidate(), 1..20),
        blocks in any::<u32>(),
        adapter in any::<bool>(),
    ) {
        let model = if adapter { Model::Adapter } else { Model::Base };
        for scores in rated(&candidates, &ask(blocks, model), Weights::default()) {
            for score in scores {
                prop_assert!((0.0..=1.0).contains(&score.score), "{score:?}");
                prop_assert!(score.raw.is_finite());
            }
        }
    }

    #[test]
    fn the_emptiest_queue_and_cache_have_the_best_score(candidates in prop::collection::vec(any_candidate(), 1..20)) {
        let least = candidates.iter().map(|c| c.kv_cache).fold(f64::INFINITY, f64::min);
        let kv = score_of(Scorer::KvCache, &candidates, &ask(1, Model::Base));
        for (candidate, score) in candidates.iter().zip(&kv) {
            prop_assert!(*score <= 1.0 - least);
            prop_assert_eq!(candidate.kv_cache == least, *score == 1.0 - least);
        }
        let queue = score_of(Scorer::Queue, &candidates, &ask(1, Model::Base));
        prop_assert!(queue.contains(&1.0));
    }
}
