//! The command line, and nothing else.

use std::net::IpAddr;

use api::names;
use clap::{Parser, ValueEnum};
use telemetry::request_log::Style;

/// Turns InferenceGatewayConfigs and Gateways into running gateways.
#[derive(Debug, Parser)]
#[command(name = "inference-gateway-controller", version, about)]
pub struct Options {
    /// Where the controller and every data plane run
    #[arg(long, default_value = names::SYSTEM_NAMESPACE, value_name = "NAMESPACE")]
    pub system_namespace: String,

    /// Image of the data planes' pods
    #[arg(long, default_value = "inference-gateway:latest", value_name = "IMAGE")]
    pub data_plane_image: String,

    /// When data planes' images are pulled: Always, IfNotPresent or Never
    #[arg(long, default_value = "IfNotPresent", value_name = "POLICY")]
    pub data_plane_pull_policy: String,

    /// Address that health and metrics are served on
    #[arg(long, default_value = "0.0.0.0", value_name = "IP")]
    pub bind_address: IpAddr,

    /// Port of /healthz, /readyz and /metrics; 0 takes a free one
    #[arg(long, default_value_t = 9090, value_name = "PORT")]
    pub admin_port: u16,

    /// Who this process is among its copies; by default POD_NAME of the environment, else the host's name
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,

    /// How standard error is written
    #[arg(long, value_enum, default_value_t = LogStyle::Json)]
    pub log: LogStyle,

    /// What is logged: levels such as `info` or `warn,controller=debug`
    #[arg(long, default_value = telemetry::tracing_setup::DEFAULT_FILTER, value_name = "FILTER")]
    pub log_filter: String,
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
