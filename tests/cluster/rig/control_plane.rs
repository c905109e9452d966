//! etcd, the API server and the controllers, as processes with logs of their own.

use std::{
    fs::{self, File},
    io::Read as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use kube::{Client, Config, config::KubeConfigOptions};

use crate::{
    assets::Assets,
    credentials::{self, Bearer},
    place::{API_PORT, NODE_ADDRESS, Place, SERVICE_CIDR},
};

const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";
/// From start to an API server that answers; seconds where nothing else runs.
const READY_MAX: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(100);
/// The real ones that objects of the tests depend on. No scheduler and no node lifecycle: there is one node, and it is
/// simulated.
const CONTROLLERS: &str = "deployment,replicaset,statefulset,daemonset,job,cronjob,endpointslice,endpoint,\
                           garbagecollector,namespace,serviceaccount,root-ca-cert-publisher,disruption,\
                           horizontalpodautoscaling,clusterrole-aggregation";

/// The running parts, in the order of their start.
pub(crate) struct ControlPlane {
    parts: Vec<(&'static str, Child)>,
}

impl ControlPlane {
    /// Starts everything, writes the kubeconfigs, and returns when the API server answers.
    ///
    /// # Errors
    /// When a part ends or does not answer; its log's end is in the text.
    pub(crate) async fn start(assets: &Assets, place: &Place, outside_port: u16) -> anyhow::Result<(Self, Client)> {
        let token = secrets(place)?;
        let mut plane = Self { parts: Vec::new() };
        plane.launch("etcd", etcd(assets, place), place)?;
        plane.launch("apiserver", api_server(assets, place), place)?;
        let client = plane.ready(place, &token, outside_port).await?;
        plane.launch("controllers", controllers(assets, place), place)?;
        Ok((plane, client))
    }

    /// Fails when a part has ended.
    ///
    /// # Errors
    /// When one has.
    pub(crate) fn check(&mut self, place: &Place) -> anyhow::Result<()> {
        for (name, child) in &mut self.parts {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(place.file(&format!("{name}.log"))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                anyhow::bail!("{name} ended with {status}:\n{}", lines[lines.len().saturating_sub(8)..].join("\n"));
            }
        }
        Ok(())
    }

    fn launch(&mut self, name: &'static str, mut command: Command, place: &Place) -> anyhow::Result<()> {
        let log = File::create(place.file(&format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.parts.push((name, child));
        Ok(())
    }

    async fn ready(&mut self, place: &Place, token: &str, outside_port: u16) -> anyhow::Result<Client> {
        let authority = place.file("pki/apiserver.crt");
        let started = tokio::time::Instant::now();
        loop {
            self.check(place)?;
            anyhow::ensure!(started.elapsed() < READY_MAX, "the API server does not answer within {READY_MAX:?}");
            tokio::time::sleep(POLL).await;
            if !authority.is_file() {
                continue;
            }
            let server = format!("https://{NODE_ADDRESS}:{API_PORT}");
            let bearer = Bearer::Token(token);
            credentials::write(&place.file("admin.conf"), &server, &authority, &bearer, "default")?;
            let client = client(place).await?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            if client.request_text(request).await.is_ok_and(|text| text == "ok") {
                let server = format!("https://127.0.0.1:{outside_port}");
                credentials::write(&place.file("outside.conf"), &server, &authority, &bearer, "default")?;
                return Ok(client);
            }
        }
    }
}

async fn client(place: &Place) -> anyhow::Result<Client> {
    let kubeconfig = kube::config::Kubeconfig::read_from(place.file("admin.conf"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Writes the keys that the parts share; returns the administrator's token.
fn secrets(place: &Place) -> anyhow::Result<String> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    fs::write(place.file("pki/sa.key"), key.serialize_pem())?;
    fs::write(place.file("pki/sa.pub"), key.public_key_pem())?;
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(place.file("pki/tokens.csv"), format!("{token},admin,admin,system:masters\n"))?;
    Ok(token)
}

fn etcd(assets: &Assets, place: &Place) -> Command {
    let mut command = assets.part("etcd", "etcd");
    // A cluster that lives for minutes needs no disk that remembers.
    command.arg("--unsafe-no-fsync").args(["--log-level", "error"]).arg("--data-dir").arg(place.file("etcd"));
    command.args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD]);
    command.args(["--listen-peer-urls", ETCD_PEER, "--initial-advertise-peer-urls", ETCD_PEER]);
    command.args(["--initial-cluster", &format!("default={ETCD_PEER}")]);
    command
}

fn api_server(assets: &Assets, place: &Place) -> Command {
    let address = NODE_ADDRESS.to_string();
    let mut command = assets.part("apiserver", "kube-apiserver");
    command.args(["--etcd-servers", ETCD, "--secure-port", &API_PORT.to_string()]);
    command.args(["--bind-address", &address, "--advertise-address", &address]);
    command.arg("--cert-dir").arg(place.file("pki")).arg("--token-auth-file").arg(place.file("pki/tokens.csv"));
    command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    command.arg("--service-account-key-file").arg(place.file("pki/sa.pub"));
    command.arg("--service-account-signing-key-file").arg(place.file("pki/sa.key"));
    command.args(["--service-cluster-ip-range", SERVICE_CIDR, "--authorization-mode", "RBAC", "--allow-privileged"]);
    command.args(["--kubelet-preferred-address-types", "InternalIP"]);
    command
}

fn controllers(assets: &Assets, place: &Place) -> Command {
    let config = place.file("admin.conf");
    let mut command = assets.part("controllers", "kube-controller-manager");
    for option in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(option).arg(&config);
    }
    command.args(["--bind-address", "127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=false"]);
    command.arg("--service-account-private-key-file").arg(place.file("pki/sa.key"));
    command.arg("--root-ca-file").arg(place.file("pki/apiserver.crt"));
    command.args(["--cluster-signing-cert-file", "", "--cluster-signing-key-file", ""]);
    command.args(["--controllers", CONTROLLERS]);
    // Tests wait for these.
    command.args(["--concurrent-gc-syncs", "10", "--endpointslice-updates-batch-period", "0s"]);
    command
}
