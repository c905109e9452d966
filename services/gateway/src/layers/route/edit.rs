//! Changes of a request's body: what a rewrite puts in place of its model, and the wish for the usage of its stream.
//!
//! Few places change, and no byte is copied for it. What comes of it in the answer the client does not see: the record says
//! what is to be turned back or hidden there.

use bytes::Bytes;
use http::{HeaderMap, header::ACCEPT_ENCODING};
use protocol::head::{NameAt, Splice};
use proxy::client::Chunks;
use smallvec::SmallVec;

use crate::{
    answer::{Renamed, UsageEvent},
    record::Record,
};

/// What is to be changed of a body.
#[derive(Debug, Default)]
pub(super) struct Edits(SmallVec<[Edit; 2]>);

/// One change.
#[derive(Clone, Debug)]
struct Edit {
    at: u64,
    removed_bytes: u64,
    inserted: Bytes,
}

impl Edits {
    /// Another model's name in place of the one that was asked for.
    pub(super) fn rename(&mut self, place: NameAt, renamed: Renamed, headers: &mut HeaderMap, record: &mut Record) {
        let inserted = Bytes::from(place.form.written(&renamed.target).into_bytes());
        self.0.push(Edit { at: place.at, removed_bytes: place.bytes, inserted });
        record.renamed = Some(renamed);
        // A name cannot be turned back in an answer that the endpoint compresses.
        headers.remove(ACCEPT_ENCODING);
    }

    /// The wish for the usage of its stream, on the client's behalf.
    pub(super) fn wish(&mut self, splice: Splice, headers: &mut HeaderMap, record: &mut Record) {
        let inserted = Bytes::from_static(splice.inserted.as_bytes());
        self.0.push(Edit { at: splice.at, removed_bytes: splice.removed_bytes, inserted });
        record.usage_event = UsageEvent::Hidden;
        // An event cannot be taken out of a stream that the endpoint compresses.
        headers.remove(ACCEPT_ENCODING);
    }

    /// The body with all of them.
    pub(super) fn applied(mut self, body: Chunks) -> Chunks {
        if self.0.is_empty() {
            return body;
        }
        // Places are those of the body as it came: from the last one on, each change leaves the others where they are.
        self.0.sort_by_key(|edit| std::cmp::Reverse(edit.at));
        Chunks::from(self.0.into_iter().fold(pieces(body), spliced))
    }
}

fn pieces(mut body: Chunks) -> Vec<Bytes> {
    std::iter::from_fn(|| body.next_chunk()).collect()
}

fn spliced(body: Vec<Bytes>, edit: Edit) -> Vec<Bytes> {
    let (mut out, mut passed) = (Vec::with_capacity(body.len() + 2), 0);
    let (from, to) = (edit.at, edit.at + edit.removed_bytes);
    let mut inserted = Some(edit.inserted);
    for chunk in body {
        let end = passed + chunk.len() as u64;
        let within = |place: u64| usize::try_from(place.clamp(passed, end) - passed).unwrap_or(chunk.len());
        let (before, after) = (chunk.slice(..within(from)), chunk.slice(within(to)..));
        let is_here = from < end;
        out.push(before);
        out.extend(inserted.take_if(|_| is_here));
        out.push(after);
        passed = end;
    }
    out.extend(inserted);
    out.retain(|piece| !piece.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_changes_wherever_the_body_is_cut() {
        let body = b"0123456789";
        for removed_bytes in [0, 1, 4] {
            for at in 0..=(10 - removed_bytes) {
                let edit = Edit { at, removed_bytes, inserted: Bytes::from_static(b"abc") };
                let (from, to) = (usize::try_from(at).unwrap(), usize::try_from(at + removed_bytes).unwrap());
                let wanted = [&body[..from], b"abc", &body[to..]].concat();
                for size in 1..=10 {
                    let chunks: Vec<Bytes> = body.chunks(size).map(Bytes::copy_from_slice).collect();
                    assert_eq!(spliced(chunks, edit.clone()).concat(), wanted, "{edit:?} in pieces of {size}");
                }
            }
        }
    }

    #[test]
    fn two_places_change_in_whatever_order_they_stand() {
        let edit = |at, removed_bytes, inserted: &'static str| Edit { at, removed_bytes, inserted: inserted.into() };
        for edits in [[edit(1, 2, "abc"), edit(7, 0, "x")], [edit(7, 0, "x"), edit(1, 2, "abc")]] {
            for size in 1..=10 {
                let chunks: Vec<Bytes> = b"0123456789".chunks(size).map(Bytes::copy_from_slice).collect();
                let edited = Edits(edits.clone().into_iter().collect()).applied(Chunks::from(chunks));
                assert_eq!(pieces(edited).concat(), b"0abc3456x789", "in pieces of {size}");
            }
        }
    }
}
