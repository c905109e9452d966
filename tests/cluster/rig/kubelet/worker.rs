//! One pod, from the moment it is bound to this node until its object is gone.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    Shared,
    board::{Board, View},
    container::{Restart, Runner},
    status::{self, Transitions},
    volumes::{CREDENTIALS, Volumes},
};
use crate::{
    credentials::{self, Bearer},
    place::{API_PORT, NODE_ADDRESS},
};

/// How often volumes follow the objects that they show. A real kubelet takes up to a minute.
const REFRESH: Duration = Duration::from_secs(2);
/// Tokens are renewed long before they expire.
const TOKEN_RENEWAL: Duration = Duration::from_secs(1800);
/// Between tries to report a status.
const RETRY: Duration = Duration::from_millis(300);
/// Looks of an init container that serves beside the others.
const LOOK: Duration = Duration::from_millis(20);

/// What is known of the pod's object; `None` when it is gone.
pub(crate) type Object = watch::Receiver<Option<Arc<Pod>>>;

/// Runs the pod.
pub(crate) async fn run(shared: Arc<Shared>, ip: IpAddr, mut object: Object) {
    let Some(pod) = object.borrow_and_update().clone() else { return };
    let Some(spec) = pod.spec.clone() else { return };
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let board = Board::new(containers().map(|container| container.name.as_str()));
    let mut views = board.subscribe();
    let (stop, stopped) = watch::channel(None);
    let metadata = &pod.metadata;
    let [namespace, name, uid] =
        [&metadata.namespace, &metadata.name, &metadata.uid].map(|part| part.clone().unwrap_or_default());
    let folder = shared.place.pod(&namespace, &name, &uid);
    let life = Life { shared: shared.clone(), pod: pod.clone(), ip, folder, board };
    let mut life = tokio::spawn(life.live(stopped));
    let mut report = Report::new(shared, namespace, name, uid, ip);
    let mut alive = true;
    loop {
        let now = object.borrow_and_update().clone();
        let Some(current) = now else {
            // Deleted without grace, or while this node was not looking.
            stop.send_replace(Some(Instant::now()));
            finish(&mut life, alive).await;
            return;
        };
        if current.metadata.deletion_timestamp.is_some() {
            shorten(&stop, &current);
        }
        let seen = views.borrow_and_update().clone();
        report.send(&current, &seen).await;
        if !alive && current.metadata.deletion_timestamp.is_some() {
            report.delete().await;
            return;
        }
        tokio::select! {
            changed = object.changed() => if changed.is_err() { stop.send_replace(Some(Instant::now())); return },
            _ = views.changed(), if alive => {}
            _ = &mut life, if alive => alive = false,
            () = sleep(RETRY), if report.owes => {}
        }
    }
}

async fn finish(life: &mut JoinHandle<()>, alive: bool) {
    if alive {
        // It ends once its processes have; a panic in it ends it too.
        let _ = life.await;
    }
}

/// Tells the containers when to be gone: the earlier of what they know and what the object says now.
fn shorten(stop: &watch::Sender<Option<Instant>>, pod: &Pod) {
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok()).unwrap_or(30);
    let deadline = Instant::now() + Duration::from_secs(grace);
    stop.send_if_modified(|known| {
        let earlier = known.is_none_or(|known| deadline < known);
        if earlier {
            *known = Some(deadline);
        }
        earlier
    });
}

/// The pod's containers and what they need.
struct Life {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    ip: IpAddr,
    folder: PathBuf,
    board: Board,
}

impl Life {
    /// Ends when all containers are done.
    async fn live(self, mut stop: watch::Receiver<Option<Instant>>) {
        let ready = tokio::select! {
            () = self.set_up() => true,
            _ = stop.wait_for(Option::is_some) => false,
        };
        let Some(spec) = self.pod.spec.clone().filter(|_| ready) else { return };
        let this = Arc::new(self);
        let upkeep = tokio::spawn(this.clone().keep_up());
        let policy = Restart::parsed(spec.restart_policy.as_deref());
        let mut beside = Vec::new();
        for container in spec.init_containers.into_iter().flatten() {
            if container.restart_policy.is_some() {
                beside.push(tokio::spawn(this.clone().contain(container.clone(), Restart::Always, stop.clone())));
                this.until_started(&container.name, &stop).await;
                continue;
            }
            let name = container.name.clone();
            // An init container that succeeded is not started again, whatever the pod's policy.
            let init = if policy == Restart::Never { Restart::Never } else { Restart::OnFailure };
            this.clone().contain(container, init, stop.clone()).await;
            let ended = this.board.view(&name);
            if stop.borrow().is_some() || !matches!(ended.state, super::board::State::Ended(ref end) if end.code == 0) {
                upkeep.abort();
                return;
            }
        }
        let main = spec.containers.into_iter().map(|container| this.clone().contain(container, policy, stop.clone()));
        join_all(main).await;
        beside.iter().for_each(JoinHandle::abort);
        upkeep.abort();
    }

