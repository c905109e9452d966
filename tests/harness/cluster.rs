//! A Kubernetes cluster for tests: real control plane, simulated node, pods that are real servers on this machine.
//!
//! A test program that asks for the cluster is started again inside the cluster's network, where pods and Services can be
//! reached by their addresses; all its tests share one cluster, and each takes a namespace of its own. The first line of
//! its output therefore appears twice.

use std::{
    env,
    io::Write as _,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::programs::program;

/// Set inside; the folder of the cluster.
const INSIDE: &str = "CLUSTER_RIG";
/// How long anything in a cluster may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

static NAMESPACES: AtomicUsize = AtomicUsize::new(0);

/// The cluster that this test program runs in.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    _inside: (),
}

/// A namespace of one test; deleted with it.
#[derive(Debug)]
pub struct Space {
    cluster: Cluster,
    /// Its name.
    pub name: String,
}

impl Cluster {
    /// The cluster of this test program: started with its first use, ended with the program.
    ///
    /// Outside of one, this starts the program again inside a new one and does not return.
    ///
    /// # Panics
    /// When the cluster cannot be started; the text says why.
    pub fn shared() -> Self {
        if env::var_os(INSIDE).is_some() {
            return Self { _inside: () };
        }
        let mut rig = Command::new(program("cluster-rig"));
        rig.arg("run");
        // Our kinds, access, class and controllers, as an operator installs them.
        rig.arg("--apply").arg(workspace().join("addon-manifest"));
        rig.arg("--").arg(env::current_exe().expect("a test knows its own path")).args(env::args_os().skip(1));
        panic!("cannot start the cluster: {}", rig.exec());
    }

    /// The folder with the cluster's logs, and with those of its pods in `pods/NAMESPACE_NAME_UID`.
    ///
    /// # Panics
    /// Never inside.
    pub fn folder(&self) -> PathBuf {
        env::var_os(INSIDE).expect("checked when it was made").into()
    }

    /// A namespace that no other test uses. Its name begins with `name`.
    pub fn namespace(&self, name: &str) -> Space {
        let number = NAMESPACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("{name}-{}-{number}", std::process::id());
        self.kubectl(&["create", "namespace", &name]);
        let space = Space { cluster: *self, name };
        // Pods are refused until the account that they run as is there.
        self.eventually("the namespace has its account", || space.try_get("serviceaccount/default"));
        space
    }

    /// Runs `kubectl` and returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    pub fn kubectl(&self, words: &[&str]) -> String {
        self.try_kubectl(words, "").unwrap_or_else(|error| panic!("kubectl {}: {error}", words.join(" ")))
    }

    /// Runs `kubectl` with `input` on its standard input; the error is what it printed on standard error.
    ///
    /// # Errors
    /// When it fails.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn try_kubectl(&self, words: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(self.folder().join("bin/kubectl"));
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the cluster has a kubectl");
        // A kubectl that reads nothing closes the pipe, which is no failure.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("a child can be waited for");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Server-side apply of one or more documents.
    ///
    /// # Panics
    /// When one is refused.
    pub fn apply(&self, yaml: &str) {
        let applied = self.try_kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], yaml);
        applied.unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    }

    /// Asks again and again until there is a value.
    ///
    /// # Panics
    /// When there is none within a minute.
    pub fn eventually<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(value) = ask() {
                return value;
            }
            assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Space {
    /// Runs `kubectl` in this namespace.
    ///
    /// # Panics
    /// When it fails.
    pub fn kubectl(&self, words: &[&str]) -> String {
        self.cluster.kubectl(&[&["--namespace", &self.name], words].concat())
    }

    /// Server-side apply in this namespace.
    ///
    /// # Panics
    /// When a document is refused.
    pub fn apply(&self, yaml: &str) {
        self.try_apply(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    }

    /// [`Space::apply`]; the error is the API server's.
    ///
    /// # Errors
    /// When a document is refused.
    pub fn try_apply(&self, yaml: &str) -> Result<String, String> {
        let words = ["--namespace", &self.name, "apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.cluster.try_kubectl(&words, yaml)
    }

    /// An object, such as `pod/a` or `deploy/b`.
    ///
    /// # Panics
    /// When there is none.
    pub fn get(&self, what: &str) -> Value {
        self.try_get(what).unwrap_or_else(|| panic!("no {what} in {}", self.name))
    }

    /// [`Space::get`] of what may not be there.
    pub fn try_get(&self, what: &str) -> Option<Value> {
        let text = self.cluster.try_kubectl(&["--namespace", &self.name, "get", what, "-o", "json"], "").ok()?;
        serde_json::from_str(&text).ok()
    }

    /// All objects of a kind that `selector` fits (`""` fits all).
    ///
    /// # Panics
    /// When they cannot be listed.
    pub fn list(&self, kind: &str, selector: &str) -> Vec<Value> {
        let text = self.kubectl(&["get", kind, "--selector", selector, "-o", "json"]);
        let list: Value = serde_json::from_str(&text).expect("kubectl writes JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Waits for a condition, such as `Available` of `deploy/a`, to be true.
    ///
    /// # Panics
    /// When it is not within a minute; the text shows the object.
    pub fn wait_for(&self, what: &str, condition: &str) {
        let words = ["--namespace", &self.name, "wait", &format!("--for=condition={condition}"), "--timeout=60s", what];
        if let Err(error) = self.cluster.try_kubectl(&words, "") {
            panic!("{error}\n{}", self.kubectl(&["get", what, "-o", "yaml"]));
        }
    }

    /// Waits until the object is as `holds` says, and returns it.
    ///
    /// # Panics
    /// When it is not within a minute.
    pub fn until(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        self.cluster.eventually(what, || self.try_get(what).filter(|object| holds(object)))
    }

    /// Where a Service's port can be reached from this program.
    ///
    /// # Panics
    /// When there is no such Service with an address.
    pub fn service(&self, name: &str, port: u16) -> SocketAddr {
        let service = self.get(&format!("service/{name}"));
        let ip = service["spec"]["clusterIP"].as_str().and_then(|ip| ip.parse().ok());
        SocketAddr::new(ip.expect("a Service with a ClusterIP"), port)
    }

    /// Where a pod's port can be reached from this program.
    ///
    /// # Panics
    /// When the pod has no address yet.
    pub fn pod(&self, name: &str, port: u16) -> SocketAddr {
        let pod = self.get(&format!("pod/{name}"));
        let ip = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
        SocketAddr::new(ip.expect("a pod with an address"), port)
    }

    /// Sends a signal, such as `KILL`, to the process of a pod's first container.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, pod: &str, signal: &str) {
        let status = self.get(&format!("pod/{pod}"))["status"]["containerStatuses"][0]["containerID"].clone();
        let pid = status.as_str().and_then(|id| id.strip_prefix("process://")).expect("a running container").to_owned();
        let sent = Command::new("kill").args([format!("-{signal}"), pid]).status().expect("kill can be run");
        assert!(sent.success(), "kill -{signal} of pod {pod}");
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // Not waited for: the cluster ends with this program, and names are not used again.
        let words = ["delete", "namespace", &self.name, "--wait=false"];
        let _ = self.cluster.try_kubectl(&words, "");
    }
}

/// The root of the workspace that this was built from.
fn workspace() -> PathBuf {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests are in a folder of the workspace").to_owned()
}
