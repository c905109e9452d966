//! Programs from Debian's packages: Prometheus and Chromium.
//!
//! Prometheus is unpacked, not installed: its package would start a server of its own. Chromium needs too many libraries
//! for that, so it is installed where it is missing, which takes root.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{finish, install, on_path, run, say};
use crate::http::request;

/// What apt is told: ask nothing, and wait while somebody else installs.
const APT: [&str; 5] = ["-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"];

/// Installs packages. Fails when not root or without a Debian to ask.
pub(super) fn apt_install(packages: &[&str]) -> Result<(), String> {
    let names = packages.join(" ");
    let told = |error: String| format!("run `apt-get install {names}` as root: {error}");
    say(&format!("installing {names} with apt-get"));
    let once = || {
        run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(APT).arg("install").args(packages))
    };
    // A fresh machine has no lists yet; one with old lists asks for what is gone.
    once().or_else(|_| apt_update().and_then(|()| once())).map(drop).map_err(told)
}

fn apt_update() -> Result<(), String> {
    run(Command::new("apt-get").args(["update", "-q"])).map(drop)
}

/// Where Prometheus's programs are.
fn prometheus(name: &str) -> PathBuf {
    static DONE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = DONE.get_or_init(|| match (on_path("prometheus"), on_path("promtool")) {
        (Some(server), Some(_)) => Ok(server.parent().expect("a program is in a folder").into()),
        _ => install("prometheus", "Debian's", unpack_prometheus).map(|folder| folder.join("usr/bin")),
    });
    folder.clone().unwrap_or_else(|error| panic!("{error}")).join(name)
}

fn unpack_prometheus(folder: &Path) -> Result<(), String> {
    let fetch = || run(Command::new("apt-get").current_dir(folder).args(["download", "-q", "prometheus"]));
    fetch()
        .or_else(|_| apt_update().and_then(|()| fetch()))
        .map_err(|error| format!("install Debian's package `prometheus` by hand, as root: {error}"))?;
    let files = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let package = files
        .filter_map(Result::ok)
        .map(|file| file.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package.ok_or("apt-get downloaded no package")?;
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(folder)).map(drop)?;
    fs::remove_file(package).map_err(|error| error.to_string())
}

/// A running Prometheus server.
pub struct Prometheus {
    process: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that reads the metrics page of `target` twice a second.
    ///
    /// # Panics
    /// When it does not start.
    pub fn watching(target: SocketAddr) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let config = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\n\
             scrape_configs: [{{job_name: gateway, static_configs: [{{targets: [\"{target}\"]}}]}}]\n"
        );
        fs::write(folder.path().join("prometheus.yml"), config).expect("a temporary file can be written");
        let mut command = Command::new(prometheus("prometheus"));
        command.current_dir(folder.path()).arg("--config.file=prometheus.yml").arg("--storage.tsdb.path=data");
        command.arg("--web.listen-address=127.0.0.1:0").stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = command.stderr(Stdio::piped()).spawn().expect("Prometheus can be started");
        let log = BufReader::new(process.stderr.take().expect("standard error is piped"));
        let mut lines = log.lines().map_while(Result::ok);
        let mut seen = String::new();
        let address = lines.by_ref().find_map(|line| {
            seen = format!("{seen}{line}\n");
            line.split_once("msg=\"Listening on\" address=").and_then(|(_, address)| address.trim().parse().ok())
        });
        let Some(address) = address else {
            let _ = process.kill();
            panic!("Prometheus did not start:\n{seen}");
        };
        // It would stop at a full pipe.
        thread::spawn(move || lines.for_each(drop));
        Self { process, address, _folder: folder }
    }

    /// Asks its API; gives the `data`.
    pub fn ask(&self, path: &str) -> Value {
        let answer = request(self.address, "GET", path, &[], "");
        // It listens before it is ready.
        if answer.status == 503 { Value::Null } else { answer.json()["data"].clone() }
    }

    /// The series that an expression gives now, each with labels in `metric` and its `value`.
    pub fn query(&self, expression: &str) -> Vec<Value> {
        let escape =
            |byte: u8| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        let expression: String = expression.bytes().map(escape).collect();
        let data = self.ask(&format!("/api/v1/query?query={expression}"));
        data["result"].as_array().cloned().unwrap_or_default()
    }

    /// What `promtool check metrics` says of a page; nothing when all is well.
    pub fn check(page: &str) -> String {
        let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        fs::write(file.path(), page).expect("a temporary file can be written");
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" check metrics < \"$1\""]).arg(prometheus("promtool")).arg(file.path());
        let output = finish(&mut command);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        if output.status.success() { text } else { format!("{}: {text}", output.status) }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Either may fail because it has ended, which is what is wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A browser without a window.
#[derive(Debug)]
pub struct Chromium {
    program: PathBuf,
}

/// A page as a browser has it after its scripts have run.
#[derive(Debug)]
pub struct Page {
    /// The document, serialised.
    pub document: String,
    /// Addresses that the page itself asked for.
    pub asked_for: Vec<String>,
    /// What it wrote to the console, and what the browser refused it.
    pub console: Vec<String>,
    /// A picture of its top, PNG.
    pub picture: Vec<u8>,
}

impl Chromium {
    /// Installs it unless it is there.
    ///
    /// # Panics
    /// When that fails; the text says what to do.
    pub fn installed() -> Self {
        static DONE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let program = DONE.get_or_init(|| {
            let names = ["chromium", "chromium-browser", "google-chrome"];
            if let Some(found) = names.into_iter().find_map(on_path) {
                return Ok(found);
            }
            // Without a font, which is only recommended, a page is blank.
            apt_install(&["chromium", "fonts-liberation"])?;
            on_path("chromium").ok_or_else(|| "Debian's chromium package holds no `chromium`".to_owned())
        });
        Self { program: program.clone().unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Opens a page of this machine.
    ///
    /// # Panics
    /// When the browser fails.
    pub fn open(&self, url: &str) -> Page {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let at = |name: &str| folder.path().join(name);
        let mut command = Command::new(&self.program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--proxy-server=direct://", "--window-size=1200,1600", "--virtual-time-budget=10000"]);
        command.args(["--enable-logging=stderr", "--log-level=0", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", at("profile").display()));
        command.arg(format!("--log-net-log={}", at("net.json").display()));
        command.arg(format!("--screenshot={}", at("page.png").display()));
        let output = finish(command.arg(url));
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "Chromium ended with {}:\n{log}", output.status);
        let net = fs::read(at("net.json")).expect("Chromium writes its network log");
        let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
        Page {
            document: String::from_utf8_lossy(&output.stdout).into_owned(),
            asked_for: asked_for(&net, &origin),
            console: log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect(),
            picture: fs::read(at("page.png")).expect("Chromium writes the picture"),
        }
    }
}

/// Addresses in a network log whose request was begun by a page of `origin`; the browser has requests of its own.
fn asked_for(log: &[u8], origin: &str) -> Vec<String> {
    let log: Value = serde_json::from_slice(log).expect("a network log is JSON");
    let events = log["events"].as_array().expect("a network log has events");
    let mine = events.iter().map(|event| &event["params"]).filter(|params| params["initiator"] == origin);
    mine.filter_map(|params| params["url"].as_str()).map(str::to_owned).collect()
}
