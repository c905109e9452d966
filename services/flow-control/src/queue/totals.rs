//! How much waits in a band, and how much of it is whose.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Ask, Flow};

/// Requests with the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) requests: u32,
    pub(super) bytes: u64,
}

/// One band's totals, with the flows in the order of how much they have: which one has most is asked for each time that a
/// full queue is joined.
#[derive(Debug, Default)]
pub(super) struct Totals {
    all: Total,
    by_flow: BTreeMap<Flow, Total>,
    by_requests: BTreeSet<(u32, Flow)>,
    by_bytes: BTreeSet<(u64, Flow)>,
}

impl Totals {
    pub(super) fn add(&mut self, ask: &Ask) {
        let total = self.by_flow.entry(ask.flow).or_default();
        let before = *total;
        *total = Total { requests: before.requests + 1, bytes: before.bytes + ask.bytes };
        let after = *total;
        self.all = Total { requests: self.all.requests + 1, bytes: self.all.bytes + ask.bytes };
        self.sort(ask.flow, before, after);
    }

    pub(super) fn take(&mut self, ask: &Ask) {
        let total = self.by_flow.get_mut(&ask.flow).expect("a waiting request's flow is counted");
        let before = *total;
        *total = Total { requests: before.requests - 1, bytes: before.bytes - ask.bytes };
        let after = *total;
        self.all = Total { requests: self.all.requests - 1, bytes: self.all.bytes - ask.bytes };
        if after.requests == 0 {
            self.by_flow.remove(&ask.flow);
        }
        self.sort(ask.flow, before, after);
    }

    pub(super) fn all(&self) -> Total {
        self.all
    }

    pub(super) fn of(&self, flow: Flow) -> Total {
        self.by_flow.get(&flow).copied().unwrap_or_default()
    }

    /// The flow with most requests.
    pub(super) fn most_requests(&self) -> Option<Flow> {
        self.by_requests.last().map(|&(_, flow)| flow)
    }

    /// The flow with most bytes.
    pub(super) fn most_bytes(&self) -> Option<Flow> {
        self.by_bytes.last().map(|&(_, flow)| flow)
    }

    fn sort(&mut self, flow: Flow, before: Total, after: Total) {
        if before.requests > 0 {
            self.by_requests.remove(&(before.requests, flow));
            self.by_bytes.remove(&(before.bytes, flow));
        }
        if after.requests > 0 {
            self.by_requests.insert((after.requests, flow));
            self.by_bytes.insert((after.bytes, flow));
        }
    }
}
