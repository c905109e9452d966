//! Tests of the whole value, by theme. Time is simulated: nothing here waits.

mod accounting;
mod affinity;
mod burst;
mod eviction;
mod freshness;
mod health;
mod interleaving;
mod lora;
mod prediction;
mod refusal;
mod simulated;
mod spreading;
mod waiting;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pool::{CacheShape, Endpoint, EndpointId, Load, Moment, NoPage, Observation, Signal};

use crate::{
    Admitted, Ask, Decision, Dispatched, Freed, Membership, Permit, PoolDispatch, Refusal, Request, Settings, Standing,
    Weights,
};

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn id(number: usize) -> EndpointId {
    EndpointId::new(number as u64)
}

pub(super) fn member(number: usize) -> Membership {
    let address = ([10, 0, (number / 256) as u8, (number % 256) as u8], 8000).into();
    let endpoint = Endpoint { id: id(number), name: format!("llama-{number}").into(), address };
    Membership { endpoint, standing: Standing::Serving }
}

/// What a metrics page says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page {
    pub(super) waiting: f64,
    pub(super) running: f64,
    pub(super) kv_cache: f64,
    pub(super) ranks: u32,
    pub(super) cache: Option<CacheShape>,
}

impl Page {
    pub(super) fn load(self, at: Moment) -> Load {
        let signal = |value| Some(Signal { value, at, source: "test" });
        Load {
            waiting: signal(self.waiting),
            running: signal(self.running),
            kv_cache: signal(self.kv_cache),
            ranks: self.ranks,
            cache: self.cache,
            adapters: None,
            started_unix_s: None,
        }
    }
}

/// A pool with its time.
pub(super) struct Rig {
    pub(super) pool: PoolDispatch,
    pub(super) now: Moment,
    pub(super) decision: Decision,
    prompts: u64,
    held: Vec<Permit>,
    pub(super) freed: Vec<Freed>,
}

impl Rig {
    /// Endpoints 0..n, without a report yet.
    pub(super) fn unread(n: usize, settings: Settings) -> Self {
        let mut pool = PoolDispatch::new(settings);
        let now = Moment::ORIGIN + ms(1_000);
        pool.set_endpoints(&(0..n).map(member).collect::<Vec<_>>(), now);
        Self { pool, now, decision: Decision::default(), prompts: 0, held: Vec::new(), freed: Vec::new() }
    }

    /// Endpoints 0..n, all reported idle just now.
    pub(super) fn idle(n: usize) -> Self {
        Self::with(n, Weights::default())
    }

    pub(super) fn with(n: usize, weights: Weights) -> Self {
        let mut rig = Self::unread(n, Settings { weights, ..Settings::default() });
        rig.report_all(&vec![Page::default(); n]);
        rig
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(super) fn report(&mut self, number: usize, page: Page) {
        self.observe(number, Observation::Page { began: self.now, load: page.load(self.now) });
    }

    pub(super) fn report_all(&mut self, pages: &[Page]) {
        for (number, &page) in pages.iter().enumerate() {
            self.report(number, page);
        }
    }

    pub(super) fn no_page(&mut self, number: usize, why: NoPage) {
        self.observe(number, Observation::NoPage { began: self.now, why });
    }

    pub(super) fn observe(&mut self, number: usize, observation: Observation) {
        self.pool.observe(id(number), observation, self.now);
    }

    pub(super) fn dispatch(&mut self, request: Request<'_>) -> Result<Dispatched, Refusal> {
        self.pool.dispatch(&request, self.now, &mut self.decision)
    }

    /// A request of this priority: its place, if it gets one at once.
    pub(super) fn admit(&mut self, priority: i32, request: Request<'_>) -> Option<Dispatched> {
        match self.ask(Ask { priority, ..Ask::default() }, request) {
            Admitted::Placed(dispatched) => Some(dispatched),
            Admitted::Waiting(_) | Admitted::Refused(_) => None,
        }
    }

    /// What becomes of a request; what becomes of others is kept in `freed`.
    pub(super) fn ask(&mut self, ask: Ask, request: Request<'_>) -> Admitted {
        self.pool.admit(&request, &ask, self.now, &mut self.decision, &mut self.freed)
    }

    /// A request with this prompt: where it went, and its permit.
    pub(super) fn send(&mut self, prefix: &[u64]) -> (usize, Permit) {
        let prompt_tokens = prefix.len() as u32 * 64;
        let sent = self.dispatch(Request { prefix, prompt_tokens, ..Request::default() }).unwrap();
        (sent.ranked[0].get() as usize, sent.permit)
    }

    /// A request that stays in flight.
    pub(super) fn hold(&mut self, prefix: &[u64]) -> usize {
        let (to, permit) = self.send(prefix);
        self.held.push(permit);
        to
    }

    /// A chain of blocks that no other prompt shares.
    pub(super) fn new_prompt(&mut self, blocks: usize) -> Vec<u64> {
        self.prompts += 1;
        prompt(self.prompts, blocks)
    }

    pub(super) fn complete(&mut self, permit: Permit) {
        self.pool.complete(permit, self.now);
    }

    pub(super) fn answer_and_complete(&mut self, permit: Permit) {
        self.pool.answered(&permit, self.now);
        self.pool.prefilled(&permit, self.now);
        self.complete(permit);
    }

    pub(super) fn in_flight(&self) -> Vec<u32> {
        self.pool.snapshot(self.now).endpoints.iter().map(|e| e.in_flight.requests).collect()
    }
}

/// The chain of a prompt that is told apart from others by its number.
pub(super) fn prompt(number: u64, blocks: usize) -> Vec<u64> {
    continued(&[number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1], number, blocks - 1)
}

/// A chain that goes on from another one.
pub(super) fn continued(start: &[u64], with: u64, blocks: usize) -> Vec<u64> {
    let mut chain = start.to_vec();
    for _ in 0..blocks {
        let mut next = chain[chain.len() - 1] ^ with.rotate_left(17);
        next = (next ^ (next >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        chain.push(next ^ (next >> 27));
    }
    chain
}

pub(super) fn counts(picks: &[usize], n: usize) -> Vec<usize> {
    (0..n).map(|number| picks.iter().filter(|&&p| p == number).count()).collect()
}

pub(super) fn names(list: &[&str]) -> Vec<Arc<str>> {
    list.iter().map(|&name| name.into()).collect()
}
