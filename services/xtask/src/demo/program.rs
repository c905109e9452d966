//! A child process that says where it listens, writes a log, and never outlives its owner.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

/// From start to the line that names the sockets.
const START_MAX: Duration = Duration::from_secs(20);
/// From SIGTERM to the end; then SIGKILL.
const STOP_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// How much of a log is shown when its program fails.
const LOG_LINES_SHOWN: usize = 15;

/// A running program.
pub(crate) struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `command` with stderr in `folder/name.log` and returns the JSON of its first line on stdout.
    pub(crate) fn start(name: &str, mut command: Command, folder: &Path) -> anyhow::Result<(Self, serde_json::Value)> {
        let log = folder.join(format!("{name}.log"));
        let stderr = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        // A group of its own: Ctrl-C reaches the demo alone, which then stops the gateway before the pods.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut program = Self { name: name.to_owned(), child, log };
        match program.first_line() {
            Ok(line) => Ok((program, line)),
            Err(error) => Err(error.context(program.last_words())),
        }
    }

    /// Fails when the program has ended by itself.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("{} ended with {status}\n{}", self.name, self.last_words()),
        }
    }

    /// Asks politely, then kills. Fails when it had to be killed or did not end with 0.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        let status = self.end()?;
        anyhow::ensure!(status.success(), "{} ended with {status} after SIGTERM\n{}", self.name, self.last_words());
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop {}", self.name))?;
        }
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    fn first_line(&mut self) -> anyhow::Result<serde_json::Value> {
        let stdout = self.child.stdout.take().expect("stdout was asked for as a pipe");
        let (send, received) = channel();
        std::thread::spawn(move || {
            // Reads on after the first line, so that the program never blocks on a full pipe.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                drop(send.send(line));
            }
        });
        let line = received.recv_timeout(START_MAX).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow::anyhow!("{} named no socket within {START_MAX:?}", self.name),
            RecvTimeoutError::Disconnected => anyhow::anyhow!("{} ended before it named its socket", self.name),
        })?;
        serde_json::from_str(&line).with_context(|| format!("{} said `{line}` instead of its sockets", self.name))
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n  ");
        format!("the end of {}:\n  {shown}", self.log.display())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Nothing can be done about a child that does not even die of SIGKILL.
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-program-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_first_line_is_read_and_the_program_stopped() {
        let folder = folder("stopped");
        let script = "trap 'exit 0' TERM; echo '{\"listen\":\"127.0.0.1:1\"}'; while :; do sleep 0.05; done";
        let (mut program, line) = Program::start("pod", shell(script), &folder).unwrap();
        assert_eq!(line["listen"], "127.0.0.1:1");
        program.check_alive().unwrap();
        program.stop().unwrap();
        assert!(program.check_alive().is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_program_that_fails_shows_its_log() {
        let folder = folder("fails");
        let error = Program::start("pod", shell("echo no such profile >&2; exit 2"), &folder).err().unwrap();
        assert!(format!("{error:#}").contains("no such profile"), "{error:#}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_program_that_ends_badly_is_told() {
        let folder = folder("badly");
        let script = "trap 'exit 3' TERM; echo '{}'; while :; do sleep 0.05; done";
        let (mut program, _) = Program::start("pod", shell(script), &folder).unwrap();
        assert!(program.stop().unwrap_err().to_string().contains("after SIGTERM"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
