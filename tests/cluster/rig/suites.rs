//! The upstream conformance suites: built from their pinned modules into the cache, run inside a cluster of their own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::Context;
use serde_json::json;

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

/// The picker that the inference extension brings for its suite, and where it is named as part of the module.
const PICKER: &str = "lwepp";
const PICKER_SOURCE: &str = "picker.go";
const EXTENSION: &str = "sigs.k8s.io/gateway-api-inference-extension";
/// The definition of pools of the same release, beside the picker.
const POOLS: &str = "pools.yaml";
/// What a suite wants to find in a cluster, beside its module.
const SURROUNDINGS: &str = "surroundings.yaml";
/// Raised when something else is made of a module.
const EDITION: &[u8] = b"2";
/// Where that picker listens, and what stands there instead.
const LISTENS: (&str, &str) = ("fmt.Sprintf(\":%d\", port)", "bindAddress(port)");
const BIND: &str = "package runnable\n\nimport (\n\t\"net\"\n\t\"os\"\n\t\"strconv\"\n)\n\n\
    func bindAddress(port int) string { return net.JoinHostPort(os.Getenv(\"BIND_ADDRESS\"), strconv.Itoa(port)) }\n";

/// Runs the suite whose Go module is in `module`; `flags` are its own.
///
/// # Errors
/// When it cannot be built, or the cluster cannot start.
pub(crate) fn run(mut setup: Setup, module: &Path, flags: &[String]) -> anyhow::Result<ExitCode> {
    let folder = build(module)?;
    let suite = folder.join("suite");
    let picker = folder.join(PICKER);
    if picker.is_file() {
        let images = folder.join("images.yaml");
        let run = json!(["env", "BIND_ADDRESS={ip}", picker, "{args}", "--metrics-port", "0"]);
        fs::write(&images, json!([{"image": [format!("*/{PICKER}")], "run": run}]).to_string())?;
        setup.images.push(images);
        // The suite's release asks less of a pool than the one whose other kinds the rig installs.
        setup.apply.insert(0, folder.join(POOLS));
    }
    setup.apply.extend([module.join(SURROUNDINGS)].into_iter().filter(|manifests| manifests.is_file()));
    let mut command = vec![suite.to_string_lossy().into_owned(), "-test.v".into(), "-test.timeout=60m".into()];
    command.extend(ABOUT.map(str::to_owned));
    command.extend_from_slice(flags);
    namespace::run(setup, &command)
}

fn build(module: &Path) -> anyhow::Result<PathBuf> {
    let module = module.canonicalize()?;
    let name = module.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let read = |file: &str| fs::read(module.join(file));
    let mut sources = vec![EDITION.to_vec(), read("go.mod")?, read("go.sum")?, read("conformance_test.go")?];
    sources.extend(read(PICKER_SOURCE));
    let inputs: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let folder = cache::folder(&format!("suite-{name}"), &inputs, |folder| {
        eprintln!("cluster-rig: building the conformance suite {name}; about two minutes the first time");
        let mut command = Command::new(go::find()?);
        go::run(command.current_dir(&module).args(["test", "-c", "-o"]).arg(folder.join("suite")).arg("."))?;
        if module.join(PICKER_SOURCE).is_file() { build_picker(&module, folder) } else { Ok(()) }
    })?;
    Ok(folder)
}

/// The picker that the inference extension's suite deploys. It listens on all addresses, and pods share one network
/// here: it is built with the one line that listens bound to the pod's address instead. Nothing else is changed.
fn build_picker(module: &Path, folder: &Path) -> anyhow::Result<()> {
    let go = go::find()?;
    let output = Command::new(&go).current_dir(module).args(["list", "-m", "-f", "{{.Dir}}", EXTENSION]).output()?;
    let original = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let scratch = tempfile::tempdir()?;
    let copy = scratch.path().join("module");
    go::run(Command::new("cp").args(["-r", "--no-preserve=mode", &original]).arg(&copy))?;
    let listener = copy.join("internal/runnable/grpc.go");
    let text = fs::read_to_string(&listener).with_context(|| format!("reading {}", listener.display()))?;
    anyhow::ensure!(text.contains(LISTENS.0), "{}: the line that listens is not as expected", listener.display());
    fs::write(&listener, text.replace(LISTENS.0, LISTENS.1))?;
    fs::write(listener.with_file_name("bind.go"), BIND)?;
    let kinds = copy.join("config/crd/bases/inference.networking.k8s.io_inferencepools.yaml");
    fs::copy(&kinds, folder.join(POOLS)).with_context(|| format!("reading {}", kinds.display()))?;
    let mut command = Command::new(go);
    command.current_dir(&copy).env("GOWORK", "off").args(["build", "-buildvcs=false", "-o"]);
    go::run(command.arg(folder.join(PICKER)).arg(format!("./cmd/{PICKER}")))
}
