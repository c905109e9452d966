//! Requests that wait for room.

/// One waiting request. It stays valid as a name after the request has left: it then names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) serial: u64,
}

/// Why a request may not wait, or not any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum QueueFull {
    /// Its band does not wait.
    #[error("requests of this priority do not wait")]
    NoWaiting,
    /// As many requests wait in its band as may.
    #[error("as many requests wait as may")]
    Requests,
    /// As many bytes of bodies wait in its band as may.
    #[error("as many bytes of requests wait as may")]
    Bytes,
    /// Its body alone is larger than all that may wait in its band.
    #[error("the request is too large to wait")]
    TooLarge,
    /// At the speed of the last seconds its turn would come long after its longest wait.
    #[error("the wait would be longer than it may be")]
    TooSlow,
    /// It waited, and gave way: its flow had the most requests waiting, and the queue was full.
    #[error("the queue is full, and most of it is this caller's")]
    PushedOut,
}
