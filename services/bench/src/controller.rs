//! `igw-bench controller`: what the controller takes with many configurations, working and idle.
//!
//! It runs against the API server that `kubectl` talks to, such as the test rig's, and starts the controller itself as a
//! process of this machine. Pods of the data planes are never started: their image is one that no node has, so that what
//! is measured is the controller and nothing that shares its cores. Everything it makes it takes away again.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    cost::beside_build,
    machine::{Machine, date, load_average},
    process::{Memory, Process, version},
};

/// Where the configurations are made.
const NAMESPACE: &str = "igw-bench";
const SYSTEM: &str = "hyperpod-inference-system";
const CONFIGS: &str = "inferencegatewayconfigs.inference.sagemaker.aws.amazon.com";
/// What the controller makes of configurations, by the label that it gives them.
const MADE: &str = "httproutes,inferencepools,services";
const MANAGED: &str = "app.kubernetes.io/managed-by=inference-gateway-controller";
/// Objects are counted this often while they are made.
const COUNT_EVERY: Duration = Duration::from_secs(2);
/// They are all there when a count has stood still for so long.
const SETTLED_AFTER: Duration = Duration::from_secs(20);
/// After this the controller has failed to make them.
const SETTLE_MAX: Duration = Duration::from_secs(600);

/// What the controller takes with many configurations, working and idle
#[derive(clap::Args, Clone, Debug, Serialize)]
pub struct Arguments {
    /// The program that is measured [default: beside this one]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    controller: Option<PathBuf>,
    /// The kubectl that knows the cluster
    #[arg(long, default_value = "kubectl", value_name = "FILE")]
    #[serde(skip)]
    kubectl: PathBuf,
    /// Where controller.md and controller.json go [default: target/bench]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    out: Option<PathBuf>,
    /// InferenceGatewayConfigs
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    configs: u16,
    /// Schedulers of each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    schedulers: u16,
    /// How long it is watched while nothing changes, in seconds
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u16).range(10..=3_600))]
    idle: u16,
}

/// As it goes into `controller.json`.
#[derive(Debug, Serialize)]
struct Measured {
    machine: Machine,
    settings: Arguments,
    controller: String,
    /// Routes, pools and Services that were made.
    objects: usize,
    /// From the start of the controller to the last object, s.
    made_s: f64,
    /// CPU time until then, s.
    made_cpu_s: f64,
    /// Cores taken while nothing changed.
    idle_cores: f64,
    memory_bytes: u64,
    memory_peak_bytes: u64,
    load_average_after: f64,
}

/// Measures, prints the table and writes both files.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let kubectl = Kubectl(arguments.kubectl.clone());
    kubectl.call(&["get", "crd", CONFIGS], None).context(
        "this needs a cluster with the product's kinds, such as `cargo xtask cluster up` with `cargo xtask cluster enter`",
    )?;
    let out = arguments.out.clone().unwrap_or_else(|| beside_build("bench"));
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let machine = Machine::here();
    kubectl.call(&["apply", "-f", "-"], Some(&wanted(arguments)))?;
    let measured = measure(arguments, &kubectl, machine, &out.join("controller.log"));
    kubectl.call(&["delete", "namespace", NAMESPACE, "--wait=false"], None)?;
    let measured = measured?;
    let table = markdown(&measured);
    std::fs::write(out.join("controller.md"), &table)?;
    std::fs::write(out.join("controller.json"), serde_json::to_string_pretty(&measured)?)?;
    println!("{table}\nWritten to {}", out.display());
    Ok(())
}

fn measure(
    arguments: &Arguments,
    kubectl: &Kubectl,
    machine: Machine,
    log: &std::path::Path,
) -> anyhow::Result<Measured> {
    let program = match &arguments.controller {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("inference-gateway-controller"),
    };
    let mut command = Command::new(&program);
    command.args(["--admin-port", "0", "--bind-address", "127.0.0.1"]);
    command.args(["--data-plane-image", "image.invalid/never", "--log-filter", "warn"]);
    let began = Instant::now();
    let mut process = Process::start(command, log.to_owned())?;
    let (objects, made) = all_made(arguments, kubectl, &mut process, began)?;
    let made_cpu = process.cpu_time()?;
    eprintln!("{objects} objects after {:.0} s; watching for {} s", made.as_secs_f64(), arguments.idle);
    let (idle_from, cpu_from) = (Instant::now(), process.cpu_time()?);
    std::thread::sleep(Duration::from_secs(arguments.idle.into()));
    let idle_cores = (process.cpu_time()? - cpu_from).as_secs_f64() / idle_from.elapsed().as_secs_f64();
    process.check_alive()?;
    let Memory { now_bytes, peak_bytes } = process.memory()?;
    Ok(Measured {
        machine,
        settings: arguments.clone(),
        controller: version(&program),
        objects,
        made_s: made.as_secs_f64(),
        made_cpu_s: made_cpu.as_secs_f64(),
        idle_cores,
        memory_bytes: now_bytes,
        memory_peak_bytes: peak_bytes,
        load_average_after: load_average(),
    })
}

