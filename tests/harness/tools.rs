//! Tools of other languages and projects, installed by the tests that need them.
//!
//! A test that skips itself where a tool is missing shows nothing, so nothing is skipped: what is not there is installed
//! under `target/tools` and kept for the next run, and where that cannot be done the test fails and says what to do. A
//! file lock lets parallel tests and test programs install each tool once. A tool is installed anew when what is asked of
//! it changes; to get newer releases of everything, delete `target/tools`.

mod debian;
mod scripts;

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

pub use debian::{Chromium, Page, Prometheus};
pub use scripts::{Node, Python};

/// Longest time that a tool may run for one test, machine under load and all.
const RUN_MAX: Duration = Duration::from_secs(180);

/// The file in a tool's folder that says what was installed; written last.
const STAMP: &str = "installed";

/// Where tools are installed: beside the profiles' folders, so that all profiles share them and `cargo clean` takes them.
fn folder() -> PathBuf {
    let test = env::current_exe().expect("a test knows its own path");
    let target = test.ancestors().nth(3).expect("tests are built in <target>/<profile>/deps");
    target.join("tools")
}

/// The folder of tool `name`, which `make` fills unless an earlier run has, for the same `wanted`.
fn install(name: &str, wanted: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let place = folder().join(name);
    let failed = |error: io::Error| format!("cannot install into {}: {error}", place.display());
    fs::create_dir_all(folder()).map_err(failed)?;
    let lock = File::create(folder().join(format!("{name}.lock"))).map_err(failed)?;
    lock.lock().map_err(failed)?;
    let stamp = place.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|was| was == wanted) {
        return Ok(place);
    }
    if place.exists() {
        fs::remove_dir_all(&place).map_err(failed)?;
    }
    fs::create_dir_all(&place).map_err(failed)?;
    say(&format!("installing {name} into {}", place.display()));
    let started = Instant::now();
    make(&place).map_err(|error| format!("cannot install {name}: {error}"))?;
    fs::write(stamp, wanted).map_err(failed)?;
    say(&format!("installed {name} in {:.1} s", started.elapsed().as_secs_f64()));
    Ok(place)
}

/// Progress, past the capture of tests' output: an install may take a minute.
fn say(text: &str) {
    // Whether anybody reads it changes nothing.
    let _ = writeln!(io::stderr(), "tests: {text}");
}

/// Runs an installer; its output is shown only when it fails.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} ended with {}:\n{text}{errors}", output.status))
}

/// Whether a program of that name can be started.
fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Runs a tool to its end and gives what it wrote.
///
/// # Panics
/// When it cannot be started or does not end within [`RUN_MAX`].
fn finish(command: &mut Command) -> Output {
    let [out, err] = [(); 2].map(|()| tempfile::NamedTempFile::new().expect("a temporary file can be made"));
    let handle = |file: &tempfile::NamedTempFile| file.reopen().expect("a temporary file can be opened again");
    command.stdin(Stdio::null()).stdout(handle(&out)).stderr(handle(&err));
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let read = |file: &tempfile::NamedTempFile| fs::read(file.path()).expect("a temporary file can be read");
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Output { status, stdout: read(&out), stderr: read(&err) };
        }
        if started.elapsed() > RUN_MAX {
            let _ = child.kill();
            let text = String::from_utf8_lossy(&[read(&out), read(&err)].concat()).into_owned();
            panic!("{command:?} did not end within {RUN_MAX:?}; it wrote:\n{text}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
