//! Own requests at one endpoint that have ended since its last report.
//!
//! The report still counts them as running, or as waiting: where it shows a queue, each has made room for one that waits.

use std::collections::VecDeque;

use pool::Moment;

use crate::{flights::Flight, work::Stage};

/// Requests remembered between two reports. If more end, the rest is not counted: room is found a report later.
const ENDED_MAX: usize = 1_024;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Dispatched when, ended when; oldest end first.
    lately: VecDeque<(Moment, Moment)>,
    /// Those that the last report counts.
    in_report: u32,
}

impl Ended {
    /// A request has ended.
    pub(crate) fn note(&mut self, flight: &Flight, now: Moment) {
        if self.lately.len() == ENDED_MAX {
            self.lately.pop_front();
        }
        self.lately.push_back((flight.dispatched_at, now));
        self.in_report += u32::from(flight.stage != Stage::Since);
    }

    /// A report that began at `split` has come: what ended before is not in it any more.
    pub(crate) fn reported(&mut self, split: Moment) {
        self.lately.retain(|&(_, ended_at)| ended_at >= split);
        self.in_report = self.lately.iter().filter(|&&(dispatched_at, _)| dispatched_at < split).count() as u32;
    }

    /// Requests that the last report counts and that have ended.
    pub(crate) fn in_report(&self) -> u32 {
        self.in_report
    }
}
