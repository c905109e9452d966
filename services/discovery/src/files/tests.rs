//! Real files, since that is what can go wrong.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;

const PERIOD: Duration = Duration::from_millis(25);

/// The most that a change may take to be told, at the product's period of 250 ms.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

fn texts(sources: &[Source]) -> Vec<&str> {
    sources.iter().map(|source| source.text.as_str()).collect()
}

#[test]
fn a_directory_is_read_in_order_of_names() {
    let dir = TempDir::new().unwrap();
    for (name, text) in
        [("b.yaml", "2"), ("a.yml", "1"), ("c.json", "3"), ("d.txt", "no"), (".hidden.yaml", "no"), ("e.yaml~", "no")]
    {
        fs::write(dir.path().join(name), text).unwrap();
    }
    fs::create_dir(dir.path().join("sub.yaml")).unwrap();
    let sources = read(dir.path()).unwrap();
    assert_eq!(texts(&sources), ["1", "2", "3"]);
    assert_eq!(sources[0].name, dir.path().join("a.yml").display().to_string());
}

#[test]
fn a_file_is_read_whatever_its_name() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(".config");
    fs::write(&file, "x").unwrap();
    assert_eq!(texts(&read(&file).unwrap()), ["x"]);
}

#[test]
fn what_cannot_be_read_is_named() {
    let dir = TempDir::new().unwrap();
    assert!(matches!(read(dir.path()), Err(ReadError::NoFiles(_))));
    assert!(matches!(read(&dir.path().join("gone")), Err(ReadError::Io { .. })));
    assert!(matches!(read(Path::new("/dev/null")), Err(ReadError::NotAFile(_))));
    let file = dir.path().join("a.yaml");
    fs::write(&file, b"ab\xff").unwrap();
    assert!(matches!(read(dir.path()), Err(ReadError::NotUtf8 { byte: 2, .. })));
    symlink(dir.path().join("gone"), dir.path().join("b.yaml")).unwrap();
    fs::write(&file, "a").unwrap();
    assert!(read(dir.path()).unwrap_err().to_string().contains("b.yaml"));
}

#[test]
fn the_total_is_bounded() {
    let dir = TempDir::new().unwrap();
    let half = usize::try_from(BYTES_MAX / 2).unwrap();
    fs::write(dir.path().join("a.yaml"), vec![b'#'; half]).unwrap();
    fs::write(dir.path().join("b.yaml"), vec![b'#'; half]).unwrap();
    assert_eq!(read(dir.path()).unwrap().len(), 2);
    fs::write(dir.path().join("c.yaml"), "#").unwrap();
    assert!(matches!(read(dir.path()), Err(ReadError::TooLarge(_))));
}

/// Watches `path` and hands over what is told.
struct Watched {
    changes: mpsc::UnboundedReceiver<Result<Vec<Source>, ReadError>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    fn start(path: &Path) -> Self {
        let (sender, changes) = mpsc::unbounded_channel();
        let known = read(path).unwrap();
        let task = tokio::spawn(watch(path.to_owned(), known, PERIOD, move |change| {
            sender.send(change).unwrap();
        }));
        Self { changes, task }
    }

    async fn next(&mut self) -> Result<Vec<Source>, ReadError> {
        let waited = Instant::now();
        let change =
            tokio::time::timeout(10 * NOTICED_WITHIN, self.changes.recv()).await.expect("a change is told").unwrap();
        assert!(waited.elapsed() < 3 * NOTICED_WITHIN);
        change
    }

    async fn next_texts(&mut self) -> Vec<String> {
        self.next().await.unwrap().into_iter().map(|source| source.text).collect()
    }
}

#[tokio::test]
async fn a_change_in_place_is_noticed_even_within_the_clocks_grain_and_of_the_same_size() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "0").unwrap();
    let mut watched = Watched::start(&file);
    for text in ["1", "2", "3"] {
        fs::write(&file, text).unwrap();
        assert_eq!(watched.next_texts().await, [text]);
    }
}

#[tokio::test]
async fn an_editor_that_renames_over_the_file_is_noticed() {
    let dir = TempDir::new().unwrap();
    let (file, draft) = (dir.path().join("a.yaml"), dir.path().join(".a.swp"));
    fs::write(&file, "old").unwrap();
    let mut watched = Watched::start(&file);
    fs::write(&draft, "new").unwrap();
    fs::rename(&draft, &file).unwrap();
    assert_eq!(watched.next_texts().await, ["new"]);
    // A copy with the times of the original kept, as `cp -p` and `rsync -t` make.
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&draft, "NEW").unwrap();
    fs::File::open(&draft).unwrap().set_modified(modified).unwrap();
    fs::rename(&draft, &file).unwrap();
    assert_eq!(watched.next_texts().await, ["NEW"]);
}

#[tokio::test]
async fn a_config_map_mount_that_swaps_its_symlink_is_noticed() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (version, text) in [("..1", "one"), ("..2", "two")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("a.yaml"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/a.yaml", at("a.yaml")).unwrap();
    let mut by_directory = Watched::start(dir.path());
    let mut by_file = Watched::start(&at("a.yaml"));
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    assert_eq!(by_directory.next_texts().await, ["two"]);
    assert_eq!(by_file.next_texts().await, ["two"]);
}

#[tokio::test]
async fn unchanged_texts_are_never_told_and_errors_once() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "same").unwrap();
    let mut watched = Watched::start(dir.path());
    for _ in 0..3 {
        fs::write(&file, "same").unwrap();
        tokio::task::yield_now().await;
    }
    fs::remove_file(&file).unwrap();
    assert!(matches!(watched.next().await, Err(ReadError::NoFiles(_))), "and nothing was told before");
    fs::write(&file, "other").unwrap();
    assert_eq!(watched.next_texts().await, ["other"], "the error was told once");
    fs::write(dir.path().join("b.yaml"), "more").unwrap();
    assert_eq!(watched.next_texts().await, ["other", "more"]);
}

#[test]
fn stamps_of_old_files_spare_the_reading() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, "x").unwrap();
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!(stamp(&metadata), stamp(&fs::metadata(&file).unwrap()));
    fs::write(&file, "xy").unwrap();
    assert_ne!(stamp(&metadata), stamp(&fs::metadata(&file).unwrap()));
}
