//! What one JSON document of an answer says about itself: a whole answer, or the data of one event of a stream.
//!
//! All engines and APIs in one reader, because an endpoint answers in whatever shape it has, whatever was asked: by the
//! name of a member and the place it stands at, both usage and generated content can be told without knowing the API.
//! Values are looked at where they matter and skipped everywhere else; nothing is kept but numbers.

use std::convert::Infallible;

use crate::json::{Kind, Scalar, Text, Visitor};
use crate::usage::Counts;

mod fault;

pub(crate) use fault::{ErrorNote, Progress};

/// Depth of the containers whose place is known; whatever is deeper is skipped. The deepest place that matters is
/// `choices[].delta.tool_calls[]`, at 5, or at 6 in a list of answers.
const PLACES: usize = 8;

/// What was found in a document.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// By depth; nothing is at 0.
    places: [Place; PLACES],
    field: Field,
    pub(crate) counts: Counts,
    /// The sum over the elements, when the document is a list of answers.
    batch: Option<Counts>,
    /// Something generated is in it, in a place that is for pieces of an answer.
    has_pieces: bool,
    /// There is text at its top, which is all of an answer's so far: SGLang's own API. Events that have a type repeat
    /// there what was streamed before.
    has_text: bool,
    has_type: bool,
    /// There is a list of choices at its top.
    has_choices: bool,
    /// There is something in it.
    has_choice: bool,
    pub(crate) error: ErrorNote,
    /// Its `type`, where that is one that matters.
    pub(crate) kind: Event,
    /// TGI's last event: the whole text once more.
    pub(crate) has_whole_text: bool,
}

/// The `type` of an event, in the APIs whose events have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Event {
    #[default]
    Other,
    /// Anthropic's last.
    MessageStop,
    /// The Responses API's last, in each of its endings.
    ResponseOver,
}

/// Where a container stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Nowhere that matters.
    #[default]
    Other,
    /// A list of answers, as SGLang gives for a list of prompts.
    Batch,
    /// The answer itself.
    Root,
    /// `message` of Anthropic's first event, `response` of the Responses API's last: an answer inside the event.
    Inner,
    Usage,
    UsageDetails,
    /// SGLang's `meta_info`, TGI's `details`.
    Meta,
    Choices,
    Choice,
    Delta,
    /// TGI's `token`.
    Token,
    /// A list any element of which is content.
    Pieces,
    Error,
}

/// The member whose value comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Field {
    #[default]
    Other,
    /// A container that has a place.
    Enter(Place),
    PromptTokens,
    InputTokens,
    CompletionTokens,
    CachedTokens,
    CacheRead,
    CacheCreation,
    /// Content if it is not empty.
    Content,
    /// Content if it is a string that is not empty; a place of its own if it is an object.
    Delta,
    Text,
    WholeText,
    Type,
    /// `object` at the top: older vLLM puts its errors there.
    ObjectKind,
    Error,
    ErrorCode,
    /// TGI's own name for it, which stands for any cause.
    ErrorStatus,
    ErrorKind,
}

impl Answer {
    /// Ready for another document.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// What the document says was used, over all its elements.
    pub(crate) fn total(&self) -> Counts {
        self.batch.unwrap_or(self.counts)
    }

    /// Something generated is in the document.
    pub(crate) fn has_content(&self) -> bool {
        self.has_pieces || (self.has_text && !self.has_type)
    }

    /// It tells what was used, of no choice.
    pub(crate) fn is_usage_alone(&self) -> bool {
        self.has_choices && !self.has_choice && self.total().usage().is_some() && !self.error.is_present()
    }

    fn place(&self, depth: u32) -> Place {
        self.places.get(depth as usize).copied().unwrap_or_default()
    }

    /// Where the container that is opening at `depth` stands.
    fn place_of(&self, kind: Kind, depth: u32) -> Place {
        let Some(parent) = depth.checked_sub(1).filter(|&parent| parent > 0).map(|parent| self.place(parent)) else {
            return if kind == Kind::Array { Place::Batch } else { Place::Root };
        };
        match (parent, kind, self.field) {
            (Place::Batch, Kind::Object, _) => Place::Root,
            (Place::Choices, Kind::Object, _) => Place::Choice,
            (Place::Root | Place::Choice, Kind::Object, Field::Delta) => Place::Delta,
            (_, Kind::Array, Field::Content) => Place::Pieces,
            (_, Kind::Array, Field::Enter(Place::Choices)) => Place::Choices,
            (_, Kind::Object, Field::Enter(place)) => place,
            (_, Kind::Object, Field::Error) => Place::Error,
            _ => Place::Other,
        }
    }

    fn number(&mut self, digits: Text<'_>) {
        let Some(number) = digits.as_whole() else { return };
        match self.field {
            Field::PromptTokens => self.counts.prompt = Some(number),
            Field::InputTokens => self.counts.input = Some(number),
            Field::CompletionTokens => self.counts.completion = Some(number),
            Field::CachedTokens => self.counts.cached = Some(number),
            Field::CacheRead => self.counts.cache_read = Some(number),
            Field::CacheCreation => self.counts.cache_creation = Some(number),
            Field::ErrorCode => self.error.code(number),
            Field::ErrorStatus => self.error.vague_status(number),
            Field::Other
            | Field::Enter(_)
            | Field::Content
            | Field::Delta
            | Field::Text
            | Field::WholeText
            | Field::Type
            | Field::ObjectKind
            | Field::Error
            | Field::ErrorKind => {}
        }
    }

    fn kind_of_event(&mut self, name: &[u8]) {
        self.has_type = true;
        match name {
            b"message_stop" => self.kind = Event::MessageStop,
            b"response.completed" | b"response.incomplete" | b"response.failed" | b"response.cancelled" => {
                self.kind = Event::ResponseOver;
            }
            b"error" => self.error.present(),
            _ => {}
        }
    }

