//! `cluster-rig`: a Kubernetes cluster without containers, for tests and demonstrations.
//!
//! etcd, the API server, the controllers and `kubectl` are the real ones, built from their Go modules. The node is a
//! simulated one: a kubelet that starts a process of this machine for each container, on an address of the pod's own,
//! and a stand-in for kube-proxy. All of it lives in one network namespace, so nothing of the machine is touched, and in
//! one PID namespace, so nothing outlives it. It is no sandbox: pods run as the user who started the rig.

mod assets;
mod bridge;
mod cache;
mod control_plane;
mod credentials;
mod echo;
mod go;
mod inside;
mod kubelet;
mod namespace;
mod place;
mod service_proxy;
mod suites;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

/// A Kubernetes cluster without containers.
#[derive(Debug, Parser)]
#[command(name = "cluster-rig", version)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build what the rig needs into the cache, and say where it is
    Build,
    /// Start a cluster and keep it until Ctrl-C
    Up {
        #[command(flatten)]
        setup: Setup,
    },
    /// Start a cluster, run a command inside its network, end the cluster, and exit as the command did
    Run {
        #[command(flatten)]
        setup: Setup,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run a command inside the network of a cluster that is up
    Enter {
        /// Folder of the cluster [default: of the one that `up` started last]
        #[arg(long)]
        dir: Option<PathBuf>,
        /// The command and its arguments [default: a shell]
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Run an upstream conformance suite in a cluster of its own
    Suite {
        #[command(flatten)]
        setup: Setup,
        /// Folder of its Go module, such as tests/conformance/gateway-api
        module: PathBuf,
        /// Flags of the suite
        #[arg(last = true)]
        flags: Vec<String>,
    },
    /// The part that runs inside the namespace; started by `up` and `run`
    #[command(hide = true)]
    Inside {
        #[command(flatten)]
        setup: Setup,
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// The echo server that stands for images of test suites; started for pods
    #[command(hide = true)]
    Echo {
        /// The pod's address
        #[arg(long)]
        bind_address: std::net::IpAddr,
    },
}

/// What a cluster is started with.
#[derive(Args, Clone, Debug)]
struct Setup {
    /// Folder for its state, logs and kubeconfig [default: a new temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Further files that say which command stands for which image; the first that knows an image wins
    #[arg(long = "images", value_name = "FILE")]
    images: Vec<PathBuf>,
    /// Manifests to apply at start, after the upstream kinds: a file or a folder; may be repeated
    #[arg(long = "apply", value_name = "PATH")]
    apply: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().task {
        Task::Build => assets::Assets::obtain().map(|assets| {
            println!("{}\n{}", assets.program.display(), assets.kinds.display());
            ExitCode::SUCCESS
        }),
        Task::Up { setup } => namespace::up(setup),
        Task::Run { setup, command } => namespace::run(setup, &command),
        Task::Enter { dir, command } => namespace::enter(dir, &command),
        Task::Suite { setup, module, flags } => suites::run(setup, &module, &flags),
        Task::Inside { setup, command } => inside::run(&setup, &command),
        Task::Echo { bind_address } => echo::run(bind_address).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("cluster-rig: {error:#}");
        ExitCode::FAILURE
    })
}
