//! Lines of an event stream and the fields they are, wherever chunks are cut.

use memchr::memchr2;

/// Longest field name that means anything to us: `event`, after a byte order mark.
const NAME_BYTES_MAX: usize = 8;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What comes next in a chunk.
pub(super) enum Piece<'a> {
    /// More of the data of this line.
    Data(&'a [u8]),
    /// A line of data is over.
    EndOfData,
    /// `event: error`.
    NamedError,
    /// A blank line.
    EndOfEvent,
}

#[derive(Debug)]
pub(super) struct Lines {
    field: Field,
    /// The last byte was `\r`: a `\n` that follows belongs to it.
    after_return: bool,
    /// No line has ended yet: a byte order mark may stand before the first.
    is_first: bool,
    /// A line has ended since the last blank one.
    in_event: bool,
}

/// Where in a line we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name([u8; NAME_BYTES_MAX], usize),
    /// After `data:`, where one space is not part of the data.
    BeforeData,
    Data,
    /// After `event:`; so many bytes of `error`, and perhaps a space before it, have matched.
    Event(u8),
    /// A comment, a field that means nothing to us, or another event's name.
    Skipped,
}

const START: Field = Field::Name([0; NAME_BYTES_MAX], 0);

const ERROR: &[u8; 5] = b"error";

impl Lines {
    pub(super) fn new() -> Self {
        Self { field: START, after_return: false, is_first: true, in_event: false }
    }

    /// Whether the last line was a blank one, and is over.
    pub(super) fn are_between_events(&self) -> bool {
        self.field == START && !self.in_event
    }

    /// The next piece of `chunk` from `at` on, which moves behind it.
    pub(super) fn next<'a>(&mut self, chunk: &'a [u8], at: &mut usize) -> Option<Piece<'a>> {
        while let Some(&byte) = chunk.get(*at) {
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                *at += 1;
                continue;
            }
            let rest = &chunk[*at..];
            let piece = match self.field {
                Field::Name(name, len) => self.name(rest, name, len, at),
                Field::BeforeData => {
                    self.field = Field::Data;
                    *at += usize::from(byte == b' ');
                    None
                }
                Field::Data => self.data(rest, at),
                Field::Event(matched) => self.event(byte, matched, at),
                Field::Skipped => {
                    *at += memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    if *at < chunk.len() { self.end_line(chunk[*at], at) } else { None }
                }
            };
            if piece.is_some() {
                return piece;
            }
        }
        None
    }

    fn name<'a>(
        &mut self,
        rest: &[u8],
        mut name: [u8; NAME_BYTES_MAX],
        len: usize,
        at: &mut usize,
    ) -> Option<Piece<'a>> {
        if len == 0 && rest.starts_with(b"data:") {
            self.field = Field::BeforeData;
            *at += 5;
            return None;
        }
        let byte = rest[0];
        if byte == b'\n' || byte == b'\r' {
            return self.end_line(byte, at);
        }
        *at += 1;
        if byte == b':' {
            let name = &name[..len];
            let name = if self.is_first { name.strip_prefix(BYTE_ORDER_MARK).unwrap_or(name) } else { name };
            self.field = match name {
                b"data" => Field::BeforeData,
                b"event" => Field::Event(0),
                _ => Field::Skipped,
            };
        } else if len < NAME_BYTES_MAX {
            name[len] = byte;
            self.field = Field::Name(name, len + 1);
        } else {
            self.field = Field::Skipped;
        }
        None
    }

    fn data<'a>(&mut self, rest: &'a [u8], at: &mut usize) -> Option<Piece<'a>> {
        let len = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        if len == 0 {
            return self.end_line(rest[0], at);
        }
        *at += len;
        Some(Piece::Data(&rest[..len]))
    }

    fn event<'a>(&mut self, byte: u8, matched: u8, at: &mut usize) -> Option<Piece<'a>> {
        if byte == b'\n' || byte == b'\r' {
            return self.end_line(byte, at);
        }
        *at += 1;
        self.field = match ERROR.get(usize::from(matched)) {
            Some(expected) if *expected == byte => Field::Event(matched + 1),
            _ if matched == 0 && byte == b' ' => Field::Event(0),
            _ => Field::Skipped,
        };
        None
    }

    /// `byte` ends the line.
    fn end_line<'a>(&mut self, byte: u8, at: &mut usize) -> Option<Piece<'a>> {
        *at += 1;
        self.after_return = byte == b'\r';
        let is_first = std::mem::take(&mut self.is_first);
        let field = std::mem::replace(&mut self.field, START);
        let is_blank = match field {
            Field::Name(name, 3) => is_first && name.starts_with(BYTE_ORDER_MARK),
            Field::Name(_, len) => len == 0,
            Field::BeforeData | Field::Data | Field::Event(_) | Field::Skipped => false,
        };
        self.in_event = !is_blank;
        match field {
            _ if is_blank => Some(Piece::EndOfEvent),
            // A field without a colon has no value: no data, then.
            Field::Name(name, 4) if name.starts_with(b"data") => Some(Piece::EndOfData),
            Field::BeforeData | Field::Data => Some(Piece::EndOfData),
            Field::Event(matched) if usize::from(matched) == ERROR.len() => Some(Piece::NamedError),
            Field::Name(..) | Field::Event(_) | Field::Skipped => None,
        }
    }
}
