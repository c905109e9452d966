//! Where things are: addresses inside the namespace, and files of one cluster.
//!
//! Ports may be fixed, because the namespace is empty when the cluster starts.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// Pods live here.
pub(crate) const POD_CIDR: &str = "10.250.0.0/16";
/// ClusterIPs live here.
pub(crate) const SERVICE_CIDR: &str = "10.96.0.0/16";
/// Of the node, which is also where the API server and the kubelet listen. EndpointSlices refuse loopback addresses.
pub(crate) const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 250, 0, 1);
/// Name of the node.
pub(crate) const NODE: &str = "rig";
/// Of the API server, on the node's address.
pub(crate) const API_PORT: u16 = 6443;
/// Of the kubelet, where the API server fetches logs from.
pub(crate) const KUBELET_PORT: u16 = 10250;
/// ClusterIP of the Service `kubernetes`.
pub(crate) const API_SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));

/// The folder of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    root: PathBuf,
}

/// How to get into a cluster's namespace; written when it is up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Door {
    /// A process whose network and user namespaces are the cluster's.
    pub pid: u32,
    /// Whether there is a user namespace to enter first.
    pub user_namespace: bool,
}

impl Place {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// When that cannot be done.
    pub(crate) fn at(root: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(root.join("pods")).with_context(|| format!("cannot make {}", root.display()))?;
        fs::create_dir_all(root.join("pki"))?;
        fs::create_dir_all(root.join("bin"))?;
        Ok(Self { root: root.canonicalize()? })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// For processes inside the namespace.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// For processes of the machine, through the bridge.
    pub(crate) fn outside_kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig-outside")
    }

    /// The socket of the bridge; sockets of the file system cross network namespaces.
    pub(crate) fn bridge(&self) -> PathBuf {
        self.file("bridge.sock")
    }

    /// Everything of one pod: its logs, volumes and credentials.
    pub(crate) fn pod(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.root.join("pods").join(format!("{namespace}_{name}_{uid}"))
    }

    pub(crate) fn door(&self) -> PathBuf {
        self.file("door.json")
    }
}

/// Where `up` remembers the cluster that it started last.
pub(crate) fn last_started() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("inference-gateway-cluster-{user}"))
}
