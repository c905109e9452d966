//! Where the workspace and its build output are.
//!
//! Asked of cargo once, because a `CARGO_TARGET_DIR` or a config file may move the output anywhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

/// The folders that every task starts from.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub root: PathBuf,
    /// Build output; the demo and tool installs live here too, so that `cargo clean` removes everything.
    pub target: PathBuf,
}

impl Workspace {
    /// Asks cargo. Fails outside a workspace.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let metadata = cargo_metadata::MetadataCommand::new()
            .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .no_deps()
            .exec()
            .context("`cargo metadata` failed: is this the checkout that xtask was built from?")?;
        Ok(Self { root: metadata.workspace_root.into(), target: metadata.target_directory.into() })
    }

    /// A `cargo` command that runs at the root.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root).args(arguments);
        command
    }

    /// A program as `cargo build` leaves it.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }
}
