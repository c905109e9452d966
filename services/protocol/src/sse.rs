//! skeleton
use crate::{Api, Usage};

/// Reads an event stream as its chunks pass, wherever they are cut.
#[derive(Debug)]
pub struct Reader {}

/// What one chunk brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Events completed in this chunk that carry generated content.
    pub content_events: u32,
    /// The first of the stream is among them.
    pub first: bool,
}

/// What the whole stream was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub usage: Option<Usage>,
    /// The first error event.
    pub error: Option<StreamError>,
    pub finished: Finished,
    /// Whether the stream ended between two events. If not, an event that is appended must be preceded by a blank line.
    pub at_event_boundary: bool,
    /// Content events of the whole stream.
    pub content_events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// `[DONE]`, `message_stop`, `response.completed` and the like.
    Done,
    /// Without a terminator: cut short.
    Open,
}

/// An error that the endpoint sent as an event after its 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The status that it would have had.
    pub code: Option<u16>,
    /// The request was wrong: nothing to hold against the endpoint.
    pub client_fault: bool,
}

impl Reader {
    pub fn new(_api: Api) -> Self {
        Self {}
    }
    pub fn feed(&mut self, _chunk: &[u8]) -> Step {
        Step::default()
    }
    pub fn finish(self) -> End {
        End { usage: None, error: None, finished: Finished::Open, at_event_boundary: true, content_events: 0 }
    }
}
