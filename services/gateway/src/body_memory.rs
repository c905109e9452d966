//! A bound on all request bodies that the process holds together.
//!
//! A body is read whole before a request is dispatched, since a second `model` member may be its last one; so memory is
//! what a flood of uploads would take. Each piece is paid for as it arrives and given back when the request has ended.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The process's allowance.
#[derive(Debug)]
pub struct BodyMemory {
    held_bytes: AtomicUsize,
    max_bytes: usize,
}

/// No room for this many more bytes now.
#[derive(Debug, PartialEq, Eq)]
pub struct Exhausted;

/// What one request holds. Gives everything back when dropped.
#[derive(Debug)]
pub struct Held {
    memory: Arc<BodyMemory>,
    bytes: usize,
}

impl BodyMemory {
    /// An allowance of `max_bytes` in all.
    pub fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { held_bytes: AtomicUsize::new(0), max_bytes })
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The account of one request, empty.
    pub fn account(self: &Arc<Self>) -> Held {
        Held { memory: Arc::clone(self), bytes: 0 }
    }
}

impl Held {
    /// Takes `bytes` more.
    ///
    /// # Errors
    /// When the process would hold more than its allowance; nothing is taken then.
    pub fn take(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let max = self.memory.max_bytes;
        let more = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= max);
        match self.memory.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(_) => Err(Exhausted),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_not_held_and_what_was_held_comes_back() {
        let memory = BodyMemory::new(100);
        let (mut first, mut second) = (memory.account(), memory.account());
        assert_eq!(first.take(60), Ok(()));
        assert_eq!(second.take(60), Err(Exhausted));
        assert_eq!(second.take(40), Ok(()));
        drop(first);
        assert_eq!(memory.held_bytes(), 40);
        assert_eq!(second.take(usize::MAX), Err(Exhausted));
        drop(second);
        assert_eq!(memory.held_bytes(), 0);
    }
}
