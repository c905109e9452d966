//! How far back things are believed, as moments: worked out once per pick, so that asking it of a thousand endpoints is
//! a thousand comparisons.

use std::time::Duration;

use pool::Moment;

use crate::{HasPage, Settings};

/// How long "its port accepts, but there is no page" is believed. Looks at an endpoint without a page come at growing
/// intervals, so this is much longer than the age at which a report is stale.
const ACCEPTING_FOR: Duration = Duration::from_secs(30);

/// Age from which a list of busy adapters counts as empty. Engines leave the last list standing when they fall idle.
const ADAPTERS_FOR: Duration = Duration::from_secs(5);

/// What is believed now: whatever is not older than these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Horizon {
    pub(crate) now: Moment,
    /// Reports, and passed health checks.
    pub(crate) reports: Moment,
    /// Endpoints that joined since are starting.
    pub(crate) starting: Moment,
    /// Ports that accepted.
    pub(crate) accepting: Moment,
    /// Lists of busy adapters.
    pub(crate) adapters: Moment,
    pub(crate) has_page: HasPage,
}

impl Horizon {
    pub(crate) fn new(settings: &Settings, now: Moment) -> Self {
        let back = |time: Duration| Moment::from_origin(now.since_origin().saturating_sub(time));
        Self {
            now,
            reports: back(settings.stale_after),
            starting: back(settings.starting_for),
            accepting: back(ACCEPTING_FOR),
            adapters: back(ADAPTERS_FOR),
            has_page: settings.has_page,
        }
    }
}
