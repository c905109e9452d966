//! The state machine: one function per kind of place in a document, each of which eats what it can of a chunk.

use super::number::Number;
use super::text::{Border, Utf8, run};
use super::{DEPTH_MAX, Fault, Kind, Scalar, Text, Visitor};

/// Reads one document. After an error it must not be fed again before [`Machine::reset`].
#[derive(Debug)]
pub(crate) struct Machine {
    place: Place,
    depth: u32,
    /// Bit `d - 1` is set where the container at depth `d` is an object.
    objects: u128,
    /// Whether the innermost container is one.
    in_object: bool,
    /// Bytes of the chunks before this one.
    consumed: u64,
    token: Token,
}

/// The name or scalar that is being read.
#[derive(Debug, Default)]
struct Token {
    /// Where it begins in this chunk; 0 if it began in an earlier one.
    from: usize,
    /// Its beginning from earlier chunks, as far as the visitor wanted it, and its length there.
    carry: Vec<u8>,
    carried_len: u64,
    has_escapes: bool,
    is_name: bool,
    utf8: Utf8,
}

/// Why reading stopped, and at which byte of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt<Stop> {
    Fault(Fault, u64),
    TooDeep,
    Visitor(Stop),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first byte of the document.
    Start,
    Value,
    ValueOrClose,
    Name,
    NameOrClose,
    Colon,
    AfterValue,
    String,
    Escape,
    /// So many hexadecimal digits are still to come.
    Hex(u8),
    Number(Number),
    Literal(Literal, usize),
    /// After the document: white space alone may follow.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Literal {
    True,
    False,
    Null,
}

type Step<V> = Result<usize, Halt<<V as Visitor>::Stop>>;

impl Machine {
    pub(crate) fn new() -> Self {
        Self { place: Place::Start, depth: 0, objects: 0, in_object: false, consumed: 0, token: Token::default() }
    }

    /// Ready for another document; keeps what memory it has.
    pub(crate) fn reset(&mut self) {
        let mut carry = std::mem::take(&mut self.token.carry);
        carry.clear();
        *self = Self { token: Token { carry, ..Token::default() }, ..Self::new() };
    }

    /// Nothing but white space has been read.
    pub(crate) fn is_at_start(&self) -> bool {
        self.place == Place::Start
    }

