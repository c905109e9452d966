//! A measured process: started with its log in a file, its CPU time and memory read from `/proc`, ended with its owner.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

const STOP_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);
/// Fields of `/proc/PID/stat` behind the command's closing bracket, counted from 0: utime and stime.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;

/// Resident memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub now_bytes: u64,
    /// The most it ever was.
    pub peak_bytes: u64,
}

/// A running program, ended when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; stderr goes to `log`, stdout is read line by line.
    pub fn start(mut command: Command, log: PathBuf) -> anyhow::Result<Self> {
        let stderr = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let stdout = child.stdout.take().expect("stdout was asked for as a pipe");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // The receiver may have all it wants; reading on keeps the pipe empty.
                let _ = send.send(line);
            }
        });
        Ok(Self { child, lines, log })
    }

    /// The next line on stdout, within `time`.
    pub fn line(&self, time: Duration) -> anyhow::Result<String> {
        self.lines.recv_timeout(time).with_context(|| format!("nothing was said; {}", self.last_words()))
    }

    /// Fails, with the end of its log, when the process has ended.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("it ended with {status}; {}", self.last_words()),
        }
    }

    /// User and system time of all its threads so far, to a clock tick (10 ms).
    pub fn cpu_time(&self) -> anyhow::Result<Duration> {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).context("CPU times need Linux")?;
        let ticks = cpu_ticks(&stat).with_context(|| format!("no CPU times in `{stat}`"))?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    pub fn memory(&self) -> anyhow::Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        memory(&status).with_context(|| format!("no memory in `{status}`"))
    }

    /// The end of its log, for whoever has to say that it failed.
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(10).collect();
        format!("its log ends with:\n{}", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }

    fn ask_to_end(&mut self) -> Option<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).ok()?)?;
        kill_process(pid, Signal::TERM).ok()?;
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if self.child.try_wait().ok()?.is_some() {
                return Some(());
            }
            std::thread::sleep(POLL);
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ask_to_end().is_none() {
            // Nothing can be done about a child that does not even die of SIGKILL.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The program's first line of `--version`, or `unknown`.
pub fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines()
        .find(|line| !line.trim().is_empty())
        .map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}

/// The command may hold blanks and brackets, so fields are counted behind its last closing bracket.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(ticks(USER_TICKS)? + ticks(SYSTEM_TICKS)?)
}

fn memory(status: &str) -> Option<Memory> {
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    Some(Memory { now_bytes: bytes("VmRSS:")?, peak_bytes: bytes("VmHWM:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_found_behind_any_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 3 0 100 200 300";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("42 (a) S 1"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(memory(status), Some(Memory { now_bytes: 1 << 20, peak_bytes: 2 << 20 }));
        assert_eq!(memory("Name:\tx\n"), None);
    }

    #[test]
    fn a_busy_process_is_measured_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo ready; while :; do :; done"]);
        let mut process = Process::start(command, folder.path().join("log")).unwrap();
        assert_eq!(process.line(Duration::from_secs(10)).unwrap(), "ready");
        let deadline = Instant::now() + Duration::from_secs(20);
        while process.cpu_time().unwrap() < Duration::from_millis(30) {
            assert!(Instant::now() < deadline, "a busy loop used no CPU");
            std::thread::sleep(POLL);
        }
        assert!(process.memory().unwrap().now_bytes > 0);
        process.check_alive().unwrap();
        let stat = format!("/proc/{}/stat", process.child.id());
        drop(process);
        assert!(!Path::new(&stat).exists());
    }

    #[test]
    fn a_process_that_ended_shows_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no port >&2; exit 1"]);
        let process = Process::start(command, folder.path().join("log")).unwrap();
        let error = process.line(Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains("no port"), "{error}");
    }
}
