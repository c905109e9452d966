//! Runs the engines in real time and tells each request what became of it.
//!
//! One task steps all ranks. A request is a [`Ticket`]: it collects what the engine produced since it was last asked (so
//! a slow client gets several tokens in one chunk, as from a real server, and nothing piles up), and dropping it before
//! its end aborts the request.

use std::{
    collections::{BTreeSet, HashMap},
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use engine::{
    AdapterId, Counters, Engine, EventKind, FinishReason, Gauges, Histogram, Profile, RankChoice, RankLoad, Request,
    RequestId, SubmitError,
};
use parking_lot::Mutex;
use pool::Moment;
use tokio::sync::Notify;

use crate::{
    clock::Clock,
    kv_events::{Outlet, Text},
    latency::{Latencies, Marks},
    options::{Options, Version},
};

/// The engines of one server.
#[derive(Debug)]
pub(crate) struct Driver {
    clock: Clock,
    ranks: Vec<Mutex<Rank>>,
    /// Between the ranks.
    choice: Mutex<RankChoice>,
    ids: std::sync::atomic::AtomicU64,
    wake: Notify,
}

/// One data-parallel rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) engine: Engine,
    /// What SGLang would show: its gauges are refreshed now and then only.
    pub(crate) lazy: Gauges,
    lazy_steps: u64,
    /// Whether adapter lists tell running from waiting.
    split_adapters: bool,
    /// Adapter lists the engine ever reported, with the Unix time of the last report.
    pub(crate) adapter_reports: AdapterReports,
    /// Histograms in other buckets than the engine's own.
    pub(crate) latencies: Latencies,
    /// vLLM's histograms over requests as clients made them, with all their choices.
    pub(crate) parents: Parents,
    watchers: HashMap<RequestId, Watcher>,
    /// Publishes KV events, if any are.
    outlet: Option<Outlet>,
}

/// Per client request: choices asked for, and tokens of the longest.
#[derive(Clone, Debug)]
pub(crate) struct Parents {
    pub(crate) choices: Histogram,
    pub(crate) longest_tokens: Histogram,
}

/// Who is told about a request, and what its latencies are counted from.
#[derive(Debug)]
struct Watcher {
    progress: Arc<Progress>,
    marks: Marks,
}

/// Series of `lora_requests_info`: old ones stay, as on a real page.
#[derive(Debug, Default)]
pub(crate) struct AdapterReports {
    pub(crate) series: Vec<(AdapterReport, f64)>,
}

/// Adapters with work, as one release reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdapterReport {
    pub(crate) running: Vec<AdapterId>,
    pub(crate) waiting: Vec<AdapterId>,
}

/// A request in an engine.
#[derive(Debug)]
pub(crate) struct Ticket {
    driver: Arc<Driver>,
    rank: usize,
    id: RequestId,
    progress: Arc<Progress>,
    ended: bool,
}

/// What is new about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    /// Tokens since the last update.
    pub(crate) tokens: u32,
    /// Prompt tokens found in the prefix cache.
    pub(crate) cached_tokens: u32,
    /// Set when it is done.
    pub(crate) finished: Option<FinishReason>,
}

#[derive(Debug, Default)]
struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    update: Update,
    waker: Option<Waker>,
}

/// Steps caught up before others get their turn on this core.
const STEPS_AT_ONCE_MAX: usize = 64;
/// SGLang's `decode_log_interval`.
const SGLANG_REFRESH_STEPS: u64 = 40;
/// vLLM's bounds for the number of choices.
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
/// Adapter combinations remembered; real pages have no bound, a long run here must.
const ADAPTER_SERIES_MAX: usize = 256;

