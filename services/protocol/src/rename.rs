//! Turns one model's name into another in an answer, while it passes.
//!
//! A client that asked for one model and was served by another gets the name that it asked for. Only the member that names
//! the model changes: at the top of a JSON answer and of each event of a stream, and in the `message` or `response` that
//! some events wrap. The same text anywhere else, in what a model says above all, stays. Every other byte passes as it
//! came, and nothing waits but the beginning of such a name whose end has not come.

mod lines;
mod value;

use bytes::Bytes;

use self::{lines::Lines, value::Values};

/// Renames the model in one answer.
#[derive(Debug)]
pub struct Renamer {
    values: Values,
    /// Set for an event stream.
    lines: Option<Lines>,
    /// What has come of a name whose end has not come.
    held: Vec<u8>,
}

impl Renamer {
    /// In a JSON document.
    #[must_use]
    pub fn of_json(from: &str, to: &str) -> Self {
        Self { values: Values::new(from, to), lines: None, held: Vec::new() }
    }

    /// In the JSON document of each event of a stream.
    #[must_use]
    pub fn of_events(from: &str, to: &str) -> Self {
        Self { lines: Some(Lines::default()), ..Self::of_json(from, to) }
    }

    /// The next piece of the answer, as it goes on. One without such a name is not copied.
    pub fn pass(&mut self, chunk: &Bytes) -> Bytes {
        self.values.begin_chunk();
        match &mut self.lines {
            None => self.values.read(chunk, 0, chunk.len()),
            Some(lines) => lines.read(chunk, &mut self.values),
        }
        if self.values.found.is_empty() && self.held.is_empty() && self.values.open_at().is_none() {
            return chunk.clone();
        }
        self.rebuilt(chunk)
    }

    /// What is still held of an answer that is over.
    #[must_use]
    pub fn rest(self) -> Bytes {
        self.held.into()
    }

    fn rebuilt(&mut self, chunk: &[u8]) -> Bytes {
        let (mut out, mut at) = (Vec::with_capacity(self.held.len() + chunk.len()), 0);
        for found in self.values.found.drain(..) {
            out.extend_from_slice(&chunk[at..found.from]);
            if found.is_name {
                self.held.clear();
                out.extend_from_slice(&self.values.to);
                at = found.to;
            } else {
                out.append(&mut self.held);
                at = found.from;
            }
        }
        let end = self.values.open_at().unwrap_or(chunk.len());
        out.extend_from_slice(&chunk[at..end]);
        self.held.extend_from_slice(&chunk[end..]);
        if self.held.len() > value::HELD_BYTES_MAX {
            // Longer than any form of the name: it is another one, and need not wait.
            self.values.give_up();
            out.append(&mut self.held);
        }
        out.into()
    }
}

#[cfg(test)]
mod tests;
