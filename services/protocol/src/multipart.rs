//! What routing needs of a form (`multipart/form-data`), read while it passes: audio and images are sent so.
//!
//! The model is a field that may stand anywhere, also behind a file of any size, so the whole form is read; files are
//! searched for the next delimiter and forgotten. As with JSON, what an engine might read otherwise than we do is refused
//! rather than interpreted: a second `model`, a delimiter that is none, part names that are quoted or encoded in ways
//! that parsers disagree on. The first delimiter line decides whether lines end with `\r\n` or with `\n`, and from there
//! on the other is content.

use memchr::memmem::Finder;

use crate::head::{Head, MODEL_BYTES_MAX, Model, NameAt, NameForm, Prompt};

mod part;

use part::{Field, parameter};

/// Longest boundary. The standard says 70; clients make about 30 to 60.
pub const BOUNDARY_BYTES_MAX: usize = 200;

/// Largest sum of the headers of one part.
pub const PART_HEAD_BYTES_MAX: usize = 8 * 1024;

/// Parts of a form. Real ones have about ten.
pub const PARTS_MAX: u32 = 1000;

/// What may come before the first delimiter: a sentence for readers without MIME, in theory.
pub const PREAMBLE_BYTES_MAX: usize = 1024;

/// Why a form was refused. The text is meant for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    #[error("this path takes a form: send it with `content-type: multipart/form-data; boundary=…`")]
    NotAForm,
    #[error(
        "the content type names no boundary, or one that cannot be used: send `boundary=` with 1 to {max} characters"
    )]
    Boundary { max: usize },
    #[error("the body does not begin with the boundary that the content type names: let the HTTP client make both")]
    NoDelimiter,
    #[error("the form is cut short: it must end with its boundary and `--`")]
    CutShort,
    #[error(
        "the boundary at byte {position} is not followed by a line end or `--`: use one that the contents do not hold"
    )]
    BadDelimiter { position: u64 },
    #[error(
        "the headers of the part before byte {position} cannot be read: send one `content-disposition: form-data; name=\"…\"`"
    )]
    BadPart { position: u64 },
    #[error("the headers of a part are larger than {max} bytes")]
    PartHeadTooLarge { max: usize },
    #[error("the form has more than {max} parts")]
    TooManyParts { max: u32 },
    #[error("`model` is given twice: send it once, since servers differ in which one they take")]
    DuplicateModel,
    #[error("`model` is longer than {max} bytes: send the name of a served model")]
    ModelTooLong { max: usize },
    #[error("`model` is not UTF-8: send the name of a served model")]
    ModelNotUnicode,
}

/// Reads a form as its chunks arrive, wherever they are cut.
#[derive(Debug)]
pub struct Reader {
    /// `--` and the boundary, after the line end that the form uses: just `\n` until it is known.
    delimiter: Finder<'static>,
    line_end: LineEnd,
    place: Place,
    /// The headers of this part, or the value of this field.
    held: Vec<u8>,
    parts: u32,
    consumed: u64,
    /// Where the content of this part begins.
    content_at: u64,
    model: Option<Model>,
    model_at: Option<NameAt>,
    stream: bool,
    include_usage: bool,
    failed: Option<MultipartError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnd {
    Unknown,
    Lf,
    CrLf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first delimiter; so many bytes of it, its line end not among them, have matched.
    Preamble {
        matched: Option<usize>,
        skipped: usize,
    },
    /// Just after a delimiter.
    AfterDelimiter,
    /// After a delimiter and `-`.
    Closing,
    /// After a delimiter and white space.
    Padding,
    /// After a delimiter and `\r`.
    LineEnding,
    PartHead,
    /// In a part's content; so many bytes of the delimiter have matched at the end of the last chunk.
    Content {
        field: Field,
        matched: usize,
    },
    /// After the last delimiter: nothing that follows is part of the form.
    Epilogue,
}

impl Reader {
    /// `content_type` is the value of the header.
    pub fn new(content_type: &str) -> Result<Self, MultipartError> {
        let unusable = MultipartError::Boundary { max: BOUNDARY_BYTES_MAX };
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("multipart/form-data") {
            return Err(MultipartError::NotAForm);
        }
        let boundary = parameter(content_type, "boundary").ok().flatten().ok_or(unusable)?;
        let is_plain = boundary.bytes().all(|byte| byte >= b' ' && byte != 0x7f);
        if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES_MAX || !is_plain || boundary.ends_with(' ') {
            return Err(unusable);
        }
        Ok(Self {
            delimiter: Finder::new(&format!("\n--{boundary}")).into_owned(),
            line_end: LineEnd::Unknown,
            place: Place::Preamble { matched: Some(0), skipped: 0 },
            held: Vec::new(),
            parts: 0,
            consumed: 0,
            content_at: 0,
            model: None,
            model_at: None,
            stream: false,
            include_usage: false,
            failed: None,
        })
    }

