//! Every request in flight, in one array, and each endpoint's line of those that its last report may not have shown.
//!
//! The lines run through the array (each flight knows its neighbours), in the order of dispatch, so that a new report
//! moves exactly those it covers and a completion leaves its line in constant time. Nothing here expires: an entry ends
//! when its permit comes back, and only then.

use std::sync::Arc;

use flow_control::Ask;
use pool::Moment;
use scheduling::Features;

use crate::{
    health::{Judged, Term},
    work::{Stage, Work},
};

/// Requests in flight in one pool, at most. Far beyond what connections and bodies allow; a bound, not a limit to tune.
pub(crate) const IN_FLIGHT_MAX: usize = 1 << 20;

const NONE: u32 = u32::MAX;

/// The right to one place at one endpoint, from pick to last byte. It cannot be copied, and giving it back consumes it:
/// a request is counted once and uncounted once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a place that is not given back with `complete` counts as in flight for ever"]
pub struct Permit {
    flight: u32,
    serial: u64,
}

/// Names one request in flight, unlike its [`Permit`] as often as one likes. It is never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlightId(u64);

impl Permit {
    /// The name of the request it belongs to.
    pub fn id(&self) -> FlightId {
        FlightId(self.serial)
    }
}

/// One request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    /// Where it is: the endpoint's place in the pool.
    pub(crate) slot: u32,
    pub(crate) stage: Stage,
    pub(crate) dispatched_at: Moment,
    pub(crate) prompt_tokens: u32,
    pub(crate) uncached_tokens: u32,
    /// Prompt tokens to be computed before its first token could come, its own among them; 0 = unknown.
    pub(crate) ahead_tokens: u64,
    /// Its place among the prompts sent to the endpoint.
    pub(crate) prefill_place: u64,
    /// What its first token was predicted from; `None` where nothing can be learned from it.
    pub(crate) features: Option<Features>,
    pub(crate) answered: bool,
    pub(crate) prefilled: bool,
    pub(crate) adapter: Option<Arc<str>>,
    /// In which term of its endpoint's health it was sent there.
    pub(crate) term: Term,
    pub(crate) judged: Judged,
    /// How it was ranked.
    pub(crate) ask: Ask,
}

impl Flight {
    /// What it counts.
    pub(crate) fn work(&self) -> Work {
        Work {
            requests: 1,
            unanswered: u32::from(!self.answered),
            uncached_tokens: if self.prefilled { 0 } else { u64::from(self.uncached_tokens) },
            new_tokens: u64::from(self.uncached_tokens),
        }
    }
}

/// Flights in the order of their dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    first: u32,
    last: u32,
}

impl Line {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };
}

#[derive(Debug)]
struct Entry {
    /// Number of the dispatch it belongs to; 0 = unused.
    serial: u64,
    before: u32,
    after: u32,
    flight: Flight,
}

/// All flights of a pool.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    entries: Vec<Entry>,
    unused: Vec<u32>,
    serials: u64,
}

impl Flights {
    pub(crate) fn open_count(&self) -> usize {
        self.entries.len() - self.unused.len()
    }

    pub(crate) fn open(&mut self, flight: Flight) -> Permit {
        self.serials += 1;
        let entry = Entry { serial: self.serials, before: NONE, after: NONE, flight };
        let flight = match self.unused.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        Permit { flight, serial: self.serials }
    }

    /// The flight's place. `None` for a permit of another pool.
    pub(crate) fn find(&self, permit: &Permit) -> Option<u32> {
        self.entries.get(permit.flight as usize).filter(|e| e.serial == permit.serial).map(|_| permit.flight)
    }

    pub(crate) fn get(&self, index: u32) -> &Flight {
        &self.entries[index as usize].flight
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Flight {
        &mut self.entries[index as usize].flight
    }

    pub(crate) fn close(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.serial = 0;
        entry.flight.adapter = None;
        self.unused.push(index);
    }

    pub(crate) fn first(&self, line: &Line) -> Option<u32> {
        (line.first != NONE).then_some(line.first)
    }

    pub(crate) fn join(&mut self, line: &mut Line, index: u32) {
        let entry = &mut self.entries[index as usize];
        (entry.before, entry.after) = (line.last, NONE);
        match line.last {
            NONE => line.first = index,
            last => self.entries[last as usize].after = index,
        }
        line.last = index;
    }

    pub(crate) fn leave(&mut self, line: &mut Line, index: u32) {
        let Entry { before, after, .. } = self.entries[index as usize];
        match before {
            NONE => line.first = after,
            before => self.entries[before as usize].after = after,
        }
        match after {
            NONE => line.last = before,
            after => self.entries[after as usize].before = before,
        }
    }
}
