//! `cargo xtask codegen`: the references that are written from the code, never by hand.
//!
//! They need the product's crates, which xtask itself does without (see `main.rs`), so the work is done by the
//! example `references` of this package; examples may use dev-dependencies.

use crate::step;
use crate::workspace::Workspace;

/// What to do about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write the files.
    Write,
    /// Fail, naming the file and its first differing line.
    Check,
}

/// Writes or compares the definitions in `crds/`, and `docs/config.md`, `docs/metrics.md`, `docs/errors.md` and
/// `docs/openapi.yaml`.
pub(crate) fn run(workspace: &Workspace, mode: Mode) -> anyhow::Result<()> {
    let mut command =
        workspace.cargo(&["run", "--quiet", "--locked", "--package", "xtask", "--example", "references", "--"]);
    match mode {
        Mode::Write => command.arg("write"),
        Mode::Check => command.arg("check"),
    };
    command.arg(&workspace.root);
    step::run(&mut command)
}
