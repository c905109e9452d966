use proptest::prelude::*;

use super::*;
use crate::{Ask, Model, Prediction, Profile, Residency, Weights, name_hash};

fn candidates(last_picked: &[u64]) -> Vec<Candidate> {
    let candidate = |(slot, &last_picked): (usize, &u64)| Candidate {
        slot: slot as u32,
        name_hash: name_hash(&format!("llama-{slot}")),
        waiting: 0.0,
        answered_since: 0,
        uncached_tokens: 0,
        running: 0.0,
        kv_cache: 0.0,
        matched_blocks: 0,
        residency: Residency::Absent,
        last_picked,
        predicted: Prediction { ttft_s: 0.05, confidence: 0.0, usual_error: 1.0 },
    };
    last_picked.iter().enumerate().map(candidate).collect()
}

fn places(totals: &[f64], last_picked: &[u64], key: Option<u64>) -> Vec<Place> {
    let candidates = candidates(last_picked);
    totals.iter().zip(&candidates).enumerate().map(|(at, (&total, c))| Place::new(at, total, c, key, 1)).collect()
}

fn ordered(totals: &[f64], last_picked: &[u64], prefix: &[u64]) -> (Won, Vec<usize>) {
    let key = Ask::new(prefix, Model::Base, 0).head;
    let mut places = places(totals, last_picked, key);
    let won = order(&mut places, key, totals.len()).unwrap();
    (won, places.iter().map(Place::candidate).collect())
}

#[test]
fn the_highest_total_wins_whatever_the_tie_breaks_say() {
    assert_eq!(ordered(&[1.0, 3.0, 2.0], &[0, 9, 1], &[]), (Won::HighestScore, vec![1, 2, 0]));
    assert_eq!(ordered(&[1.0], &[0], &[7]).0, Won::OnlyCandidate);
}

#[test]
fn without_a_prefix_ties_go_to_whoever_was_chosen_longest_ago() {
    let totals = [5.0, 5.0 + 1e-12, 5.0 - 1e-12, 4.0];
    assert_eq!(ordered(&totals, &[8, 6, 7, 0], &[]), (Won::TieByLeastRecent, vec![1, 2, 0, 3]));
}

#[test]
fn with_a_prefix_every_gateway_breaks_ties_alike() {
    let (won, first) = ordered(&[5.0; 4], &[1, 2, 3, 4], &[11, 22]);
    assert_eq!(won, Won::TieByPrefix);
    assert_eq!(
        ordered(&[5.0; 4], &[9, 8, 1, 7], &[11, 22]).1,
        first,
        "what one gateway did before makes no difference"
    );
    let winners: std::collections::BTreeSet<_> = (0..40).map(|p| ordered(&[5.0; 4], &[0; 4], &[p]).1[0]).collect();
    assert_eq!(winners.len(), 4, "and different prompts go to different endpoints");
}

#[test]
fn prompts_with_the_same_first_blocks_stay_together() {
    let mut one = vec![1, 2, 3, 4];
    let winner = ordered(&[5.0; 4], &[0; 4], &one).1[0];
    one.extend([5, 6, 7]);
    assert_eq!(ordered(&[5.0; 4], &[0; 4], &one).1[0], winner);
}

#[test]
fn with_prefix_weight_0_a_prefix_breaks_no_ties() {
    let mut profile = Profile::new(Weights { prefix: 0, ..Weights::default() });
    let candidates = candidates(&[3, 1, 2]);
    let ask = Ask::new(&[9; 8], Model::Base, 0);
    let (won, mut ranked) = profile.rank(&ask, &candidates, 3).unwrap();
    assert_eq!((won, ranked.next().unwrap().candidate), (Won::TieByLeastRecent, 1));
}

#[test]
fn what_the_scorers_said_adds_up_to_the_total() {
    let weights = Weights {
        queue: 2,
        kv_cache: 3,
        prefix: 5,
        lora_affinity: 7,
        running_requests: 11,
        lru: 13,
        predicted_latency: 17,
    };
    let mut candidates = candidates(&[3, 1, 2]);
    candidates[1].waiting = 3.0;
    candidates[2].kv_cache = 0.3;
    for model in [Model::Base, Model::Adapter] {
        let mut profile = Profile::new(weights);
        let ask = Ask::new(&[9; 8], model, 0);
        let (_, ranked) = profile.rank(&ask, &candidates, 2).unwrap();
        assert_eq!(ranked.len(), 2);
        for ranked in ranked {
            let sum: f64 = ranked.scores.iter().map(|s| f64::from(s.weight) * s.score).sum();
            assert!((sum - ranked.total).abs() < 1e-12);
        }
    }
}

#[test]
fn no_candidates_no_ranking() {
    assert!(Profile::new(Weights::default()).rank(&Ask::new(&[], Model::Base, 0), &[], 4).is_none());
}

proptest! {
    #[test]
    fn the_first_few_are_the_same_as_in_a_full_sort(
        totals in prop::collection::vec(prop_oneof![Just(1.0), 0.0..7.0], 1..40),
        keep in 1usize..50,
        prefix in prop::collection::vec(any::<u64>(), 0..3),
    ) {
        let last_picked: Vec<_> = (0..totals.len() as u64).map(|i| i % 3).collect();
        let key = Ask::new(&prefix, Model::Base, 0).head;
        let (mut few, mut full) = (places(&totals, &last_picked, key), places(&totals, &last_picked, key));
        order(&mut few, key, keep);
        order(&mut full, key, totals.len());
        let listed = |places: &[Place]| places.iter().take(keep).map(Place::candidate).collect::<Vec<_>>();
        prop_assert_eq!(listed(&few), listed(&full));
        prop_assert!(full.windows(2).all(|w| w[0].total() >= w[1].total() - 1e-8));
    }
}
