//! What became of each request, and what the engines' queues looked like meanwhile.

use std::time::Duration;

use pool::Moment;

use super::{Tally, call::Call};

/// Everything that one run leaves behind.
#[derive(Debug, Default)]
pub struct Ledger {
    pub requests: Vec<Record>,
    pub queues: Vec<QueueSample>,
    pub classes: Vec<String>,
    /// By endpoint: time without any request, until calls ceased to come.
    pub idle: Vec<Duration>,
    /// Between two tokens of one answer, as the engine made them, ms.
    pub between_tokens_ms: Tally,
    /// When the last request had ended.
    pub end: End,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Record {
    pub class: usize,
    pub flow: u64,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    pub arrived: Moment,
    pub deadline: Option<Moment>,
    /// When it left the gateway for an endpoint, the last time.
    pub placed: Option<Moment>,
    /// The endpoint's number.
    pub endpoint: Option<usize>,
    /// Prompt tokens that the engine found in its cache; `None` while it has not begun.
    pub cached_tokens: Option<u32>,
    /// When the client had it.
    pub first_token: Option<Moment>,
    pub ended: Option<Moment>,
    pub outcome: Option<Outcome>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
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
pub struct QueueSample {
    pub at: Moment,
    pub waiting: u32,
}

/// What is left when nothing happens any more.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    pub in_flight: u32,
    pub waiting: u32,
    pub saturation: f64,
}

impl Ledger {
    pub(super) fn new(classes: Vec<String>, endpoints: usize, calls: usize) -> Self {
        let (idle, requests) = (vec![Duration::ZERO; endpoints], Vec::with_capacity(calls));
        Self { classes, idle, requests, ..Self::default() }
    }
}

impl Record {
    pub(crate) fn of(call: &Call) -> Self {
        Self {
            class: call.class,
            flow: call.flow,
            prompt_tokens: call.draft.prompt_tokens,
            output_tokens: call.draft.output_tokens,
            arrived: call.at,
            deadline: call.deadline,
            placed: None,
            endpoint: None,
            cached_tokens: None,
            first_token: None,
            ended: None,
            outcome: None,
        }
    }

    pub fn time_to_first_token(&self) -> Option<Duration> {
        Some(self.first_token?.since(self.arrived))
    }

    /// From the client's question to the last time it left for an endpoint.
    pub fn wait(&self) -> Option<Duration> {
        Some(self.placed?.since(self.arrived))
    }

    pub fn is(&self, outcome: Outcome) -> bool {
        self.outcome == Some(outcome)
    }

    pub fn met_deadline(&self) -> bool {
        matches!((self.first_token, self.deadline), (Some(first), Some(deadline)) if first <= deadline)
    }
}
