//! A scenario's endpoints as `model-sim` processes, and what each of them served.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Arguments;
use crate::bodies::MODEL;
use crate::load;
use crate::process::Process;
use crate::quality::Figures;
use crate::quality::figures::Basis;
use crate::quality::scenario::Scenario;

const BOUND_WITHIN: Duration = Duration::from_secs(10);

/// Running model servers, in the order of the scenario's fleet.
pub(super) struct Fleet {
    servers: Vec<(SocketAddr, Process)>,
}

/// Counters of all endpoints.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Served(Vec<Counters>);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    requests: f64,
    prompt_tokens: f64,
    cached_tokens: f64,
}

impl Fleet {
    pub(super) fn start(
        program: Option<&Path>,
        scenario: &Scenario,
        arguments: &Arguments,
        seed: u64,
        folder: &Path,
    ) -> Result<Self> {
        let beside = || std::env::current_exe().ok()?.parent().map(|folder| folder.join("model-sim"));
        let program = program.map(PathBuf::from).or_else(beside).unwrap_or_default();
        ensure!(
            program.is_file(),
            "no model-sim at `{}`: run `cargo build --release --package model-sim`, or pass --model-sim",
            program.display()
        );
        let mut servers = Vec::new();
        for machines in &scenario.fleet {
            for _ in 0..machines.count {
                let number = servers.len();
                let mut command = Command::new(&program);
                command.args(["--listen", "127.0.0.1:0", "--model", MODEL, "--profile", &machines.profile]);
                command.args(["--time-scale", &arguments.time_scale.to_string()]);
                command.args(["--seed", &(seed.wrapping_mul(1_000) + number as u64).to_string()]);
                if let Some(batch_max) = machines.batch_max {
                    command.args(["--max-num-seqs", &batch_max.to_string()]);
                }
                let process = Process::start(command, folder.join(format!("model-sim-{number}.log")))?;
                let line = process.line(BOUND_WITHIN).context("model-sim")?;
                servers.push((bound(&line)?, process));
            }
        }
        Ok(Self { servers })
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|(address, _)| *address).collect()
    }

    /// From their metrics pages.
    pub(super) fn served(&self) -> Result<Served> {
        let of = |(address, _): &(SocketAddr, Process)| {
            let (status, page) = load::fetch(*address, "/metrics")?;
            ensure!(status == 200, "a metrics page answered {status}");
            Ok(Counters::read(&String::from_utf8_lossy(&page)))
        };
        Ok(Served(self.servers.iter().map(of).collect::<Result<_>>()?))
    }
}

impl Served {
    pub(super) fn since(&self, before: &Self) -> Self {
        let less = |(now, before): (&Counters, &Counters)| Counters {
            requests: now.requests - before.requests,
            prompt_tokens: now.prompt_tokens - before.prompt_tokens,
            cached_tokens: now.cached_tokens - before.cached_tokens,
        };
        Self(self.0.iter().zip(&before.0).map(less).collect())
    }

    /// Fills in what clients cannot see: shares, imbalance and prefix hits, of the whole run.
    pub(super) fn complete(&self, figures: &mut Figures, basis: &Basis<'_>) {
        let classes = || basis.pods.iter().enumerate().flat_map(|(class, pod)| std::iter::repeat_n(class, pod.count));
        let sum = |of: fn(&Counters) -> f64| self.0.iter().map(of).sum::<f64>().max(1.0);
        let (requests, capacity) =
            (sum(|c| c.requests), classes().map(|class| basis.capacity_per_pod[class]).sum::<f64>());
        figures.shares = vec![0.0; basis.pods.len()];
        figures.imbalance = 0.0;
        for (class, counters) in classes().zip(&self.0) {
            let share = counters.requests / requests;
            figures.shares[class] += share;
            figures.imbalance = figures.imbalance.max(share / (basis.capacity_per_pod[class] / capacity));
        }
        figures.prefix_hits = sum(|c| c.cached_tokens) / sum(|c| c.prompt_tokens);
    }
}

impl Counters {
    fn read(page: &str) -> Self {
        let sum = |name: &str| {
            let values =
                page.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<f64>().ok());
            values.sum()
        };
        Self {
            requests: sum("vllm:request_success_total{"),
            prompt_tokens: sum("vllm:prefix_cache_queries_total{"),
            cached_tokens: sum("vllm:prefix_cache_hits_total{"),
        }
    }
}

fn bound(line: &str) -> Result<SocketAddr> {
    let parsed: serde_json::Value = serde_json::from_str(line).with_context(|| format!("not JSON: `{line}`"))?;
    let address = parsed["listen"].as_str().and_then(|text| text.parse().ok());
    address.with_context(|| format!("no address in `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_labels() {
        let page = "# TYPE vllm:request_success_total counter\n\
                    vllm:request_success_total{finished_reason=\"stop\"} 2.0\n\
                    vllm:request_success_total{finished_reason=\"length\"} 40.0\n\
                    vllm:prefix_cache_queries_total{engine=\"0\"} 1e3\n\
                    vllm:prefix_cache_hits_total{engine=\"0\"} 250.0\n";
        let read = Counters::read(page);
        assert_eq!(read, Counters { requests: 42.0, prompt_tokens: 1_000.0, cached_tokens: 250.0 });
        let (before, now) = (Served(vec![Counters { requests: 2.0, ..read }]), Served(vec![read]));
        assert_eq!(now.since(&before), Served(vec![Counters { requests: 40.0, ..Counters::default() }]));
    }
}