    /// More of the body. After an error every further call returns the same one.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), MultipartError> {
        self.failed.map_or(Ok(()), Err)?;
        let mut at = 0;
        while at < chunk.len() {
            let step = match self.place {
                Place::Preamble { matched, skipped } => self.preamble(chunk[at], matched, skipped).map(|()| at + 1),
                Place::AfterDelimiter | Place::Closing | Place::Padding | Place::LineEnding => {
                    self.after_delimiter(chunk[at], at).map(|()| at + 1)
                }
                Place::PartHead => self.part_head(chunk, at),
                Place::Content { field, matched } => self.content(chunk, at, field, matched),
                Place::Epilogue => Ok(chunk.len()),
            };
            at = step.inspect_err(|error| self.failed = Some(*error))?;
        }
        self.consumed += chunk.len() as u64;
        Ok(())
    }

    /// The body is complete.
    pub fn finish(self) -> Result<Head, MultipartError> {
        self.failed.map_or(Ok(()), Err)?;
        match self.place {
            Place::Epilogue => Ok(Head {
                model: self.model.unwrap_or(Model::Missing),
                model_at: self.model_at,
                stream: self.stream,
                include_usage: self.include_usage,
                // A form that streams is audio, which tells when it is over.
                usage_wish: None,
                max_output_tokens: None,
                prompt: Prompt::default(),
                bytes: self.consumed,
            }),
            Place::Preamble { .. } => Err(MultipartError::NoDelimiter),
            Place::AfterDelimiter
            | Place::Closing
            | Place::Padding
            | Place::LineEnding
            | Place::PartHead
            | Place::Content { .. } => Err(MultipartError::CutShort),
        }
    }

    /// Before the first delimiter, which begins a line.
    fn preamble(&mut self, byte: u8, matched: Option<usize>, skipped: usize) -> Result<(), MultipartError> {
        if skipped == PREAMBLE_BYTES_MAX {
            return Err(MultipartError::NoDelimiter);
        }
        // Its line end is the first byte of what is searched for.
        let delimiter = &self.delimiter.needle()[1..];
        let matched = match matched {
            _ if byte == b'\n' => Some(0),
            Some(count) if delimiter.get(count) == Some(&byte) => Some(count + 1),
            _ => None,
        };
        self.place = match matched {
            Some(count) if count == delimiter.len() => Place::AfterDelimiter,
            _ => Place::Preamble { matched, skipped: skipped + 1 },
        };
        Ok(())
    }

    fn after_delimiter(&mut self, byte: u8, at: usize) -> Result<(), MultipartError> {
        let ends_line = match self.line_end {
            LineEnd::Unknown => [b'\r', b'\n'].contains(&byte),
            LineEnd::CrLf => byte == b'\r',
            LineEnd::Lf => byte == b'\n',
        };
        self.place = match (self.place, byte) {
            (Place::AfterDelimiter, b'-') => Place::Closing,
            (Place::Closing, b'-') => Place::Epilogue,
            (Place::AfterDelimiter | Place::Padding, b' ' | b'\t') => Place::Padding,
            (Place::AfterDelimiter | Place::Padding, b'\n') if ends_line => return self.begin_part(LineEnd::Lf),
            (Place::AfterDelimiter | Place::Padding, b'\r') if ends_line => Place::LineEnding,
            (Place::LineEnding, b'\n') => return self.begin_part(LineEnd::CrLf),
            _ => return Err(MultipartError::BadDelimiter { position: self.consumed + at as u64 }),
        };
        Ok(())
    }

