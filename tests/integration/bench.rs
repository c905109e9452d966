//! The bench's own commands on real programs: short runs whose figures mean nothing, but are all there.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use harness::{Config, Gateway, Sim, program};
use serde_json::Value;

const SCENARIO: &str = "
title: Two alike
sources: [made up for this test]
model: Llama-3.1-8B
fleet: [{profile: llama-3.1-8b-h100, count: 2}]
hops_ms: {front: 0.0, gateway: 0.0, engine: 0.0}
slo: {first_token_ms: 5000, token_ms: 500}
workload:
  requests: 100
  arrivals_cv: 1.0
  kinds:
    short: {lengths: azure-code, longest: [200, 20], shared: {groups: 2, tokens: 64}}
";

fn bench(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(program("igw-bench"));
    command.args(arguments).arg("--out").arg(out);
    let output = command.output().expect("the bench starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn read(out: &Path, name: &str) -> (String, Value) {
    let text = |suffix: &str| fs::read_to_string(out.join(format!("{name}.{suffix}"))).expect("both files are written");
    (text("md"), serde_json::from_str(&text("json")).expect("JSON"))
}

#[test]
fn the_gateways_cost_is_measured_over_every_kind_of_connection() {
    let folder = tempfile::tempdir().unwrap();
    let parts = "http2,tls,latency,idle,memory";
    let subjects = "direct,bare,gateway";
    let quick = ["cost", "--quick", "--subjects", subjects, "--parts", parts, "--rate", "50", "--connections", "4"];
    bench(&quick, folder.path());
    let (table, measured) = read(folder.path(), "cost");
    let pass = &measured["passes"][0];
    let gateway = &pass["figures"]["gateway"];
    for key in ["cpu_us_per_request_http2", "cpu_us_per_request_tls", "latency_ms_p50", "memory_mb1000_streams"] {
        assert!(gateway[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {gateway}");
    }
    for subject in ["direct", "bare", "gateway"] {
        assert_eq!(pass["failed"][subject].as_u64(), Some(0), "{subject}: {pass}");
    }
    assert!(table.contains("| memory, idle (MB) | – |"), "{table}");
}

#[test]
fn a_scenario_runs_in_real_time_and_beside_it_on_virtual_time() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("scenario.yaml");
    fs::write(&scenario, SCENARIO).unwrap();
    let scenario = scenario.to_str().expect("a plain path");
    let (routers, scale) = ("round-robin,gateway", "0.2");
    let run = ["real", "--scenario", scenario, "--routers", routers, "--load", "0.02", "--seconds", "10"];
    bench(&[&run[..], &["--time-scale", scale, "--seeds", "1"]].concat(), folder.path());
    let (table, measured) = read(folder.path(), "real");
    let rows = measured["points"][0]["routers"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{measured}");
    for row in rows {
        for time in ["real", "on_virtual_time"] {
            let figures = &row[time][0];
            assert_eq!(figures["failed"].as_f64(), Some(0.0), "{row}");
            assert!(figures["ttft_p50"].as_f64().is_some_and(|ms| ms > 0.0), "{row}");
        }
        assert!(
            row["real"][0]["prefix_hits"].as_f64().is_some_and(|share| share > 0.0),
            "prompts share a beginning: {row}"
        );
    }
    assert!(table.contains("| gateway | real |") && table.contains("| gateway | virtual |"), "{table}");
}

#[test]
fn deployments_are_measured_beside_each_other_with_their_key() {
    let sims = ["one", "two"].map(|_| Sim::start(&["--model", "m1", "--api-key", "a-secret-key"]));
    let gateway = Gateway::start(&Config::plain("m1", sims.iter().map(|sim| sim.address)));
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("scenario.yaml");
    fs::write(&scenario, SCENARIO).unwrap();
    let (ours, plain) = (format!("gateway=http://{}", gateway.data), format!("plain=http://{}/v1/", sims[0].address));
    let mut command = Command::new(program("igw-bench"));
    command.args(["live", &ours, &plain, "--model", "m1", "--rate", "20", "--seconds", "2", "--passes", "2"]);
    command.arg("--scenario").arg(&scenario).arg("--out").arg(folder.path());
    command.env("BENCH_KEY", "a-secret-key").args(["--api-key-from", "BENCH_KEY"]);
    let output = command.output().expect("the bench starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (table, measured) = read(folder.path(), "live");
    for deployment in measured["deployments"].as_array().expect("deployments") {
        let runs = deployment["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 2);
        assert!(runs.iter().all(|run| run["failed"].as_f64() == Some(0.0)), "{deployment}");
        assert!(runs.iter().all(|run| run["requests"].as_u64() > Some(0)), "{deployment}");
    }
    let said = format!("{table}{measured}{}", String::from_utf8_lossy(&output.stdout));
    assert!(said.contains("| plain |") && !said.contains("a-secret-key"), "the key is told to nobody");
}
