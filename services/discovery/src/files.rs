//! Configuration files: read as texts, and watched for changes of those texts.
//!
//! Reading knows nothing of what the texts mean (that is `api`). A path is a file, or a directory of which the YAML and
//! JSON files count. A directory may be a ConfigMap mount: its entries are symlinks through `..data` into a hidden
//! directory, so links are followed and hidden names skipped.

mod watch;

use std::{
    fs::{self, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use api::Source;

pub use watch::watch;

/// Most bytes of configuration, all files together. A hundred schedulers and ten thousand endpoints need a quarter.
pub const BYTES_MAX: u64 = 16 << 20;

/// Most configuration files in a directory.
pub const FILES_MAX: usize = 4096;

/// Names of files that count in a directory end in one of these.
pub const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Why there are no texts.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The path, or something below it, cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Neither a file nor a directory: a pipe or a device could be read once at best.
    #[error("{} is neither a file nor a directory", .0.display())]
    NotAFile(PathBuf),
    /// No file in the directory counts.
    #[error("{} holds no *.yaml, *.yml or *.json file", .0.display())]
    NoFiles(PathBuf),
    /// More files than [`FILES_MAX`].
    #[error("{} holds more than {FILES_MAX} configuration files", .0.display())]
    TooManyFiles(PathBuf),
    /// More bytes than [`BYTES_MAX`].
    #[error("the configuration is larger than {BYTES_MAX} bytes, at {}", .0.display())]
    TooLarge(PathBuf),
    /// A text that is none.
    #[error("{} is not UTF-8, at byte {byte}", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that is wrong.
        byte: usize,
    },
}

/// Reads the file, or the directory's files in order of their names.
///
/// # Errors
/// The first [`ReadError`] met: half a configuration is none.
pub fn read(path: &Path) -> Result<Vec<Source>, ReadError> {
    let mut left = BYTES_MAX;
    files(path)?.iter().map(|file| read_file(&file.path, &mut left)).collect()
}

/// A file that counts, and what its text depends on.
struct File {
    path: PathBuf,
    metadata: Metadata,
}

/// The files that count, sorted, links followed.
fn files(path: &Path) -> Result<Vec<File>, ReadError> {
    let metadata = fs::metadata(path).map_err(|error| io_error(path, error))?;
    if metadata.is_file() {
        return Ok(vec![File { path: path.to_owned(), metadata }]);
    }
    if !metadata.is_dir() {
        return Err(ReadError::NotAFile(path.to_owned()));
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| io_error(path, error))? {
        let entry = entry.map_err(|error| io_error(path, error))?.path();
        if !counts(&entry) {
            continue;
        }
        let metadata = fs::metadata(&entry).map_err(|error| io_error(&entry, error))?;
        if metadata.is_file() {
            files.push(File { path: entry, metadata });
        }
        if files.len() > FILES_MAX {
            return Err(ReadError::TooManyFiles(path.to_owned()));
        }
    }
    if files.is_empty() {
        return Err(ReadError::NoFiles(path.to_owned()));
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// By name: hidden entries are editors' and the kubelet's own.
fn counts(entry: &Path) -> bool {
    let hidden = entry.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let known = entry.extension().is_some_and(|extension| EXTENSIONS.iter().any(|known| extension == *known));
    known && !hidden
}

fn read_file(path: &Path, left: &mut u64) -> Result<Source, ReadError> {
    let file = fs::File::open(path).map_err(|error| io_error(path, error))?;
    let mut bytes = Vec::new();
    let read = file.take(*left + 1).read_to_end(&mut bytes).map_err(|error| io_error(path, error))?;
    *left = left.checked_sub(read as u64).ok_or_else(|| ReadError::TooLarge(path.to_owned()))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| ReadError::NotUtf8 { path: path.to_owned(), byte: error.utf8_error().valid_up_to() })?;
    Ok(Source { name: path.display().to_string(), text })
}

fn io_error(path: &Path, error: io::Error) -> ReadError {
    ReadError::Io { path: path.to_owned(), error }
}

/// Changes with the text of a file unless it is written twice within the clock's grain: device, inode, size, and the
/// times of last change of content and of attributes, in nanoseconds.
fn stamp(metadata: &Metadata) -> [i128; 5] {
    let nanoseconds = |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    [
        metadata.dev().into(),
        metadata.ino().into(),
        metadata.size().into(),
        nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
    ]
}

#[cfg(test)]
mod tests;
