//! What is measured: nothing in between, Envoy as a plain proxy, or the gateway with everything on.
//!
//! A subject is started anew for every pass, so that the spread also shows what differs from start to start.

pub mod envoy;
pub mod gateway;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::load;
use crate::process::{self, Process};

const READY_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// One of the things compared.
#[derive(Clone, Debug)]
pub enum Subject {
    /// The generator talks to the backend: the floor of every latency.
    Direct,
    Envoy {
        program: PathBuf,
        /// Worker threads.
        workers: usize,
    },
    Gateway {
        program: PathBuf,
    },
}

/// A started subject.
#[derive(Debug)]
pub struct Running {
    /// Where requests go.
    pub data: SocketAddr,
    /// `None` for `Direct`.
    pub process: Option<Process>,
}

impl Subject {
    /// Used in tables and in the JSON file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Envoy { .. } => "envoy",
            Self::Gateway { .. } => "gateway",
        }
    }

    /// What it says about itself.
    pub fn version(&self) -> String {
        match self {
            Self::Direct => "no proxy".to_owned(),
            Self::Envoy { program, workers } => format!("{}, {workers} workers", envoy::version(program)),
            Self::Gateway { program } => process::version(program),
        }
    }

    /// Bytes of its executable; `None` for `Direct`.
    pub fn binary_bytes(&self) -> Option<u64> {
        match self {
            Self::Direct => None,
            Self::Envoy { program, .. } | Self::Gateway { program } => Some(std::fs::metadata(program).ok()?.len()),
        }
    }

    /// Starts it in front of `endpoints`, with its files in `folder`, and waits until it is ready.
    pub fn start(&self, endpoints: &[SocketAddr], folder: &Path) -> anyhow::Result<Running> {
        match self {
            Self::Direct => Ok(Running { data: endpoints[0], process: None }),
            Self::Envoy { program, workers } => envoy::start(program, *workers, endpoints, folder),
            Self::Gateway { program } => gateway::start(program, endpoints, folder),
        }
    }
}

/// Asks until `path` answers 200, the process ends, or the time is over.
fn wait_until_ready(process: &mut Process, admin: SocketAddr, path: &str) -> anyhow::Result<Vec<u8>> {
    let deadline = Instant::now() + READY_MAX;
    loop {
        process.check_alive()?;
        if let Ok((200, body)) = load::fetch(admin, path) {
            return Ok(body);
        }
        anyhow::ensure!(Instant::now() < deadline, "`{path}` did not answer 200 within {READY_MAX:?}");
        std::thread::sleep(POLL);
    }
}
