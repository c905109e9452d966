//! Finds the values that name a model, in documents that pass in pieces.

use crate::json::{Kind, Machine, Scalar, Text, Visitor};

/// Longest form that a name of 253 letters can have in a document: six bytes for each, twice for letters beyond 16 bits.
const FORM_BYTES_MAX: usize = 253 * 12;

/// Most bytes of a value that wait for its end.
pub(super) const HELD_BYTES_MAX: usize = FORM_BYTES_MAX;

/// The members that some events wrap an answer in.
const WRAPPERS: [&[u8]; 2] = [b"message", b"response"];

/// The values of a document that may be the name, and the machine that reads it.
#[derive(Debug)]
pub(super) struct Values {
    machine: Machine,
    finder: Finder,
    /// The name in its place, as it stands in a document.
    pub(super) to: Vec<u8>,
    /// What this chunk brought, in order.
    pub(super) found: Vec<Found>,
    is_lost: bool,
}

/// A value, or the end of one, in this chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) from: usize,
    pub(super) to: usize,
    /// It is the name. Else what was held of it goes on as it came.
    pub(super) is_name: bool,
}

#[derive(Debug)]
struct Finder {
    name: String,
    /// Where this piece begins in its chunk.
    offset: usize,
    wrapper: Wrapper,
    is_wanted: bool,
    /// Where the value that is being read begins in this chunk; 0 if it began before.
    open_at: Option<usize>,
    began_before: bool,
    found: Vec<Found>,
}

/// Whether the member at the top that is being read is one of [`WRAPPERS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrapper {
    Yes,
    No,
}

impl Values {
    pub(super) fn new(from: &str, to: &str) -> Self {
        let quoted = serde_json::to_vec(to).expect("a text is JSON");
        let finder = Finder {
            name: from.to_owned(),
            offset: 0,
            wrapper: Wrapper::No,
            is_wanted: false,
            open_at: None,
            began_before: false,
            found: Vec::new(),
        };
        Self {
            machine: Machine::new(),
            finder,
            to: quoted[1..quoted.len() - 1].to_vec(),
            found: Vec::new(),
            is_lost: false,
        }
    }

    pub(super) fn begin_chunk(&mut self) {
        self.found.clear();
        if self.finder.open_at.is_some() {
            self.finder.open_at = Some(0);
            self.finder.began_before = true;
        }
    }

    /// Reads a piece of the document: `chunk[from..to]`.
    pub(super) fn read(&mut self, chunk: &[u8], from: usize, to: usize) {
        if self.is_lost || from == to {
            return;
        }
        self.finder.offset = from;
        let read = self.machine.feed(&chunk[from..to], &mut self.finder);
        self.found.append(&mut self.finder.found);
        if read.is_err() {
            // No JSON: whatever it is, it goes on as it came.
            self.is_lost = true;
            self.close_open();
        }
    }

    /// Another document begins.
    pub(super) fn reset(&mut self) {
        self.close_open();
        self.machine.reset();
        (self.finder.wrapper, self.finder.is_wanted) = (Wrapper::No, false);
        self.is_lost = false;
    }

    /// Where a value begins in this chunk whose end has not come.
    pub(super) fn open_at(&self) -> Option<usize> {
        self.finder.open_at
    }

    /// The value that is being read is none of ours.
    pub(super) fn give_up(&mut self) {
        self.finder.open_at = None;
    }

    fn close_open(&mut self) {
        if let Some(at) = self.finder.open_at.take().filter(|_| self.finder.began_before) {
            self.found.push(Found { from: at, to: at, is_name: false });
        }
    }
}

impl Visitor for Finder {
    type Stop = std::convert::Infallible;

    fn text_bytes_kept(&self) -> usize {
        if self.is_wanted { FORM_BYTES_MAX } else { crate::json::TEXT_BYTES_KEPT }
    }

    fn open(&mut self, _: Kind, _: u32) -> Result<(), Self::Stop> {
        self.is_wanted = false;
        Ok(())
    }

    fn close(&mut self, depth: u32, _: &[u8], _: usize) {
        self.is_wanted = false;
        if depth == 2 {
            self.wrapper = Wrapper::No;
        }
    }

    fn key(&mut self, name: Text<'_>, depth: u32, _: usize) -> Result<(), Self::Stop> {
        self.is_wanted = false;
        if depth > 2 || (depth == 2 && self.wrapper == Wrapper::No) {
            return Ok(());
        }
        let name = name.decode().unwrap_or_default();
        if depth == 1 {
            self.wrapper = if WRAPPERS.contains(&name.as_bytes()) { Wrapper::Yes } else { Wrapper::No };
        }
        self.is_wanted = name == "model";
        Ok(())
    }

    fn string_begins(&mut self, _: &[u8], from: usize) {
        if self.is_wanted {
            (self.open_at, self.began_before) = (Some(self.offset + from), false);
        }
    }

    fn scalar(&mut self, value: Scalar<'_>, _: u32, _: &[u8], end: usize) -> Result<(), Self::Stop> {
        self.is_wanted = false;
        let (Some(from), Scalar::String(text)) = (self.open_at.take(), value) else { return Ok(()) };
        let is_name = text.decode().is_ok_and(|found| found == self.name);
        // All but the closing quote.
        if is_name || self.began_before {
            self.found.push(Found { from, to: self.offset + end - 1, is_name });
        }
        Ok(())
    }
}
