//! Which endpoints may be chosen at all.
//!
//! Two questions, in this order. How much is known of an endpoint ([`Tier`]): only the best tier that has an endpoint is
//! considered, so a pod whose metrics broke is left out while fresher ones exist, and serves when none does. And has it
//! room: full ones are no candidates while another has room. An endpoint comes back by itself, since both are worked
//! out anew at each pick and nothing is remembered.

use std::fmt;

/// How well an endpoint is known. Best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Its readings are fresh, or it has none to give and serves.
    Ready,
    /// Never read yet, and new.
    Starting,
    /// Its readings are too old, or it was last seen unreachable.
    Stale,
}

impl Tier {
    /// Why an endpoint of this tier is left out when a better one exists.
    pub const fn rejection(self) -> Option<Rejected> {
        match self {
            Self::Ready => None,
            Self::Starting => Some(Rejected::Starting),
            Self::Stale => Some(Rejected::Stale),
        }
    }
}

/// Why an endpoint was not a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rejected {
    /// Enough requests wait there already, or its cache is full and one waits.
    Full,
    /// It asked for a pause (429 or 503), which is not over.
    BackingOff,
    /// It holds as many of our requests as the operator allows.
    AtCap,
    /// What room it has is kept for requests of higher priority.
    Reserved,
    /// Its readings are too old while another endpoint's are fresh.
    Stale,
    /// It was never read, while another was.
    Starting,
    /// It failed too often and is left alone for a while.
    Ejected,
    /// Its pause is over, and one request is its probe: others wait for the outcome.
    Probing,
    /// It came back from such a pause and has as many requests as it may have so soon.
    SlowStart,
    /// It takes no new work.
    Draining,
    /// This request has tried it already.
    Excluded,
    /// The request asks for another endpoint.
    NotAsked,
}

impl Rejected {
    /// Whether it only lacks room: if all others do too, the pool is full rather than empty.
    pub const fn is_full(self) -> bool {
        match self {
            Self::Full | Self::BackingOff | Self::AtCap | Self::Reserved | Self::Probing | Self::SlowStart => true,
            Self::Stale | Self::Starting | Self::Ejected | Self::Draining | Self::Excluded | Self::NotAsked => false,
        }
    }

    /// The word used in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::BackingOff => "backing_off",
            Self::AtCap => "at_cap",
            Self::Reserved => "reserved",
            Self::Stale => "stale",
            Self::Starting => "starting",
            Self::Ejected => "ejected",
            Self::Probing => "probing",
            Self::SlowStart => "slow_start",
            Self::Draining => "draining",
            Self::Excluded => "excluded",
            Self::NotAsked => "not_asked",
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
