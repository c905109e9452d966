//! Reads the text files of the checkout once, for all rules.
//!
//! Walks the folders itself instead of asking git, so that it works in an unpacked archive too. What is built or
//! installed is left out by name.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Folders that hold nothing written by hand.
const LEFT_OUT: [&str; 5] = [".git", ".venv", "__pycache__", "node_modules", "target"];
/// Files that tools write and check themselves; `.git` is one in a linked worktree.
const GENERATED: [&str; 3] = [".git", "Cargo.lock", "package-lock.json"];
/// What the rules read; pictures and archives are not text.
const TEXT: [&str; 15] =
    ["css", "html", "js", "json", "md", "mjs", "proto", "py", "rs", "sh", "toml", "ts", "txt", "yaml", "yml"];
/// A larger file is data, and reading it would tell nothing.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// One text file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// From the root, with forward slashes.
    pub path: String,
    pub text: String,
}

impl Source {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Tests have no limit of length: a table of cases may be long.
    pub(crate) fn is_test(&self) -> bool {
        let folder =
            self.path.starts_with("tests/") || self.path.contains("/tests/") || self.path.contains("/benches/");
        folder || self.path.ends_with("/tests.rs")
    }
}

/// Every text file below `root`, ordered by path.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    walk(root, "", &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// The names of everything at the root, ordered.
pub(crate) fn root_entries(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = entries(root)?.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    names.sort();
    Ok(names)
}

fn walk(folder: &Path, prefix: &str, sources: &mut Vec<Source>) -> anyhow::Result<()> {
    for (name, kind) in entries(folder)? {
        let (path, full) = (format!("{prefix}{name}"), folder.join(&name));
        if kind.is_dir() && !LEFT_OUT.contains(&name.as_str()) {
            walk(&full, &format!("{path}/"), sources)?;
        } else if kind.is_file() && is_text(&name) && fs::metadata(&full)?.len() <= FILE_BYTES_MAX {
            let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            sources.push(Source { path, text: String::from_utf8_lossy(&bytes).into_owned() });
        }
    }
    Ok(())
}

fn is_text(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let plain = extension.is_none() || name == ".ci" || name.starts_with('.') && name.matches('.').count() == 1;
    !GENERATED.contains(&name) && (plain || extension.is_some_and(|extension| TEXT.contains(&extension)))
}

fn entries(folder: &Path) -> anyhow::Result<Vec<(String, fs::FileType)>> {
    let listing = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let named = listing.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?))
    });
    named.collect()
}

#[cfg(test)]
pub(crate) fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_by_its_name() {
        for name in ["main.rs", "README.md", "run", ".clippy.toml", "LICENSE", ".gitignore"] {
            assert!(is_text(name), "{name}");
        }
        for name in ["Cargo.lock", "logo.png", "chart.tgz"] {
            assert!(!is_text(name), "{name}");
        }
    }

    #[test]
    fn the_checkout_itself_is_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let files = read(&root).unwrap();
        assert!(files.iter().any(|file| file.path == "services/xtask/src/tidy/sources.rs"));
        assert!(files.iter().all(|file| !file.path.starts_with("target/")));
    }
}
