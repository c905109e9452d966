//! Whatever happens in whatever order: nobody is lost, nobody is served twice, and all counts end at zero.

use std::{collections::BTreeMap, num::NonZeroU32};

use proptest::prelude::*;

use super::{super::releasing::RELEASED_MAX, *};
use crate::{Band, Eviction, Failure, Flow, FlowControl, HasPage, More, QueueFull, Ticket, Verdict};

const ENDPOINTS: usize = 4;
const QUEUED_MAX: u32 = 12;
const QUEUED_BYTES_MAX: u64 = 600;

#[derive(Clone, Debug)]
enum Step {
    Admit { priority: i32, flow: u64, bytes: u64, tokens: u32, wish: Wish },
    Withdraw(usize),
    Expire(usize),
    Release,
    Complete(usize),
    Answer(usize, u32),
    Report { number: usize, waiting: u8, running: u8, kv_cache: f64 },
    Unreachable(usize),
    Members(u8),
    Pause { number: usize, ms: u64 },
    Configure(Knobs),
    PassOn(usize, usize),
    Judge(usize, Verdict),
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    None,
    Only(usize),
    Without(usize),
}

#[derive(Clone, Copy, Debug)]
struct Knobs {
    cap: u32,
    by_service: bool,
    by_deadline: bool,
    evict: bool,
    off: bool,
}

fn knobs() -> impl Strategy<Value = Knobs> {
    let yes = prop::bool::weighted;
    (0u32..5, yes(0.3), yes(0.3), yes(0.5), yes(0.1)).prop_map(|(cap, by_service, by_deadline, evict, off)| Knobs {
        cap,
        by_service,
        by_deadline,
        evict,
        off,
    })
}

