//! What takes minutes to build is kept outside the clone, under a key made of everything it was built from.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::Context;
use sha2::{Digest, Sha256};

/// Hexadecimal digits of a key: more than enough for the few things that are ever kept.
const KEY_DIGITS: usize = 16;

/// The folder of `name` for these inputs; `make` fills it unless an earlier run has.
///
/// Two runs at once build once: the second waits. What was built half never counts, because the folder gets its name
/// only when it is whole.
///
/// # Errors
/// When the cache cannot be written, or `make` fails.
pub(crate) fn folder(
    name: &str,
    inputs: &[&[u8]],
    make: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<PathBuf> {
    let root = root()?;
    fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
    let place = root.join(format!("{name}-{}", key(inputs)));
    let lock = File::create(root.join(format!("{name}.lock"))).context("cannot lock the cache")?;
    lock.lock().context("cannot lock the cache")?;
    if place.is_dir() {
        return Ok(place);
    }
    let unfinished = root.join(format!("{name}.unfinished"));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).context("cannot remove what an earlier build left")?;
    }
    fs::create_dir_all(&unfinished)?;
    make(&unfinished)?;
    fs::rename(&unfinished, &place).context("cannot put into the cache what was built")?;
    Ok(place)
}

fn root() -> anyhow::Result<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    Ok(base.context("neither XDG_CACHE_HOME nor HOME says where a cache may be")?.join("inference-gateway"))
}

fn key(inputs: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for input in inputs {
        hash.update((input.len() as u64).to_be_bytes());
        hash.update(input);
    }
    let text: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    text[..KEY_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_apart_what_was_cut_elsewhere() {
        assert_eq!(key(&[b"a", b"bc"]), key(&[b"a", b"bc"]));
        assert_ne!(key(&[b"a", b"bc"]), key(&[b"ab", b"c"]));
        assert_eq!(key(&[]).len(), KEY_DIGITS);
    }
}
