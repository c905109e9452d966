//! Times as the admin API writes them.

use std::time::SystemTime;

use serde::{Serialize, Serializer};

/// A moment on the wall clock, written in RFC 3339, in UTC and to the millisecond: `2026-11-30T09:15:00.250Z`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp(pub(super) SystemTime);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A clock set before the year -9999 or after 9999 is the only way not to be a timestamp.
        serializer.collect_str(&format_args!("{:.3}", jiff::Timestamp::try_from(self.0).unwrap_or_default()))
    }
}