    /// Bytes read so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(crate) fn feed<V: Visitor>(&mut self, chunk: &[u8], visitor: &mut V) -> Result<(), Halt<V::Stop>> {
        let mut at = 0;
        self.token.from = 0;
        while at < chunk.len() {
            at = match self.place {
                Place::String => self.string(chunk, at, visitor)?,
                Place::Escape => self.escape(chunk, at)?,
                Place::Hex(left) => self.hex(chunk, at, left)?,
                Place::Number(number) => self.number(chunk, at, number, visitor)?,
                Place::Literal(literal, matched) => self.literal(chunk, at, literal, matched, visitor)?,
                Place::Start
                | Place::Value
                | Place::ValueOrClose
                | Place::Name
                | Place::NameOrClose
                | Place::Colon
                | Place::AfterValue
                | Place::End => self.between(chunk, at, visitor)?,
            };
        }
        if self.is_in_token() {
            self.token.carry_over(chunk, visitor.text_bytes_kept());
        }
        self.consumed += chunk.len() as u64;
        Ok(())
    }

    /// The document ends here.
    pub(crate) fn finish<V: Visitor>(&mut self, visitor: &mut V) -> Result<(), Halt<V::Stop>> {
        if let Place::Number(number) = self.place {
            self.token.from = 0;
            self.end_of_number(&[], 0, number, visitor)?;
        }
        if self.place == Place::End { Ok(()) } else { Err(Halt::Fault(Fault::CutShort, self.consumed)) }
    }

    fn is_in_token(&self) -> bool {
        matches!(self.place, Place::String | Place::Escape | Place::Hex(_) | Place::Number(_))
    }

    fn fault<Stop>(&self, fault: Fault, at: usize) -> Halt<Stop> {
        Halt::Fault(fault, self.position(at))
    }

    fn position(&self, at: usize) -> u64 {
        self.consumed + at as u64
    }

    /// Between tokens: white space, brackets, commas, colons, and the first byte of what comes.
    fn between<V: Visitor>(&mut self, chunk: &[u8], at: usize, visitor: &mut V) -> Step<V> {
        let byte = chunk[at];
        if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            let is_space = |byte: &&u8| matches!(**byte, b' ' | b'\n' | b'\r' | b'\t');
            let to = at + chunk[at..].iter().take_while(is_space).count();
            visitor.space(chunk, at, to);
            return Ok(to);
        }
        match (self.place, byte) {
            (Place::AfterValue, b',') => {
                self.place = if self.in_object { Place::Name } else { Place::Value };
                // The usual next byte, without another round.
                if self.in_object && chunk.get(at + 1) == Some(&b'"') {
                    return Ok(self.begin_string(at + 2, true));
                }
                Ok(at + 1)
            }
            (Place::AfterValue | Place::NameOrClose, b'}') if self.in_object => Ok(self.close(chunk, at + 1, visitor)),
            (Place::AfterValue | Place::ValueOrClose, b']') if !self.in_object => {
                Ok(self.close(chunk, at + 1, visitor))
            }
            (Place::Name | Place::NameOrClose, b'"') => Ok(self.begin_string(at + 1, true)),
            (Place::Colon, b':') => {
                self.place = Place::Value;
                Ok(at + 1)
            }
            (Place::Start | Place::Value | Place::ValueOrClose, _) => self.value(chunk, at, visitor),
            _ => Err(self.fault(self.expected(), at)),
        }
    }

    fn expected(&self) -> Fault {
        match self.place {
            Place::Name | Place::NameOrClose => Fault::NameExpected,
            Place::Colon => Fault::ColonExpected,
            Place::AfterValue if self.in_object => Fault::ObjectContinues,
            Place::AfterValue => Fault::ArrayContinues,
            Place::End => Fault::Trailing,
            Place::Start
            | Place::Value
            | Place::ValueOrClose
            | Place::String
            | Place::Escape
            | Place::Hex(_)
            | Place::Number(_)
            | Place::Literal(..) => Fault::ValueExpected,
        }
    }

    /// The first byte of a value.
    fn value<V: Visitor>(&mut self, chunk: &[u8], at: usize, visitor: &mut V) -> Step<V> {
        let number = match chunk[at] {
            b'"' => {
                visitor.string_begins(chunk, at + 1);
                return Ok(self.begin_string(at + 1, false));
            }
            b'{' => return self.open(Kind::Object, at, visitor),
            b'[' => return self.open(Kind::Array, at, visitor),
            b't' => return Ok(self.begin_literal(Literal::True, at)),
            b'f' => return Ok(self.begin_literal(Literal::False, at)),
            b'n' => return Ok(self.begin_literal(Literal::Null, at)),
            b'-' => Number::Minus,
            b'0' => Number::Zero,
            b'1'..=b'9' => Number::Whole,
            0xEF if self.place == Place::Start && self.consumed + at as u64 == 0 => {
                return Err(self.fault(Fault::ByteOrderMark, at));
            }
            _ => return Err(self.fault(Fault::ValueExpected, at)),
        };
        self.token.begin(at);
        self.place = Place::Number(number);
        Ok(at + 1)
    }

    fn open<V: Visitor>(&mut self, kind: Kind, at: usize, visitor: &mut V) -> Step<V> {
        if self.depth == DEPTH_MAX {
            return Err(Halt::TooDeep);
        }
        let bit = 1 << self.depth;
        self.depth += 1;
        (self.objects, self.place) = match kind {
            Kind::Object => (self.objects | bit, Place::NameOrClose),
            Kind::Array => (self.objects & !bit, Place::ValueOrClose),
        };
        self.in_object = kind == Kind::Object;
        visitor.open(kind, self.depth).map_err(Halt::Visitor)?;
        Ok(at + 1)
    }

    fn close<V: Visitor>(&mut self, chunk: &[u8], end: usize, visitor: &mut V) -> usize {
        visitor.close(self.depth, chunk, end);
        self.depth -= 1;
        self.in_object = self.depth > 0 && (self.objects >> (self.depth - 1)) & 1 == 1;
        self.place = self.after_value();
        end
    }

    fn after_value(&self) -> Place {
        if self.depth == 0 { Place::End } else { Place::AfterValue }
    }

    fn begin_string(&mut self, from: usize, is_name: bool) -> usize {
        self.token.begin(from);
        self.token.is_name = is_name;
        self.place = Place::String;
        from
    }

    fn begin_literal(&mut self, literal: Literal, at: usize) -> usize {
        self.place = Place::Literal(literal, 1);
        at + 1
    }

    /// Inside a string, up to its end, the chunk's end, or an escape that the chunk cuts.
    fn string<V: Visitor>(&mut self, chunk: &[u8], mut at: usize, visitor: &mut V) -> Step<V> {
        loop {
            let run = run(chunk, at);
            if !run.is_ascii || !self.token.utf8.is_clear() {
                let border = if run.end == chunk.len() { Border::Cut } else { Border::Letter };
                let checked = self.token.utf8.check(&chunk[at..run.end], border);
                checked.map_err(|begins| {
                    Halt::Fault(Fault::NotUtf8, self.position(at).saturating_add_signed(begins as i64))
                })?;
            }
            at = run.end;
            match chunk.get(at) {
                None => return Ok(at),
                Some(b'"') => return self.end_of_string(chunk, at, visitor),
                Some(b'\\') => self.token.has_escapes = true,
                Some(_) => return Err(self.fault(Fault::ControlCharacter, at)),
            }
            match chunk.get(at + 1) {
                // The frequent ones, without leaving the loop.
                Some(b'n' | b'"' | b'\\' | b't' | b'r' | b'/' | b'b' | b'f') => at += 2,
                _ => {
                    self.place = Place::Escape;
                    return Ok(at + 1);
                }
            }
        }
    }

    fn end_of_string<V: Visitor>(&mut self, chunk: &[u8], quote: usize, visitor: &mut V) -> Step<V> {
        let (end, is_name) = (quote + 1, self.token.is_name);
        let text = self.token.text(chunk, quote, visitor.text_bytes_kept());
        if is_name {
            visitor.key(text, self.depth, end).map_err(Halt::Visitor)?;
            if chunk.get(end) == Some(&b':') {
                self.place = Place::Value;
                return Ok(end + 1);
            }
            self.place = Place::Colon;
        } else {
            self.place = if self.depth == 0 { Place::End } else { Place::AfterValue };
            visitor.scalar(Scalar::String(text), self.depth, chunk, end).map_err(Halt::Visitor)?;
        }
        Ok(end)
    }

    fn escape<Stop>(&mut self, chunk: &[u8], at: usize) -> Result<usize, Halt<Stop>> {
        self.place = match chunk[at] {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Place::String,
            b'u' => Place::Hex(4),
            _ => return Err(self.fault(Fault::BadEscape, at)),
        };
        Ok(at + 1)
    }

    fn hex<Stop>(&mut self, chunk: &[u8], at: usize, left: u8) -> Result<usize, Halt<Stop>> {
        if !chunk[at].is_ascii_hexdigit() {
            return Err(self.fault(Fault::BadEscape, at));
        }
        self.place = if left == 1 { Place::String } else { Place::Hex(left - 1) };
        Ok(at + 1)
    }

    /// Inside a number, up to the byte after it; or after the last of a list of numbers, since those are long: token ids,
    /// embeddings.
    fn number<V: Visitor>(&mut self, chunk: &[u8], mut at: usize, mut number: Number, visitor: &mut V) -> Step<V> {
        while let Some(&byte) = chunk.get(at) {
            if number.takes_digits() && byte.is_ascii_digit() {
                at += 1;
                continue;
            }
            if let Some(next) = number.next(byte) {
                (number, at) = (next, at + 1);
                continue;
            }
            self.end_of_number(chunk, at, number, visitor)?;
            let is_in_list = self.depth > 0 && !self.in_object && byte == b',';
            if !is_in_list || !matches!(chunk.get(at + 1), Some(b'1'..=b'9')) {
                return Ok(at);
            }
            self.token.begin(at + 1);
            (number, at) = (Number::Whole, at + 2);
        }
        self.place = Place::Number(number);
        Ok(at)
    }

    fn end_of_number<V: Visitor>(
        &mut self,
        chunk: &[u8],
        end: usize,
        number: Number,
        visitor: &mut V,
    ) -> Result<(), Halt<V::Stop>> {
        if !number.may_end() {
            return Err(self.fault(Fault::BadNumber, end));
        }
        self.place = self.after_value();
        let text = self.token.text(chunk, end, visitor.text_bytes_kept());
        visitor.scalar(Scalar::Number(text), self.depth, chunk, end).map_err(Halt::Visitor)
    }

    fn literal<V: Visitor>(
        &mut self,
        chunk: &[u8],
        mut at: usize,
        literal: Literal,
        mut matched: usize,
        visitor: &mut V,
    ) -> Step<V> {
        let (word, value) = literal.meaning();
        while matched < word.len() {
            let Some(&byte) = chunk.get(at) else {
                self.place = Place::Literal(literal, matched);
                return Ok(at);
            };
            if byte != word[matched] {
                return Err(self.fault(Fault::ValueExpected, at));
            }
            (matched, at) = (matched + 1, at + 1);
        }
        self.place = self.after_value();
        visitor.scalar(value, self.depth, chunk, at).map_err(Halt::Visitor)?;
        Ok(at)
    }
}

