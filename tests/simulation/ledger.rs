//! What became of each request, and what the engines' queues looked like meanwhile.

use std::time::Duration;

use pool::Moment;

/// Everything that one run leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) requests: Vec<Record>,
    pub(crate) queues: Vec<QueueSample>,
    pub(crate) classes: Vec<String>,
    /// When the last request had ended.
    pub(crate) end: End,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) class: usize,
    pub(crate) flow: u64,
    pub(crate) prompt_tokens: u32,
    pub(crate) output_tokens: u32,
    pub(crate) arrived: Moment,
    pub(crate) deadline: Option<Moment>,
    /// When it left the gateway for an endpoint, the last time.
    pub(crate) placed: Option<Moment>,
    /// The endpoint's number.
    pub(crate) endpoint: Option<usize>,
    /// When the client had it.
    pub(crate) first_token: Option<Moment>,
    pub(crate) ended: Option<Moment>,
    pub(crate) outcome: Option<Outcome>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Served,
    /// Refused at once for its band.
    Shed,
    /// Refused: the queue was full, or the wait would be too long.
    QueueFull,
    Expired,
    NoEndpoint,
    ClientGone,
    /// Ended for one of a higher band.
    Evicted,
    /// The endpoint died with it.
    Broke,
}

/// One engine's queue at the end of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSample {
    pub(crate) at: Moment,
    pub(crate) waiting: u32,
}

/// What is left when nothing happens any more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    pub(crate) in_flight: u32,
    pub(crate) waiting: u32,
    pub(crate) saturation: f64,
}

impl Record {
    pub(crate) fn time_to_first_token(&self) -> Option<Duration> {
        Some(self.first_token?.since(self.arrived))
    }

    /// From the client's question to the last time it left for an endpoint.
    pub(crate) fn wait(&self) -> Option<Duration> {
        Some(self.placed?.since(self.arrived))
    }

    pub(crate) fn is(&self, outcome: Outcome) -> bool {
        self.outcome == Some(outcome)
    }

    pub(crate) fn met_deadline(&self) -> bool {
        matches!((self.first_token, self.deadline), (Some(first), Some(deadline)) if first <= deadline)
    }
}
