//! The waiting requests themselves, by ticket and by the end of their wait.

use std::collections::BTreeSet;

use pool::Moment;

use super::Choice;
use crate::Ask;

/// One waiting request. It stays valid as a name after the request has left: it then names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    index: u32,
    serial: u64,
}

/// What is known of one.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) ask: Ask,
    pub(super) choice: Choice,
    /// Its number in the order of joining.
    pub(super) joined: u64,
    pub(super) expires_at: Moment,
    pub(super) waiting: T,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Entries<T> {
    /// With the serial of the ticket; places of those that left are used again.
    places: Vec<Option<(u64, Entry<T>)>>,
    unused: Vec<u32>,
    serials: u64,
    expiries: BTreeSet<(Moment, Ticket)>,
}

impl<T> Entries<T> {
    pub(super) fn insert(&mut self, entry: Entry<T>) -> Ticket {
        self.serials += 1;
        let index = self.unused.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        let ticket = Ticket { index, serial: self.serials };
        self.expiries.insert((entry.expires_at, ticket));
        self.places[index as usize] = Some((self.serials, entry));
        ticket
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Entry<T>> {
        let (serial, entry) = self.places.get(ticket.index as usize)?.as_ref()?;
        (*serial == ticket.serial).then_some(entry)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Entry<T>> {
        let (_, entry) = self.places.get_mut(ticket.index as usize)?.take_if(|(serial, _)| *serial == ticket.serial)?;
        self.unused.push(ticket.index);
        self.expiries.remove(&(entry.expires_at, ticket));
        Some(entry)
    }

    pub(super) fn first_to_expire(&self) -> Option<(Moment, Ticket)> {
        self.expiries.first().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.expiries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ticket, &Entry<T>)> {
        self.expiries.iter().filter_map(|&(_, ticket)| Some((ticket, self.get(ticket)?)))
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self { places: Vec::new(), unused: Vec::new(), serials: 0, expiries: BTreeSet::new() }
    }
}
