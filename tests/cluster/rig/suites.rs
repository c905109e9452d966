//! The upstream conformance suites: built from their pinned modules into the cache, run inside a cluster of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use crate::{Setup, cache, go, namespace};

/// What every run is told about us.
const ABOUT: [&str; 6] = [
    "-organization=inference-gateway",
    "-project=inference-gateway",
    "-url=https://github.com/inference-gateway/inference-gateway",
    concat!("-version=v", env!("CARGO_PKG_VERSION")),
    "-contact=https://github.com/inference-gateway/inference-gateway/issues",
    "-gateway-class=inference-gateway",
];

/// Runs the suite whose Go module is in `module`; `flags` are its own.
///
/// # Errors
/// When it cannot be built, or the cluster cannot start.
pub(crate) fn run(setup: Setup, module: &Path, flags: &[String]) -> anyhow::Result<ExitCode> {
    let suite = build(module)?;
    let mut command = vec![suite.to_string_lossy().into_owned(), "-test.v".into(), "-test.timeout=60m".into()];
    command.extend(ABOUT.map(str::to_owned));
    command.extend_from_slice(flags);
    namespace::run(setup, &command)
}

fn build(module: &Path) -> anyhow::Result<PathBuf> {
    let module = module.canonicalize()?;
    let name = module.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let read = |file: &str| fs::read(module.join(file));
    let sources = [read("go.mod")?, read("go.sum")?, read("conformance_test.go")?];
    let inputs: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let folder = cache::folder(&format!("suite-{name}"), &inputs, |folder| {
        eprintln!("cluster-rig: building the conformance suite {name}; about two minutes the first time");
        let mut command = Command::new(go::find()?);
        go::run(command.current_dir(&module).args(["test", "-c", "-o"]).arg(folder.join("suite")).arg("."))
    })?;
    Ok(folder.join("suite"))
}
