//! What is measured: nothing in between, the barest proxy there is, the gateway with everything on, or a peer.
//!
//! A subject is started anew for every pass, so that the spread also shows what differs from start to start.

pub mod bare;
pub mod gateway;
mod peer;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;

use crate::bodies::{Kind, Requests};
use crate::certificate::Certificate;
use crate::load::{self, Target};
use crate::peers::{self, Peer, Speech};
use crate::process::{self, Process};

const READY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(2);

/// One of the things compared.
#[derive(Clone, Debug)]
pub enum Subject {
    /// The generator talks to the backend: the floor of every latency.
    Direct,
    /// hyper alone, one runtime per core: the floor of what a proxy in this language costs.
    Bare,
    Gateway {
        program: PathBuf,
    },
    Peer {
        peer: Box<Peer>,
        program: PathBuf,
        /// As it was asked for: `name` or `name:policy`.
        asked: String,
        /// In the peer's own words.
        policy: String,
    },
}

/// Where a subject is started.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    pub endpoints: &'a [SocketAddr],
    /// Its files go here.
    pub folder: &'a Path,
    /// It speaks TLS with it.
    pub certificate: Option<&'a Certificate>,
}

/// A started subject.
#[derive(Debug)]
pub struct Running {
    /// Where requests go.
    pub data: Target,
    /// `None` for `Direct`.
    pub process: Option<Process>,
    /// From its start to its first 200 to a chat, to some milliseconds.
    pub first_answer: Duration,
}

/// Where to find programs.
#[derive(Clone, Debug)]
pub struct Programs {
    pub gateway: PathBuf,
    /// Where peers are installed.
    pub cache: PathBuf,
    pub peers: Vec<Peer>,
}

impl Programs {
    /// The subject called `asked`, installed if it has to be.
    pub fn subject(&self, asked: &str) -> anyhow::Result<Subject> {
        match asked {
            "direct" => return Ok(Subject::Direct),
            "bare" => return Ok(Subject::Bare),
            "gateway" => {
                anyhow::ensure!(
                    self.gateway.is_file(),
                    "no gateway at `{}`: run `cargo build --release --package gateway`, or pass --gateway",
                    self.gateway.display()
                );
                return Ok(Subject::Gateway { program: self.gateway.clone() });
            }
            _ => {}
        }
        let (name, policy) = asked.split_once(':').map_or((asked, None), |(name, policy)| (name, Some(policy)));
        let known = || self.peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>().join(", ");
        let peer = self.peers.iter().find(|peer| peer.name == name);
        let peer = peer.with_context(|| format!("nothing is called `{name}`; peers are {}", known()))?;
        let policy = peer.policy(policy)?.to_owned();
        let program = peers::installed(peer, &self.cache)?;
        Ok(Subject::Peer { peer: Box::new(peer.clone()), program, asked: asked.to_owned(), policy })
    }
}

impl Subject {
    /// Used in tables and in the JSON file.
    pub fn name(&self) -> &str {
        match self {
            Self::Direct => "direct",
            Self::Bare => "bare",
            Self::Gateway { .. } => "gateway",
            Self::Peer { asked, .. } => asked,
        }
    }

    /// What it is, for the report.
    pub fn version(&self) -> String {
        match self {
            Self::Direct => "no proxy".to_owned(),
            Self::Bare => {
                "hyper as a proxy, one runtime per core: bodies are read whole, ports are taken in turn".to_owned()
            }
            Self::Gateway { program } => process::version(program),
            Self::Peer { peer, policy, .. } => {
                format!("{} ({policy}): {}", peer.package.replace("==", " "), peer.about)
            }
        }
    }

    /// Bytes of its executable; `None` where it has none of its own.
    pub fn binary_bytes(&self) -> Option<u64> {
        let size = |program: &Path| Some(std::fs::metadata(program).ok()?.len());
        match self {
            Self::Direct | Self::Bare => None,
            Self::Gateway { program } => size(program),
            // A script that starts Python is not what it takes.
            Self::Peer { peer, program, .. } => size(program).filter(|_| !peer.program.starts_with("bin/")),
        }
    }

    /// Whether it can be measured with clients that speak so.
    pub fn speaks(&self, speech: Speech) -> bool {
        match self {
            Self::Direct | Self::Bare => false,
            Self::Gateway { .. } => true,
            Self::Peer { peer, .. } => peer.speaks.contains(&speech),
        }
    }

    /// Whether it is a process of its own.
    pub fn is_proxy(&self) -> bool {
        !matches!(self, Self::Direct)
    }

    /// Starts it and waits until it is ready and has answered once.
    pub fn start(&self, site: &Site<'_>) -> anyhow::Result<Running> {
        let started = Instant::now();
        match self {
            Self::Direct => Ok(Running { data: site.endpoints[0].into(), process: None, first_answer: Duration::ZERO }),
            Self::Bare => bare::start(site, started),
            Self::Gateway { program } => gateway::start(program, site, started),
            Self::Peer { peer, program, policy, .. } => peer::start(peer, program, policy, site, started),
        }
    }
}

/// Asks `admin` until `path` answers 200, the process ends, or the time is over.
fn wait_until_ready(process: &mut Process, admin: SocketAddr, path: &str) -> anyhow::Result<()> {
    wait(process, path, || matches!(load::fetch(admin, path), Ok((200, _))))
}

/// Sends chats until one is answered with 200; returns how long that took from `started`.
fn first_answer(process: &mut Process, data: &Target, started: Instant) -> anyhow::Result<Duration> {
    let request: Bytes = Requests::new(1_000, Kind::Whole, 0).get(0).clone();
    wait(process, "a chat", || matches!(load::once(data, &request), Ok(200)))?;
    Ok(started.elapsed())
}

fn wait(process: &mut Process, what: &str, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_MAX;
    loop {
        process.check_alive()?;
        if done() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            anyhow::bail!("`{what}` was not answered with 200 within {READY_MAX:?}; {}", process.last_words());
        }
        std::thread::sleep(POLL);
    }
}
