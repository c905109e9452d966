//! One pass: every figure once.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use dispatch::{
    Admitted, Ask, Band, Decision, Flow, Freed, Membership, More, Permit, PoolDispatch, Request, Settings, Standing,
};
use pool::{Endpoint, EndpointId, Load, Moment, Observation, Signal};
use serde::Serialize;

use super::Arguments;
use crate::statistics::percentile;

/// Blocks of each prompt: about 4 kB of text.
pub(super) const PROMPT_BLOCKS: usize = 16;

/// Prompts that are told apart: enough that most are new to an endpoint, few enough to be made before the clock runs.
const PROMPTS: usize = 4_096;

/// All figures of one pass.
#[derive(Debug, Serialize)]
pub struct Pass {
    pub figures: BTreeMap<Figure, f64>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    PickMedian,
    PickP99,
    AdmitMedian,
    AdmitP99,
    AddedP99,
    JoinMedian,
    JoinP99,
    DrainOf1000,
    DrainOf10000,
    DrainByServiceOf10000,
}

/// What a figure should be.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    pub const ALL: [Self; 10] = [
        Self::PickMedian,
        Self::PickP99,
        Self::AdmitMedian,
        Self::AdmitP99,
        Self::AddedP99,
        Self::JoinMedian,
        Self::JoinP99,
        Self::DrainOf1000,
        Self::DrainOf10000,
        Self::DrainByServiceOf10000,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::PickMedian => "bare pick, µs, median",
            Self::PickP99 => "bare pick, µs, p99",
            Self::AdmitMedian => "admission with nobody waiting, µs, median",
            Self::AdmitP99 => "admission with nobody waiting, µs, p99",
            Self::AddedP99 => "added by admission, µs, p99",
            Self::JoinMedian => "admission that ends in the queue, 1,000 waiting, µs, median",
            Self::JoinP99 => "admission that ends in the queue, 1,000 waiting, µs, p99",
            Self::DrainOf1000 => "1,000 waiting: completed and released per second",
            Self::DrainOf10000 => "10,000 waiting: completed and released per second",
            Self::DrainByServiceOf10000 => "10,000 waiting, by attained service: completed and released per second",
        }
    }

    pub const fn decimals(self) -> usize {
        match self {
            Self::PickMedian | Self::PickP99 | Self::AdmitMedian | Self::AdmitP99 => 2,
            Self::AddedP99 | Self::JoinMedian | Self::JoinP99 => 2,
            Self::DrainOf1000 | Self::DrainOf10000 | Self::DrainByServiceOf10000 => 0,
        }
    }

    pub const fn target(self) -> Option<Target> {
        match self {
            Self::AddedP99 => Some(Target::AtMost(20.0)),
            Self::DrainOf1000 | Self::DrainOf10000 => Some(Target::AtLeast(50_000.0)),
            Self::PickMedian | Self::PickP99 | Self::AdmitMedian | Self::AdmitP99 => None,
            Self::JoinMedian | Self::JoinP99 | Self::DrainByServiceOf10000 => None,
        }
    }
}

impl Target {
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

impl Pass {
    pub fn measure(arguments: &Arguments) -> Self {
        let mut figures = BTreeMap::new();
        let mut note = |median, p99, mut times_ns: Vec<u64>| {
            figures.insert(median, percentile(&mut times_ns, 0.5) as f64 / 1e3);
            figures.insert(p99, percentile(&mut times_ns, 0.99) as f64 / 1e3);
        };
        note(Figure::PickMedian, Figure::PickP99, Bench::new(arguments, None).picks(arguments.calls));
        note(Figure::AdmitMedian, Figure::AdmitP99, Bench::new(arguments, None).admissions(arguments.calls));
        let mut full = Bench::new(arguments, Some(Service::InTurn));
        full.fill(1_000);
        note(Figure::JoinMedian, Figure::JoinP99, full.joins(arguments.calls));
        figures.insert(Figure::AddedP99, figures[&Figure::AdmitP99] - figures[&Figure::PickP99]);
        for (figure, waiting, service) in [
            (Figure::DrainOf1000, 1_000, Service::InTurn),
            (Figure::DrainOf10000, 10_000, Service::InTurn),
            (Figure::DrainByServiceOf10000, 10_000, Service::ByAttained),
        ] {
            let mut bench = Bench::new(arguments, Some(service));
            bench.fill(waiting);
            figures.insert(figure, bench.drained_per_second());
        }
        Self { figures }
    }
}

pub(super) fn picks_ns(arguments: &Arguments) -> Vec<u64> {
    Bench::new(arguments, None).picks(arguments.calls)
}

/// Whose turn it is while a queue is worked off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    InTurn,
    ByAttained,
}

/// A pool that is used up to nothing.
struct Bench {
    pool: PoolDispatch,
    now: Moment,
    decision: Decision,
    freed: Vec<Freed>,
    prompts: Vec<[u64; PROMPT_BLOCKS]>,
    flows: u64,
    sent: usize,
    in_flight: Vec<Permit>,
}