impl Literal {
    fn meaning(self) -> (&'static [u8], Scalar<'static>) {
        match self {
            Self::True => (b"true", Scalar::True),
            Self::False => (b"false", Scalar::False),
            Self::Null => (b"null", Scalar::Null),
        }
    }
}

impl Token {
    fn begin(&mut self, from: usize) {
        self.from = from;
        self.carry.clear();
        (self.carried_len, self.has_escapes) = (0, false);
    }

    /// The chunk ends inside the token.
    fn carry_over(&mut self, chunk: &[u8], kept: usize) {
        let part = &chunk[self.from..];
        let room = kept.saturating_sub(self.carry.len()).min(part.len());
        self.carry.extend_from_slice(&part[..room]);
        self.carried_len += part.len() as u64;
    }

    /// The token, which ends in this chunk at `end`.
    fn text<'a>(&'a mut self, chunk: &'a [u8], end: usize, kept: usize) -> Text<'a> {
        let here = &chunk[self.from..end];
        let raw_len = self.carried_len + here.len() as u64;
        if self.carried_len == 0 {
            return Text { raw: &here[..here.len().min(kept)], raw_len, has_escapes: self.has_escapes };
        }
        let room = kept.saturating_sub(self.carry.len()).min(here.len());
        self.carry.extend_from_slice(&here[..room]);
        Text { raw: &self.carry, raw_len, has_escapes: self.has_escapes }
    }
}
