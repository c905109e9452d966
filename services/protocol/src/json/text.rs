//! Strings: finding their end fast, checking that they are UTF-8 across cuts, and decoding the few that matter.
//!
//! Nearly all bytes of a request are inside strings, so this is where its reading time goes: 32 bytes are looked at
//! together, by loops that compile to vector instructions without being written as such.

use std::borrow::Cow;

use simdutf8::compat::from_utf8;

/// A name, string or number as it stands in the document, without quotes and with its escapes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    /// Its beginning, as far as the visitor wanted it kept.
    pub(crate) raw: &'a [u8],
    /// Its full length in the document.
    pub(crate) raw_len: u64,
    pub(crate) has_escapes: bool,
}

/// Why a text has no decoded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecodable {
    /// Longer than what was kept of it.
    Cut,
    /// An escape is half of a surrogate pair: no Unicode text.
    LoneSurrogate,
}

impl<'a> Text<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.raw_len == 0
    }

    pub(crate) fn decode(&self) -> Result<Cow<'a, str>, Undecodable> {
        if self.raw_len != self.raw.len() as u64 {
            return Err(Undecodable::Cut);
        }
        if !self.has_escapes {
            return Ok(String::from_utf8_lossy(self.raw));
        }
        let quoted = [b"\"", self.raw, b"\""].concat();
        // Everything else that could be wrong with it has been refused while it was read.
        serde_json::from_slice(&quoted).map(Cow::Owned).map_err(|_| Undecodable::LoneSurrogate)
    }

    /// The number it is, if it is a whole one from 0 on; one that does not fit is the largest that does. Engines take
    /// `16.0` for a whole number, so it is one here.
    pub(crate) fn as_whole(&self) -> Option<u64> {
        let text = std::str::from_utf8(self.raw).ok().filter(|_| self.raw_len == self.raw.len() as u64)?;
        if let Ok(number) = text.parse() {
            return Some(number);
        }
        let number: f64 = text.parse().ok()?;
        (number >= 0.0 && number.trunc() == number).then_some(number as u64)
    }
}

/// A stretch of a string without escapes.
pub(super) struct Run {
    /// Index of the byte that ends it: a quote, a backslash or a control character; the chunk's length if none does.
    pub(super) end: usize,
    pub(super) is_ascii: bool,
}

/// Bytes that are looked at together.
const LANE: usize = 32;

/// Bytes that are looked at a word at a time before that: most names and many values end within them.
const SHORT: usize = 16;

/// The run that begins at `from`.
pub(super) fn run(chunk: &[u8], from: usize) -> Run {
    let mut run = Run { end: from, is_ascii: true };
    if run.extend_by_words(chunk, from + SHORT) {
        return run;
    }
    while let Some(lane) = chunk.get(run.end..run.end + LANE) {
        let (mut stops, mut bits) = (false, 0);
        for &byte in lane {
            stops |= is_stop(byte);
            bits |= byte;
        }
        if stops {
            break;
        }
        run.is_ascii &= bits < 0x80;
        run.end += LANE;
    }
    if !run.extend_by_words(chunk, chunk.len()) {
        run.extend_by_bytes(chunk);
    }
    run
}

impl Run {
    /// Goes on to `limit`, or to where less than a word is left before the chunk's end. Whether a byte stopped it.
    fn extend_by_words(&mut self, chunk: &[u8], limit: usize) -> bool {
        while self.end < limit
            && let Some(word) = chunk.get(self.end..self.end + 8)
        {
            let word = u64::from_le_bytes(word.try_into().expect("a slice of eight bytes is eight bytes"));
            let stops = stops_in(word);
            if stops == 0 {
                self.is_ascii &= word & HIGH == 0;
                self.end += 8;
                continue;
            }
            let inside = stops.trailing_zeros() & !7;
            self.is_ascii &= word & HIGH & ((1 << inside) - 1) == 0;
            self.end += (inside / 8) as usize;
            return true;
        }
        false
    }

    fn extend_by_bytes(&mut self, chunk: &[u8]) {
        while let Some(&byte) = chunk.get(self.end).filter(|&&byte| !is_stop(byte)) {
            self.is_ascii &= byte < 0x80;
            self.end += 1;
        }
    }
}

fn is_stop(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

const HIGH: u64 = 0x8080_8080_8080_8080;
const ONES: u64 = 0x0101_0101_0101_0101;

/// The top bit of each byte of `word` that stops a run. Bytes after the first such may be marked wrongly (a
/// subtraction borrows from them), those before and itself never.
fn stops_in(word: u64) -> u64 {
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word & HIGH;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    below(word, 0x20) | equal(b'"') | equal(b'\\')
}

/// Checks that a string's bytes are UTF-8 when a letter may be cut in two by the end of a chunk.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    pending: [u8; 4],
    pending_len: usize,
}

/// Whether a letter may go on after the bytes that are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Border {
    /// No: a quote or a backslash follows.
    Letter,
    /// Yes: the next chunk follows.
    Cut,
}

impl Utf8 {
    pub(super) fn is_clear(&self) -> bool {
        self.pending_len == 0
    }

    /// Whether `run`, after what was left pending, is UTF-8 so far. If not: how many bytes from the run's beginning the
    /// letter that is none begins; below 0 if in an earlier chunk.
    pub(super) fn check(&mut self, run: &[u8], border: Border) -> Result<(), isize> {
        let pending_len = self.pending_len as isize;
        let mut at = 0;
        while self.pending_len > 0 {
            let Some(&byte) = run.get(at) else {
                return if border == Border::Cut { Ok(()) } else { Err(-pending_len) };
            };
            self.pending[self.pending_len] = byte;
            self.pending_len += 1;
            at += 1;
            match std::str::from_utf8(&self.pending[..self.pending_len]) {
                Ok(_) => self.pending_len = 0,
                // Four bytes are always a letter or wrong, so `pending` is never overrun.
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(-pending_len),
            }
        }
        let Err(error) = from_utf8(&run[at..]) else { return Ok(()) };
        let begins = at + error.valid_up_to();
        if border == Border::Letter || error.error_len().is_some() {
            return Err(begins as isize);
        }
        let tail = &run[begins..];
        self.pending[..tail.len()].copy_from_slice(tail);
        self.pending_len = tail.len();
        Ok(())
    }
}