impl Bench {
    /// With room for all, or with little room and a long queue.
    fn new(arguments: &Arguments, queue: Option<Service>) -> Self {
        let mut settings = Settings::default();
        if let Some(service) = queue {
            settings.max_in_flight_per_endpoint = NonZeroU32::new(arguments.cap());
            let band = &mut settings.flow.bands[Band::Standard.index()];
            (band.max_saturation, band.max_wait) = (1.0, Duration::from_secs(3_600));
            (band.queued_requests_max, band.queued_bytes_max) = (1_000_000, 1 << 40);
            if service == Service::ByAttained {
                settings.flow.fairness = dispatch::Fairness::LeastAttainedService;
            }
        }
        let mut random = fastrand::Rng::with_seed(arguments.seed);
        let now = Moment::ORIGIN + Duration::from_secs(100);
        let mut pool = PoolDispatch::new(settings);
        pool.set_endpoints(&(0..arguments.endpoints).map(member).collect::<Vec<_>>(), now);
        for number in 0..arguments.endpoints {
            let signal = |value| Some(Signal { value, at: now, source: "bench" });
            let (waiting, running, kv_cache) = (signal(0.0), signal(4.0), signal(random.f64() * 0.5));
            let load = Load { waiting, running, kv_cache, ranks: 1, ..Load::default() };
            pool.observe(EndpointId::new(number.into()), Observation::Page { began: now, load }, now);
        }
        Self {
            pool,
            now,
            decision: Decision::default(),
            freed: Vec::new(),
            prompts: (0..PROMPTS).map(|_| std::array::from_fn(|_| random.u64(..))).collect(),
            flows: arguments.flows.into(),
            sent: 0,
            in_flight: Vec::new(),
        }
    }

    /// Nanoseconds of each pick.
    fn picks(&mut self, calls: u32) -> Vec<u64> {
        let time = |bench: &mut Self| {
            let (request, _) = request(&bench.prompts, bench.sent, bench.flows);
            let started = Instant::now();
            let placed = bench.pool.dispatch(&request, bench.now, &mut bench.decision);
            let took = started.elapsed();
            bench.pool.complete(placed.expect("the pool has room").permit, bench.now);
            took
        };
        self.times(calls, time)
    }

    /// Nanoseconds of each admission into a pool with room, where nobody waits.
    fn admissions(&mut self, calls: u32) -> Vec<u64> {
        let time = |bench: &mut Self| {
            let (admitted, took) = bench.admit();
            let Admitted::Placed(dispatched) = admitted else { panic!("the pool has room: {admitted:?}") };
            bench.pool.complete(dispatched.permit, bench.now);
            took
        };
        self.times(calls, time)
    }

    /// Nanoseconds of each admission that ends in the queue, which it leaves again.
    fn joins(&mut self, calls: u32) -> Vec<u64> {
        let time = |bench: &mut Self| {
            let (admitted, took) = bench.admit();
            let Admitted::Waiting(waiting) = admitted else { panic!("the pool is full: {admitted:?}") };
            assert!(bench.pool.withdraw(waiting.ticket), "who joined waits");
            took
        };
        self.times(calls, time)
    }

    /// Fills the pool and the queue.
    fn fill(&mut self, waiting: u32) {
        while self.pool.waiting(Band::Standard) < waiting {
            match self.admit().0 {
                Admitted::Placed(dispatched) => self.in_flight.push(dispatched.permit),
                Admitted::Waiting(_) => {}
                Admitted::Refused(refusal) => panic!("the queue has room: {refusal}"),
            }
        }
    }

    /// Completes one after the other until nobody waits; each completion releases one.
    fn drained_per_second(&mut self) -> f64 {
        let waiting = self.pool.waiting(Band::Standard);
        let mut placed = 0;
        let started = Instant::now();
        while let Some(permit) = self.in_flight.pop() {
            self.pool.complete(permit, self.now);
            while self.pool.release(self.now, &mut self.freed) == More::Perhaps {}
            for freed in self.freed.drain(..) {
                let Freed::Placed { dispatched, .. } = freed else { panic!("nobody is refused: {freed:?}") };
                placed += 1;
                self.in_flight.push(dispatched.permit);
            }
            if placed == waiting {
                break;
            }
        }
        let took = started.elapsed();
        assert!(!self.pool.has_waiting(), "all have been placed");
        f64::from(waiting) / took.as_secs_f64()
    }

    fn admit(&mut self) -> (Admitted, Duration) {
        let (request, ask) = request(&self.prompts, self.sent, self.flows);
        self.sent += 1;
        let started = Instant::now();
        let admitted = self.pool.admit(&request, &ask, self.now, &mut self.decision, &mut self.freed);
        (admitted, started.elapsed())
    }

    fn times(&mut self, calls: u32, mut time: impl FnMut(&mut Self) -> Duration) -> Vec<u64> {
        // The first calls find cold caches and grow their memory.
        for _ in 0..calls / 10 {
            self.sent += 1;
            time(self);
        }
        let timed = |_| {
            self.sent += 1;
            time(self).as_nanos() as u64
        };
        (0..calls).map(timed).collect()
    }
}

fn request(prompts: &[[u64; PROMPT_BLOCKS]], number: usize, flows: u64) -> (Request<'_>, Ask) {
    let prefix = &prompts[number % prompts.len()][..];
    let prompt_tokens = (PROMPT_BLOCKS as u32) * dispatch::BLOCK_TOKENS;
    let request = Request { prefix, prompt_tokens, tie: number as u64, ..Request::default() };
    (request, Ask { flow: Flow(number as u64 % flows), bytes: 4_096, ..Ask::default() })
}

fn member(number: u16) -> Membership {
    let address = ([10, 0, (number / 256) as u8, (number % 256) as u8], 8000).into();
    let name = format!("endpoint-{number}").into();
    Membership { endpoint: Endpoint { id: EndpointId::new(number.into()), name, address }, standing: Standing::Serving }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn every_figure_is_measured() {
        let line = Line::parse_from(["", "--calls", "100", "--endpoints", "3", "--flows", "7"]);
        let pass = Pass::measure(&line.arguments);
        for figure in Figure::ALL {
            assert!(pass.figures[&figure].is_finite(), "{}", figure.title());
        }
        assert!(pass.figures[&Figure::DrainOf1000] > 0.0);
    }
}
