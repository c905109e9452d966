//! Control by files.

use std::{path::PathBuf, sync::Arc, time::Duration};

use api::{Loaded, Source};
use discovery::files::{self, ReadError};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Control, StartError,
    staff::{Selecting, Supply},
    usable::{self, Listeners},
};

/// How often files are looked at; with the time a change takes to settle this stays below a second.
const FILES_EVERY: Duration = Duration::from_millis(250);

/// Files that are followed.
pub struct Files {
    /// A file, or a directory of them.
    pub path: PathBuf,
    /// The texts in force.
    pub known: Vec<Source>,
}

/// The newest texts, or why there are none; `None` until something changes.
pub(super) type Seen = Option<Arc<Result<Vec<Source>, ReadError>>>;

impl Files {
    pub(super) fn begin(self, background: &mut JoinSet<()>) -> watch::Receiver<Seen> {
        // Only the newest report counts, so one that nobody has read yet is replaced, never queued.
        let (tell, seen) = watch::channel(None);
        let tell = move |now| _ = tell.send_replace(Some(Arc::new(now)));
        background.spawn(files::watch(self.path, self.known, FILES_EVERY, tell));
        seen
    }
}

impl Control {
    pub(super) fn apply_files(&mut self, loaded: Loaded) -> Result<(), StartError> {
        let shown = self.certificates.judge_front(&loaded.config, &self.world.metrics);
        usable::all_usable(&loaded.config, Listeners::Ours).map_err(StartError::Unusable)?;
        shown.map_err(|unusable| StartError::Unusable(usable::Missing(vec![unusable])))?;
        let supply = Supply::of_files(&loaded.config);
        self.apply(loaded, &supply)?;
        let config = self.config.as_ref().expect("one was put in force just now");
        if let Some(front) = &self.world.front {
            self.certificates.show_front(config, front, &self.world.metrics);
        }
        for warning in Selecting::idle(&self.selecting, config, &supply) {
            tracing::warn!(warning, "configuration");
        }
        Ok(())
    }

    pub(super) fn files_changed(&mut self, now: Option<&Result<Vec<Source>, ReadError>>) {
        match now {
            Some(Ok(sources)) => match api::load(sources) {
                Ok(loaded) => {
                    if let Err(error) = self.apply_files(loaded) {
                        self.refuse(error.to_string(), String::new());
                    }
                }
                Err(violations) => self.refuse_violations(&violations),
            },
            Some(Err(error)) => self.refuse(error.to_string(), String::new()),
            None => {}
        }
    }

    pub(super) fn refuse_violations(&mut self, violations: &api::Violations) {
        let path = violations.0.first().map(|violation| violation.path.clone()).unwrap_or_default();
        self.refuse(violations.to_string(), path);
    }
}
