//! An event stream, read as it passes: first token, tokens, usage, errors and the end.
//!
//! The stream's bytes are the client's: they are looked at, never held back, changed or completed. Chunks are network
//! pieces and have nothing to do with events: lines, letters, numbers and the `[DONE]` mark may be cut anywhere, so
//! everything here is a state machine that carries its place over, and no text is made out of a chunk. Nothing of the
//! stream is kept, so no line is too long.
//!
//! What makes an event is decided by the standard's rules for lines (`\n`, `\r\n`, `\r`, comments, data over several
//! lines); what it says is read by the reader of whole answers.

use crate::answer::{Answer, Event, Progress};
use crate::json::Machine;
use crate::path::Api;
use crate::usage::{Counts, Usage};

mod line;

use line::{Lines, Piece};

/// What one chunk brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Events completed in this chunk that carry generated content: text, reasoning, calls of tools.
    pub content_events: u32,
    /// The first such event of the stream is among them.
    pub first: bool,
}

/// What the whole stream was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// What the last events that have usage say.
    pub usage: Option<Usage>,
    /// The first error event.
    pub error: Option<StreamError>,
    pub finished: Finished,
    /// Whether the stream ended between two events, or never began. If not, a blank line must come before an event that
    /// is appended.
    pub at_event_boundary: bool,
    /// Events with content, of the whole stream.
    pub content_events: u64,
    /// The stream broke off inside an event that has usage and nothing else.
    pub broke_off_in_usage: bool,
}

/// Whether a stream said that it is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It did: `[DONE]`, `message_stop`, `response.completed` and the like.
    Done,
    /// It just ended: cut short, unless an error event says why.
    Open,
}

/// An error that an endpoint sent as an event, after its 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The status that it would have had, if it says so.
    pub code: Option<u16>,
    /// The request was wrong: nothing to hold against the endpoint.
    pub client_fault: bool,
}

/// Reads an event stream as its chunks pass, wherever they are cut.
#[derive(Debug)]
pub struct Reader {
    api: Api,
    lines: Lines,
    event: Data,
    counts: Counts,
    error: Option<StreamError>,
    finished: Finished,
    content_events: u64,
}

impl Reader {
    pub fn new(api: Api) -> Self {
        Self {
            api,
            lines: Lines::new(),
            event: Data::new(),
            counts: Counts::default(),
            error: None,
            finished: Finished::Open,
            content_events: 0,
        }
    }

    pub fn feed(&mut self, chunk: &[u8]) -> Step {
        self.feed_each(chunk, |_, _| {})
    }

    /// The same, and tells of each event that ends in the chunk: at which index, and what it is.
    pub fn feed_each(&mut self, chunk: &[u8], mut ended: impl FnMut(usize, Bearing)) -> Step {
        let before = self.content_events;
        let mut at = 0;
        while let Some(piece) = self.lines.next(chunk, &mut at) {
            match piece {
                Piece::Data(bytes) => self.event.write(bytes),
                Piece::EndOfData => self.event.end_line(),
                Piece::NamedError => self.event.is_named_error = true,
                Piece::EndOfEvent => ended(at, self.end_event()),
            }
        }
        let content_events = u32::try_from(self.content_events - before).unwrap_or(u32::MAX);
        Step { content_events, first: before == 0 && content_events > 0 }
    }

    /// Whether one event has ended, or none has begun yet, so that a line of somebody else may come here.
    pub fn is_between_events(&self) -> bool {
        self.lines.are_between_events()
    }

    /// The stream has ended. An event that only lacks its blank line counts: clients read it too.
    pub fn finish(mut self) -> End {
        let at_event_boundary = self.lines.are_between_events();
        let last = self.end_event();
        End {
            broke_off_in_usage: !at_event_boundary && last == Bearing::UsageAlone,
            usage: self.counts.usage(),
            error: self.error,
            finished: self.finished,
            at_event_boundary,
            content_events: self.content_events,
        }
    }

    fn end_event(&mut self) -> Bearing {
        let mut bearing = Bearing::Other;
        if self.event.mark == Mark::Done {
            self.finished = Finished::Done;
        } else if let Some(answer) = self.event.read() {
            let progress = if self.content_events > 0 { Progress::Begun } else { Progress::Nothing };
            self.error = self.error.or(answer.error.read(progress));
            self.content_events += u64::from(answer.has_content());
            self.counts.update(answer.total());
            if answer.is_usage_alone() {
                bearing = Bearing::UsageAlone;
            }
            if is_last(self.api, answer) {
                self.finished = Finished::Done;
            }
        }
        if self.event.is_named_error {
            self.error = self.error.or(Some(StreamError { code: None, client_fault: false }));
        }
        self.event.reset();
        bearing
    }
}

/// What an event bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearing {
    /// Usage beside an empty list of choices: what OpenAI's streams end with if the client asks for it.
    UsageAlone,
    /// Anything else.
    Other,
}

/// Whether an event is the one that ends a stream of this API, for those that do not end with a mark.
fn is_last(api: Api, answer: &Answer) -> bool {
    match answer.kind {
        Event::MessageStop => matches!(api, Api::Messages | Api::Invocations | Api::Extra),
        Event::ResponseOver => matches!(api, Api::Responses | Api::ResponseById | Api::Invocations | Api::Extra),
        Event::Other => {
            let native = matches!(api, Api::Generate | Api::GenerateStream | Api::Invocations | Api::Extra);
            native && answer.has_whole_text
        }
    }
}

/// The data of the event that is passing.
#[derive(Debug)]
struct Data {
    machine: Machine,
    answer: Answer,
    is_broken: bool,
    mark: Mark,
    has_begun: bool,
    /// A line of data is over: another one is joined to it by a line end.
    line_is_over: bool,
    is_named_error: bool,
}

/// How far the data is the mark that ends OpenAI's streams. Clients look at its beginning alone, and so do we.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Matched(usize),
    Done,
    No,
}

const MARK: &[u8; 6] = b"[DONE]";

impl Data {
    fn new() -> Self {
        Self {
            machine: Machine::new(),
            answer: Answer::default(),
            is_broken: false,
            mark: Mark::Matched(0),
            has_begun: false,
            line_is_over: false,
            is_named_error: false,
        }
    }

    fn reset(&mut self) {
        if self.has_begun {
            self.machine.reset();
            self.answer.reset();
        }
        (self.is_broken, self.mark) = (false, Mark::Matched(0));
        (self.has_begun, self.line_is_over, self.is_named_error) = (false, false, false);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.join_lines();
        self.read_on(bytes);
    }

    fn end_line(&mut self) {
        self.join_lines();
        (self.has_begun, self.line_is_over) = (true, true);
    }

    fn join_lines(&mut self) {
        if std::mem::take(&mut self.line_is_over) {
            self.read_on(b"\n");
        }
    }

    fn read_on(&mut self, bytes: &[u8]) {
        self.has_begun = true;
        for &byte in bytes {
            let Mark::Matched(matched) = self.mark else { break };
            self.mark = match MARK.get(matched) {
                Some(expected) if *expected != byte => Mark::No,
                Some(_) if matched + 1 == MARK.len() => Mark::Done,
                _ => Mark::Matched(matched + 1),
            };
        }
        self.is_broken = self.is_broken || self.machine.feed(bytes, &mut self.answer).is_err();
    }

    /// What the data says, if it is a whole JSON document.
    fn read(&mut self) -> Option<&Answer> {
        let is_whole = self.has_begun && !self.is_broken && self.machine.finish(&mut self.answer).is_ok();
        is_whole.then_some(&self.answer)
    }
}

#[cfg(test)]
mod tests;
