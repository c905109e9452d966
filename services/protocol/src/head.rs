//! What routing needs of a JSON body, read while it passes.
//!
//! One pass over the bytes, whatever their number and however they are cut: `model`, `stream`, the limit of generated
//! tokens, and the prompt as hashes of its blocks. Nothing else is looked at, and nothing is changed: members that we do
//! not know, or whose values make no sense, are the engine's business and reach it as they came. What is refused is what
//! an engine might read otherwise than we do: anything that is not JSON, and a second `model`.
//!
//! Decided here, and tested: `NaN`, `Infinity` and a byte order mark are refused though Python's reader takes them; half
//! of a surrogate pair in an escape passes, except in `model`; of other repeated members the last counts, as in engines.

mod member;
mod prompt;
mod wish;

pub use prompt::{BLOCK_BYTES, BLOCKS_MAX, Prompt, Seed};
pub use wish::Splice;

pub use crate::json::Fault as JsonFault;
use crate::json::{self, Halt, Kind, Machine, Scalar, Text, Undecodable, Visitor};
use crate::path::Api;
use member::{Hint, LIMITS, Member};
use wish::Wish;

/// Longest name of a model, in bytes of its decoded form. Kubernetes allows 253 for `modelName`; paths used as names are
/// longer.
pub const MODEL_BYTES_MAX: usize = 1024;

/// Longest form such a name can have in a body: six bytes for each, as in `\u0061`.
const MODEL_RAW_BYTES_MAX: usize = 6 * MODEL_BYTES_MAX;

/// What routing needs of a request's body.
#[derive(Clone, Debug)]
pub struct Head {
    pub model: Model,
    /// Where the model's name stands, if there is one.
    pub model_at: Option<NameAt>,
    /// The client asked for an event stream.
    pub stream: bool,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// What would make this body ask for the usage of its stream: None where it does, where it wants no stream, where its
    /// API always tells, and where a wrong type is the engine's to refuse.
    pub usage_wish: Option<Splice>,
    /// The most tokens the client wants generated, under whichever name its API gives that.
    pub max_output_tokens: Option<u32>,
    pub prompt: Prompt,
    /// Length of the body.
    pub bytes: u64,
}

/// Where a name stands in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameAt {
    /// In bytes of the body. Of a JSON text, after its quote.
    pub at: u64,
    /// Its length as it is written there: JSON escapes are longer than what they stand for.
    pub bytes: u64,
    /// How another name is written in its place.
    pub form: NameForm,
}

/// How a name is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// With the escapes of a JSON text.
    Json,
    /// As it is.
    Plain,
}

impl NameForm {
    /// This name as it is written.
    #[must_use]
    pub fn written(self, name: &str) -> String {
        match self {
            Self::Plain => name.to_owned(),
            Self::Json => {
                let quoted = serde_json::to_string(name).expect("a text is JSON");
                quoted[1..quoted.len() - 1].to_owned()
            }
        }
    }
}

/// The `model` of a request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    Missing,
    Empty,
    NotAString,
    Named(String),
}

/// Why a body was refused. The text is meant for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the body is empty: send a JSON object")]
    Empty,
    #[error("the body is not valid JSON: at byte {position}, {what}; send one JSON object in UTF-8")]
    Json { position: u64, what: JsonFault },
    #[error("the body is JSON but no object: send a JSON object such as {{\"model\": \"…\"}}")]
    NotAnObject,
    #[error("the body is nested more than {max} levels deep: flatten it")]
    TooDeep { max: u32 },
    #[error("`model` is given twice: send it once, since servers differ in which one they take")]
    DuplicateModel,
    #[error("`model` is longer than {max} bytes: send the name of a served model")]
    ModelTooLong { max: usize },
    #[error("`model` holds half of a surrogate pair: send a name in valid Unicode")]
    ModelNotUnicode,
}

/// Reads a JSON body as its chunks arrive, wherever they are cut.
#[derive(Debug)]
pub struct Reader {
    machine: Machine,
    body: Body,
    failed: Option<HeadError>,
}

impl Reader {
    pub fn new(api: Api) -> Self {
        Self { machine: Machine::new(), body: Body::new(api), failed: None }
    }