impl Driver {
    /// `outlets` has one for each rank, or none.
    pub(crate) fn new(options: &Options, clock: Clock, outlets: Vec<Outlet>) -> Self {
        let mut outlets = outlets.into_iter();
        let rank = |index: usize| {
            let mut engine = Engine::new(options.profile.clone(), options.seed.wrapping_add(index as u64));
            let outlet = outlets.next();
            if outlet.is_some() {
                engine.record_cache_changes();
            }
            Mutex::new(Rank {
                engine,
                lazy: Gauges::default(),
                lazy_steps: 0,
                split_adapters: options.version < Version(0, 11, 1),
                adapter_reports: AdapterReports::default(),
                latencies: Latencies::new(options.face, options.profile.context_tokens_max()),
                parents: Parents::new(&options.profile),
                watchers: HashMap::new(),
                outlet,
            })
        };
        Self {
            clock,
            ranks: (0..options.ranks.max(1)).map(rank).collect(),
            choice: Mutex::new(RankChoice::new(options.ranks)),
            ids: std::sync::atomic::AtomicU64::new(0),
            wake: Notify::new(),
        }
    }

    /// Hands a request to the rank asked for, else to the one that vLLM would choose. `text` is asked for what the request
    /// consists of, if its KV blocks are told to anyone.
    pub(crate) fn submit(
        self: &Arc<Self>,
        mut request: Request,
        rank: Option<usize>,
        text: impl FnOnce() -> Text,
    ) -> Result<Ticket, SubmitError> {
        let id = RequestId(self.ids.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        request.id = id;
        let rank = rank.filter(|r| *r < self.ranks.len()).unwrap_or_else(|| self.choose_rank());
        let progress = Arc::new(Progress::default());
        {
            let mut held = self.ranks[rank].lock();
            let now = self.clock.now();
            let marks = Marks::new(now, request.prompt_tokens, request.max_tokens);
            held.engine.submit(request, now)?;
            if let Some(outlet) = &mut held.outlet {
                outlet.learn(id, text());
            }
            held.watchers.insert(id, Watcher { progress: progress.clone(), marks });
        }
        self.wake.notify_one();
        Ok(Ticket { driver: self.clone(), rank, id, progress, ended: false })
    }

    /// Steps the engines for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let next = self.ranks.iter().filter_map(|rank| self.step(&mut rank.lock())).min();
            match next {
                None => self.wake.notified().await,
                Some(at) => {
                    let due = tokio::time::sleep_until(self.clock.instant(at).into());
                    tokio::select! {
                        () = due => {}
                        () = self.wake.notified() => {}
                    }
                }
            }
        }
    }

    /// Requests waiting in all ranks.
    pub(crate) fn waiting(&self) -> usize {
        self.ranks.iter().map(|rank| rank.lock().engine.stats().gauges.waiting as usize).sum()
    }

    /// Requests submitted and not ended, in all ranks.
    pub(crate) fn live(&self) -> usize {
        self.ranks.iter().map(|rank| rank.lock().engine.live()).sum()
    }

    /// Looks at every rank in turn.
    pub(crate) fn for_each_rank(&self, mut look: impl FnMut(usize, &Rank)) {
        for (index, rank) in self.ranks.iter().enumerate() {
            look(index, &rank.lock());
        }
    }

    fn step(&self, rank: &mut Rank) -> Option<Moment> {
        let now = self.clock.now();
        for _ in 0..STEPS_AT_ONCE_MAX {
            // One step at a time: each has its own report.
            let Some(at) = rank.engine.next_step_at().filter(|at| *at <= now) else { break };
            rank.step(at, self.clock.unix_s());
        }
        rank.engine.next_step_at()
    }

    fn choose_rank(&self) -> usize {
        if self.ranks.len() == 1 {
            return 0;
        }
        let in_flight = |rank: usize| self.ranks[rank].lock().engine.live();
        let load = |rank: usize| RankLoad::of(&self.ranks[rank].lock().engine);
        self.choice.lock().choose(self.clock.now(), in_flight, load)
    }

    fn abort(&self, rank: usize, id: RequestId) {
        let mut rank = self.ranks[rank].lock();
        rank.watchers.remove(&id);
        rank.engine.abort(id, self.clock.now());
        if let Some(outlet) = &mut rank.outlet {
            outlet.forget(id);
        }
    }
}

