//! A controller as a process of the test, in the place of those that the installation runs.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use harness::{Admin, Cluster, Program, program};
use serde_json::Value;

use crate::product::SYSTEM;

/// The controllers of the installation, away for as long as this value lives.
pub(crate) struct NoController {
    pub(crate) cluster: Cluster,
}

/// One controller of the test's own. Dropping it kills it.
pub(crate) struct Controller {
    pub(crate) process: Program,
    pub(crate) admin: Admin,
}

impl NoController {
    pub(crate) fn for_a_while(cluster: Cluster) -> Self {
        let this = Self { cluster };
        scale_controller(cluster, 0);
        no_controller(cluster);
        this
    }

    /// As if the time of whoever had it were over.
    fn free_the_lease(&self) {
        let words = ["--namespace", SYSTEM, "delete", "lease", "inference-gateway-controller", "--ignore-not-found"];
        self.cluster.kubectl(&words);
    }

    /// Starts one, and waits until it leads.
    pub(crate) fn start(&self, kubeconfig: &Path, environment: &[(&str, &str)]) -> Controller {
        self.free_the_lease();
        let mut command = Command::new(program("inference-gateway-controller"));
        command.args(["--data-plane-image=inference-gateway:0.1.0", "--bind-address=127.0.0.1", "--admin-port=0"]);
        command.env("KUBECONFIG", kubeconfig).envs(environment.iter().copied()).stderr(Stdio::null());
        let mut process = Program::start(&mut command);
        let told: Value = serde_json::from_str(&process.line().expect("it says where it listens")).unwrap();
        let admin: SocketAddr = told["admin"].as_str().unwrap().parse().unwrap();
        let this = Controller { process, admin: Admin::new(admin) };
        self.cluster.eventually("it leads", || this.leads().then_some(()));
        this
    }
}

impl Drop for NoController {
    fn drop(&mut self) {
        self.free_the_lease();
        scale_controller(self.cluster, 2);
    }
}

impl Controller {
    /// Whether it may write.
    pub(crate) fn leads(&self) -> bool {
        self.admin.metric("inference_gateway_controller_leader", &[]) == Some(1.0)
    }
}

/// How many the installation runs.
pub(crate) fn scale_controller(cluster: Cluster, replicas: u32) {
    let replicas = format!("--replicas={replicas}");
    cluster.kubectl(&["--namespace", SYSTEM, "scale", "deploy/inference-gateway-controller", &replicas]);
}

/// Waits until the installation runs none.
pub(crate) fn no_controller(cluster: Cluster) {
    let selector = "app.kubernetes.io/name=inference-gateway-controller";
    let words = ["--namespace", SYSTEM, "get", "pods", "--selector", selector, "-o", "name"];
    cluster.eventually("the controller has ended", || cluster.kubectl(&words).trim().is_empty().then_some(()));
}