    /// More of the body. After an error every further call returns the same one.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), HeadError> {
        self.failed.map_or(Ok(()), Err)?;
        self.body.span = 0;
        self.body.wish.chunk_at = self.machine.consumed();
        if let Err(halt) = self.machine.feed(chunk, &mut self.body) {
            let error = self.error(halt);
            self.failed = Some(error);
            return Err(error);
        }
        self.body.write_span(chunk, chunk.len());
        Ok(())
    }

    /// The body is complete.
    pub fn finish(mut self) -> Result<Head, HeadError> {
        self.failed.map_or(Ok(()), Err)?;
        // All that came has been hashed; a number that ends with the body ends in a chunk without bytes.
        self.body.span = 0;
        let finished = self.machine.finish(&mut self.body);
        finished.map_err(|halt| self.error(halt))?;
        Ok(self.body.finish(self.machine.consumed()))
    }

    fn error(&self, halt: Halt<HeadError>) -> HeadError {
        match halt {
            Halt::Fault(JsonFault::CutShort, _) if self.machine.is_at_start() => HeadError::Empty,
            Halt::Fault(what, position) => HeadError::Json { position, what },
            Halt::TooDeep => HeadError::TooDeep { max: json::DEPTH_MAX },
            Halt::Visitor(error) => error,
        }
    }
}

/// What is known of the body so far.
#[derive(Debug)]
struct Body {
    api: Api,
    /// The member at the top level that is being read.
    top: Member,
    /// The member inside it that is being read, if it has members that matter.
    inner: Member,
    model: Option<Model>,
    model_at: Option<NameAt>,
    stream: bool,
    include_usage: bool,
    wish: Wish,
    limits: [Option<u32>; LIMITS],
    prompt: prompt::Builder,
    /// Depth of the name whose value is being hashed; 0 if none is.
    hashed_depth: u32,
    /// Where in this chunk the bytes begin that are not hashed yet.
    span: usize,
    hint: Hint,
    /// What passes is a file inside the prompt.
    in_file: bool,
}

impl Body {
    fn new(api: Api) -> Self {
        Self {
            api,
            top: Member::Other,
            inner: Member::Other,
            model: None,
            model_at: None,
            stream: api == Api::GenerateStream,
            include_usage: false,
            wish: Wish::default(),
            limits: [None; LIMITS],
            prompt: prompt::Builder::new(),
            hashed_depth: 0,
            span: 0,
            hint: Hint::None,
            in_file: false,
        }
    }

    fn finish(self, bytes: u64) -> Head {
        let says_when_asked = matches!(self.api, Api::ChatCompletions | Api::Completions);
        let wanted = self.stream && !self.include_usage && says_when_asked;
        Head {
            usage_wish: self.wish.found().filter(|_| wanted),
            model: self.model.unwrap_or(Model::Missing),
            model_at: self.model_at,
            stream: self.stream,
            include_usage: self.include_usage,
            max_output_tokens: self.limits.into_iter().flatten().next(),
            prompt: self.prompt.finish(),
            bytes,
        }
    }

    fn is_hashing(&self) -> bool {
        self.hashed_depth > 0
    }

    /// Hashes what has gathered up to `to`.
    fn write_span(&mut self, chunk: &[u8], to: usize) {
        if self.in_file {
            self.prompt.write_file(&chunk[self.span..to]);
        } else if self.is_hashing() {
            self.prompt.write(&chunk[self.span..to]);
        }
        self.span = to;
    }

    /// A value at `depth` is over: that of the hashed member, perhaps.
    fn end_value(&mut self, depth: u32, chunk: &[u8], end: usize) {
        if self.is_hashing() && depth == self.hashed_depth {
            self.write_span(chunk, end);
            self.prompt.end();
            self.hashed_depth = 0;
        }
    }

    fn named(&mut self, member: Member, depth: u32, end: usize) -> Result<(), HeadError> {
        match member {
            Member::Model if self.model.is_some() => return Err(HeadError::DuplicateModel),
            // Of repeated members the last counts, also if its value is none that we read.
            Member::Stream => self.stream = self.api == Api::GenerateStream,
            Member::StreamOptions | Member::IncludeUsage => {
                self.include_usage = false;
                self.wish.named();
            }
            Member::OutputTokens(limit) => self.limits[limit as usize] = None,
            Member::Prompt(rank) => {
                self.prompt.begin(rank);
                (self.hashed_depth, self.span) = (depth, end);
            }
            Member::Model | Member::Nested | Member::Other => {}
        }
        Ok(())
    }

    fn value_of(&mut self, member: Member, value: Scalar<'_>) -> Result<(), HeadError> {
        match member {
            Member::Model => self.model = Some(model(value)?),
            Member::Stream => self.stream = is_true(value) || self.api == Api::GenerateStream,
            Member::IncludeUsage => self.include_usage = is_true(value),
            Member::OutputTokens(limit) => self.limits[limit as usize] = whole(value),
            Member::StreamOptions | Member::Nested | Member::Prompt(_) | Member::Other => {}
        }
        Ok(())
    }

    /// A scalar somewhere in a prompt: what it says about the number of tokens.
    fn weigh(&mut self, value: Scalar<'_>) {
        match value {
            Scalar::Number(digits) => self.prompt.count_token_id(digits.raw_len),
            Scalar::String(text) if self.hint == Hint::PartKind => {
                if matches!(text.raw, b"image_url" | b"image" | b"input_image") {
                    self.prompt.count_image();
                }
            }
            Scalar::String(_) | Scalar::True | Scalar::False | Scalar::Null => {}
        }
    }
}

