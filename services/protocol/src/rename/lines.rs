//! The lines of an event stream: which bytes are data, and where an event ends.

use super::value::Values;

/// The name of the field that holds a document.
const DATA: &[u8] = b"data:";

/// Where in a stream the next byte stands.
#[derive(Debug, Default)]
pub(super) struct Lines {
    place: Place,
    /// The last byte was a carriage return that ended a line: a line feed now belongs to it.
    after_return: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the name of a line's field, so many bytes of which are those of [`DATA`].
    Name(usize),
    Data,
    /// In a line of another kind.
    Other,
}

impl Default for Place {
    fn default() -> Self {
        Self::Name(0)
    }
}

impl Lines {
    /// Reads a chunk; what is data goes to `values`.
    pub(super) fn read(&mut self, chunk: &[u8], values: &mut Values) {
        let mut at = 0;
        while let Some(&byte) = chunk.get(at) {
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                at += 1;
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                self.end_line(byte, values);
                at += 1;
                continue;
            }
            at = match self.place {
                Place::Name(matched) if byte == DATA[matched] => {
                    self.place = if matched + 1 == DATA.len() { Place::Data } else { Place::Name(matched + 1) };
                    at + 1
                }
                Place::Name(_) => {
                    self.place = Place::Other;
                    at + 1
                }
                Place::Data => {
                    let end = line_end(chunk, at);
                    values.read(chunk, at, end);
                    end
                }
                Place::Other => line_end(chunk, at),
            };
        }
    }

    /// An empty line ends an event, and with it the document.
    fn end_line(&mut self, byte: u8, values: &mut Values) {
        if self.place == Place::Name(0) {
            values.reset();
        }
        self.place = Place::Name(0);
        self.after_return = byte == b'\r';
    }
}

fn line_end(chunk: &[u8], from: usize) -> usize {
    memchr::memchr2(b'\n', b'\r', &chunk[from..]).map_or(chunk.len(), |len| from + len)
}
