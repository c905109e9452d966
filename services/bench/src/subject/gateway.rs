//! The gateway as an operator would run it: scraping, default weights, one log line per request into a file.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Running, Site, first_answer, wait_until_ready};
use crate::bodies::MODEL;
use crate::certificate::Certificate;
use crate::load::Target;
use crate::process::Process;

/// From start to the line that names the sockets.
const BOUND_WITHIN: Duration = Duration::from_secs(10);

/// Starts it on free ports; it is ready when it says so and has answered once.
pub(super) fn start(program: &Path, site: &Site<'_>, started: Instant) -> anyhow::Result<Running> {
    let config = site.folder.join("gateway.yaml");
    std::fs::write(&config, configuration(site.endpoints, site.certificate))?;
    let mut command = Command::new(program);
    command.arg("--config").arg(&config).args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut process = Process::start(command, site.folder.join("gateway.log")).context("the gateway")?;
    let (address, admin) = sockets(&process.line(BOUND_WITHIN).context("the gateway")?)?;
    let data = Target { address, tls: site.certificate.map(|made| made.client.clone()) };
    let first_answer = first_answer(&mut process, &data, started).context("the gateway")?;
    wait_until_ready(&mut process, admin, "/readyz").context("the gateway")?;
    Ok(Running { data, process: Some(process), first_answer })
}

fn sockets(line: &str) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let parsed: serde_json::Value = serde_json::from_str(line).with_context(|| format!("not JSON: `{line}`"))?;
    let address = |key: &str| parsed[key].as_str().and_then(|text| text.parse().ok());
    address("data").zip(address("admin")).with_context(|| format!("no sockets in `{line}`"))
}

fn configuration(endpoints: &[SocketAddr], certificate: Option<&Certificate>) -> String {
    let tls = certificate.map_or("", |_| "  tls: {secretRef: {name: front}}\n");
    let mut text = format!(
        "apiVersion: inference.sagemaker.aws.amazon.com/v1alpha1
kind: InferenceGatewayConfig
metadata: {{name: bench}}
spec:
  bbr: {{enabled: true}}
  schedulers:
  - {{name: llama, modelName: {MODEL}, modelSelector: {{matchLabels: {{app: llama}}}}, engineType: vllm}}
{tls}"
    );
    if let Some(made) = certificate {
        let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
        text += &format!(
            "---
apiVersion: v1
kind: Secret
metadata: {{name: front}}
type: kubernetes.io/tls
stringData:
  tls.crt: |
{}  tls.key: |
{}",
            indented(&made.certificate_pem),
            indented(&made.key_pem)
        );
    }
    for (number, endpoint) in endpoints.iter().enumerate() {
        text += &format!(
            "---
apiVersion: inference-gateway/v1alpha1
kind: Endpoint
metadata: {{name: static-{number}, labels: {{app: llama}}}}
spec: {{address: {}, port: {}}}
",
            endpoint.ip(),
            endpoint.port()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_are_read() {
        let (data, admin) = sockets(r#"{"data":"127.0.0.1:1","admin":"127.0.0.1:2"}"#).unwrap();
        assert_eq!((data.port(), admin.port()), (1, 2));
        assert!(sockets("starting").is_err());
        assert!(sockets("{}").is_err());
    }

    #[test]
    fn every_endpoint_is_configured() {
        let text = configuration(&["127.0.0.1:41".parse().unwrap(), "127.0.0.1:42".parse().unwrap()], None);
        assert_eq!(text.matches("kind: Endpoint\n").count(), 2);
        assert!(text.contains("spec: {address: 127.0.0.1, port: 42}"));
    }
}
