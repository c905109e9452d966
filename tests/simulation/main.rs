//! One gateway pool under loads that no test machine could make, on virtual time.
//!
//! The decisions are the product's own (`dispatch`, with `flow-control` and `scheduling` inside), the engines are the
//! simulated ones of the `engine` crate, and what lies between them (clients, the network, looks at metrics pages) is
//! played by `bench::world`. Each file in `scenarios/` is one test; it says what must be seen, and a failure shows the table
//! of what was expected beside what was seen. `cargo test -p tests --test simulation -- --nocapture` shows all tables.

mod clients;
mod expectation;
mod measure;
mod scenario;
mod trial;

use std::{collections::BTreeSet, fs, path::PathBuf};

use bench::world::knobs::Knobs;
use scenario::Scenario;
use trial::Trial;

macro_rules! scenarios {
    ($($name:ident: $file:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        $(
            #[test]
            fn $name() {
                passes($file);
            }
        )*
    };
}

scenarios! {
    all_signals_stale: "all-signals-stale.yaml",
    deadlines: "deadlines.yaml",
    equal_flows_least_attained: "equal-flows-least-attained.yaml",
    equal_flows_round_robin: "equal-flows-round-robin.yaml",
    eviction: "eviction.yaml",
    failures_and_replacement: "failures-and-replacement.yaml",
    fast_engines: "fast-engines.yaml",
    full_batches: "full-batches.yaml",
    greedy_flow_least_attained: "greedy-flow-least-attained.yaml",
    greedy_flow_round_robin: "greedy-flow-round-robin.yaml",
    newcomer_least_attained: "newcomer-least-attained.yaml",
    no_head_of_line_block: "no-head-of-line-block.yaml",
    overload_10x_slow_engines: "overload-10x-slow-engines.yaml",
    overload_10x: "overload-10x.yaml",
    recovery: "recovery.yaml",
    reserved_share: "reserved-share.yaml",
    room_is_never_refused: "room-is-never-refused.yaml",
    sizes_least_attained: "sizes-least-attained.yaml",
    waits_in_the_gateway: "waits-in-the-gateway.yaml",
    whole_answers_slow_engines: "whole-answers-slow-engines.yaml",
    whole_answers: "whole-answers.yaml",
}

#[test]
fn every_scenario_file_is_a_test() {
    let found: BTreeSet<String> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(found, FILES.iter().map(ToString::to_string).collect());
}

/// Under settings that lack what a scenario is about, it fails and shows what was not met.
#[test]
fn scenarios_can_fail() {
    let cases = [
        ("sizes-least-attained.yaml", "{fairness: round_robin}", "flow_spread_tokens"),
        ("waits-in-the-gateway.yaml", "{full_waiting: 40, full_kv_cache: 1.0}", "engine_waiting_max"),
        ("deadlines.yaml", "{ordering: fcfs}", "deadlines_met_share ÷ other settings"),
        ("no-head-of-line-block.yaml", "{standard: {max_wait_s: 0}}", "bound: wait_p50_ms"),
    ];
    for (file, settings, unmet) in cases {
        let twist: Knobs = yaml_serde::from_str(settings).unwrap();
        let scenario = read(file);
        let table = Trial::run(&scenario, &twist).unwrap().judge().unwrap_err().to_string();
        let shown = table.lines().any(|line| line.starts_with("| NOT |") && line.contains(unmet));
        assert!(shown, "{file} with {settings}: {table}");
    }
}

#[test]
fn a_run_is_a_function_of_its_scenario() {
    let scenario = read("failures-and-replacement.yaml");
    let table = || Trial::run(&scenario, &Knobs::default()).unwrap().judge().unwrap();
    assert_eq!(table(), table());
}

#[test]
fn misspelt_scenarios_are_refused() {
    let whole = fs::read_to_string(folder().join("equal-flows-round-robin.yaml")).unwrap();
    assert!(Scenario::parse(&whole).is_ok());
    for (from, to) in [
        ("flows: 6", "flow: 6"),
        ("load: {callers: 3}", "load: {caller: 3}"),
        ("in: overload, from_s: 15", "in: overlaod, from_s: 15"),
        ("measure: waiting_at_end, max: 0", "measure: waiting_at_end"),
        ("max: 0.05", "maximum: 0.05"),
    ] {
        let broken = whole.replace(from, to);
        assert_ne!(broken, whole, "{from}");
        assert!(Scenario::parse(&broken).is_err(), "{to}");
    }
}

fn passes(file: &str) {
    let scenario = read(file);
    let trial = Trial::run(&scenario, &Knobs::default()).expect("a scenario that was read can be run");
    match trial.judge() {
        Ok(table) => println!("{file}: {table}"),
        Err(table) => panic!("{file}: {table}"),
    }
}

fn read(file: &str) -> Scenario {
    let text = fs::read_to_string(folder().join(file)).expect("the folder is listed by a test of its own");
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{file}: {error:#}"))
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("simulation/scenarios")
}
