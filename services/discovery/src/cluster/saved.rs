//! A snapshot on disk, for a start while the API server is away.
//!
//! One file, replaced as a whole, readable by its owner alone. Secrets are in it only where the directory is in memory
//! (tmpfs), as the kubelet keeps them itself: nothing secret reaches a disk. Elsewhere they are left out, and a start without the
//! API server is one without certificates and keys.
//!
//! What cannot be written or read costs no request: it is said, and done without.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use api::cluster::{Objects, Secret};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::sleep};

/// The file in the directory.
const FILE: &str = "objects.json";
/// Its form: another one is not read.
const VERSION: u32 = 1;
/// Most bytes that are read back.
const BYTES_MAX: u64 = 256 << 20;
/// Least time between two writings.
const EVERY: Duration = Duration::from_secs(5);
/// What `statfs` says of a file system that is in memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Where the snapshots of one follower are kept.
#[derive(Clone, Debug)]
pub struct Saved {
    directory: PathBuf,
    /// Whose snapshot it is: another's is not read.
    owner: String,
}

/// Why a snapshot was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The file system says so.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file holds something else.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// It was written by another release, or for somebody else.
    #[error("{}: of another release or another gateway", .0.display())]
    NotOurs(PathBuf),
}

/// What is in the file.
#[derive(Serialize, Deserialize)]
struct Contents<T> {
    version: u32,
    owner: String,
    objects: T,
}

impl Saved {
    /// In `directory`, for `owner`.
    pub fn new(directory: PathBuf, owner: String) -> Self {
        Self { directory, owner }
    }

    /// The snapshot of an earlier run; `None` when there was none.
    ///
    /// # Errors
    /// When there is one and it cannot be used.
    pub fn read(&self) -> Result<Option<Objects>, SavedError> {
        let path = self.directory.join(FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SavedError::Io { path, error }),
        };
        let mut text = Vec::new();
        if let Err(error) = file.take(BYTES_MAX).read_to_end(&mut text) {
            return Err(SavedError::Io { path, error });
        }
        // The head first: the objects of another release may have another form.
        let head = serde_json::from_slice::<Contents<serde::de::IgnoredAny>>(&text);
        match head {
            Ok(Contents { version: VERSION, owner, .. }) if owner == self.owner => {}
            Ok(_) => return Err(SavedError::NotOurs(path)),
            Err(error) => return Err(SavedError::Unreadable { path, error }),
        }
        let contents: Contents<Objects> =
            serde_json::from_slice(&text).map_err(|error| SavedError::Unreadable { path, error })?;
        Ok(Some(contents.objects))
    }

    /// Writes each snapshot that is told, the newest of those that came within a few seconds, until nobody tells any more.
    pub async fn keep(self, mut told: watch::Receiver<Option<Arc<Objects>>>) {
        let saved = Arc::new(self);
        let mut worked = true;
        while told.changed().await.is_ok() {
            let Some(objects) = told.borrow_and_update().clone() else { continue };
            let to = Arc::clone(&saved);
            let written = tokio::task::spawn_blocking(move || to.write(&objects)).await;
            match written {
                Ok(Ok(())) => worked = true,
                Ok(Err(error)) if worked => {
                    worked = false;
                    tracing::warn!(%error, "the last known state of the cluster is not kept");
                }
                Ok(Err(_)) => {}
                Err(error) => tracing::error!(%error, "writing a snapshot has ended badly: report this"),
            }
            sleep(EVERY).await;
        }
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// When it cannot be written: the former one is still there then.
    pub fn write(&self, objects: &Objects) -> Result<(), SavedError> {
        let path = self.directory.join(FILE);
        let part = self.directory.join(format!("{FILE}.part"));
        let io = |path: &Path| {
            let path = path.to_owned();
            move |error| SavedError::Io { path, error }
        };
        fs::create_dir_all(&self.directory).map_err(io(&self.directory))?;
        let keeps_secrets = is_in_memory(&self.directory).map_err(io(&self.directory))?;
        let bare;
        let objects = if keeps_secrets || objects.secrets.is_empty() {
            objects
        } else {
            bare = Objects { secrets: api::cluster::Kept::<Secret>::new(), ..objects.clone() };
            &bare
        };
        let contents = Contents { version: VERSION, owner: self.owner.clone(), objects };
        let text =
            serde_json::to_vec(&contents).map_err(|error| SavedError::Unreadable { path: path.clone(), error })?;
        // Made anew, so that its mode is ours whatever lay there.
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(&part)(error)),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).map_err(io(&part))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(io(&part))?;
        fs::rename(&part, &path).map_err(io(&path))
    }
}

/// Whether what is written there stays in memory.
fn is_in_memory(directory: &Path) -> io::Result<bool> {
    let kind = rustix::fs::statfs(directory)?.f_type;
    // The type of the field differs between machines; the magic numbers fit into all of them.
    Ok([TMPFS_MAGIC, RAMFS_MAGIC].contains(&(kind as u64)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use api::cluster::ObjectKey;

    use super::*;

    fn objects() -> Objects {
        let mut objects = Objects::default();
        let key = ObjectKey::new("a", "b");
        let pod = serde_json::from_str(r#"{"metadata":{"name":"b","namespace":"a"},"status":{"podIP":"10.0.0.1"}}"#);
        objects.pods.insert(key.clone(), Arc::new(pod.unwrap()));
        let secret = serde_json::from_str(r#"{"metadata":{"name":"b","namespace":"a"},"data":{"k":"c2VjcmV0"}}"#);
        objects.secrets.insert(key, Arc::new(secret.unwrap()));
        objects
    }

    fn on_disk() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back_and_secrets_do_not_reach_a_disk() {
        let directory = on_disk();
        let saved = Saved::new(directory.path().join("state"), "ns/gw".into());
        assert!(saved.read().unwrap().is_none());
        saved.write(&objects()).unwrap();
        let file = directory.path().join("state").join(FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&file).unwrap();
        let in_memory = is_in_memory(directory.path()).unwrap();
        assert_eq!(text.contains("c2VjcmV0"), in_memory, "secrets only in memory");
        let read = saved.read().unwrap().unwrap();
        assert_eq!(read.pods, objects().pods);
    }

    #[test]
    fn in_memory_secrets_are_kept() {
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
        if !is_in_memory(directory.path()).unwrap() {
            return;
        }
        let saved = Saved::new(directory.path().to_owned(), "ns/gw".into());
        saved.write(&objects()).unwrap();
        assert_eq!(saved.read().unwrap().unwrap(), objects());
    }

    #[test]
    fn another_gateways_and_broken_snapshots_are_not_used_and_a_cut_writing_harms_nothing() {
        let directory = on_disk();
        let saved = Saved::new(directory.path().to_owned(), "ns/gw".into());
        saved.write(&objects()).unwrap();
        let other = Saved::new(directory.path().to_owned(), "ns/other".into());
        assert!(matches!(other.read(), Err(SavedError::NotOurs(_))));
        fs::write(directory.path().join(format!("{FILE}.part")), "{\"ver").unwrap();
        assert!(saved.read().unwrap().is_some());
        saved.write(&objects()).unwrap();
        fs::write(directory.path().join(FILE), "{\"ver").unwrap();
        assert!(matches!(saved.read(), Err(SavedError::Unreadable { .. })));
    }
}
