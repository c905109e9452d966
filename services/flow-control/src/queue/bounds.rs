//! Who may join the queue.
//!
//! A band is bounded in requests and in bytes. When it is full, a flow that has less waiting than the one that has most may
//! still join: requests from the end of the longest flow's line give way. So one caller cannot fill the queue, and flows of
//! equal length do not push each other out in turn. And a request that would certainly wait longer than it may is told at
//! once, as far as the speed is known.

use std::{cmp::Reverse, time::Duration};

use pool::Moment;
use smallvec::SmallVec;

use super::{Queue, Ticket, totals::Total};
use crate::{Ask, BandSettings, Fairness, Ordering, drain_rate::WINDOW_S};

/// Requests that give way to one, at most. More would be many small ones for a large one.
const PUSHED_OUT_MAX: usize = 8;

/// How much longer than its longest wait a request's wait must look to be refused at once: the speed is that of the past.
const CERTAIN: f64 = 1.5;

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
    /// It waited, and gave way: its flow had most waiting, and the queue was full.
    #[error("the queue is full, and most of it is this caller's")]
    PushedOut,
}

impl<T> Queue<T> {
    /// Whether a request may join, and who has to give way for it.
    pub(super) fn verdict(&self, ask: &Ask, now: Moment) -> Result<SmallVec<[Ticket; 1]>, QueueFull> {
        let settings = self.settings.band(ask.band());
        if settings.max_wait.is_zero() || settings.queued_requests_max == 0 {
            return Err(QueueFull::NoWaiting);
        }
        if ask.bytes > settings.queued_bytes_max {
            return Err(QueueFull::TooLarge);
        }
        let longest_wait = ask.wait_until.map_or(settings.max_wait, |until| settings.max_wait.min(until.since(now)));
        if self.is_too_slow(ask, longest_wait, now) {
            return Err(QueueFull::TooSlow);
        }
        let room = Room::of(self.bands[ask.band().index()].totals.all(), ask, settings);
        match room.lacks() {
            None => Ok(SmallVec::new()),
            Some(lack) => self.who_gives_way(ask, room, lack).ok_or(lack),
        }
    }

    /// Whether the wait is certain to be too long, at the speed of a whole window in which someone waited all the time:
    /// before, the speed may only show that little was asked for.
    fn is_too_slow(&self, ask: &Ask, longest_wait: Duration, now: Moment) -> bool {
        let band = &self.bands[ask.band().index()];
        let measured = band.backlog_since.is_some_and(|since| now.since(since) >= Duration::from_secs(WINDOW_S));
        if !measured {
            return false;
        }
        let rate_per_s = band.rate.per_s(now);
        rate_per_s > 0.0 && self.certainly_ahead(ask) as f64 > CERTAIN * longest_wait.as_secs_f64() * rate_per_s
    }

    /// Requests of its band that certainly go before it if it joins now.
    fn certainly_ahead(&self, ask: &Ask) -> u64 {
        let levels = &self.bands[ask.band().index()].levels;
        let above: u64 = levels.range(..Reverse(ask.priority)).map(|(_, level)| u64::from(level.requests())).sum();
        let beside = levels.get(&Reverse(ask.priority)).map_or(0, |level| {
            match (self.settings.ordering, self.settings.fairness) {
                // An early deadline may go before all of its flow.
                (Ordering::Deadline, _) => 0,
                (Ordering::Fcfs, Fairness::RoundRobin) => level.ahead_in_turns(ask.flow),
                (Ordering::Fcfs, Fairness::LeastAttainedService) => {
                    level.line(ask.flow).map_or(0, |line| line.len() as u64)
                }
            }
        });
        above + beside
    }

    /// Requests from the end of the longest flow's line that make room for this one; `None` when that would be unfair, or
    /// would put a lower priority before a higher one.
    fn who_gives_way(&self, ask: &Ask, room: Room, lack: QueueFull) -> Option<SmallVec<[Ticket; 1]>> {
        let band = &self.bands[ask.band().index()];
        let longest = if lack == QueueFull::Bytes { band.totals.most_bytes() } else { band.totals.most_requests() }?;
        let (own, theirs) = (band.totals.of(ask.flow), band.totals.of(longest));
        let (priority, line) = band.levels.iter().rev().find_map(|(p, level)| Some((p.0, level.line(longest)?)))?;
        if longest == ask.flow || priority > ask.priority {
            return None;
        }
        let (mut freed, mut victims) = (Total::default(), SmallVec::new());
        for ticket in line.last_first().take(PUSHED_OUT_MAX) {
            freed.requests += 1;
            freed.bytes += self.entries.get(ticket)?.ask.bytes;
            victims.push(ticket);
            if room.with(freed).lacks().is_none() {
                let fair = if lack == QueueFull::Bytes {
                    own.bytes + ask.bytes <= theirs.bytes - freed.bytes
                } else {
                    own.requests < theirs.requests - freed.requests
                };
                return fair.then_some(victims);
            }
        }
        None
    }
}

/// What is left in a band once a request has joined; below 0 it lacks that much.
#[derive(Clone, Copy, Debug)]
struct Room {
    requests: i64,
    bytes: i64,
}

impl Room {
    fn of(all: Total, ask: &Ask, settings: &BandSettings) -> Self {
        let left = |max: u64, taken: u64| i64::try_from(i128::from(max) - i128::from(taken)).unwrap_or(i64::MAX);
        Self {
            requests: left(settings.queued_requests_max.into(), u64::from(all.requests) + 1),
            bytes: left(settings.queued_bytes_max, all.bytes + ask.bytes),
        }
    }

    fn with(self, freed: Total) -> Self {
        let bytes = i64::try_from(freed.bytes).unwrap_or(i64::MAX);
        Self { requests: self.requests + i64::from(freed.requests), bytes: self.bytes.saturating_add(bytes) }
    }

    fn lacks(self) -> Option<QueueFull> {
        match (self.requests < 0, self.bytes < 0) {
            (_, true) => Some(QueueFull::Bytes),
            (true, false) => Some(QueueFull::Requests),
            (false, false) => None,
        }
    }
}
