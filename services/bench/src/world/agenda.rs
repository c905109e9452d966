//! What is going to happen, by time. Things of one moment happen in the order in which they were put down, so that a
//! run is the same on every machine.

use std::{cmp::Reverse, collections::BinaryHeap};

use pool::Moment;

#[derive(Debug)]
pub(crate) struct Agenda<T> {
    entries: BinaryHeap<Reverse<Entry<T>>>,
    serial: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Moment,
    serial: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self { entries: BinaryHeap::new(), serial: 0 }
    }
}

impl<T> Agenda<T> {
    pub(crate) fn put(&mut self, at: Moment, what: T) {
        self.serial += 1;
        self.entries.push(Reverse(Entry { at, serial: self.serial, what }));
    }

    /// The next thing and its moment.
    pub(crate) fn take(&mut self) -> Option<(Moment, T)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.serial) == (other.at, other.serial)
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}