    fn string(&mut self, text: Text<'_>) {
        match self.field {
            Field::Content | Field::Delta => self.has_pieces |= !text.is_empty(),
            Field::Text => self.has_text |= !text.is_empty(),
            Field::WholeText => self.has_whole_text = true,
            Field::Type => self.kind_of_event(text.raw),
            Field::ObjectKind if text.raw == b"error" => self.error.present(),
            Field::Error if !text.is_empty() => self.error.present(),
            Field::ErrorCode | Field::ErrorKind => self.error.kind(text.raw),
            Field::ObjectKind
            | Field::Error
            | Field::Other
            | Field::Enter(_)
            | Field::PromptTokens
            | Field::InputTokens
            | Field::CompletionTokens
            | Field::CachedTokens
            | Field::CacheRead
            | Field::CacheCreation
            | Field::ErrorStatus => {}
        }
    }
}

impl Visitor for Answer {
    type Stop = Infallible;

    fn open(&mut self, kind: Kind, depth: u32) -> Result<(), Infallible> {
        self.has_pieces |= self.place(depth - 1) == Place::Pieces;
        self.has_choice |= self.place(depth - 1) == Place::Choices;
        let place = self.place_of(kind, depth);
        match place {
            Place::Error => self.error.present(),
            Place::Batch => self.batch = Some(Counts::default()),
            Place::Choices => self.has_choices = true,
            Place::Other
            | Place::Root
            | Place::Inner
            | Place::Usage
            | Place::UsageDetails
            | Place::Meta
            | Place::Choice
            | Place::Delta
            | Place::Token
            | Place::Pieces => {}
        }
        // Anthropic and OpenAI both have contents that are objects: a call of a function.
        self.has_pieces |= kind == Kind::Object && self.field == Field::Content && place == Place::Other;
        if let Some(slot) = self.places.get_mut(depth as usize) {
            *slot = place;
        }
        self.field = Field::Other;
        Ok(())
    }

    fn close(&mut self, depth: u32, _: &[u8], _: usize) {
        if depth == 2
            && self.place(2) == Place::Root
            && let Some(batch) = &mut self.batch
        {
            batch.add(std::mem::take(&mut self.counts));
        }
        self.field = Field::Other;
    }

    fn key(&mut self, name: Text<'_>, depth: u32, _: usize) -> Result<(), Infallible> {
        self.field = field(self.place(depth), name.raw);
        Ok(())
    }

    fn scalar(&mut self, value: Scalar<'_>, depth: u32, _: &[u8], _: usize) -> Result<(), Infallible> {
        if self.place(depth) == Place::Pieces {
            self.has_pieces = true;
            return Ok(());
        }
        match value {
            _ if self.field == Field::Other => {}
            Scalar::Number(digits) => self.number(digits),
            Scalar::String(text) => self.string(text),
            Scalar::True | Scalar::False | Scalar::Null => {}
        }
        Ok(())
    }
}

/// What a member of a container at a place is.
fn field(place: Place, name: &[u8]) -> Field {
    match place {
        Place::Root => match name {
            b"choices" => Field::Enter(Place::Choices),
            b"usage" => Field::Enter(Place::Usage),
            b"error" => Field::Error,
            b"type" => Field::Type,
            b"object" => Field::ObjectKind,
            b"code" => Field::ErrorCode,
            b"message" | b"response" => Field::Enter(Place::Inner),
            b"delta" => Field::Delta,
            b"meta_info" | b"details" => Field::Enter(Place::Meta),
            b"token" => Field::Enter(Place::Token),
            b"generated_text" => Field::WholeText,
            b"text" => Field::Text,
            b"output_ids" | b"token_ids" => Field::Content,
            _ => Field::Other,
        },
        Place::Inner => match name {
            b"usage" => Field::Enter(Place::Usage),
            b"error" => Field::Error,
            _ => Field::Other,
        },
        Place::Usage => match name {
            b"prompt_tokens" => Field::PromptTokens,
            b"input_tokens" => Field::InputTokens,
            b"completion_tokens" | b"output_tokens" => Field::CompletionTokens,
            b"cache_read_input_tokens" => Field::CacheRead,
            b"cache_creation_input_tokens" => Field::CacheCreation,
            b"prompt_tokens_details" | b"input_tokens_details" => Field::Enter(Place::UsageDetails),
            _ => Field::Other,
        },
        Place::UsageDetails if name == b"cached_tokens" => Field::CachedTokens,
        Place::Meta => match name {
            b"prompt_tokens" | b"input_length" => Field::PromptTokens,
            b"completion_tokens" | b"generated_tokens" => Field::CompletionTokens,
            b"cached_tokens" => Field::CachedTokens,
            _ => Field::Other,
        },
        Place::Choice => match name {
            b"delta" => Field::Delta,
            b"text" | b"token_ids" => Field::Content,
            _ => Field::Other,
        },
        Place::Delta => match name {
            b"content" | b"reasoning" | b"reasoning_content" | b"refusal" => Field::Content,
            b"tool_calls" | b"function_call" | b"audio" => Field::Content,
            b"text" | b"thinking" | b"partial_json" => Field::Content,
            _ => Field::Other,
        },
        Place::Token if name == b"text" => Field::Content,
        Place::Error => match name {
            b"code" => Field::ErrorCode,
            b"http_status_code" => Field::ErrorStatus,
            b"type" => Field::ErrorKind,
            _ => Field::Other,
        },
        Place::UsageDetails | Place::Token => Field::Other,
        Place::Other | Place::Batch | Place::Choices | Place::Pieces => Field::Other,
    }
}
