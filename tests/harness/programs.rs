//! The product's own programs as processes.

use std::{
    env,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
};

/// Where a program of this workspace was built: beside the test that runs.
///
/// # Panics
/// When it is not there; the text says how to build it.
pub fn program(name: &str) -> PathBuf {
    let test = env::current_exe().expect("a test knows its own path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("tests are built in deps/ of a profile's folder");
    let path = profile.join(name);
    assert!(
        path.exists(),
        "{} is not built: run `cargo build --bins` (or `cargo xtask test`, which does)",
        path.display()
    );
    path
}

/// A running process. Dropping it kills it.
pub struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    /// Starts `command` with its standard output piped.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("standard output is piped"));
        Self { child, stdout }
    }

    /// The next line of standard output; nothing at its end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line).expect("standard output is text");
        (read > 0).then_some(line)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, such as `TERM`.
    ///
    /// # Panics
    /// When `kill` cannot be run.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status();
        assert!(status.expect("kill can be run").success(), "kill -{name} {}", self.id());
    }

    /// The exit code, once it has ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.child.try_wait().expect("a child can be waited for").map(|status| status.code())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Either may fail because it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