/// Waits until the number of objects stands still, at no less than two for each scheduler. When it last changed is when
/// they were all made.
fn all_made(
    arguments: &Arguments,
    kubectl: &Kubectl,
    process: &mut Process,
    began: Instant,
) -> anyhow::Result<(usize, Duration)> {
    let least = 2 * usize::from(arguments.configs) * usize::from(arguments.schedulers);
    let (mut count, mut changed) = (0, began);
    loop {
        std::thread::sleep(COUNT_EVERY);
        process.check_alive()?;
        let asked = Instant::now();
        let listed = kubectl
            .call(&["get", MADE, "--all-namespaces", "--selector", MANAGED, "--no-headers", "-o", "name"], None)?;
        let now = listed.lines().count();
        if now != count {
            eprintln!("{now} objects");
            (count, changed) = (now, asked);
        }
        if count >= least && changed.elapsed() >= SETTLED_AFTER {
            return Ok((count, changed - began));
        }
        ensure!(began.elapsed() < SETTLE_MAX, "{count} objects after {SETTLE_MAX:?}, expected at least {least}");
    }
}

/// The namespaces and all configurations, in one list.
fn wanted(arguments: &Arguments) -> String {
    let namespace = |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut items = vec![namespace(SYSTEM), namespace(NAMESPACE)];
    items.extend((0..arguments.configs).map(|config| one(config, arguments.schedulers)));
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn one(config: u16, schedulers: u16) -> Value {
    let schedulers: Vec<Value> = (0..schedulers)
        .map(|number| {
            let name = format!("model-{config}-{number}");
            json!({"name": name, "modelName": name, "modelSelector": {"matchLabels": {"app": name}}})
        })
        .collect();
    json!({
        "apiVersion": "inference.sagemaker.aws.amazon.com/v1alpha1", "kind": "InferenceGatewayConfig",
        "metadata": {"name": format!("gateway-{config}"), "namespace": NAMESPACE},
        "spec": {"bbr": {"enabled": true}, "schedulers": schedulers},
    })
}

fn markdown(measured: &Measured) -> String {
    let Measured { machine, settings, .. } = measured;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "Taken {} on {} cores of {}, Linux {}, load average {:.2} before and {:.2} after; revision {}, {}.\n\n\
         | figure, with {} configs of {} schedulers ({} routes, pools and Services) | measured | target |\n|---|---|---|\n\
         | memory, idle | {:.0} MiB | ≤ 80 |\n| memory, most | {:.0} MiB | |\n\
         | idle, over {} s | {:.3} cores | ≤ 0.02 |\n| from start to the last object | {:.0} s, {:.1} s of CPU | |\n",
        date(machine.taken_at_s),
        machine.cores,
        machine.processor,
        machine.kernel,
        machine.load_average,
        measured.load_average_after,
        machine.revision,
        measured.controller,
        settings.configs,
        settings.schedulers,
        measured.objects,
        mib(measured.memory_bytes),
        mib(measured.memory_peak_bytes),
        settings.idle,
        measured.idle_cores,
        measured.made_s,
        measured.made_cpu_s,
    )
}

struct Kubectl(PathBuf);

impl Kubectl {
    /// What it says, with `input` as its standard input.
    fn call(&self, words: &[&str], input: Option<&str>) -> anyhow::Result<String> {
        let mut command = Command::new(&self.0);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.0.display()))?;
        let mut stdin = child.stdin.take().expect("a pipe was asked for");
        let input = input.unwrap_or_default().to_owned();
        let feeding = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        // A kubectl that fails may not have read it all: what it says counts.
        let _ = feeding.join();
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`kubectl {}`: {}", words.join(" "), said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_one_name_in_all_configurations() {
        let (first, second) = (one(0, 2), one(1, 2));
        let names = |config: &Value| {
            let all = config["spec"]["schedulers"].as_array().unwrap();
            all.iter().map(|it| it["modelName"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&first), ["model-0-0", "model-0-1"]);
        assert!(names(&second).iter().all(|name| !names(&first).contains(name)));
    }

    #[test]
    fn a_kubectl_that_fails_says_why() {
        let kubectl = Kubectl("sh".into());
        let error = kubectl.call(&["-c", "echo no such kind >&2; exit 1"], Some("x")).unwrap_err();
        assert!(error.to_string().contains("no such kind"), "{error}");
        assert_eq!(kubectl.call(&["-c", "cat"], Some("x")).unwrap(), "x");
    }
}
