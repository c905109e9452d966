//! Notices that the texts changed.
//!
//! By looking, not by the kernel's notifications: those are lost on network mounts, differ between an editor that
//! writes in place, one that renames over, and a mount that swaps a symlink two levels up, and need a watch per
//! directory that may itself be replaced. Four `stat` calls a second per file cost nothing and see all of these.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use api::Source;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{ReadError, files, read, stamp};

/// A change is believed when the texts stay the same for this long: a writer may be half way.
const SETTLE: Duration = Duration::from_millis(50);

/// A writer that is never done is believed after this many looks.
const SETTLE_LOOKS_MAX: u32 = 8;

/// A file written this recently may be written again without its stamp changing: some clocks tick in seconds.
const GRAIN: Duration = Duration::from_secs(2);

/// Calls `on_change` whenever what [`read`] gives differs from what it gave last, `known` being the first. Never for
/// texts that are the same, however they were written. An error is told once, and its end is a change too, even back to
/// the same texts.
///
/// With a `period` of 250 ms a change is told within 0.75 s. Runs until dropped; the disk is touched on tokio's
/// blocking threads, as it may be a network's.
pub async fn watch(
    path: PathBuf,
    known: Vec<Source>,
    period: Duration,
    mut on_change: impl FnMut(Result<Vec<Source>, ReadError>),
) {
    let mut told: Result<Vec<Source>, String> = Ok(known);
    let mut stamps = Stamps::Untrusted;
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(look) = look_unless_same(&path, stamps.clone()).await else { continue };
        let look = if same(&look.texts, &told) { look } else { settled(&path, look).await };
        stamps = look.stamps;
        if !same(&look.texts, &told) {
            told = look.texts.as_ref().map(Clone::clone).map_err(ToString::to_string);
            on_change(look.texts);
        }
    }
}

/// What the files were like when they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stamps {
    /// While these are the same, so are the texts.
    Trusted(Vec<(PathBuf, [i128; 5])>),
    /// Only reading can tell.
    Untrusted,
}

struct Look {
    texts: Result<Vec<Source>, ReadError>,
    stamps: Stamps,
}

/// Errors are the same when they read the same.
fn same(texts: &Result<Vec<Source>, ReadError>, told: &Result<Vec<Source>, String>) -> bool {
    match (texts, told) {
        (Ok(texts), Ok(told)) => texts == told,
        (Err(error), Err(told)) => error.to_string() == *told,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// Looks again until two looks in a row are the same.
async fn settled(path: &Path, mut look: Look) -> Look {
    for _ in 0..SETTLE_LOOKS_MAX {
        sleep(SETTLE).await;
        let Some(next) = look_unless_same(path, Stamps::Untrusted).await else { break };
        let before = look.texts.map_err(|error| error.to_string());
        look = next;
        if same(&look.texts, &before) {
            break;
        }
    }
    look
}

/// `None` when the stamps vouch for the texts being those of the last look (or the blocking thread was lost).
async fn look_unless_same(path: &Path, last: Stamps) -> Option<Look> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        let stamps = stamps(&path);
        let known = stamps != Stamps::Untrusted && stamps == last;
        // The stamps were taken before the texts: a write in between shows at the next look.
        (!known).then(|| Look { texts: read(&path), stamps })
    })
    .await
    .ok()
    .flatten()
}

fn stamps(path: &Path) -> Stamps {
    let Ok(files) = files(path) else { return Stamps::Untrusted };
    let recent = |changed: i128| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        i128::try_from(now).is_ok_and(|now| now - changed < GRAIN.as_nanos().cast_signed())
    };
    let stamps: Vec<_> = files.into_iter().map(|file| (file.path, stamp(&file.metadata))).collect();
    if stamps.iter().any(|(_, [.., modified, changed])| recent(*modified.max(changed))) {
        return Stamps::Untrusted;
    }
    Stamps::Trusted(stamps)
}
