//! What flow control needs to know of a request.

use pool::Moment;

use crate::Band;

/// Requests that share a fairness key, as a hash of it. All requests without a key are one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(pub u64);

/// A request as flow control sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The objective's priority; 0 without one. It decides the band, and goes before lower ones inside it.
    pub priority: i32,
    /// Whose request it is.
    pub flow: Flow,
    /// Bytes of its body, which stay in memory while it waits.
    pub bytes: u64,
    /// When its client wants the first token; `None`: no goal of its own.
    pub deadline: Option<Moment>,
    /// The latest end of its wait, for a request that has waited before or whose route leaves it less time; `None`: the
    /// band's longest wait from now on.
    pub wait_until: Option<Moment>,
}

impl Ask {
    /// The band it belongs to.
    pub const fn band(&self) -> Band {
        Band::of_priority(self.priority)
    }
}
