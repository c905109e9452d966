//! Requests that wait for room, in the order in which they are served: band, then priority, both strictly; then flows in
//! turn (or the one served least lately); then one flow's requests by age or deadline.
//!
//! One value per pool, in which each request is named by a [`Ticket`], so that it leaves from the middle as cheaply as from
//! the front: clients hang up, waits end. What a request needs when its turn comes is the owner's (`T`).
//!
//! It refuses to know whether there is room, and keeps no timer: the owner says when it looks, and sets its own alarm.

mod bounds;
mod entries;
mod level;
mod line_up;
mod service;
mod totals;

use std::{cmp::Reverse, collections::BTreeMap};

use pool::Moment;
use smallvec::SmallVec;

use crate::{Ask, Band, Fairness, Flow, Ordering, Settings, drain_rate::DrainRate};
pub use bounds::QueueFull;
pub use entries::Ticket;
use entries::{Entries, Entry};
use level::{Key, Level};
pub use line_up::Look;
use service::Service;
use totals::Totals;

/// See the module's text.
#[derive(Debug)]
pub struct Queue<T> {
    settings: Settings,
    entries: Entries<T>,
    bands: [BandQueue; Band::COUNT],
    service: Service,
    /// Requests that have joined so far: which of two came first.
    joined: u64,
    /// Turns given so far: which of two flows has its turn first.
    turns: u64,
}

/// What waits in one band.
#[derive(Debug, Default)]
struct BandQueue {
    levels: BTreeMap<Reverse<i32>, Level>,
    totals: Totals,
    rate: DrainRate,
    /// Since when someone waits without interruption.
    backlog_since: Option<Moment>,
}

/// Whether any endpoint will do for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Any. If there is no room for it, there is none for its like.
    #[default]
    Any,
    /// It wants a certain one, or has tried some. That it finds no room holds up nobody else.
    Some,
}

/// A request has begun to wait.
#[derive(Debug)]
pub struct Joined<T> {
    /// Names it.
    pub ticket: Ticket,
    /// When its wait is over.
    pub expires_at: Moment,
    /// Those that gave way to it.
    pub pushed_out: SmallVec<[Left<T>; 1]>,
}

/// A request that waits no longer.
#[derive(Debug, PartialEq, Eq)]
pub struct Left<T> {
    /// Its name while it waited.
    pub ticket: Ticket,
    /// How it was ranked.
    pub ask: Ask,
    /// What the owner gave in.
    pub waiting: T,
}