    async fn contain(self: Arc<Self>, container: Container, restart: Restart, stop: watch::Receiver<Option<Instant>>) {
        let runner = Runner::new(self.shared.clone(), self.pod.clone(), container, self.ip, self.folder.clone());
        runner.run(&self.board, restart, stop).await;
    }

    async fn until_started(&self, name: &str, stop: &watch::Receiver<Option<Instant>>) {
        while !self.board.view(name).started && stop.borrow().is_none() {
            sleep(LOOK).await;
        }
    }

    /// Tries until volumes and credentials are there.
    async fn set_up(&self) {
        loop {
            match self.fill().await {
                Ok(()) => return,
                Err(why) => {
                    self.shared.tell(&self.pod, "FailedMount", &why);
                    sleep(RETRY).await;
                }
            }
        }
    }

    async fn fill(&self) -> Result<(), String> {
        std::fs::create_dir_all(&self.folder).map_err(|error| error.to_string())?;
        self.volumes(&self.ip.to_string()).fill().await?;
        let spec = self.pod.spec.as_ref();
        let mut mounts = spec.iter().flat_map(|spec| spec.containers.iter()).flat_map(|one| one.volume_mounts.iter());
        if mounts.any(|mounts| mounts.iter().any(|mount| mount.mount_path == CREDENTIALS)) {
            self.credentials().await?;
        }
        Ok(())
    }

    /// A kubeconfig that speaks for the pod's service account.
    async fn credentials(&self) -> Result<(), String> {
        let token = self.volumes(&self.ip.to_string()).token(Vec::new()).await?;
        let file = self.folder.join("token");
        let unfinished = self.folder.join("token.unfinished");
        std::fs::write(&unfinished, token).map_err(|error| error.to_string())?;
        std::fs::rename(unfinished, &file).map_err(|error| error.to_string())?;
        let server = format!("https://{NODE_ADDRESS}:{API_PORT}");
        let authority = self.shared.place.file("pki/apiserver.crt");
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        credentials::write(&self.folder.join("kubeconfig"), &server, &authority, &Bearer::File(&file), namespace)
            .map_err(|error| error.to_string())
    }

    fn volumes<'a>(&'a self, ip: &'a str) -> Volumes<'a> {
        Volumes { client: &self.shared.client, pod: &self.pod, ip, folder: &self.folder }
    }

    /// Keeps volumes and credentials fresh.
    async fn keep_up(self: Arc<Self>) {
        let follows = self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let follows = follows.into_iter().any(|volume| volume.config_map.is_some() || volume.secret.is_some());
        let mut renewal = Instant::now() + TOKEN_RENEWAL;
        loop {
            sleep(if follows { REFRESH } else { TOKEN_RENEWAL }).await;
            let outcome = if Instant::now() >= renewal {
                renewal += TOKEN_RENEWAL;
                self.fill().await
            } else {
                self.volumes(&self.ip.to_string()).fill().await
            };
            if let Err(why) = outcome {
                // What was there stays, as with a real kubelet.
                self.shared.tell(&self.pod, "FailedMount", &why);
            }
        }
    }
}

/// What the API server was told of the pod.
struct Report {
    pods: Api<Pod>,
    name: String,
    uid: String,
    ip: String,
    transitions: Transitions,
    told: Value,
    /// Whether the last try failed.
    owes: bool,
}

impl Report {
    fn new(shared: Arc<Shared>, namespace: String, name: String, uid: String, ip: IpAddr) -> Self {
        let pods = Api::namespaced(shared.client.clone(), &namespace);
        let transitions = Transitions::new();
        Self { pods, name, uid, ip: ip.to_string(), transitions, told: Value::Null, owes: false }
    }

    async fn send(&mut self, pod: &Pod, views: &BTreeMap<String, View>) {
        let status = status::of(pod, views, &self.ip, &mut self.transitions, Timestamp::now());
        if status == self.told {
            self.owes = false;
            return;
        }
        // The UID keeps this from writing into another pod of the same name.
        let patch = Patch::Strategic(json!({"metadata": {"uid": self.uid}, "status": status}));
        match self.pods.patch_status(&self.name, &PatchParams::default(), &patch).await {
            Ok(_) => (self.told, self.owes) = (status, false),
            Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409 | 422) => {
                self.owes = false;
                if error.code == 422 {
                    eprintln!("cluster-rig: the status of pod {} is refused: {}", self.name, error.message);
                }
            }
            Err(_) => self.owes = true,
        }
    }

    /// Removes the object of a pod whose containers are gone.
    async fn delete(&self) {
        let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
        while let Err(error) = self.pods.delete(&self.name, &parameters).await {
            if matches!(&error, kube::Error::Api(error) if matches!(error.code, 404 | 409)) {
                return;
            }
            sleep(RETRY).await;
        }
    }
}
