//! How the containers of one pod are doing: written by what runs them, read by what reports.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::sync::watch;

/// One container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub state: State,
    pub last: Option<Ended>,
    pub restarts: i32,
    /// Whether its startup probe, if any, has succeeded.
    pub started: bool,
    pub ready: bool,
    /// Whether it has ended and will not be started again.
    pub done: bool,
}

/// What a container does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp, pid: i32 },
    Ended(Ended),
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub code: i32,
    pub started: Timestamp,
    pub finished: Timestamp,
}

impl Default for State {
    fn default() -> Self {
        Self::Waiting { reason: "ContainerCreating", message: String::new() }
    }
}

/// All containers of a pod by name.
#[derive(Clone)]
pub(crate) struct Board {
    views: watch::Sender<BTreeMap<String, View>>,
}

impl Board {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self { views: watch::Sender::new(names.map(|name| (name.to_owned(), View::default())).collect()) }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeMap<String, View>> {
        self.views.subscribe()
    }

    /// Changes one container's view; readers wake only if it differs.
    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut View)) {
        self.views.send_if_modified(|views| {
            let view = views.entry(name.to_owned()).or_default();
            let before = view.clone();
            change(view);
            *view != before
        });
    }

    pub(crate) fn view(&self, name: &str) -> View {
        self.views.borrow().get(name).cloned().unwrap_or_default()
    }
}