impl Visitor for Body {
    type Stop = HeadError;

    fn text_bytes_kept(&self) -> usize {
        if self.top == Member::Model { MODEL_RAW_BYTES_MAX } else { json::TEXT_BYTES_KEPT }
    }

    fn open(&mut self, kind: Kind, depth: u32) -> Result<(), HeadError> {
        match depth {
            1 if kind == Kind::Array => return Err(HeadError::NotAnObject),
            2 if self.top == Member::Model => self.model = Some(Model::NotAString),
            2 => {
                self.inner = Member::Other;
                if self.top == Member::StreamOptions {
                    self.wish.options_open(kind);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, depth: u32, chunk: &[u8], end: usize) {
        self.end_value(depth - 1, chunk, end);
        match depth {
            1 => self.wish.body_close(end),
            2 => {
                if self.top == Member::StreamOptions {
                    self.wish.options_close(end);
                }
                self.top = Member::Other;
            }
            _ => {}
        }
    }

    fn key(&mut self, name: Text<'_>, depth: u32, end: usize) -> Result<(), HeadError> {
        if self.is_hashing() {
            self.hint = Hint::of(name.raw);
            return Ok(());
        }
        if depth > 2 || (depth == 2 && !matches!(self.top, Member::StreamOptions | Member::Nested)) {
            return Ok(());
        }
        // A name that does not decode is none that we know: all of ours fit into what is kept.
        let name = name.decode().unwrap_or_default();
        self.hint = Hint::of(name.as_bytes());
        let member = match (depth, self.top) {
            (1, _) => Member::at_top(name.as_bytes(), self.api),
            (_, Member::StreamOptions) => {
                self.wish.other_named();
                Member::of_stream_options(name.as_bytes())
            }
            _ => Member::nested(name.as_bytes()),
        };
        if depth == 1 {
            self.top = member;
        } else {
            self.inner = member;
        }
        self.named(member, depth, end)
    }

    fn string_begins(&mut self, chunk: &[u8], from: usize) {
        if self.is_hashing() && self.hint == Hint::File {
            self.write_span(chunk, from);
            self.in_file = true;
        }
    }

    fn scalar(&mut self, value: Scalar<'_>, depth: u32, chunk: &[u8], end: usize) -> Result<(), HeadError> {
        if self.in_file {
            // All but the closing quote.
            self.write_span(chunk, end - 1);
            self.in_file = false;
            self.prompt.end_file();
        }
        if self.is_hashing() {
            self.weigh(value);
            self.end_value(depth, chunk, end);
            return Ok(());
        }
        match depth {
            0 => Err(HeadError::NotAnObject),
            1 => {
                let member = std::mem::replace(&mut self.top, Member::Other);
                match (member, value) {
                    (Member::StreamOptions, _) => self.wish.options_are(value, end),
                    (Member::Model, Scalar::String(text)) => {
                        // Before its closing quote; it may have begun in an earlier chunk.
                        let at = self.wish.chunk_at + end as u64 - 1 - text.raw_len;
                        self.model_at = Some(NameAt { at, bytes: text.raw_len, form: NameForm::Json });
                    }
                    _ => {}
                }
                self.value_of(member, value)
            }
            2 if matches!(self.top, Member::StreamOptions | Member::Nested) => {
                if self.inner == Member::IncludeUsage {
                    self.wish.include_usage_is(value, end);
                }
                self.value_of(self.inner, value)
            }
            _ => Ok(()),
        }
    }

    fn space(&mut self, chunk: &[u8], from: usize, to: usize) {
        self.write_span(chunk, from);
        self.span = to;
    }
}

fn model(value: Scalar<'_>) -> Result<Model, HeadError> {
    let Scalar::String(text) = value else { return Ok(Model::NotAString) };
    match text.decode() {
        Ok(name) if name.is_empty() => Ok(Model::Empty),
        Ok(name) if name.len() <= MODEL_BYTES_MAX => Ok(Model::Named(name.into_owned())),
        Ok(_) | Err(Undecodable::Cut) => Err(HeadError::ModelTooLong { max: MODEL_BYTES_MAX }),
        Err(Undecodable::LoneSurrogate) => Err(HeadError::ModelNotUnicode),
    }
}

fn is_true(value: Scalar<'_>) -> bool {
    matches!(value, Scalar::True)
}

fn whole(value: Scalar<'_>) -> Option<u32> {
    match value {
        Scalar::Number(digits) => digits.as_whole().map(|number| u32::try_from(number).unwrap_or(u32::MAX)),
        Scalar::String(_) | Scalar::True | Scalar::False | Scalar::Null => None,
    }
}

#[cfg(test)]
mod tests;
