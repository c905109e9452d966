//! A JSON reader that never holds the document: bytes go in as they arrive, what they mean goes to a [`Visitor`].
//!
//! It is strict and complete (RFC 8259, UTF-8 included), because a gateway that accepts what its engine reads otherwise
//! routes by a different document than the engine runs. It is a state machine without recursion and without a tree:
//! chunks may be cut anywhere, also inside a letter or an escape, and a body of any size costs the same few words of
//! memory plus a bounded copy of a name or value that crosses a cut.
//!
//! Decided here: lone surrogates in escapes pass (Python's reader takes them; whoever needs the text finds out with
//! [`Text::decode`]), numbers of any size pass, `NaN` and `Infinity` do not, a byte order mark does not.

mod machine;
mod number;
mod text;

pub(crate) use machine::{Halt, Machine};
pub(crate) use text::{Text, Undecodable};

/// Deepest nesting that is read, the top level being 1. It bounds the stack of bits that stands for it; the Python
/// readers of engines give up somewhere below 1,000, and no request needs more than about 20.
pub(crate) const DEPTH_MAX: u32 = 128;

/// Raw bytes kept of a name or scalar for a visitor that asks for no more: enough for every name we know with each of
/// its letters escaped.
pub(crate) const TEXT_BYTES_KEPT: usize = 192;

/// What is told about a document. `depth` is that of the container concerned, 1 at the top level; of a name or scalar it
/// is its container's. `end` is an index into `chunk`, just after what is told about.
pub(crate) trait Visitor {
    /// What a visitor may stop the reading with.
    type Stop;

    /// Raw bytes to keep of the name or scalar that comes next. Must not change within one.
    fn text_bytes_kept(&self) -> usize {
        TEXT_BYTES_KEPT
    }

    fn open(&mut self, kind: Kind, depth: u32) -> Result<(), Self::Stop>;

    fn close(&mut self, depth: u32, chunk: &[u8], end: usize);

    fn key(&mut self, name: Text<'_>, depth: u32, end: usize) -> Result<(), Self::Stop>;

    /// A string that is a value begins at `from`, just after its quote.
    fn string_begins(&mut self, _chunk: &[u8], _from: usize) {}

    fn scalar(&mut self, value: Scalar<'_>, depth: u32, chunk: &[u8], end: usize) -> Result<(), Self::Stop>;

    /// White space between tokens: `chunk[from..to]`.
    fn space(&mut self, _chunk: &[u8], _from: usize, _to: usize) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar<'a> {
    String(Text<'a>),
    Number(Text<'a>),
    True,
    False,
    Null,
}

/// Where a document departs from JSON, and what would have been right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the document ends too early")]
    CutShort,
    #[error("a byte order mark: send UTF-8 without one")]
    ByteOrderMark,
    #[error("a value was expected")]
    ValueExpected,
    #[error("a member name in double quotes was expected")]
    NameExpected,
    #[error("`:` was expected")]
    ColonExpected,
    #[error("`,` or `]` was expected")]
    ArrayContinues,
    #[error("`,` or `}}` was expected")]
    ObjectContinues,
    #[error("a control character in a string: escape it")]
    ControlCharacter,
    #[error("an escape that JSON does not have")]
    BadEscape,
    #[error("bytes that are not UTF-8")]
    NotUtf8,
    #[error("a number that JSON does not have")]
    BadNumber,
    #[error("something follows the end of the document")]
    Trailing,
}

#[cfg(test)]
pub(crate) mod tests;
