//! What every measurement rests on: runs that can be made again, bounds that are bounds, and a few targets that a later
//! change to a decision has to keep.

use std::path::{Path, PathBuf};

use super::*;
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios")
}

/// A scenario with fewer requests than it is measured with.
fn small(file: &str, requests: u32) -> Scenario {
    let mut scenario = Scenario::read(&folder().join(file)).unwrap();
    (scenario.workload.requests, scenario.workload.seconds_min) = (requests, 0.0);
    scenario
}

fn setting(scenario: &Scenario, capacity_per_pod: &[f64]) -> Setting {
    Setting { pods: scenario.pod_classes().unwrap(), capacity_per_pod: capacity_per_pod.to_vec() }
}

fn run(scenario: &Scenario, setting: &Setting, router: Contender, rate_per_s: f64) -> Figures {
    Cell { rate_per_s, router: &router, seed: 5 }.run(scenario, setting)
}

#[test]
fn every_scenario_is_read_and_they_are_numbered() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 13);
    for (number, file) in files.iter().enumerate() {
        assert!(file.file_name().unwrap().to_str().unwrap().starts_with(&format!("{:02}-", number + 1)));
        Scenario::read(file).unwrap();
    }
}

#[test]
fn misspelt_scenarios_are_refused() {
    let whole = std::fs::read_to_string(folder().join("08-a-pod-dies-8b.yaml")).unwrap();
    for (from, to) in [
        ("arrivals_cv", "arrival_cv"),
        ("endpoint: 2", "endpoint: 6"),
        ("azure-conversation", "azure"),
        ("llama-3.1-8b-h100", "llama-3.1-8b-h1000"),
        ("count: 6", "count: 0"),
    ] {
        let broken = whole.replace(from, to);
        assert_ne!(broken, whole, "{from}");
        assert!(Scenario::parse(&broken).is_err(), "{to}");
    }
}

/// Of the same seed, twice, with the second time on one thread and in pieces: the first run's file is cut off within a
/// line.
#[test]
fn an_interrupted_measurement_goes_on_and_ends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.jsonl");
    let arguments = |jobs| Arguments {
        scenario: "01-mixed-gpus-8b.yaml".into(),
        seed: 3,
        seeds: 2,
        router: Vec::new(),
        load: vec![0.5],
        requests: None,
        trace: None,
        jobs: Some(jobs),
        json: None,
        svg: None,
        runs: None,
    };
    let scenario = small("01-mixed-gpus-8b.yaml", 150);
    let setting = setting(&scenario, &[24.0, 1.2]);
    let table = |jobs, path: &Path| {
        let store = Store::open(Some(path), "inputs").unwrap();
        let points = points::of(&scenario, &setting, &[0.3, 0.9]);
        let contenders = [Contender::RoundRobin, Contender::Gateway, Contender::Clairvoyant];
        let measured = measure(&arguments(jobs), &scenario, &setting, &contenders, points, &store).unwrap();
        (table::markdown(&scenario, &setting, &measured), serde_json::to_string(&measured).unwrap())
    };
    let whole = table(2, &path);
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(kept.lines().count(), 12);
    let cut = kept.len() * 3 / 5;
    std::fs::write(&path, &kept[..cut]).unwrap();
    let whole_lines_left = kept[..cut].lines().count() - 1;
    assert_eq!(table(1, &path), whole);
    let added = std::fs::read_to_string(&path).unwrap().lines().count() - whole_lines_left;
    assert!((12 - whole_lines_left..=13 - whole_lines_left).contains(&added), "only what was missing ran: {added}");
    assert_eq!(table(2, &folder.path().join("fresh.jsonl")), whole);
    assert!(Store::open(Some(&path), "other inputs").unwrap().get(&known_key(&kept)).is_none());
    assert!(Store::open(Some(&path), "inputs").unwrap().get(&known_key(&kept)).is_some());
}

fn known_key(kept: &str) -> store::Key {
    let line: serde_json::Value = serde_json::from_str(kept.lines().next().unwrap()).unwrap();
    serde_json::from_value(line["run"].clone()).unwrap()
}

