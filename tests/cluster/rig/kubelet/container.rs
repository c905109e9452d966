//! One container: started, probed, restarted with a growing pause, and stopped with the grace it is given.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    Shared,
    board::{Board, Ended, State},
    environment::{Sources, expanded},
    probe,
    process::Process,
    volumes::{CREDENTIALS, Mounts},
};
use crate::place::{API_SERVICE, NODE_ADDRESS};

/// Pause before the first restart; it doubles. A real kubelet begins with 10 s: tests should not wait that long.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A run of this length is forgiven what went before.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);
/// Between tries to set a container up.
const SETUP_PAUSE: Duration = Duration::from_millis(500);
/// Grace after a failed probe, unless the pod says otherwise.
const GRACE_DEFAULT_SECONDS: u64 = 30;

/// When the pod has to be gone; may come nearer.
pub(crate) type Stop = watch::Receiver<Option<Instant>>;

/// Whether a container that ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    pub(crate) fn parsed(policy: Option<&str>) -> Self {
        match policy {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    fn after(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// What is known of a container before it runs.
pub(crate) struct Runner {
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    container: Container,
    ip: IpAddr,
    folder: PathBuf,
    variables: watch::Sender<BTreeMap<String, String>>,
}

impl Runner {
    pub(crate) fn new(shared: Arc<Shared>, pod: Arc<Pod>, container: Container, ip: IpAddr, folder: PathBuf) -> Self {
        Self { shared, pod, container, ip, folder, variables: watch::Sender::new(BTreeMap::new()) }
    }

    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Runs the container until it is done: ended for good, or stopped.
    pub(crate) async fn run(&self, board: &Board, restart: Restart, mut stop: Stop) {
        let name = self.container.name.as_str();
        let mut pause = PAUSE_FIRST;
        while stop.borrow().is_none() {
            let process = tokio::select! {
                process = self.begin(board) => process,
                _ = stop.wait_for(Option::is_some) => break,
            };
            let started = (Timestamp::now(), Instant::now());
            board.change(name, |view| view.state = State::Running { since: started.0, pid: process.pid() });
            let code = self.attend(&process, board, &mut stop).await;
            let ended = Ended { code, started: started.0, finished: Timestamp::now() };
            let again = stop.borrow().is_none() && restart.after(code);
            board.change(name, |view| {
                view.state = State::Ended(ended.clone());
                (view.ready, view.started, view.done) = (false, false, !again);
            });
            if !again {
                break;
            }
            if started.1.elapsed() > FORGIVEN_AFTER {
                pause = PAUSE_FIRST;
            }
            board.change(name, |view| {
                view.state = State::Waiting {
                    reason: "CrashLoopBackOff",
                    message: format!("back-off {} s restarting failed container={name}", pause.as_secs()),
                };
                view.last = Some(ended);
                view.restarts += 1;
            });
            tokio::select! { () = sleep(pause) => {}, _ = stop.wait_for(Option::is_some) => {} }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        board.change(name, |view| {
            view.done = true;
            // A real kubelet reports a container that was waiting when its pod went as ended, too.
            if let State::Waiting { .. } = view.state {
                let now = Timestamp::now();
                view.state = State::Ended(Ended { code: 137, started: now, finished: now });
            }
        });
    }

    /// Tries until the process is started.
    async fn begin(&self, board: &Board) -> Process {
        loop {
            match self.start().await {
                Ok(process) => return process,
                Err((reason, message)) => {
                    board.change(&self.container.name, |view| view.state = State::Waiting { reason, message });
                    sleep(SETUP_PAUSE).await;
                }
            }
        }
    }

    async fn start(&self) -> Result<Process, (&'static str, String)> {
        let wrong = |message| ("CreateContainerConfigError", message);
        let sources = Sources {
            client: &self.shared.client,
            pod: &self.pod,
            container: &self.container,
            ip: &self.ip.to_string(),
            host_ip: &NODE_ADDRESS.to_string(),
        };
        let own = sources.variables().await.map_err(wrong)?;
        let mounts = Mounts::of(&self.pod, &self.container, &self.folder);
        let words = |list: &Option<Vec<String>>| -> Vec<String> {
            list.iter().flatten().map(|word| mounts.rewritten(&expanded(word, &own))).collect()
        };
        let (command, args) = (words(&self.container.command), words(&self.container.args));
        let mut variables = self.surroundings(&mounts);
        variables.extend(own.iter().map(|(name, value)| (name.clone(), mounts.rewritten(value))));
        let found = self.shared.images.command(&self.container, &command, &args, &self.ip.to_string(), &variables);
        let line = found.map_err(|message| ("ErrImagePull", message))?;
        self.variables.send_replace(variables.clone());
        Process::start(&line, &variables, &self.folder, Some(&self.log()))
            .map_err(|message| ("RunContainerError", message))
    }

    /// What every container finds in its environment.
    fn surroundings(&self, mounts: &Mounts) -> BTreeMap<String, String> {
        let name = self.pod.metadata.name.clone().unwrap_or_default();
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
        let mut variables = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("HOSTNAME".to_owned(), name),
            ("HOME".to_owned(), self.folder.to_string_lossy().into_owned()),
            ("KUBERNETES_SERVICE_HOST".to_owned(), API_SERVICE.to_string()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()),
        ]);
        // Clients read their token at a fixed path, which cannot be mounted here: they get a kubeconfig instead.
        if mounts.find(CREDENTIALS).is_some() {
            let kubeconfig = self.folder.join("kubeconfig").to_string_lossy().into_owned();
            variables.insert("KUBECONFIG".to_owned(), kubeconfig);
        }
        variables
    }

    fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.container.name))
    }

    /// Waits for the end of a process, its probes' verdict, or the stop; returns the exit code.
    async fn attend(&self, process: &Process, board: &Board, stop: &mut Stop) -> i32 {
        let verdict = tokio::select! {
            code = process.end() => return code,
            why = probe::watch_over(self, board) => Some(why),
            _ = stop.wait_for(Option::is_some) => None,
        };
        if let Some(why) = verdict {
            self.shared.tell(&self.pod, "Unhealthy", &why);
            board.change(&self.container.name, |view| view.ready = false);
            let grace = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
            let grace = grace.and_then(|grace| u64::try_from(grace).ok()).unwrap_or(GRACE_DEFAULT_SECONDS);
            let deadline = Instant::now() + Duration::from_secs(grace);
            process.terminate();
            if let Ok(code) = timeout_at(deadline, process.end()).await {
                return code;
            }
            process.kill();
            return process.end().await;
        }
        // Readiness is still told while it ends: a server that drains may say so.
        tokio::select! {
            code = self.end(process, stop) => code,
            _ = probe::watch_over(self, board) => self.end(process, stop).await,
        }
    }

    /// Ends a process within the grace that is left, which may shrink meanwhile.
    async fn end(&self, process: &Process, stop: &mut Stop) -> i32 {
        let mut told = false;
        loop {
            let deadline = stop.borrow_and_update().unwrap_or_else(Instant::now);
            let gentle = async {
                if !told {
                    self.before_stop().await;
                    process.terminate();
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                code = process.end() => return code,
                () = gentle => {}
                () = sleep_until(deadline) => {
                    process.kill();
                    return process.end().await;
                }
                // A second deletion with less grace; the hook is not run again.
                _ = stop.changed() => {
                    process.terminate();
                    told = true;
                }
            }
        }
    }

    async fn before_stop(&self) {
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        let Some(LifecycleHandler { exec, sleep: pause, .. }) = hook else { return };
        if let Some(pause) = pause {
            sleep(Duration::from_secs(u64::try_from(pause.seconds).unwrap_or_default())).await;
        }
        if let Some(exec) = exec
            && let Err(why) = self.exec(exec.command.as_deref().unwrap_or_default()).await
        {
            self.shared.tell(&self.pod, "FailedPreStopHook", &why);
        }
    }

    /// Runs a command beside the container's process, with its variables.
    ///
    /// # Errors
    /// When it cannot be started or fails.
    pub(crate) async fn exec(&self, command: &[String]) -> Result<(), String> {
        let mounts = Mounts::of(&self.pod, &self.container, &self.folder);
        let words: Vec<String> = command.iter().map(|word| mounts.rewritten(word)).collect();
        let variables = self.variables.borrow().clone();
        let process = Killed(Process::start(&words, &variables, &self.folder, None)?);
        match process.0.end().await {
            0 => Ok(()),
            code => Err(format!("{} ended with {code}", words.join(" "))),
        }
    }
}

/// A command whose waiting was given up does not run on.
struct Killed(Process);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_follow_the_policy() {
        for (policy, after_success, after_failure) in [
            (None, true, true),
            (Some("Always"), true, true),
            (Some("OnFailure"), false, true),
            (Some("Never"), false, false),
        ] {
            let restart = Restart::parsed(policy);
            assert_eq!((restart.after(0), restart.after(1)), (after_success, after_failure), "{policy:?}");
        }
    }
}
