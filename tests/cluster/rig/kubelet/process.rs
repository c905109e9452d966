//! One process of a container: started in a group of its own, so that a kill takes its children too.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::watch;

/// Exit code of a process that a signal ended, less the signal's number.
const SIGNALLED: i32 = 128;

/// A running process.
#[derive(Clone)]
pub(crate) struct Process {
    pid: Pid,
    ended: watch::Receiver<Option<i32>>,
}

impl Process {
    /// Starts `words` with exactly these variables; output is appended to `log`, where there is one.
    ///
    /// # Errors
    /// When it cannot be started; the text is for the pod's status.
    pub(crate) fn start(
        words: &[String],
        variables: &BTreeMap<String, String>,
        folder: &Path,
        log: Option<&Path>,
    ) -> Result<Self, String> {
        let (program, arguments) = words.split_first().ok_or("the command has no word")?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().envs(variables).current_dir(folder).stdin(Stdio::null()).process_group(0);
        match log {
            None => command.stdout(Stdio::null()).stderr(Stdio::null()),
            Some(log) => {
                let file = OpenOptions::new().create(true).append(true).open(log).map_err(|error| error.to_string())?;
                let copy = file.try_clone().map_err(|error| error.to_string())?;
                command.stdout(copy).stderr(file)
            }
        };
        let mut child = command.spawn().map_err(|error| format!("cannot start {program}: {error}"))?;
        let pid = Pid::from_child(&child);
        let (tell, ended) = watch::channel(None);
        std::thread::spawn(move || {
            let code = child
                .wait()
                .map_or(1, |status| status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or_default()));
            // What it left behind in its group has no one to answer to.
            let _ = kill_process_group(pid, Signal::KILL);
            tell.send_replace(Some(code));
        });
        Ok(Self { pid, ended })
    }

    /// As seen inside the cluster's namespace.
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits for the end; the exit code, with 128 added to the number of a signal.
    pub(crate) async fn end(&self) -> i32 {
        let mut ended = self.ended.clone();
        let code = ended.wait_for(Option::is_some).await.map(|code| *code);
        code.ok().flatten().unwrap_or(1)
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        if self.ended.borrow().is_none() {
            // It may have ended just now, which is what is wanted.
            let _ = kill_process(self.pid, Signal::TERM);
        }
    }

    /// Ends it and its children.
    pub(crate) fn kill(&self) {
        if self.ended.borrow().is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let variables = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
        let words = ["sh", "-c", script].map(str::to_owned);
        Process::start(&words, &variables, Path::new("/"), None).unwrap()
    }

    #[tokio::test]
    async fn codes_and_signals_are_told_apart() {
        assert_eq!(shell("exit 3").end().await, 3);
        let sleeper = shell("sleep 1000");
        sleeper.kill();
        assert_eq!(sleeper.end().await, 137);
        let polite = shell("exec sleep 1000");
        polite.terminate();
        assert_eq!(polite.end().await, 143);
    }

    #[tokio::test]
    async fn what_cannot_be_started_is_named() {
        let error = Process::start(&["no-such-program".into()], &BTreeMap::new(), Path::new("/"), None).err().unwrap();
        assert!(error.contains("no-such-program"), "{error}");
    }
}
