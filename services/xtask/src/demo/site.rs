//! The demo's data centre: four simulated pods, one configuration, the gateway.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::Mode;
use super::interrupt::Interrupt;
use super::program::Program;
use crate::http;
use crate::workspace::Workspace;

/// The model that all pods serve.
pub(crate) const MODEL: &str = "llama-3.1-8b";
/// Adapters of it.
pub(crate) const ADAPTERS: [&str; 2] = ["sql-lora", "chat-lora"];
/// Name and engine profile of each pod.
pub(crate) const PODS: [(&str, &str); 4] = [
    ("h100-0", "llama-3.1-8b-h100"),
    ("h100-1", "llama-3.1-8b-h100"),
    ("a10g-0", "llama-3.1-8b-a10g"),
    ("a10g-1", "llama-3.1-8b-a10g"),
];

/// Where people look first; another port is taken when these are in use, and always for `--check`.
const DATA: &str = "127.0.0.1:8080";
const ADMIN: &str = "127.0.0.1:9090";
const ANY: &str = "127.0.0.1:0";
const READY_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// How often the children are looked after while the demo runs.
const WATCH: Duration = Duration::from_millis(500);

/// Where the gateway listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gateway {
    pub data: SocketAddr,
    pub admin: SocketAddr,
}

/// Everything that runs. Dropping it stops everything, the gateway first.
pub(crate) struct Site {
    pub gateway: Gateway,
    program: Program,
    pods: Vec<Program>,
    folder: PathBuf,
}

impl Site {
    /// Starts the pods, writes `target/demo/<process id>/config`, starts the gateway and waits until it is ready. Two demos
    /// at once must not share the folder: a gateway follows its configuration.
    pub(crate) fn start(workspace: &Workspace, mode: Mode, interrupt: &Interrupt) -> anyhow::Result<Self> {
        let folder = workspace.target.join("demo").join(std::process::id().to_string());
        let config = folder.join("config");
        std::fs::create_dir_all(&config).with_context(|| format!("cannot make {}", config.display()))?;
        let (mut pods, mut endpoints) = (Vec::new(), Vec::new());
        for (name, profile) in PODS {
            let (pod, address) = start_pod(workspace, &folder, name, profile)?;
            println!("  pod {name:<7} {profile:<18} http://{address}");
            pods.push(pod);
            endpoints.push((name, address));
        }
        std::fs::write(config.join("demo.yaml"), configuration(&endpoints))?;
        let (program, gateway) = start_gateway(workspace, &folder, &config, mode)?;
        println!("  gateway  data http://{}  admin http://{}", gateway.data, gateway.admin);
        let mut site = Self { gateway, program, pods, folder };
        site.wait_until_ready(interrupt)?;
        Ok(site)
    }

    /// Runs until the user has enough. Fails when a program ends by itself.
    pub(crate) fn wait(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        while interrupt.sleep(WATCH).is_ok() {
            self.program.check_alive()?;
            self.pods.iter_mut().try_for_each(Program::check_alive)?;
        }
        println!("\nStopping");
        Ok(())
    }

    /// Stops the gateway, then the pods. The gateway must drain and end with 0.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.program.stop()?;
        self.pods.iter_mut().try_for_each(Program::stop)
    }

    /// What to look at, to type, and how to stop.
    pub(crate) fn signpost(&self) -> String {
        let Gateway { data, admin } = self.gateway;
        let body = format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"Hello"}}]}}"#);
        format!(
            "\nRunning. Look around:\n\
             \n  pools and signals   http://{admin}/api/v1/pools\
             \n  metrics             http://{admin}/metrics\
             \n  API documentation   http://{admin}/docs\
             \n  why this endpoint?  http://{admin}/api/v1/decisions/X-REQUEST-ID\
             \n  OpenAI base URL     http://{data}/v1\
             \n\nAsk something:\n\n  curl -i http://{data}/v1/chat/completions -H 'content-type: application/json' -d '{body}'\
             \n\nCtrl-C stops everything. Configuration and logs: {}",
            self.folder.display()
        )
    }

    fn wait_until_ready(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            self.program.check_alive()?;
            let said = match http::get(self.gateway.admin, "/readyz") {
                Ok(answer) if answer.status == 200 => return Ok(()),
                Ok(answer) => answer.text(),
                Err(error) => format!("{error:#}"),
            };
            anyhow::ensure!(Instant::now() < deadline, "the gateway was not ready within {READY_MAX:?}: {said}");
            interrupt.sleep(POLL)?;
        }
    }
}