impl Rank {
    fn step(&mut self, at: Moment, unix_s: f64) {
        let before = self.engine.stats().counters;
        let mut ended = Vec::new();
        for event in self.engine.step(at) {
            let Some(watcher) = self.watchers.get_mut(&event.id) else { continue };
            self.latencies.note(&mut watcher.marks, event.at, event.kind);
            if watcher.progress.note(event.kind) {
                self.watchers.remove(&event.id);
                ended.push(event.id);
            }
        }
        if let Some(outlet) = &mut self.outlet {
            outlet.publish(self.engine.take_cache_changes(), unix_s);
            ended.into_iter().for_each(|id| outlet.forget(id));
        }
        self.after_step(before, unix_s);
    }

    /// Notes what outlives the step that may just have ended.
    fn after_step(&mut self, before: Counters, unix_s: f64) {
        let stats = self.engine.stats();
        let now = stats.counters;
        if now.steps == before.steps {
            return;
        }
        let idle = stats.gauges.running == 0 && stats.gauges.waiting == 0;
        if now.prefill_steps > before.prefill_steps || now.steps >= self.lazy_steps + SGLANG_REFRESH_STEPS || idle {
            self.lazy_steps = now.steps;
            self.lazy.clone_from(&stats.gauges);
        }
        let report = AdapterReport::of(&stats.gauges, self.split_adapters);
        self.adapter_reports.note(report, unix_s);
    }
}

impl AdapterReport {
    /// From 0.11.1 on both lists name every adapter with a request, before that each its own.
    fn of(gauges: &Gauges, split: bool) -> Self {
        let (running, waiting) = (gauges.adapters_running.clone(), gauges.adapters_waiting.clone());
        if split {
            return Self { running, waiting };
        }
        let all: BTreeSet<AdapterId> = running.into_iter().chain(waiting).collect();
        let all: Vec<AdapterId> = all.into_iter().collect();
        Self { running: all.clone(), waiting: all }
    }
}

impl Parents {
    fn new(profile: &Profile) -> Self {
        // The engine's own token buckets, which depend on the context length.
        let longest_tokens = Engine::new(profile.clone(), 0).histograms().generation_tokens.clone();
        Self { choices: Histogram::new(CHOICES), longest_tokens }
    }
}

impl AdapterReports {
    fn note(&mut self, report: AdapterReport, unix_s: f64) {
        if let Some(series) = self.series.iter_mut().find(|(known, _)| *known == report) {
            series.1 = unix_s;
        } else if self.series.len() < ADAPTER_SERIES_MAX {
            self.series.push((report, unix_s));
        }
    }
}

impl Ticket {
    /// Waits for something new.
    pub(crate) async fn next(&mut self) -> Update {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Ready as soon as something is new.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Update> {
        let mut state = self.progress.0.lock();
        if state.update.tokens == 0 && state.update.finished.is_none() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let update = state.update;
        state.update.tokens = 0;
        self.ended = update.finished.is_some();
        Poll::Ready(update)
    }

    /// Counts the client's request that this was the first choice of.
    pub(crate) fn note_parent(&self, choices: usize, longest_tokens: u32) {
        let mut rank = self.driver.ranks[self.rank].lock();
        rank.parents.choices.observe(choices as f64);
        rank.parents.longest_tokens.observe(f64::from(longest_tokens));
    }

    /// Whether its end was handed out.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended {
            self.driver.abort(self.rank, self.id);
        }
    }
}

impl Progress {
    /// Notes an event and wakes whoever waits. True when it was the last.
    fn note(&self, kind: EventKind) -> bool {
        let mut state = self.0.lock();
        match kind {
            EventKind::Scheduled { cached_tokens } => state.update.cached_tokens = cached_tokens,
            EventKind::FirstToken => state.update.tokens += 1,
            EventKind::Tokens(tokens) => state.update.tokens += tokens,
            EventKind::Finished(reason) => state.update.finished = Some(reason),
            EventKind::Preempted => {}
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        state.update.finished.is_some()
    }
}