    fn begin_part(&mut self, line_end: LineEnd) -> Result<(), MultipartError> {
        if self.line_end == LineEnd::Unknown {
            self.line_end = line_end;
            if line_end == LineEnd::CrLf {
                let delimiter = [b"\r", self.delimiter.needle()].concat();
                self.delimiter = Finder::new(&delimiter).into_owned();
            }
        }
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(MultipartError::TooManyParts { max: PARTS_MAX });
        }
        self.held.clear();
        self.place = Place::PartHead;
        Ok(())
    }

    /// The headers of a part, up to the blank line after them.
    fn part_head(&mut self, chunk: &[u8], mut at: usize) -> Result<usize, MultipartError> {
        let (line_end, blank): (&str, &[u8]) = match self.line_end {
            LineEnd::CrLf => ("\r\n", b"\r\n\r\n"),
            LineEnd::Lf | LineEnd::Unknown => ("\n", b"\n\n"),
        };
        while let Some(&byte) = chunk.get(at) {
            if self.held.len() == PART_HEAD_BYTES_MAX {
                return Err(MultipartError::PartHeadTooLarge { max: PART_HEAD_BYTES_MAX });
            }
            self.held.push(byte);
            at += 1;
            if self.held == line_end.as_bytes() || self.held.ends_with(blank) {
                let head = String::from_utf8_lossy(&self.held);
                let position = self.consumed + at as u64;
                let field = Field::of_part(&head, line_end).ok_or(MultipartError::BadPart { position })?;
                if field == Field::Model && self.model.is_some() {
                    return Err(MultipartError::DuplicateModel);
                }
                self.held.clear();
                self.content_at = position;
                self.place = Place::Content { field, matched: 0 };
                break;
            }
        }
        Ok(at)
    }

    /// The content of a part, up to the delimiter after it.
    fn content(&mut self, chunk: &[u8], at: usize, field: Field, matched: usize) -> Result<usize, MultipartError> {
        let rest = &chunk[at..];
        if matched > 0 {
            return self.resume(rest, at, field, matched);
        }
        if let Some(len) = self.delimiter.find(rest) {
            let end = at + len + self.delimiter.needle().len();
            self.hold(field, &rest[..len])?;
            self.end_part(field)?;
            return Ok(end);
        }
        // Its first byte stands nowhere else in a delimiter, so only the last one in the chunk can begin one.
        let needle = self.delimiter.needle();
        let window = rest.len().saturating_sub(needle.len() - 1);
        let begins = memchr::memrchr(needle[0], &rest[window..]).map(|index| window + index);
        let len = begins.filter(|&index| needle.starts_with(&rest[index..])).unwrap_or(rest.len());
        self.hold(field, &rest[..len])?;
        self.place = Place::Content { field, matched: rest.len() - len };
        Ok(chunk.len())
    }

    /// The last chunk ended with the beginning of a delimiter: is this the rest of it?
    fn resume(&mut self, rest: &[u8], at: usize, field: Field, matched: usize) -> Result<usize, MultipartError> {
        let wanted = &self.delimiter.needle()[matched..];
        let same = wanted.iter().zip(rest).take_while(|(wanted, got)| wanted == got).count();
        if same == wanted.len() {
            self.end_part(field)?;
        } else if same == rest.len() {
            self.place = Place::Content { field, matched: matched + same };
        } else {
            let content = self.delimiter.needle()[..matched + same].to_vec();
            self.hold(field, &content)?;
            self.place = Place::Content { field, matched: 0 };
        }
        Ok(at + same)
    }

    /// Keeps more of a field's value, if it is one that matters.
    fn hold(&mut self, field: Field, bytes: &[u8]) -> Result<(), MultipartError> {
        if field == Field::Other {
            return Ok(());
        }
        let room = MODEL_BYTES_MAX - self.held.len();
        if field == Field::Model && bytes.len() > room {
            return Err(MultipartError::ModelTooLong { max: MODEL_BYTES_MAX });
        }
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(())
    }

    fn end_part(&mut self, field: Field) -> Result<(), MultipartError> {
        let value = std::str::from_utf8(&self.held);
        match field {
            Field::Model => {
                let name = value.map_err(|_| MultipartError::ModelNotUnicode)?;
                self.model_at = Some(NameAt { at: self.content_at, bytes: name.len() as u64, form: NameForm::Plain });
                self.model = Some(if name.is_empty() { Model::Empty } else { Model::Named(name.to_owned()) });
            }
            Field::Stream => self.stream = value.is_ok_and(is_true),
            Field::IncludeUsage => self.include_usage = value.is_ok_and(is_true),
            Field::Other => {}
        }
        self.place = Place::AfterDelimiter;
        Ok(())
    }
}

/// What Python's form readers take for true.
fn is_true(value: &str) -> bool {
    ["true", "1", "yes", "on", "t", "y"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