fn start_pod(workspace: &Workspace, folder: &Path, name: &str, profile: &str) -> anyhow::Result<(Program, SocketAddr)> {
    let mut command = Command::new(workspace.program("model-sim"));
    command.args(["--engine", "vllm", "--profile", profile, "--model", MODEL, "--listen", ANY]);
    ADAPTERS.iter().for_each(|adapter| {
        command.args(["--lora", adapter]);
    });
    let (pod, line) = Program::start(name, command, folder)?;
    Ok((pod, address(&line, "listen")?))
}

fn start_gateway(
    workspace: &Workspace,
    folder: &Path,
    config: &Path,
    mode: Mode,
) -> anyhow::Result<(Program, Gateway)> {
    let (data, admin) = match mode {
        Mode::KeepRunning => (free_or_any(DATA), free_or_any(ADMIN)),
        Mode::Check => (ANY, ANY),
    };
    let mut command = Command::new(workspace.program("inference-gateway"));
    command.arg("--config").arg(config).args(["--listen", data, "--admin", admin]);
    let (program, line) = Program::start("gateway", command, folder)?;
    Ok((program, Gateway { data: address(&line, "data")?, admin: address(&line, "admin")? }))
}

fn free_or_any(wanted: &'static str) -> &'static str {
    if TcpListener::bind(wanted).is_ok() {
        return wanted;
    }
    println!("  {wanted} is in use: taking another port");
    ANY
}

fn address(line: &serde_json::Value, key: &str) -> anyhow::Result<SocketAddr> {
    let text = line[key].as_str().with_context(|| format!("no `{key}` in {line}"))?;
    text.parse().with_context(|| format!("`{key}` is no address: {text}"))
}

/// What an operator would write for these pods.
fn configuration(endpoints: &[(&str, SocketAddr)]) -> String {
    let adapters = ADAPTERS.join(", ");
    let mut text = format!(
        "# Written by `cargo xtask demo`. The gateway notices changes within a second: try other weights.\n\
         apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1\n\
         kind: InferenceGatewayConfig\n\
         metadata: {{name: demo}}\n\
         spec:\n\
         \x20 bbr: {{enabled: true}}\n\
         \x20 schedulers:\n\
         \x20 - name: llama\n\
         \x20   modelName: {MODEL}\n\
         \x20   modelSelector: {{matchLabels: {{app: llama}}}}\n\
         \x20   engineType: vllm\n\
         \x20   loraAdapters: [{adapters}]\n\
         \x20   weights: {{queue: 2, kvCache: 2, prefix: 3}}\n"
    );
    for (name, address) in endpoints {
        text += &format!(
            "---\napiVersion: inference-gateway/v1alpha1\nkind: Endpoint\n\
             metadata: {{name: {name}, labels: {{app: llama}}}}\nspec: {{address: {}, port: {}}}\n",
            address.ip(),
            address.port()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_every_pod() {
        let address: SocketAddr = "127.0.0.1:41234".parse().unwrap();
        let text = configuration(&PODS.map(|(name, _)| (name, address)));
        assert_eq!(text.matches("kind: Endpoint").count(), PODS.len());
        assert!(text.contains("\n  - name: llama\n    modelName: llama-3.1-8b\n"), "{text}");
        assert!(text.contains("spec: {address: 127.0.0.1, port: 41234}"), "{text}");
    }

    #[test]
    fn a_missing_or_bad_address_is_named() {
        let line = serde_json::json!({"data": "127.0.0.1:1", "admin": "nowhere"});
        assert!(address(&line, "data").is_ok());
        assert!(address(&line, "listen").unwrap_err().to_string().contains("no `listen`"));
        assert!(address(&line, "admin").unwrap_err().to_string().contains("nowhere"));
    }
}
