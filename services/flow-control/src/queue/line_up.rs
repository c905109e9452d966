//! Whose turn it is.

use std::cmp::Reverse;

use super::{Left, Queue, level::Level};
use crate::{Ask, Band, Ticket};

/// Requests with wishes that are looked at in one search, at most: each look costs the owner a survey of the endpoints.
const LOOKS_MAX: usize = 32;

/// What the owner finds when it looks for room for one waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<R> {
    /// It has a place now.
    Placed(R),
    /// There is no room for it. If any endpoint would do for it, this ends the search: there is none for the next.
    NoRoom,
}

impl<T> Queue<T> {
    /// Goes through a band's requests in the order of service and takes out the first that `look` gives a place. The flow
    /// has then had its turn.
    pub fn next<R>(&mut self, band: Band, look: impl FnMut(&Ask, &T) -> Look<R>) -> Option<(Left<T>, R)> {
        let (ticket, placed) = self.find(band, look)?;
        let left = self.leave(ticket)?;
        self.turns += 1;
        let turn = self.turns;
        if let Some(level) = self.bands[band.index()].levels.get_mut(&Reverse(left.ask.priority)) {
            level.turn_is_over(left.ask.flow, turn);
        }
        Some((left, placed))
    }

    /// Whether a request waits that goes before one of this rank joining now, and for which any endpoint would do.
    pub fn goes_after_others(&self, ask: &Ask) -> bool {
        !self.is_empty()
            && Band::ALL[..=ask.band().index()].iter().any(|band| {
                let levels = self.bands[band.index()].levels.range(..=Reverse(ask.priority));
                levels.map(|(_, level)| level).any(Level::has_content)
            })
    }

    fn find<R>(&self, band: Band, mut look: impl FnMut(&Ask, &T) -> Look<R>) -> Option<(Ticket, R)> {
        let mut look = |ticket| {
            let entry = self.entries.get(ticket)?;
            match look(&entry.ask, &entry.waiting) {
                Look::Placed(placed) => Some((ticket, placed)),
                Look::NoRoom => None,
            }
        };
        let mut looks = 0;
        for line in self.bands[band.index()].levels.values().flat_map(Level::lines) {
            for ticket in line.choosy_before_content().take(LOOKS_MAX - looks) {
                looks += 1;
                if let Some(found) = look(ticket) {
                    return Some(found);
                }
            }
            if let Some(first) = line.first_content() {
                return look(first);
            }
        }
        None
    }
}