fn settings(knobs: Knobs) -> Settings {
    let Knobs { cap, by_service, by_deadline, evict, off } = knobs;
    let mut settings = Settings {
        max_in_flight_per_endpoint: NonZeroU32::new(cap),
        has_page: HasPage::Yes,
        eviction: if evict { Eviction::BeforeFirstByte } else { Eviction::Never },
        flow_control: if off { FlowControl::Off } else { FlowControl::On },
        ..Settings::default()
    };
    if by_service {
        settings.flow.fairness = flow_control::Fairness::LeastAttainedService;
    }
    if by_deadline {
        settings.flow.ordering = flow_control::Ordering::Deadline;
    }
    for band in &mut settings.flow.bands {
        (band.queued_requests_max, band.queued_bytes_max) = (QUEUED_MAX, QUEUED_BYTES_MAX);
        band.max_wait = ms(2_000);
    }
    settings
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        1 => Just(Verdict::Success),
        1 => Just(Verdict::Neutral),
        3 => Just(Verdict::Failure(Failure::Status)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let wish = prop_oneof![
        6 => Just(Wish::None),
        1 => (0..ENDPOINTS).prop_map(Wish::Only),
        1 => (0..ENDPOINTS).prop_map(Wish::Without),
    ];
    let admit = (-2i32..3, 0u64..4, 0u64..100, 1u32..3_000, wish);
    prop_oneof![
        12 => admit.prop_map(|(priority, flow, bytes, tokens, wish)| {
            Step::Admit { priority, flow, bytes, tokens, wish }
        }),
        1 => (0usize..64).prop_map(Step::Withdraw),
        1 => (0usize..64).prop_map(Step::Expire),
        3 => Just(Step::Release),
        6 => (0usize..64).prop_map(Step::Complete),
        3 => (0usize..64, 0u32..500).prop_map(|(at, tokens)| Step::Answer(at, tokens)),
        4 => (0..ENDPOINTS, 0u8..7, 0u8..20, 0.0..1.0f64).prop_map(|(number, waiting, running, kv_cache)| {
            Step::Report { number, waiting, running, kv_cache }
        }),
        1 => (0..ENDPOINTS).prop_map(Step::Unreachable),
        1 => any::<u8>().prop_map(Step::Members),
        1 => (0..ENDPOINTS, 1u64..1_500).prop_map(|(number, ms)| Step::Pause { number, ms }),
        1 => knobs().prop_map(Step::Configure),
        1 => (0usize..64, 0..ENDPOINTS).prop_map(|(at, number)| Step::PassOn(at, number)),
        3 => (0usize..64, verdict()).prop_map(|(at, verdict)| Step::Judge(at, verdict)),
        4 => (1u64..300).prop_map(Step::Pass),
    ]
}

/// What the owner of a pool knows.
struct Owner {
    rig: Rig,
    settings: Settings,
    waiting: BTreeMap<Ticket, (Ask, bool, Moment)>,
    permits: Vec<(Permit, Ask)>,
    /// Told to be ended, and neither over nor answered.
    evicted: Vec<crate::FlightId>,
}

impl Owner {
    fn admit(&mut self, ask: Ask, request: Request<'_>) {
        // One call releases so many and no more: what it did not reach waits on, room or not, and so does who comes after.
        let all_reached = self.waiting.len() <= RELEASED_MAX;
        let admitted = self.rig.ask(ask, request);
        self.take_in();
        let choosy = request.only.is_some() || !request.exclude.is_empty();
        let saturation = self.rig.pool.saturation(self.rig.now);
        let room = all_reached && saturation < self.settings.flow.band(ask.band()).max_saturation;
        match admitted {
            Admitted::Placed(dispatched) => {
                let before = |(other, content, _): &(Ask, bool, Moment)| {
                    *content && (other.band(), -other.priority) <= (ask.band(), -ask.priority)
                };
                assert!(
                    !self.waiting.values().any(before),
                    "nobody goes before who waits in the same or a higher rank"
                );
                self.keep(dispatched, ask);
            }
            Admitted::Waiting(waiting) => {
                assert!(choosy || !room, "nobody waits while there is room: {saturation}");
                assert_eq!(self.settings.flow_control, FlowControl::On);
                let known = self.waiting.insert(waiting.ticket, (ask, !choosy, waiting.expires_at));
                assert!(known.is_none());
            }
            Admitted::Refused(Refusal::NoEndpoint) => assert!(choosy || saturation == 1.0),
            Admitted::Refused(Refusal::Full(why)) => {
                assert!(choosy || !room, "nobody is refused while there is room: {saturation}");
                let (requests, bytes) = self.count(ask.band());
                assert!(match why {
                    QueueFull::Requests => requests == QUEUED_MAX,
                    QueueFull::Bytes => bytes + ask.bytes > QUEUED_BYTES_MAX,
                    QueueFull::TooSlow => true,
                    QueueFull::NoWaiting | QueueFull::TooLarge | QueueFull::PushedOut => false,
                });
            }
            Admitted::Refused(refusal @ (Refusal::Shed | Refusal::Expired)) => panic!("{refusal}"),
        }
    }

    /// Books what became of those who wait.
    fn take_in(&mut self) {
        for freed in std::mem::take(&mut self.rig.freed) {
            match freed {
                Freed::Placed { ticket, dispatched, .. } => {
                    let (ask, content, expires_at) =
                        self.waiting.remove(&ticket).expect("it waits, and is placed once");
                    assert!(expires_at > self.rig.now, "nobody is served whose time is over");
                    let first = |(other, content, _): &(Ask, bool, Moment)| {
                        *content && (other.band(), -other.priority) < (ask.band(), -ask.priority)
                    };
                    assert!(!content || !self.waiting.values().any(first), "bands and priorities are strict");
                    self.keep(dispatched, ask);
                }
                Freed::Refused { ticket, refusal } => {
                    let (_, _, expires_at) = self.waiting.remove(&ticket).expect("it waits, and is refused once");
                    match refusal {
                        Refusal::Full(QueueFull::PushedOut) => {}
                        Refusal::Expired | Refusal::NoEndpoint => assert!(expires_at <= self.rig.now),
                        Refusal::Full(_) | Refusal::Shed => panic!("{refusal}"),
                    }
                }
                Freed::Evict { flight } => {
                    let (_, ask) = self.permits.iter().find(|(p, _)| p.id() == flight).expect("it is in flight");
                    assert_eq!(ask.band(), Band::Sheddable);
                    assert!(!self.evicted.contains(&flight), "nobody is ended twice");
                    self.evicted.push(flight);
                }
            }
        }
    }

    fn keep(&mut self, dispatched: Dispatched, ask: Ask) {
        assert_eq!(self.rig.pool.endpoint_of(&dispatched.permit), dispatched.ranked.first().copied());
        self.permits.push((dispatched.permit, ask));
    }

    fn release(&mut self) {
        while self.rig.pool.release(self.rig.now, &mut self.rig.freed) == More::Perhaps {
            self.take_in();
        }
        self.take_in();
        let saturation = self.rig.pool.saturation(self.rig.now);
        for (ask, content, _) in self.waiting.values().filter(|(_, content, _)| *content) {
            assert!(
                *content && saturation >= self.settings.flow.band(ask.band()).max_saturation,
                "none is left who fits"
            );
        }
    }

    fn count(&self, band: Band) -> (u32, u64) {
        let of = self.waiting.values().filter(|(ask, _, _)| ask.band() == band);
        of.fold((0, 0), |(requests, bytes), (ask, _, _)| (requests + 1, bytes + ask.bytes))
    }

    fn check(&self) {
        let pool = &self.rig.pool;
        for band in Band::ALL {
            let (requests, bytes) = self.count(band);
            assert_eq!((pool.waiting(band), pool.waiting_bytes(band)), (requests, bytes));
            assert!(requests <= QUEUED_MAX && bytes <= QUEUED_BYTES_MAX);
            assert!((1..=60).contains(&pool.retry_after_s(band, 1 << 62, self.rig.now)));
        }
        assert_eq!(pool.has_waiting(), !self.waiting.is_empty());
        assert_eq!(self.rig.in_flight().iter().sum::<u32>() as usize, self.permits.len());
        assert!(self.evicted.len() <= 2, "no more than two are being ended");
    }

    fn step(&mut self, step: Step) {
        let now = self.rig.now;
        match step {
            Step::Admit { priority, flow, bytes, tokens, wish } => {
                let deadline = (tokens % 3 == 0).then(|| now + ms(u64::from(tokens)));
                let ask = Ask { priority, flow: Flow(flow), bytes, deadline, wait_until: None };
                let exclude = match wish {
                    Wish::Without(number) => vec![id(number)],
                    Wish::None | Wish::Only(_) => vec![],
                };
                let only = match wish {
                    Wish::Only(number) => Some(id(number)),
                    Wish::None | Wish::Without(_) => None,
                };
                let prefix = prompt(flow, tokens as usize / 64 + 1);
                let request =
                    Request { prefix: &prefix, prompt_tokens: tokens, exclude: &exclude, only, ..Request::default() };
                self.admit(ask, request);
            }
            Step::Withdraw(at) => {
                if let Some(&ticket) = self.waiting.keys().nth(at) {
                    assert!(self.rig.pool.withdraw(ticket) && !self.rig.pool.withdraw(ticket));
                    self.waiting.remove(&ticket);
                }
            }
            Step::Expire(at) => {
                if let Some((&ticket, _)) = self.waiting.iter().filter(|(_, (_, _, at))| *at <= now).nth(at % 3) {
                    let refusal = self.rig.pool.expire(ticket, now);
                    assert!(matches!(refusal, Some(Refusal::Expired | Refusal::NoEndpoint)));
                    self.waiting.remove(&ticket);
                }
            }
            Step::Release => self.release(),
            Step::Complete(at) => {
                if at < self.permits.len() {
                    let (permit, _) = self.permits.swap_remove(at);
                    self.evicted.retain(|&flight| flight != permit.id());
                    self.rig.complete(permit);
                }
            }
            Step::Answer(at, tokens) => {
                if let Some((permit, _)) = self.permits.get(at) {
                    self.evicted.retain(|&flight| flight != permit.id());
                    self.rig.pool.answered(permit, now);
                    self.rig.pool.generated(permit, tokens, now);
                }
            }
            Step::Report { number, waiting, running, kv_cache } => {
                let (waiting, running) = (f64::from(waiting), f64::from(running));
                self.rig.report(number, Page { waiting, running, kv_cache, ..Page::default() });
            }
            Step::Unreachable(number) => self.rig.no_page(number, NoPage::Unreachable),
            Step::Members(mask) => {
                let members: Vec<_> = (0..ENDPOINTS).filter(|n| mask & (1 << n) != 0).map(member).collect();
                self.rig.pool.set_endpoints(&members, now);
            }
            Step::Pause { number, ms: time } => self.rig.pool.backpressure(id(number), now + ms(time)),
            Step::Configure(knobs) => {
                self.settings = settings(knobs);
                self.rig.pool.configure(self.settings.clone());
                self.release();
            }
            Step::PassOn(at, number) => {
                if let Some((permit, _)) = self.permits.get(at) {
                    let moved = self.rig.pool.pass_on(permit, id(number), &[], now).is_ok();
                    assert!(!moved || self.rig.pool.endpoint_of(permit) == Some(id(number)));
                }
            }
            Step::Judge(at, verdict) => {
                if let Some((permit, _)) = self.permits.get(at) {
                    let _ = self.rig.pool.report(permit, verdict, now);
                }
            }
            Step::Pass(time) => self.rig.pass(ms(time)),
        }
        self.take_in();
    }

    fn end(mut self) {
        for (permit, _) in std::mem::take(&mut self.permits) {
            self.evicted.retain(|&flight| flight != permit.id());
            self.rig.complete(permit);
        }
        self.rig.pass(ms(2_000));
        self.release();
        assert!(self.waiting.is_empty(), "all waits are over");
        for (permit, _) in std::mem::take(&mut self.permits) {
            self.rig.complete(permit);
        }
        self.check();
        assert_eq!(self.rig.in_flight().iter().sum::<u32>(), 0);
        let view = self.rig.pool.snapshot(self.rig.now);
        assert!(view.endpoints.iter().all(|e| e.in_flight == crate::InFlight::default()), "{view:?}");
        assert_eq!(view.waiting, [0; Band::COUNT]);
        self.rig.pool.set_endpoints(&[], self.rig.now);
        assert!(self.rig.pool.snapshot(self.rig.now).endpoints.is_empty());
    }
}

proptest! {
    #[test]
    fn nobody_is_lost_and_all_counts_end_at_zero(
        first in knobs(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let settings = settings(first);
        let rig = Rig::unread(ENDPOINTS, settings.clone());
        let mut owner =
            Owner { rig, settings, waiting: BTreeMap::new(), permits: Vec::new(), evicted: Vec::new() };
        for step in steps {
            owner.step(step);
            owner.check();
        }
        owner.end();
    }
}
