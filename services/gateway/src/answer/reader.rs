//! What an answer says about itself while it passes: read by what the answer is, not by what was asked for.

use bytes::Bytes;
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    response::Parts,
};
use protocol::{
    Api, Usage,
    rename::Renamer,
    sse::{self, Finished},
    usage,
};

use super::{Renamed, UsageEvent, hider::Hider, joined};

/// A reader that fits the answer.
pub(super) enum Reader {
    /// `text/event-stream`.
    Stream(Box<Stream>),
    /// JSON.
    Json(Box<Document>),
    /// Compressed, audio, images: nothing is read off it.
    Opaque,
}

/// An event stream, and what is taken out of it.
pub(super) struct Stream {
    reader: sse::Reader,
    hider: Option<Hider>,
    renamer: Option<Renamer>,
}

/// A JSON answer, and what is turned back in it.
#[derive(Default)]
pub(super) struct Document {
    reader: usage::Reader,
    renamer: Option<Renamer>,
}

/// What one piece brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) content_events: u32,
    /// The endpoint has begun to answer: the request is out of its queue and its prompt computed.
    pub(super) has_content: bool,
}

/// What a whole answer was.
pub(super) struct Ended {
    pub(super) usage: Option<Usage>,
    pub(super) verdict: Verdict,
    /// A stream's own last event has passed.
    pub(super) said_so: bool,
    /// What was held back of the stream and is not to be hidden.
    pub(super) rest: Bytes,
}

impl Ended {
    /// An answer that is no stream.
    fn plain(usage: Option<Usage>) -> Self {
        Self { usage, verdict: Verdict::Complete, said_so: false, rest: Bytes::new() }
    }
}

/// How an answer ended that the endpoint did not break off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Complete,
    /// An event said that it failed.
    ErrorEvent {
        client_fault: bool,
        /// The status it would have had, if it says so.
        code: Option<u16>,
    },
    /// A stream without its last event.
    CutShort {
        at_event_boundary: bool,
    },
}

impl Reader {
    pub(super) fn of(head: &Parts, api: Api, usage: UsageEvent, renamed: Option<&Renamed>) -> Self {
        let is_unread = matches!(api, Api::Other) || is_encoded(&head.headers);
        if is_unread || head.status == StatusCode::NO_CONTENT {
            return Self::Opaque;
        }
        let kind = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
        let is = |name: &[u8]| kind.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        if is(b"text/event-stream") {
            let hider = (usage == UsageEvent::Hidden).then(Hider::default);
            let renamer = renamed.map(|names| Renamer::of_events(&names.target, &names.asked));
            Self::Stream(Box::new(Stream { reader: sse::Reader::new(api), hider, renamer }))
        } else if is(b"application/json") {
            let renamer = renamed.map(|names| Renamer::of_json(&names.target, &names.asked));
            Self::Json(Box::new(Document { renamer, ..Document::default() }))
        } else {
            Self::Opaque
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether a document may become longer or shorter on its way.
    pub(super) fn changes_length(&self) -> bool {
        matches!(self, Self::Json(document) if document.renamer.is_some())
    }

    /// Whether a line of our own may come now.
    pub(super) fn is_between_events(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.reader.is_between_events(),
            Self::Json(_) | Self::Opaque => false,
        }
    }

    /// Reads a piece, and gives what of it is to be passed on: all of it, but for streams with something to hide.
    pub(super) fn feed(&mut self, data: Bytes) -> (Step, Bytes) {
        match self {
            Self::Stream(stream) => {
                let (step, data) = match &mut stream.hider {
                    Some(hider) => hider.pass(&mut stream.reader, &data),
                    None => (stream.reader.feed(&data), data),
                };
                let data = renamed(&mut stream.renamer, data);
                (Step { content_events: step.content_events, has_content: step.content_events > 0 }, data)
            }
            Self::Json(document) => {
                document.reader.feed(&data);
                let data = renamed(&mut document.renamer, data);
                (Step { content_events: 0, has_content: true }, data)
            }
            Self::Opaque => (Step { content_events: 0, has_content: true }, data),
        }
    }

    pub(super) fn close(self, api: Api) -> Ended {
        match self {
            Self::Stream(stream) => {
                let Stream { reader, hider, mut renamer } = *stream;
                let end = reader.finish();
                let rest = hider.filter(|_| !end.broke_off_in_usage).map(Hider::rest).unwrap_or_default();
                let rest = joined(renamed(&mut renamer, rest), renamer.map(Renamer::rest).unwrap_or_default());
                let verdict = match (end.error, end.finished) {
                    (Some(error), _) => Verdict::ErrorEvent { client_fault: error.client_fault, code: error.code },
                    (None, Finished::Open) if has_terminator(api) => {
                        Verdict::CutShort { at_event_boundary: end.at_event_boundary }
                    }
                    (None, Finished::Done | Finished::Open) => Verdict::Complete,
                };
                Ended { usage: end.usage, verdict, said_so: end.finished == Finished::Done, rest }
            }
            Self::Json(document) => {
                let Document { reader, renamer } = *document;
                Ended { rest: renamer.map(Renamer::rest).unwrap_or_default(), ..Ended::plain(reader.finish()) }
            }
            Self::Opaque => Ended::plain(None),
        }
    }
}

/// A piece with the model's name turned back, where one is.
fn renamed(renamer: &mut Option<Renamer>, data: Bytes) -> Bytes {
    match renamer {
        Some(renamer) => renamer.pass(&data),
        None => data,
    }
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether the event streams of an API end with an event of their own, so that a stream without it was cut.
const fn has_terminator(api: Api) -> bool {
    matches!(api, Api::ChatCompletions | Api::Completions | Api::Responses | Api::Messages)
}

/// Whether the answers of an API say how many tokens they took.
pub(super) const fn counts_tokens(api: Api) -> bool {
    matches!(
        api,
        Api::ChatCompletions
            | Api::Completions
            | Api::Responses
            | Api::Embeddings
            | Api::Pooling
            | Api::Classify
            | Api::Rerank
            | Api::Score
            | Api::Messages
            | Api::Generate
            | Api::GenerateStream
            | Api::Invocations
    )
}
