//! How a body would ask for the usage of its stream, if its client did not.
//!
//! One member is added or set, and every other byte stays: which one, depends on what the client wrote. What has a wrong
//! type is left alone, so that the engine says so. Of repeated members the last is the one that engines read.

use crate::json::{Kind, Scalar};

/// A change of one place of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice {
    /// Where, in bytes of the body.
    pub at: u64,
    /// Bytes taken away there.
    pub removed_bytes: u64,
    /// Text put there.
    pub inserted: &'static str,
}

const MEMBER: &str = r#","stream_options":{"include_usage":true}"#;
const OBJECT: &str = r#"{"include_usage":true}"#;
const ONLY_INNER: &str = r#""include_usage":true"#;
const FURTHER_INNER: &str = r#","include_usage":true"#;

/// What is known of the place where the wish would stand.
#[derive(Debug, Default)]
pub(super) struct Wish {
    /// Bytes of the body before the chunk that is being read.
    pub(super) chunk_at: u64,
    options: Options,
}

#[derive(Clone, Copy, Debug, Default)]
enum Options {
    /// No `stream_options` so far.
    #[default]
    Absent,
    /// An object, with or without members, but for the one that matters.
    Object { has_members: bool },
    /// The place is found.
    At(Splice),
    /// Nothing to change: it is asked for, or of a wrong type.
    Left,
}

impl Wish {
    /// `stream_options` comes, or `include_usage` in it, perhaps not for the first time. Nothing is known of its value.
    pub(super) fn named(&mut self) {
        self.options = Options::Left;
    }

    /// Its value is a container.
    pub(super) fn options_open(&mut self, kind: Kind) {
        if kind == Kind::Object {
            self.options = Options::Object { has_members: false };
        }
    }

    /// A member of it comes that is another one.
    pub(super) fn other_named(&mut self) {
        if let Options::Object { has_members } = &mut self.options {
            *has_members = true;
        }
    }

    /// Its value is no container, and ends at this index of the chunk.
    pub(super) fn options_are(&mut self, value: Scalar<'_>, end: usize) {
        self.set(value, end, OBJECT, [(Scalar::Null, 4)]);
    }

    /// `include_usage` is this, and ends at this index of the chunk.
    pub(super) fn include_usage_is(&mut self, value: Scalar<'_>, end: usize) {
        self.set(value, end, "true", [(Scalar::Null, 4), (Scalar::False, 5)]);
    }

    /// The object is over; its brace is just before this index of the chunk.
    pub(super) fn options_close(&mut self, end: usize) {
        if let Options::Object { has_members } = self.options {
            let inserted = if has_members { FURTHER_INNER } else { ONLY_INNER };
            self.options = Options::At(self.splice(end, 1, 0, inserted));
        }
    }

    /// The body is over likewise. It has members, since it asks for a stream.
    pub(super) fn body_close(&mut self, end: usize) {
        if matches!(self.options, Options::Absent) {
            self.options = Options::At(self.splice(end, 1, 0, MEMBER));
        }
    }

    pub(super) fn found(&self) -> Option<Splice> {
        match self.options {
            Options::At(splice) => Some(splice),
            Options::Absent | Options::Object { .. } | Options::Left => None,
        }
    }

    fn set<const N: usize>(
        &mut self,
        value: Scalar<'_>,
        end: usize,
        inserted: &'static str,
        replaced: [(Scalar<'_>, u64); N],
    ) {
        let same = |(other, _): &(Scalar<'_>, u64)| std::mem::discriminant(other) == std::mem::discriminant(&value);
        self.options = match replaced.iter().find(|one| same(one)) {
            Some((_, len)) => Options::At(self.splice(end, *len, *len, inserted)),
            None => Options::Left,
        };
    }

    /// A change that begins so many bytes before `end`.
    fn splice(&self, end: usize, back: u64, removed_bytes: u64, inserted: &'static str) -> Splice {
        Splice { at: self.chunk_at + end as u64 - back, removed_bytes, inserted }
    }
}
