//! Programs that others wrote, measured beside the gateway: which there are, how they are installed and started.
//!
//! All of it is data in `peers.toml`, so that anyone can add one, or bring a file of their own with `--peers`. A peer is
//! installed by pip into a folder of its own; nothing is installed that was not asked for.

mod install;
mod template;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use install::{cache, installed};
pub use template::{TemplateError, Values};

/// The peers that come with the bench.
const BUILT_IN: &str = include_str!("../peers.toml");

/// Why a list of peers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("not a list of peers: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("two peers are called `{0}`")]
    Twice(String),
    #[error("peer `{0}`: a name has lower-case letters, digits and hyphens, and is not one of the bench's own")]
    Name(String),
    #[error("peer `{peer}`: `{package}` must be pinned, as NAME==VERSION")]
    Unpinned { peer: String, package: String },
    #[error("peer `{peer}` has no policy `{policy}`; it has {known}")]
    Policy { peer: String, policy: String, known: String },
    #[error("peer `{peer}`: {source}")]
    Template { peer: String, source: TemplateError },
}

/// One program, as `peers.toml` describes it; the file's head says what each field is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub name: String,
    pub title: String,
    /// For the report: with what settings it runs.
    pub about: String,
    pub package: String,
    pub program: String,
    pub policy: String,
    pub policies: BTreeMap<String, String>,
    pub speaks: BTreeSet<Speech>,
    pub ready: String,
    pub ready_port: Port,
    pub command: Vec<String>,
    pub backend: String,
    #[serde(default)]
    pub tls: String,
    #[serde(default)]
    pub tls_arguments: Vec<String>,
    #[serde(default)]
    pub files: Vec<FileTemplate>,
}

/// A file that a peer reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileTemplate {
    pub name: String,
    pub text: String,
}

/// What clients may speak besides HTTP/1.1 in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speech {
    /// HTTP/2 with prior knowledge.
    H2,
    /// HTTP/1.1 over TLS.
    Tls,
}

/// Which of a peer's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Port {
    Port,
    MetricsPort,
    AdminPort,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    peer: Vec<Peer>,
}

/// The bench's own peers, or those in a file.
pub fn load(file: Option<&Path>) -> Result<Vec<Peer>, PeersError> {
    match file {
        None => parse(BUILT_IN),
        Some(path) => parse(
            &std::fs::read_to_string(path)
                .map_err(|source| PeersError::Unreadable { path: path.to_owned(), source })?,
        ),
    }
}

/// Reads a list and checks every name, pin and placeholder, so that nothing is installed for a peer that cannot start.
pub fn parse(text: &str) -> Result<Vec<Peer>, PeersError> {
    let peers = toml::from_str::<File>(text)?.peer;
    let mut names = BTreeSet::new();
    for peer in &peers {
        peer.check()?;
        if !names.insert(&peer.name) {
            return Err(PeersError::Twice(peer.name.clone()));
        }
    }
    Ok(peers)
}

impl Peer {
    /// What `${policy}` is for one of its policies; its own choice without one.
    pub fn policy(&self, name: Option<&str>) -> Result<&str, PeersError> {
        let name = name.unwrap_or(&self.policy);
        self.policies.get(name).map(String::as_str).ok_or_else(|| PeersError::Policy {
            peer: self.name.clone(),
            policy: name.to_owned(),
            known: self.policies.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }

    /// Writes its files and returns its arguments.
    pub fn arguments(&self, values: &Values) -> Result<Vec<String>, PeersError> {
        let named = |source| PeersError::Template { peer: self.name.clone(), source };
        let mut arguments = values.arguments(&self.command, &self.backend).map_err(named)?;
        if values.certificate.is_some() {
            arguments.extend(values.arguments(&self.tls_arguments, &self.backend).map_err(named)?);
        }
        Ok(arguments)
    }

    /// Each of its files with its text.
    pub fn texts(&self, values: &Values) -> Result<Vec<(&str, String)>, PeersError> {
        let named = |source| PeersError::Template { peer: self.name.clone(), source };
        let text = |file: &FileTemplate| values.file(&file.text, &self.backend, &self.tls);
        self.files.iter().map(|file| Ok((file.name.as_str(), text(file).map_err(named)?))).collect()
    }

    fn check(&self) -> Result<(), PeersError> {
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if self.name.is_empty() || !self.name.chars().all(plain) || OWN_NAMES.contains(&self.name.as_str()) {
            return Err(PeersError::Name(self.name.clone()));
        }
        if !self.package.split_once("==").is_some_and(|(name, version)| !name.is_empty() && !version.is_empty()) {
            return Err(PeersError::Unpinned { peer: self.name.clone(), package: self.package.clone() });
        }
        self.policy(None)?;
        let values = Values::for_checking();
        self.arguments(&values)?;
        self.texts(&values).map(|_| ())
    }
}

/// Subjects that are not peers.
pub const OWN_NAMES: [&str; 3] = ["direct", "bare", "gateway"];

#[cfg(test)]
mod tests;
