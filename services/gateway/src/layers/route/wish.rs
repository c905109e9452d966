//! Asks an endpoint for the usage of a stream on the client's behalf.
//!
//! One place of the body changes, and no byte is copied for it. The client does not see what comes of it: the record
//! says that the event is hidden.

use bytes::Bytes;
use http::{HeaderMap, header::ACCEPT_ENCODING};
use protocol::head::Splice;
use proxy::client::Chunks;

use crate::{answer::UsageEvent, record::Record};

/// Puts the wish into the body.
pub(super) fn grant(body: Chunks, splice: Splice, headers: &mut HeaderMap, record: &mut Record) -> Chunks {
    record.usage_event = UsageEvent::Hidden;
    // An event cannot be taken out of a stream that the endpoint compresses.
    headers.remove(ACCEPT_ENCODING);
    Chunks::from(spliced(body, splice))
}

fn spliced(mut body: Chunks, splice: Splice) -> Vec<Bytes> {
    let (mut out, mut passed) = (Vec::new(), 0);
    let (from, to) = (splice.at, splice.at + splice.removed_bytes);
    let mut inserted = Some(Bytes::from_static(splice.inserted.as_bytes()));
    while let Some(chunk) = body.next_chunk() {
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
                let splice = Splice { at, removed_bytes, inserted: "abc" };
                let (from, to) = (usize::try_from(at).unwrap(), usize::try_from(at + removed_bytes).unwrap());
                let wanted = [&body[..from], b"abc", &body[to..]].concat();
                for size in 1..=10 {
                    let chunks: Vec<Bytes> = body.chunks(size).map(Bytes::copy_from_slice).collect();
                    assert_eq!(
                        spliced(Chunks::from(chunks), splice).concat(),
                        wanted,
                        "{splice:?} in pieces of {size}"
                    );
                }
            }
        }
    }
}
