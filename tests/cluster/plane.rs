//! A data plane as a process of the test, with the API server behind a wire that the test can cut.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use harness::{Admin, Answer, Cluster, Program, Space, eventually, program, request};
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::product::SYSTEM;

/// The first two bytes of addresses that no pod of the rig gets.
const PLANES: [u8; 3] = [10, 250, 250];

static NEXT: AtomicU8 = AtomicU8::new(1);

/// A data plane of one Gateway.
pub(crate) struct Plane {
    /// Ends with this value.
    _process: Program,
    pub(crate) admin: Admin,
    /// Where the listener at port 80 is.
    pub(crate) data: SocketAddr,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Plane {
    /// Starts one and does not wait for it to be ready.
    pub(crate) fn launch(space: &Space, kubeconfig: &Path, state: Option<&Path>) -> Self {
        let [a, b, c] = PLANES;
        let ip = Ipv4Addr::new(a, b, c, NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new(program("inference-gateway"));
        command.args(["--kubernetes", "--gateway", &format!("{SYSTEM}/{}", space.name)]);
        command.args(["--bind-address", &ip.to_string(), "--admin", "127.0.0.1:0", "--cores", "1"]);
        command.env("KUBECONFIG", kubeconfig).stderr(Stdio::from(File::create(&log).unwrap()));
        if let Some(state) = state {
            command.arg("--state-dir").arg(state);
        }
        let mut process = Program::start(&mut command);
        let line = process.line().unwrap_or_else(|| panic!("{}", fs::read_to_string(&log).unwrap()));
        let told: Value = serde_json::from_str(&line).unwrap();
        let admin = Admin::new(told["admin"].as_str().unwrap().parse().unwrap());
        Self { _process: process, admin, data: (ip, 10_080).into(), log, _folder: folder }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.admin.get("/readyz").status == 200
    }

    pub(crate) fn ready(&self) {
        eventually(&format!("ready; the log is {}", self.log.display()), Duration::from_secs(30), || {
            self.is_ready().then_some(())
        });
    }

    /// Names of the endpoints of a pool that take work.
    pub(crate) fn endpoints(&self, pool: &str) -> Vec<String> {
        let pools = self.admin.json("/api/v1/pools");
        let pool = pools["pools"].as_array().and_then(|pools| pools.iter().find(|it| it["name"] == pool).cloned());
        let endpoints = pool.and_then(|pool| pool["endpoints"].as_array().cloned()).unwrap_or_default();
        let open = endpoints.iter().filter(|endpoint| endpoint["state"] != "draining");
        let mut names: Vec<String> = open.map(|endpoint| endpoint["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

/// The API server in plain HTTP.
pub(crate) struct Api {
    _proxy: Program,
    address: SocketAddr,
    namespace: String,
}

impl Api {
    pub(crate) fn of(space: &Space) -> Self {
        let mut command = Command::new(Cluster::shared().folder().join("bin/kubectl"));
        let mut proxy = Program::start(command.args(["proxy", "--port=0", "--accept-hosts=.*"]));
        let line = proxy.line().expect("kubectl proxy says where it listens");
        let address = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Self { _proxy: proxy, address, namespace: space.name.clone() }
    }

    fn call(&self, method: &str, path: &str, kind: &str, body: &Value) -> Answer {
        let path = format!("/api/v1/namespaces/{}/pods{path}", self.namespace);
        let answer = request(self.address, method, &path, &[("content-type", kind)], body.to_string());
        assert!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.text());
        answer
    }

    /// Creates a pod on a node that nobody tends, so that its status is what the test says.
    pub(crate) fn create(&self, name: &str, app: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": "nobody-tends-it", "containers": [{"name": "main", "image": "nothing"}]},
        });
        self.call("POST", "", "application/json", &pod);
    }

    pub(crate) fn status(&self, name: &str, ip: &str, ready: &str) {
        let status = json!({"status": {
            "phase": "Running", "hostIP": "10.9.9.9", "podIP": if ip.is_empty() { Value::Null } else { ip.into() },
            "podIPs": if ip.is_empty() { Value::Null } else { json!([{"ip": ip}]) },
            "conditions": [{"type": "Ready", "status": ready}],
        }});
        self.call("PATCH", &format!("/{name}/status"), "application/merge-patch+json", &status);
    }

    pub(crate) fn label(&self, name: &str, app: &str) {
        let labels = json!({"metadata": {"labels": {"app": app}}});
        self.call("PATCH", &format!("/{name}"), "application/merge-patch+json", &labels);
    }

    /// With a grace of 0 it is gone at once; else it is terminating, for ever, since nobody tends its node.
    pub(crate) fn delete(&self, name: &str, grace_s: u32) {
        let options = json!({"gracePeriodSeconds": grace_s});
        self.call("DELETE", &format!("/{name}"), "application/json", &options);
    }
}

/// How the wire to the API server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Whole,
    /// Connections are closed, and new ones too.
    Cut,
    /// Connections stay open and carry nothing, for good; new ones too.
    Hole,
}

/// A way to the API server that the test rules.
pub(crate) struct Between {
    pub(crate) kubeconfig: PathBuf,
    wire: watch::Sender<Wire>,
    _runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

impl Between {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let text = fs::read_to_string(std::env::var_os("KUBECONFIG").expect("set inside")).unwrap();
        let from = text.find("https://").expect("the API server's address") + "https://".len();
        let end = from + text[from..].find(|c: char| c == '"' || c.is_whitespace()).unwrap_or(text.len() - from);
        let upstream: SocketAddr = text[from..end].trim_end_matches('/').parse().expect("an address and a port");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let own = listener.local_addr().unwrap().to_string();
        fs::write(&kubeconfig, format!("{}{own}{}", &text[..from], &text[end..])).unwrap();
        let wire = watch::Sender::new(Wire::Whole);
        let state = wire.subscribe();
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, upstream, state.clone()));
            }
        });
        Self { kubeconfig, wire, _runtime: runtime, _folder: folder }
    }

    pub(crate) fn set(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }

    /// For a thread that rules the wire.
    pub(crate) fn wire(&self) -> watch::Sender<Wire> {
        self.wire.clone()
    }
}

async fn carry(mut client: TcpStream, upstream: SocketAddr, mut wire: watch::Receiver<Wire>) {
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server), if *wire.borrow() == Wire::Whole => return,
        state = wire.wait_for(|wire| *wire != Wire::Whole) => {
            if state.is_ok_and(|state| *state == Wire::Cut) {
                return;
            }
        }
    }
    // Held for as long as the hole is there or anybody else holds on: it never carries anything again.
    std::future::pending::<()>().await;
}