#[test]
fn clairvoyant_greedy_is_never_later_than_those_who_know_less() {
    for (file, capacity, rate) in [
        ("01-mixed-gpus-8b.yaml", &[24.0, 1.2][..], 9.0),
        ("02-mixed-gpus-32b.yaml", &[12.4, 0.9], 20.0),
        ("03-bursts-70b.yaml", &[11.5], 60.0),
        ("11-long-and-short-70b.yaml", &[4.8], 15.0),
    ] {
        let scenario = small(file, 400);
        let setting = setting(&scenario, capacity);
        let mean = |router| run(&scenario, &setting, router, rate).ttft_mean;
        let bound = mean(Contender::Clairvoyant);
        // It is greedy: in a burst, a gateway that is not may be ahead of it by a little.
        let others = [(Contender::RoundRobin, 1.0), (Contender::LeastRequest, 1.0), (Contender::Gateway, 1.1)];
        for (router, times) in others {
            let other = mean(router);
            assert!(bound <= other * times, "{file}: {bound} for {other} of {}", router.name());
        }
    }
}

/// On a case so small that chance finds good schedules, the best of many random ones is not much ahead of greedy.
#[test]
fn greedy_is_near_the_best_of_many_random_schedules_where_these_can_be_good() {
    let mut scenario = small("02-mixed-gpus-32b.yaml", 12);
    for machines in &mut scenario.fleet {
        machines.count = 1;
    }
    let setting = setting(&scenario, &[12.4, 0.9]);
    let table = small::markdown(&scenario, &setting, &[Contender::Clairvoyant, Contender::RoundRobin], 2);
    let mean = |name: &str| {
        let row = table.lines().find(|line| line.starts_with(&format!("| {name}"))).unwrap();
        row.split('|').nth(2).unwrap().trim().parse::<f64>().unwrap()
    };
    let (best, greedy, turns) = (mean("best of"), mean("clairvoyant"), mean("round-robin"));
    assert!(greedy <= best * 1.1 && best < turns, "{table}");
    assert_eq!(table, small::markdown(&scenario, &setting, &[Contender::Clairvoyant, Contender::RoundRobin], 2));
}

/// The published condition that matters most, at the load at which round-robin fills the slower pods.
#[test]
fn mixed_gpus_have_a_first_token_five_times_sooner_than_under_round_robin() {
    for (file, capacity) in [("01-mixed-gpus-8b.yaml", [24.0, 1.2]), ("02-mixed-gpus-32b.yaml", [12.4, 0.9])] {
        let scenario = small(file, 1_500);
        let setting = setting(&scenario, &capacity);
        let rate = setting.round_robin_full().0;
        let [ours, theirs] =
            [Contender::Gateway, Contender::RoundRobin].map(|router| run(&scenario, &setting, router, rate).ttft_p95);
        assert!(ours * 5.0 <= theirs, "{file}: {ours} ms for {theirs} ms");
    }
}

#[test]
fn a_dead_pod_costs_the_gateway_less_than_those_who_ask_nobody() {
    let scenario = small("08-a-pod-dies-8b.yaml", 3_000);
    let setting = setting(&scenario, &[24.0]);
    let failed = |router| run(&scenario, &setting, router, 90.0).failed;
    let (ours, theirs) = (failed(Contender::Gateway), failed(Contender::LeastRequest));
    assert!(theirs > 0.0 && ours < theirs, "{ours} for {theirs}");
}

#[test]
fn critical_requests_have_their_first_token_in_time_under_twice_the_load() {
    let scenario = small("10-priorities-8b.yaml", 3_000);
    let setting = setting(&scenario, &[24.0]);
    let figures = run(&scenario, &setting, Contender::Gateway, 2.0 * 96.0);
    // By name: critical, sheddable, standard.
    assert!(figures.kinds[0].ttft_p99 < scenario.slo.first_token_ms && figures.kinds[0].shed == 0.0, "{figures:?}");
    assert!(figures.kinds[1].shed > figures.kinds[2].shed, "{figures:?}");
}
