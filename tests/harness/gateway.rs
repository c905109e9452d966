//! A gateway process, as an operator would run it.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    admin::Admin,
    config::Config,
    programs::{Program, program},
    wait::{eventually, soon},
};

/// A running gateway.
pub struct Gateway {
    /// The process.
    pub process: Program,
    /// Where clients connect.
    pub data: SocketAddr,
    /// Where operators connect.
    pub admin: Admin,
    folder: TempDir,
}

impl Gateway {
    /// Starts a gateway on `config` and waits until it is ready.
    pub fn start(config: &Config) -> Self {
        Self::start_with(config, &[])
    }

    /// [`Gateway::start`] with further options.
    pub fn start_with(config: &Config, options: &[&str]) -> Self {
        let gateway = Self::launch(&config.yaml(), options);
        gateway.ready();
        gateway
    }

    /// [`Gateway::start`] with further variables in its environment.
    pub fn start_in(config: &Config, environment: &[(&str, &str)]) -> Self {
        let gateway = Self::launch_in(&config.yaml(), &[], environment);
        gateway.ready();
        gateway
    }

    /// Starts a gateway and does not wait for it to be ready.
    pub fn launch(yaml: &str, options: &[&str]) -> Self {
        Self::launch_in(yaml, options, &[])
    }

    /// [`Gateway::launch`] with further variables in its environment.
    ///
    /// # Panics
    /// When it does not say where it listens.
    pub fn launch_in(yaml: &str, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let config = folder.path().join("gateway.yaml");
        fs::write(&config, yaml).expect("a temporary file can be written");
        Self::spawn(folder, &config, options, environment)
    }

    /// [`Gateway::launch`] with its log on a pipe that nobody ever reads.
    ///
    /// # Panics
    /// When it does not say where it listens.
    pub fn launch_unread(yaml: &str, options: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let config = folder.path().join("gateway.yaml");
        fs::write(&config, yaml).expect("a temporary file can be written");
        let log = folder.path().join("log");
        fs::write(&log, "nobody reads this log").expect("a temporary file can be written");
        Self::spawn_with(Command::new(program("inference-gateway")), folder, &config, options, &[], Stdio::piped())
    }

    /// [`Gateway::start`] with at most so many file descriptors.
    ///
    /// # Panics
    /// When it does not say where it listens.
    pub fn start_limited(config: &Config, descriptors: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let path = folder.path().join("gateway.yaml");
        fs::write(&path, config.yaml()).expect("a temporary file can be written");
        let log = File::create(folder.path().join("log")).expect("a temporary file can be made");
        let mut command = Command::new("sh");
        command.args(["-c", r#"ulimit -n "$0" && exec "$@""#, descriptors]).arg(program("inference-gateway"));
        let gateway = Self::spawn_with(command, folder, &path, &[], &[], Stdio::from(log));
        gateway.ready();
        gateway
    }

    /// Starts a gateway on a file or directory that is there already, and does not wait for it to be ready.
    ///
    /// # Panics
    /// When it does not say where it listens.
    pub fn launch_on(config: &Path, options: &[&str]) -> Self {
        Self::spawn(TempDir::new().expect("a temporary folder can be made"), config, options, &[])
    }

    fn spawn(folder: TempDir, config: &Path, options: &[&str], environment: &[(&str, &str)]) -> Self {
        let log = File::create(folder.path().join("log")).expect("a temporary file can be made");
        let command = Command::new(program("inference-gateway"));
        Self::spawn_with(command, folder, config, options, environment, Stdio::from(log))
    }

    fn spawn_with(
        mut command: Command,
        folder: TempDir,
        config: &Path,
        options: &[&str],
        environment: &[(&str, &str)],
        log: Stdio,
    ) -> Self {
        command.arg("--config").arg(config);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--cores", "2"]).args(options);
        command.envs(environment.iter().copied());
        let mut process = Program::start(command.stderr(log));
        let line = process.line();
        let Some(bound) = line.as_deref().and_then(|line| serde_json::from_str::<Value>(line).ok()) else {
            let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            panic!("the gateway did not start: {line:?}\n{log}\n{}", config.display());
        };
        let address = |key: &str| bound[key].as_str().and_then(|text| text.parse().ok()).expect("an address");
        Self { process, data: address("data"), admin: Admin::new(address("admin")), folder }
    }

    /// Waits until it is ready for work.
    pub fn ready(&self) {
        soon("the gateway is ready", || self.admin.get("/readyz").status == 200);
    }

    /// The configuration's file.
    pub fn config_path(&self) -> PathBuf {
        self.folder.path().join("gateway.yaml")
    }

    /// Puts another configuration in force and waits until it is.
    pub fn apply(&self, config: &Config) {
        let before = self.admin.json("/api/v1/config")["generation"].as_u64();
        self.write(&config.yaml());
        soon("the new configuration is in force", || self.admin.json("/api/v1/config")["generation"].as_u64() > before);
    }

    /// Replaces the configuration's file, as an editor does.
    pub fn write(&self, yaml: &str) {
        let next = self.folder.path().join("next");
        fs::write(&next, yaml).expect("a temporary file can be written");
        fs::rename(next, self.config_path()).expect("a temporary file can be renamed");
    }

    /// What it wrote to standard error so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).expect("the log can be read")
    }

    /// The log's lines of requests.
    pub fn requests(&self) -> Vec<Value> {
        let lines = self.log();
        let parsed = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        parsed.filter(|line| line["message"] == "request").collect()
    }

    /// The one log line of a request; waits for it.
    pub fn request(&self, id: &str) -> Value {
        eventually(&format!("a log line of {id}"), Duration::from_secs(10), || {
            let mut lines = self.requests().into_iter().filter(|line| line["x-request-id"] == id);
            let line = lines.next()?;
            assert!(lines.next().is_none(), "two log lines of {id}");
            Some(line)
        })
    }

    /// Resident memory now, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most memory that was ever resident, in bytes.
    pub fn peak_memory_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a process has resident memory");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
        kib * 1024
    }
}
