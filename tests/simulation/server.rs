//! A model server: an engine behind an address, with a metrics page that says what was true at the end of its last
//! step. It can die, come back empty, and keep its page to itself.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use dispatch::{Membership, Standing};
use engine::{Engine, Event, Profile};
use fastrand::Rng;
use pool::{CacheShape, Endpoint, EndpointId, EndpointIds, Load, Moment, Signal};

use crate::prompt::mix;

/// From the start of one look to the start of the next, as in `discovery::scrape`.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Spread of the interval to either side, likewise.
const LOOK_JITTER: f64 = 0.1;
/// After failures the interval doubles up to this, likewise.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// One endpoint's server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) id: EndpointId,
    pub(crate) engine: Engine,
    pub(crate) process: Process,
    pub(crate) page: Page,
    pub(crate) member: Member,
    /// Requests whose answers are owed.
    pub(crate) holds: BTreeSet<u64>,
    /// The step that is on the agenda.
    pub(crate) step_at: Option<Moment>,
    /// Looks that failed, in a row.
    pub(crate) failures: u32,
    number: usize,
    profile: Profile,
    rng: Rng,
    started_unix_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Up,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Answers,
    Hangs,
}

/// What the configuration says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    Serving,
    Draining,
    No,
}

impl Server {
    pub(crate) fn new(number: usize, profile: Profile, seed: u64, ids: &mut EndpointIds) -> Self {
        let id = ids.next_id();
        let seed = mix(seed, id.get());
        Self {
            id,
            engine: Engine::new(profile.clone(), seed),
            process: Process::Up,
            page: Page::Answers,
            member: Member::Serving,
            holds: BTreeSet::new(),
            step_at: None,
            failures: 0,
            number,
            profile,
            rng: Rng::with_seed(seed),
            started_unix_s: 0.0,
        }
    }

    pub(crate) fn membership(&self) -> Option<Membership> {
        let standing = match self.member {
            Member::Serving => Standing::Serving,
            Member::Draining => Standing::Draining,
            Member::No => return None,
        };
        let address = SocketAddr::from(([10, 0, 0, self.number as u8], 8000));
        Some(Membership {
            endpoint: Endpoint { id: self.id, name: format!("e{}", self.number).into(), address },
            standing,
        })
    }

    /// The process ends; what it owed is returned.
    pub(crate) fn die(&mut self) -> BTreeSet<u64> {
        self.process = Process::Gone;
        self.step_at = None;
        self.engine = Engine::new(self.profile.clone(), self.rng.u64(..));
        std::mem::take(&mut self.holds)
    }

    /// A new process serves at the same address.
    pub(crate) fn start(&mut self, now: Moment) {
        self.process = Process::Up;
        self.started_unix_s = now.since_origin().as_secs_f64();
    }

    /// Runs the step that is due.
    pub(crate) fn step(&mut self, now: Moment) -> Vec<Event> {
        self.step_at = None;
        self.engine.step(now).to_vec()
    }

    /// The moment of a step that is not on the agenda yet.
    pub(crate) fn new_step_at(&mut self, now: Moment) -> Option<Moment> {
        let at = self.engine.next_step_at()?.max(now);
        let known = self.step_at.is_some_and(|known| known <= at);
        self.step_at = if known { self.step_at } else { Some(at) };
        (!known).then_some(at)
    }

    /// What its page says to a look that began at `began`.
    pub(crate) fn load(&self, began: Moment) -> Load {
        let gauges = &self.engine.stats().gauges;
        let signal = |value: f64, source| Some(Signal { value, at: began, source });
        Load {
            waiting: signal(f64::from(gauges.waiting), "vllm:num_requests_waiting"),
            running: signal(f64::from(gauges.running), "vllm:num_requests_running"),
            kv_cache: signal(gauges.kv_usage, "vllm:kv_cache_usage_perc"),
            ranks: 1,
            cache: Some(CacheShape {
                block_tokens: self.profile.block_tokens,
                blocks: u64::from(self.profile.usable_blocks()),
            }),
            adapters: None,
            started_unix_s: Some(self.started_unix_s),
        }
    }

    /// When the next look begins, after one that began at `began`.
    pub(crate) fn next_look(&mut self, began: Moment) -> Moment {
        let backed_off = LOOK_INTERVAL.saturating_mul(1 << self.failures.min(16)).min(LOOK_INTERVAL_MAX);
        began + backed_off.mul_f64(1.0 + LOOK_JITTER * (2.0 * self.rng.f64() - 1.0))
    }

    /// When the first look of a life begins.
    pub(crate) fn first_look(&mut self, now: Moment) -> Moment {
        now + LOOK_INTERVAL.mul_f64(self.rng.f64() * 0.1)
    }
}
