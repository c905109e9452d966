//! Takes the event of usage alone out of a stream whose client did not ask for it: the gateway did, on its behalf.
//!
//! Whether an event is that one shows at its end, so an event waits here until it is complete; clients could do nothing
//! with a part of one either. Chunks of whole events, as nearly all are, pass without being copied. What grows beyond
//! any event of usage is another one and passes at once.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use protocol::sse::{Bearing, Reader, Step};
use smallvec::SmallVec;

/// Most bytes of an event that wait for its end. Engines' events of usage have a few hundred.
const HELD_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug, Default)]
pub(super) struct Hider {
    /// The beginning of an event whose end has not come.
    held: BytesMut,
    /// The beginning of this event has been passed on: the rest follows.
    is_passing: bool,
    after_return: AfterReturn,
}

/// The last event ended with a carriage return: a line feed that comes next belongs to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AfterReturn {
    #[default]
    No,
    OfShown,
    OfHidden,
}

impl Hider {
    /// Reads a chunk, and gives what of it, and of what was held, is to be passed on.
    pub(super) fn pass(&mut self, reader: &mut Reader, chunk: &Bytes) -> (Step, Bytes) {
        if chunk.is_empty() {
            return (Step::default(), Bytes::new());
        }
        let last = std::mem::take(&mut self.after_return);
        let from = usize::from(last != AfterReturn::No && chunk.starts_with(b"\n"));
        let (mut begun, mut hidden) = (from, SmallVec::<[Range<usize>; 1]>::new());
        if last == AfterReturn::OfHidden && from > 0 {
            hidden.push(0..from);
        }
        let step = reader.feed_each(chunk, |end, bearing| {
            let is_returned = chunk[..end].ends_with(b"\r");
            let end = end + usize::from(is_returned && chunk[end..].starts_with(b"\n"));
            let is_hidden = bearing == Bearing::UsageAlone && !self.is_passing;
            if is_hidden {
                if begun == from {
                    self.held.clear();
                }
                hidden.push(begun..end);
            }
            (begun, self.is_passing) = (end, false);
            self.after_return = match (is_returned && chunk[..end].ends_with(b"\r"), is_hidden) {
                (false, _) => AfterReturn::No,
                (true, false) => AfterReturn::OfShown,
                (true, true) => AfterReturn::OfHidden,
            };
        });
        if begun < chunk.len() {
            self.after_return = AfterReturn::No;
        }
        if hidden.is_empty() && self.held.is_empty() && begun == chunk.len() {
            return (step, chunk.clone());
        }
        (step, self.rebuild(chunk, begun, &hidden))
    }

    /// What was held, the events that end before `whole` without those that are hidden, and the rest if it need not wait.
    fn rebuild(&mut self, chunk: &Bytes, whole: usize, hidden: &[Range<usize>]) -> Bytes {
        let (mut out, mut at) = (BytesMut::new(), 0);
        if whole > 0 {
            out.unsplit(std::mem::take(&mut self.held));
        }
        for range in hidden {
            out.extend_from_slice(&chunk[at..range.start]);
            at = range.end;
        }
        out.extend_from_slice(&chunk[at..whole]);
        self.held.extend_from_slice(&chunk[whole..]);
        if self.is_passing || self.held.len() > HELD_BYTES_MAX {
            self.is_passing = true;
            out.unsplit(std::mem::take(&mut self.held));
        }
        out.freeze()
    }

    /// What is still held of a stream that is over.
    pub(super) fn rest(self) -> Bytes {
        self.held.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::Api;

    use super::*;

    const USAGE: &str = r#"{"id":"c","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    const TOKEN: &str = r#"{"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}"#;

    /// What a client gets of a stream that comes in these chunks, and the tokens that were read off it.
    fn passed(chunks: &[&[u8]]) -> (String, Option<u64>) {
        let (mut hider, mut reader, mut out) = (Hider::default(), Reader::new(Api::ChatCompletions), Vec::new());
        for chunk in chunks {
            out.extend_from_slice(&hider.pass(&mut reader, &Bytes::copy_from_slice(chunk)).1);
        }
        let end = reader.finish();
        if !end.broke_off_in_usage {
            out.extend_from_slice(&hider.rest());
        }
        (String::from_utf8(out).unwrap(), end.usage.map(|usage| usage.prompt_tokens))
    }

    fn event(data: &str, line_end: &str) -> String {
        format!("data: {data}{line_end}{line_end}")
    }

    #[test]
    fn j12_usage_alone_is_hidden_and_counted_however_it_is_cut() {
        for line_end in ["\n", "\r\n", "\r"] {
            let [token, usage, done] = [TOKEN, USAGE, "[DONE]"].map(|data| event(data, line_end));
            for (stream, shown) in [
                (format!("{token}{usage}{done}"), format!("{token}{done}")),
                (format!("{usage}{usage}{token}"), token.clone()),
                (format!("{token}{usage}"), token.clone()),
                (
                    format!("{token}: ping{line_end}{line_end}{usage}{done}"),
                    format!("{token}: ping{line_end}{line_end}{done}"),
                ),
                (format!("{token}{}", usage.trim_end()), token.clone()),
                (format!("{token}{}", done.trim_end()), format!("{token}{}", done.trim_end())),
            ] {
                let wanted = stream.contains(USAGE).then_some(9);
                for split in 0..=stream.len() {
                    let (left, right) = stream.as_bytes().split_at(split);
                    assert_eq!(passed(&[left, b"", right]), (shown.clone(), wanted), "{stream:?} cut at {split}");
                }
                let bytewise: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
                assert_eq!(passed(&bytewise), (shown, wanted), "{stream:?} byte by byte");
            }
        }
    }

    #[test]
    fn whole_events_are_not_copied_and_parts_of_large_ones_do_not_wait() {
        let (mut hider, mut reader) = (Hider::default(), Reader::new(Api::ChatCompletions));
        let chunk = Bytes::from(event(TOKEN, "\n").repeat(3));
        assert_eq!(hider.pass(&mut reader, &chunk).1.as_ptr(), chunk.as_ptr());
        let large = event(&TOKEN.replace('x', &"x".repeat(3 * HELD_BYTES_MAX)), "\n");
        let (left, right) = large.as_bytes().split_at(2 * HELD_BYTES_MAX);
        let mut out = hider.pass(&mut reader, &Bytes::copy_from_slice(left)).1.to_vec();
        assert_eq!(out.len(), left.len());
        out.extend_from_slice(&hider.pass(&mut reader, &Bytes::copy_from_slice(right)).1);
        assert_eq!(out, large.as_bytes());
        assert!(hider.rest().is_empty());
    }

    proptest! {
        #[test]
        fn other_events_pass_byte_for_byte(
            picks in prop::collection::vec((0_usize..5, 0_usize..3), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let ends = ["\n", "\r\n", "\r"];
            let data = [TOKEN, USAGE, "[DONE]", "not json", r#"{"choices":[],"usage":null}"#];
            let (mut stream, mut shown) = (String::new(), String::new());
            for (which, line_end) in picks {
                let event = event(data[which], ends[line_end]);
                stream.push_str(&event);
                if data[which] != USAGE {
                    shown.push_str(&event);
                }
            }
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            places.extend([0, stream.len()]);
            places.sort_unstable();
            let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &stream.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(passed(&chunks).0, shown);
        }
    }
}