impl<T> Queue<T> {
    /// Without anyone waiting.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            entries: Entries::default(),
            bands: Default::default(),
            service: Service::default(),
            joined: 0,
            turns: 0,
        }
    }

    /// Changes the settings. Who waits goes on waiting, in the order that now holds; waits keep their end.
    pub fn configure(&mut self, settings: Settings) {
        let reordered = (settings.fairness, settings.ordering) != (self.settings.fairness, self.settings.ordering);
        self.settings = settings;
        if reordered {
            self.line_up_again();
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The request waits from now on. Others of its band may have to give way for it.
    ///
    /// # Errors
    /// Why it does not wait; then `waiting` was not called.
    pub fn join(
        &mut self,
        ask: &Ask,
        choice: Choice,
        waiting: impl FnOnce() -> T,
        now: Moment,
    ) -> Result<Joined<T>, QueueFull> {
        let victims = self.verdict(ask, now)?;
        let pushed_out = victims.into_iter().filter_map(|ticket| self.leave(ticket)).collect();
        let wait_over = now + self.settings.band(ask.band()).max_wait;
        let expires_at = ask.wait_until.map_or(wait_over, |until| until.min(wait_over));
        self.bound_lead_of_newcomer(ask, now);
        let entry = Entry { ask: *ask, choice, joined: self.joined, expires_at, waiting: waiting() };
        self.joined += 1;
        let ticket = self.entries.insert(entry);
        self.stand_in_line(ticket);
        let band = &mut self.bands[ask.band().index()];
        band.totals.add(ask);
        band.backlog_since.get_or_insert(now);
        Ok(Joined { ticket, expires_at, pushed_out })
    }

    /// Takes a request out, wherever it stands. `None` when it does not wait any more.
    pub fn leave(&mut self, ticket: Ticket) -> Option<Left<T>> {
        let entry = self.entries.remove(ticket)?;
        let band = &mut self.bands[entry.ask.band().index()];
        let key = key(self.settings.ordering, &entry);
        let level = band.levels.get_mut(&Reverse(entry.ask.priority)).expect("a waiting request's level exists");
        level.remove(entry.ask.flow, entry.choice, key);
        if level.is_empty() {
            band.levels.remove(&Reverse(entry.ask.priority));
        }
        band.totals.take(&entry.ask);
        if band.levels.is_empty() {
            band.backlog_since = None;
        }
        Some(Left { ticket, ask: entry.ask, waiting: entry.waiting })
    }

    /// Takes out one request whose wait is over, if there is any.
    pub fn leave_expired(&mut self, now: Moment) -> Option<Left<T>> {
        let (expires_at, ticket) = self.entries.first_to_expire()?;
        if expires_at > now { None } else { self.leave(ticket) }
    }

    /// When the next wait is over.
    pub fn next_expiry(&self) -> Option<Moment> {
        self.entries.first_to_expire().map(|(at, _)| at)
    }

    /// What the owner gave in for a request that waits.
    pub fn get(&self, ticket: Ticket) -> Option<&T> {
        self.entries.get(ticket).map(|entry| &entry.waiting)
    }

    /// A request of this rank was given a place, whether it had waited or not.
    pub fn placed(&mut self, ask: &Ask, now: Moment) {
        self.bands[ask.band().index()].rate.count(now);
    }

    /// So many tokens were computed for a flow. It counts where the least served goes first.
    pub fn served(&mut self, flow: Flow, tokens: u64, now: Moment) {
        match self.settings.fairness {
            Fairness::RoundRobin => {}
            Fairness::LeastAttainedService => {
                if self.service.rescale(now) {
                    self.line_up_again();
                }
                let attained = self.service.add(flow, tokens, now);
                for level in self.bands.iter_mut().flat_map(|band| band.levels.values_mut()) {
                    level.attained(flow, attained);
                }
            }
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Requests that wait in a band.
    pub fn waiting(&self, band: Band) -> u32 {
        self.bands[band.index()].totals.all().requests
    }

    /// Bytes of bodies that wait in a band.
    pub fn waiting_bytes(&self, band: Band) -> u64 {
        self.bands[band.index()].totals.all().bytes
    }

    /// Requests placed per second in the last ten seconds, of this band alone.
    pub fn rate_per_s(&self, band: Band, now: Moment) -> f64 {
        self.bands[band.index()].rate.per_s(now)
    }

    /// A flow that had nothing waiting has a head start of a bounded number of tokens, however much the others were served
    /// before it came. Otherwise it alone would be served until it had caught up, while all others' waits end.
    fn bound_lead_of_newcomer(&mut self, ask: &Ask, now: Moment) {
        match self.settings.fairness {
            Fairness::RoundRobin => {}
            Fairness::LeastAttainedService => {
                let level = self.bands[ask.band().index()].levels.get(&Reverse(ask.priority));
                let newcomer = level.filter(|level| level.line(ask.flow).is_none());
                if let Some(least) = newcomer.and_then(Level::least_attained) {
                    self.service.bound_lead(ask.flow, least, now);
                }
            }
        }
    }

    fn stand_in_line(&mut self, ticket: Ticket) {
        let Some(entry) = self.entries.get(ticket) else { return };
        let level = self.bands[entry.ask.band().index()].levels.entry(Reverse(entry.ask.priority)).or_default();
        let key = key(self.settings.ordering, entry);
        let attained = match self.settings.fairness {
            Fairness::RoundRobin => 0.0,
            Fairness::LeastAttainedService => self.service.of(entry.ask.flow),
        };
        self.turns += 1;
        level.insert(entry.ask.flow, entry.choice, key, ticket, (attained, self.turns).into());
    }

    /// Builds the lines anew from what waits, oldest first.
    fn line_up_again(&mut self) {
        for band in &mut self.bands {
            band.levels.clear();
        }
        let mut waiting: Vec<(u64, Ticket)> =
            self.entries.iter().map(|(ticket, entry)| (entry.joined, ticket)).collect();
        waiting.sort_unstable();
        for (_, ticket) in waiting {
            self.stand_in_line(ticket);
        }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

/// Where a request stands among those of its flow.
fn key<T>(ordering: Ordering, entry: &Entry<T>) -> Key {
    let due = match ordering {
        Ordering::Fcfs => Moment::ORIGIN,
        Ordering::Deadline => entry.ask.deadline.unwrap_or(entry.expires_at),
    };
    Key { due, joined: entry.joined }
}

#[cfg(test)]
mod tests;
