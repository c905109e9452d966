//! A model server: an engine behind an address, with a metrics page that says what was true at the end of its last
//! step. It can die, come back empty, and keep its page to itself.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use dispatch::{Membership, Standing};
use engine::{AdapterId, Engine, Event, Profile};
use fastrand::Rng;
use pool::{Adapters, CacheShape, Endpoint, EndpointId, EndpointIds, Load, Moment, Signal};

use super::{
    call::{Draft, mix},
    gateway::adapter_name,
    stage::Stage,
};

/// From the start of one look to the start of the next, as in `discovery::scrape`.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Spread of the interval to either side, likewise.
const LOOK_JITTER: f64 = 0.1;
/// After failures the interval doubles up to this, likewise.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// One endpoint's server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) id: EndpointId,
    pub(super) engine: Engine,
    pub(super) process: Process,
    pub(super) page: Page,
    pub(super) member: Member,
    /// Requests whose answers are owed.
    pub(super) holds: BTreeSet<u64>,
    /// The step that is on the agenda.
    pub(super) step_at: Option<Moment>,
    /// By gateway: looks that failed, in a row.
    failures: Vec<u32>,
    /// Time without any request.
    idle: Duration,
    idle_since: Option<Moment>,
    /// Later idleness is not counted.
    counts_until: Moment,
    /// Whether a request for an adapter ever came.
    has_adapters: bool,
    number: usize,
    profile: Profile,
    rng: Rng,
    started_unix_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    Up,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Answers,
    Hangs,
}

/// What the configuration says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Serving,
    Draining,
    No,
}

impl Server {
    /// `gateways` look at it.
    pub(super) fn new(number: usize, stage: &Stage, gateways: usize, ids: &mut EndpointIds) -> Self {
        let (id, profile) = (ids.next_id(), stage.fleet[number].clone());
        let (seed, counts_until) = (mix(stage.seed, id.get()), Moment::ORIGIN + stage.length);
        Self {
            id,
            engine: Engine::new(profile.clone(), seed),
            process: Process::Up,
            page: Page::Answers,
            member: Member::Serving,
            holds: BTreeSet::new(),
            step_at: None,
            failures: vec![0; gateways],
            idle: Duration::ZERO,
            idle_since: Some(Moment::ORIGIN),
            counts_until,
            has_adapters: false,
            number,
            profile,
            rng: Rng::with_seed(seed),
            started_unix_s: 0.0,
        }
    }

    pub(super) fn membership(&self) -> Option<Membership> {
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

    /// A request reaches it.
    pub(super) fn take(&mut self, request: u64, draft: &Draft, now: Moment) {
        if let Some(since) = self.idle_since.take() {
            self.idle += now.min(self.counts_until).since(since);
        }
        self.has_adapters |= draft.adapter.is_some();
        self.holds.insert(request);
        self.engine.submit(draft.for_engine(request), now).expect("a scenario's lengths fit its engines");
    }

    /// A request has ended or was given up. False when it was not here any more.
    pub(super) fn lets_go(&mut self, request: u64, now: Moment) -> bool {
        let held = self.holds.remove(&request);
        if self.holds.is_empty() && self.idle_since.is_none() {
            self.idle_since = Some(now);
        }
        held
    }

    /// Time without any request, as far as it is counted.
    pub(super) fn idle(&self) -> Duration {
        self.idle + self.idle_since.map_or(Duration::ZERO, |since| self.counts_until.since(since))
    }

    /// The process ends; what it owed is returned.
    pub(super) fn die(&mut self, now: Moment) -> BTreeSet<u64> {
        self.idle_since.get_or_insert(now);
        self.process = Process::Gone;
        self.step_at = None;
        self.engine = Engine::new(self.profile.clone(), self.rng.u64(..));
        std::mem::take(&mut self.holds)
    }

    /// The configuration names it again, as another endpoint.
    pub(super) fn joins(&mut self, id: EndpointId) {
        (self.id, self.member) = (id, Member::Serving);
        self.failures.fill(0);
    }

    /// A new process serves at the same address.
    pub(super) fn start(&mut self, now: Moment) {
        self.process = Process::Up;
        self.started_unix_s = now.since_origin().as_secs_f64();
    }

    /// Runs the step that is due.
    pub(super) fn step(&mut self, now: Moment) -> Vec<Event> {
        self.step_at = None;
        self.engine.step(now).to_vec()
    }

    /// The moment of a step that is not on the agenda yet.
    pub(super) fn new_step_at(&mut self, now: Moment) -> Option<Moment> {
        let at = self.engine.next_step_at()?.max(now);
        let known = self.step_at.is_some_and(|known| known <= at);
        self.step_at = if known { self.step_at } else { Some(at) };
        (!known).then_some(at)
    }

    /// What its page says to a look that began at `began`.
    pub(super) fn load(&self, began: Moment) -> Load {
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
            adapters: self.adapters(began),
            started_unix_s: Some(self.started_unix_s),
        }
    }

    /// What `vllm:lora_requests_info` says. Engines that never had an adapter do not have it.
    fn adapters(&self, began: Moment) -> Option<Adapters> {
        let gauges = &self.engine.stats().gauges;
        let names = |ids: &[AdapterId]| ids.iter().map(|id| adapter_name(id.0).into()).collect();
        let (running, waiting): (Vec<Arc<str>>, Vec<Arc<str>>) =
            (names(&gauges.adapters_running), names(&gauges.adapters_waiting));
        self.has_adapters.then_some(Adapters { running, waiting, slots: Some(self.profile.max_loras), at: began })
    }

    /// When a gateway's next look begins, after one that began at `began`.
    pub(super) fn next_look(&mut self, gateway: usize, began: Moment, failed: bool) -> Moment {
        let failures = &mut self.failures[gateway];
        *failures = if failed { *failures + 1 } else { 0 };
        let backed_off = LOOK_INTERVAL.saturating_mul(1 << (*failures).min(16)).min(LOOK_INTERVAL_MAX);
        began + backed_off.mul_f64(1.0 + LOOK_JITTER * (2.0 * self.rng.f64() - 1.0))
    }

    /// When the first look of a life begins.
    pub(super) fn first_look(&mut self, now: Moment) -> Moment {
        now + LOOK_INTERVAL.mul_f64(self.rng.f64() * 0.1)
    }
}
