//! The command line, and nothing else: what a config says is in `api`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use api::cluster::ObjectKey;
use clap::{Parser, ValueEnum};
use telemetry::request_log::Style;

/// An OpenAI-compatible front door that sends each LLM request to the model server that will answer it first.
#[derive(Debug, Parser)]
#[command(
    name = "inference-gateway",
    version,
    about,
    after_help = "Documentation: docs/config.md, docs/errors.md, docs/metrics.md"
)]
pub struct Options {
    /// A YAML file, or a directory of them: one InferenceGatewayConfig, its Endpoints and what they refer to
    #[arg(long, value_name = "FILE_OR_DIR", required_unless_present = "kubernetes")]
    pub config: Option<PathBuf>,

    /// Be the data plane of a Gateway in a cluster: everything is watched, nothing is read from files
    #[arg(long, requires = "gateway", conflicts_with_all = ["config", "check", "listen"])]
    pub kubernetes: bool,

    /// With --kubernetes: the Gateway, whose listeners say where clients connect
    #[arg(long, requires = "kubernetes", conflicts_with = "config", value_name = "NAMESPACE/NAME")]
    pub gateway: Option<ObjectKey>,

    /// With --kubernetes: where the last known state of the cluster is kept, for a start while its API server is away;
    /// Secrets are kept only if this is in memory (an emptyDir of medium Memory)
    #[arg(long, requires = "kubernetes", conflicts_with = "config", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    /// With --kubernetes: the address that listeners and --admin are bound to, instead of all addresses
    #[arg(long, requires = "kubernetes", conflicts_with = "config", value_name = "ADDRESS")]
    pub bind_address: Option<IpAddr>,

    /// Where clients connect; port 0 takes a free one
    #[arg(long, default_value = "0.0.0.0:8080", value_parser = parse_address, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// Where operators and Prometheus connect; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:9090", value_parser = parse_address, value_name = "ADDRESS:PORT")]
    pub admin: SocketAddr,

    /// Validate the configuration and exit: 0, or 1 with every violation on its own line
    #[arg(long)]
    pub check: bool,

    /// How standard error is written
    #[arg(long, value_enum, default_value_t = LogStyle::Json)]
    pub log: LogStyle,

    /// What is logged besides requests: levels such as `info` or `warn,discovery=debug`
    #[arg(long, default_value = telemetry::tracing_setup::DEFAULT_FILTER, value_name = "FILTER")]
    pub log_filter: String,

    /// Cores that serve requests, one thread each; 0 takes all there are
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub cores: usize,

    /// Most bytes of request bodies held at once; beyond it requests get 503
    #[arg(long, default_value = "512Mi", value_parser = parse_bytes, value_name = "BYTES")]
    pub body_memory: usize,

    /// How long running answers may go on after SIGTERM; a second one cuts them at once
    #[arg(long, default_value = "300s", value_parser = parse_duration, value_name = "DURATION")]
    pub drain_timeout: Duration,

    /// How long new connections are still taken after SIGTERM, while load balancers learn of it
    #[arg(long, default_value = "0s", value_parser = parse_duration, value_name = "DURATION")]
    pub drain_grace: Duration,
}

/// How standard error is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogStyle {
    /// One JSON object per line
    Json,
    /// For people
    Text,
}

impl From<LogStyle> for Style {
    fn from(style: LogStyle) -> Self {
        match style {
            LogStyle::Json => Self::Json,
            LogStyle::Text => Self::Text,
        }
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDRESS:PORT with an IP address, such as 127.0.0.1:8080 or [::]:8080".to_owned())
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: usize = match &text[digits.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err("write a number of bytes, or one with Ki, Mi or Gi, such as 512Mi".into()),
    };
    let number: usize = digits.parse().map_err(|_| "write a number of bytes such as 536870912 or 512Mi".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "must be between 1 and what memory can address".into())
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().map_err(|_| "write a whole number and ms, s, m or h, such as 30s".to_owned())?;
    let unit_ms: u64 = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("the unit is missing: ms, s, m or h, such as 30s".into()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "too long".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!(parse_bytes("512Mi"), Ok(512 << 20));
        assert_eq!(parse_bytes("10"), Ok(10));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "Mi", "0", "1MB", "-1", "99999999999999999999Gi"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        for bad in ["", "5", "s", "1.5s", "5d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cluster_is_followed_for_one_gateway_and_not_beside_files() {
        let parse =
            |more: &str| Options::try_parse_from(["inference-gateway"].into_iter().chain(more.split_whitespace()));
        let options = parse("--kubernetes --gateway ns/gw --bind-address 10.0.0.1").unwrap();
        assert_eq!(options.gateway, Some(ObjectKey::new("ns", "gw")));
        for bad in [
            "",
            "--kubernetes",
            "--gateway ns/gw --config x",
            "--kubernetes --gateway gw",
            "--kubernetes --gateway ns/gw --config x",
            "--kubernetes --gateway ns/gw --listen 0.0.0.0:80",
            "--config x --state-dir y",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let options = Options::parse_from(["inference-gateway", "--config", "x.yaml"]);
        assert_eq!(options.listen.to_string(), "0.0.0.0:8080");
        assert_eq!(options.admin.to_string(), "127.0.0.1:9090");
        assert_eq!(options.body_memory, 536_870_912);
        assert_eq!((options.drain_timeout, options.drain_grace), (Duration::from_secs(300), Duration::ZERO));
    }
}
