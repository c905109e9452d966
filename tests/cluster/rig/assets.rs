//! What is built or fetched before a cluster can start: the control plane's program and the kinds of other projects.
//!
//! Everything is done outside the namespace, because inside it nothing outside can be reached.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::Context;

use crate::{cache, go};

const GO_MOD: &str = include_str!("../control-plane/go.mod");
const GO_SUM: &str = include_str!("../control-plane/go.sum");
const MAIN_GO: &str = include_str!("../control-plane/main.go");
const KINDS_MOD: &str = include_str!("../crds/go.mod");
const KINDS_SUM: &str = include_str!("../crds/go.sum");
/// Raised when what is made of the modules changes.
const KINDS_EDITION: &str = "1";

/// The group whose objectives and rewrites the llm-d project carries on under a name of its own.
const OLD_GROUP: &str = "inference.networking.x-k8s.io";
const NEW_GROUP: &str = "llm-d.ai";

/// Where things are.
#[derive(Clone, Debug)]
pub(crate) struct Assets {
    /// etcd, API server, controllers and kubectl in one.
    pub program: PathBuf,
    /// CustomResourceDefinitions of other projects, as files of one folder.
    pub kinds: PathBuf,
}

impl Assets {
    /// Builds and fetches what is not in the cache.
    ///
    /// # Errors
    /// When there is no Go, or a build or download fails.
    pub(crate) fn obtain() -> anyhow::Result<Self> {
        let sources = [GO_MOD, GO_SUM, MAIN_GO].map(str::as_bytes);
        let program = cache::folder("control-plane", &sources, build)?.join("control-plane");
        let inputs = [KINDS_EDITION, KINDS_MOD, KINDS_SUM].map(str::as_bytes);
        let kinds = cache::folder("kinds", &inputs, fetch_kinds)?;
        Ok(Self { program, kinds })
    }

    /// A part of the control plane. Programs of `KUBEBUILDER_ASSETS` come first, where there are such.
    pub(crate) fn part(&self, name: &str, usual_name: &str) -> Command {
        let given = env::var_os("KUBEBUILDER_ASSETS").map(|folder| PathBuf::from(folder).join(usual_name));
        if let Some(program) = given.filter(|program| program.is_file()) {
            return Command::new(program);
        }
        let mut command = Command::new(&self.program);
        command.arg(name);
        command
    }
}

fn build(folder: &Path) -> anyhow::Result<()> {
    let go = go::find()?;
    let started = Instant::now();
    say("building the control plane; on two cores about six minutes the first time, none after");
    let source = tempfile::tempdir()?;
    for (name, text) in [("go.mod", GO_MOD), ("go.sum", GO_SUM), ("main.go", MAIN_GO)] {
        fs::write(source.path().join(name), text)?;
    }
    let release = kubernetes_release(GO_MOD).context("go.mod does not say which Kubernetes")?;
    let mut parts = release.split('.');
    let (major, minor) = (parts.next().unwrap_or("1"), parts.next().unwrap_or("0"));
    let version = "k8s.io/component-base/version";
    let flags = format!(
        "-s -w -X {version}.gitVersion=v{release} -X {version}.gitMajor={major} -X {version}.gitMinor={minor} -X {version}.gitTreeState=clean"
    );
    let mut command = Command::new(go);
    command.current_dir(source.path()).args(["build", "-trimpath", "-buildvcs=false", "-o"]);
    go::run(command.arg(folder.join("control-plane")).args(["-ldflags", &flags, "."]))?;
    say(&format!("built the control plane in {:.0} s", started.elapsed().as_secs_f64()));
    Ok(())
}

fn kubernetes_release(go_mod: &str) -> Option<&str> {
    go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"))
}

fn fetch_kinds(folder: &Path) -> anyhow::Result<()> {
    let go = go::find()?;
    say("fetching the kinds of the Gateway API and of its inference extension");
    let source = tempfile::tempdir()?;
    fs::write(source.path().join("go.mod"), KINDS_MOD)?;
    fs::write(source.path().join("go.sum"), KINDS_SUM)?;
    let output = Command::new(go).current_dir(source.path()).args(["mod", "download", "-json"]).output()?;
    anyhow::ensure!(output.status.success(), "go mod download: {}", String::from_utf8_lossy(&output.stderr));
    let modules = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    for module in modules {
        let module = module?;
        let at = module["Dir"].as_str().context("a module has no folder")?;
        let crds = match module["Path"].as_str() {
            Some("sigs.k8s.io/gateway-api") => Path::new(at).join("config/crd/standard"),
            _ => Path::new(at).join("config/crd/bases"),
        };
        copy_kinds(&crds, folder).with_context(|| format!("reading {}", crds.display()))?;
    }
    Ok(())
}

/// Copies definitions, and nothing else that lies beside them.
fn copy_kinds(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let text = fs::read_to_string(&path)?;
        if !text.lines().any(|line| line == "kind: CustomResourceDefinition") {
            continue;
        }
        fs::write(to.join(name), &text)?;
        // The successor's module is not everywhere to be had; its kinds have the same shape under their new group.
        if name.ends_with("_inferenceobjectives.yaml") || name.ends_with("_inferencemodelrewrites.yaml") {
            fs::write(to.join(name.replace(OLD_GROUP, NEW_GROUP)), text.replace(OLD_GROUP, NEW_GROUP))?;
        }
    }
    Ok(())
}

/// Progress, past the capture of tests' output.
fn say(text: &str) {
    // Whether anybody reads it changes nothing.
    let _ = writeln!(std::io::stderr(), "cluster-rig: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_that_of_the_module() {
        let release = kubernetes_release(GO_MOD).unwrap();
        assert!(release.starts_with("1.") && release.split('.').count() == 3, "{release}");
    }

    #[test]
    fn only_definitions_are_copied_and_the_successor_group_gets_its_own() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let kind = "kind: CustomResourceDefinition\nname: inferenceobjectives.inference.networking.x-k8s.io\n";
        fs::write(from.path().join("inference.networking.x-k8s.io_inferenceobjectives.yaml"), kind).unwrap();
        fs::write(from.path().join("kustomization.yaml"), "kind: Kustomization\n").unwrap();
        copy_kinds(from.path(), to.path()).unwrap();
        let mut names: Vec<_> = fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(
            names,
            ["inference.networking.x-k8s.io_inferenceobjectives.yaml", "llm-d.ai_inferenceobjectives.yaml"]
        );
        let text = fs::read_to_string(to.path().join("llm-d.ai_inferenceobjectives.yaml")).unwrap();
        assert!(text.contains("inferenceobjectives.llm-d.ai") && !text.contains(OLD_GROUP));
    }
}
