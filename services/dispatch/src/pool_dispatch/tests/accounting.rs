//! What is in flight is what was dispatched and has not come back, under any interleaving.

use proptest::prelude::*;

use super::*;
use crate::{CANDIDATES_MAX, Gone, InFlight};

#[derive(Clone, Debug)]
enum Step {
    Dispatch { blocks: usize, adapter: Option<u8> },
    PassOn { permit: usize, to: usize },
    Answered(usize),
    Prefilled(usize),
    Complete(usize),
    Report { endpoint: usize, waiting: u8, running: u8, ago_ms: u64 },
    Lose(usize),
    Leave(usize),
    Drain(usize),
    Rejoin(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0usize..64;
    let step = prop_oneof![
        6 => (0usize..4, prop::option::of(0u8..12)).prop_map(|(blocks, adapter)| Step::Dispatch { blocks, adapter }),
        2 => (index.clone(), 0usize..6).prop_map(|(permit, to)| Step::PassOn { permit, to }),
        3 => index.clone().prop_map(Step::Answered),
        2 => index.clone().prop_map(Step::Prefilled),
        4 => index.prop_map(Step::Complete),
        3 => (0usize..6, 0u8..4, 0u8..9, 0u64..1_500).prop_map(|(endpoint, waiting, running, ago_ms)| {
            Step::Report { endpoint, waiting, running, ago_ms }
        }),
        1 => (0usize..6).prop_map(Step::Lose),
        1 => (0usize..6).prop_map(Step::Leave),
        1 => (0usize..6).prop_map(Step::Drain),
        1 => (0usize..6).prop_map(Step::Rejoin),
        3 => (0u64..900).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..150)
}

/// What the accounting must come to, kept in the plainest way.
struct Ledger {
    rig: Rig,
    members: Vec<Membership>,
    lives: usize,
    open: Vec<(Permit, EndpointId)>,
}

impl Ledger {
    fn new() -> Self {
        let rig = Rig::unread(6, Settings::default());
        Self { rig, members: (0..6).map(member).collect(), lives: 6, open: Vec::new() }
    }

    fn step(&mut self, step: Step) {
        let now = self.rig.now;
        let nth = |index: usize, open: &[(Permit, EndpointId)]| (!open.is_empty()).then(|| index % open.len());
        match step {
            Step::Dispatch { blocks, adapter } => self.dispatch(blocks, adapter),
            Step::PassOn { permit, to } => {
                if let (Some(at), Some(to)) = (nth(permit, &self.open), self.members.get(to).cloned()) {
                    let moved = self.rig.pool.pass_on(&self.open[at].0, to.endpoint.id, &prompt(1, 3), now);
                    assert_eq!(moved.is_ok(), to.standing == Standing::Serving);
                    if moved.is_ok() {
                        self.open[at].1 = to.endpoint.id;
                    }
                }
            }
            Step::Answered(index) => {
                if let Some(at) = nth(index, &self.open) {
                    self.rig.pool.answered(&self.open[at].0, now);
                }
            }
            Step::Prefilled(index) => {
                if let Some(at) = nth(index, &self.open) {
                    self.rig.pool.prefilled(&self.open[at].0, now);
                }
            }
            Step::Complete(index) => {
                if let Some(at) = nth(index, &self.open) {
                    let (permit, _) = self.open.swap_remove(at);
                    self.rig.pool.complete(permit, now);
                }
            }
            Step::Report { endpoint, waiting, running, ago_ms } => {
                let began = Moment::from_origin(now.since_origin().saturating_sub(ms(ago_ms)));
                let page = Page { waiting: waiting.into(), running: running.into(), ..Page::default() };
                if let Some(member) = self.members.get(endpoint) {
                    let observation = Observation::Page { began, load: page.load(began) };
                    self.rig.pool.observe(member.endpoint.id, observation, now);
                }
            }
            Step::Lose(endpoint) => {
                if let Some(member) = self.members.get(endpoint) {
                    let lost = Observation::NoPage { began: now, why: NoPage::Unreachable };
                    self.rig.pool.observe(member.endpoint.id, lost, now);
                }
            }
            Step::Leave(endpoint) if endpoint < self.members.len() => {
                self.members.remove(endpoint);
                self.rig.pool.set_endpoints(&self.members, now);
            }
            Step::Leave(_) => {}
            Step::Drain(endpoint) => {
                if let Some(member) = self.members.get_mut(endpoint) {
                    member.standing = Standing::Draining;
                }
                self.rig.pool.set_endpoints(&self.members, now);
            }
            Step::Rejoin(name) => {
                // The same name and address, another life.
                let id = id(self.lives);
                self.lives += 1;
                let endpoint = Endpoint { id, ..member(name).endpoint };
                self.members.retain(|m| m.endpoint.name != endpoint.name);
                self.members.push(Membership { endpoint, standing: Standing::Serving });
                self.rig.pool.set_endpoints(&self.members, now);
            }
            Step::Pass(time_ms) => self.rig.pass(ms(time_ms)),
        }
    }

    fn dispatch(&mut self, blocks: usize, adapter: Option<u8>) {
        let prefix = prompt(u64::from(adapter.unwrap_or(0)) + 1, blocks + 1);
        let adapter = adapter.map(|a| format!("adapter-{a}"));
        let request =
            Request { prefix: &prefix, prompt_tokens: 300, adapter: adapter.as_deref(), ..Request::default() };
        if let Ok(sent) = self.rig.dispatch(request) {
            let chosen = sent.ranked[0];
            let serving = |m: &Membership| m.endpoint.id == chosen && m.standing == Standing::Serving;
            assert!(self.members.iter().any(serving), "only members that serve are picked");
            assert_eq!(self.rig.pool.endpoint_of(&sent.permit), Some(chosen));
            self.open.push((sent.permit, chosen));
        }
    }

    fn check(&self) {
        let view = self.rig.pool.snapshot(self.rig.now);
        let counted: u32 = view.endpoints.iter().map(|e| e.in_flight.requests).sum();
        assert_eq!(counted as usize, self.open.len());
        for endpoint in &view.endpoints {
            let here = self.open.iter().filter(|(_, at)| *at == endpoint.id).count();
            assert_eq!(endpoint.in_flight.requests as usize, here, "{}", endpoint.name);
            assert!(endpoint.in_flight.unanswered <= endpoint.in_flight.requests);
            let member = self.members.iter().any(|m| m.endpoint.id == endpoint.id);
            assert!(member || here > 0, "one that left is kept only for its work");
            let of_adapters: u32 = endpoint.adapters.iter().map(|a| a.in_flight).sum();
            assert!(of_adapters <= endpoint.in_flight.requests);
        }
        assert!(self.members.iter().all(|m| view.endpoints.iter().any(|e| e.id == m.endpoint.id)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_sum_of_what_is_in_flight_is_the_number_of_open_permits(steps in steps()) {
        let mut ledger = Ledger::new();
        for step in steps {
            ledger.step(step);
            ledger.check();
        }
        for (permit, _) in std::mem::take(&mut ledger.open) {
            ledger.rig.complete(permit);
        }
        ledger.check();
        let view = ledger.rig.pool.snapshot(ledger.rig.now);
        for endpoint in view.endpoints {
            prop_assert_eq!(endpoint.in_flight, InFlight::default());
            prop_assert!(endpoint.adapters.iter().all(|a| a.in_flight == 0));
        }
    }
}

#[test]
fn an_endpoint_that_left_keeps_its_work_and_its_next_life_starts_without() {
    let mut rig = Rig::idle(1);
    let (_, permit) = rig.send(&prompt(1, 4));
    let next_life = Membership { endpoint: Endpoint { id: id(9), ..member(0).endpoint }, standing: Standing::Serving };
    rig.pool.set_endpoints(&[next_life], rig.now);
    let view = rig.pool.snapshot(rig.now);
    let of = |n: usize| view.endpoints.iter().find(|e| e.id == id(n)).unwrap();
    assert_eq!((of(0).in_flight.requests, of(0).state), (1, pool::State::Draining));
    assert_eq!(of(9).in_flight.requests, 0);
    assert_eq!(rig.pool.pass_on(&permit, id(0), &[], rig.now), Err(Gone));
    rig.complete(permit);
    let view = rig.pool.snapshot(rig.now);
    assert_eq!(view.endpoints.len(), 1);
    assert_eq!(view.endpoints[0].in_flight.requests, 0);
    let sent = rig.dispatch(Request { prefix: &prompt(1, 4), prompt_tokens: 256, ..Request::default() }).unwrap();
    assert_eq!(sent.cached_tokens, 0, "and its cache is empty");
}

#[test]
fn being_answered_twice_is_being_answered_once() {
    let mut rig = Rig::idle(1);
    let (_, permit) = rig.send(&prompt(1, 4));
    let in_flight = |rig: &Rig| rig.pool.snapshot(rig.now).endpoints[0].in_flight;
    assert_eq!(in_flight(&rig), InFlight { requests: 1, unanswered: 1, prompt_tokens: 256 });
    for _ in 0..2 {
        rig.pool.answered(&permit, rig.now);
        assert_eq!(in_flight(&rig), InFlight { requests: 1, unanswered: 0, prompt_tokens: 256 });
    }
    for _ in 0..2 {
        rig.pool.prefilled(&permit, rig.now);
        assert_eq!(in_flight(&rig), InFlight { requests: 1, unanswered: 0, prompt_tokens: 0 });
    }
    rig.complete(permit);
    assert_eq!(in_flight(&rig), InFlight::default());
}

#[test]
fn a_permit_of_another_pool_changes_nothing() {
    let (mut rig, mut other) = (Rig::idle(1), Rig::idle(1));
    let (_, first) = other.send(&[]);
    other.complete(first);
    let (_, foreign) = other.send(&[]);
    let (_, _own) = rig.send(&[]);
    rig.complete(foreign);
    assert_eq!(rig.in_flight(), [1]);
}

#[test]
fn settings_change_and_work_stays() {
    let mut rig = Rig::idle(2);
    let prefix = prompt(3, 5);
    let (to, permit) = rig.send(&prefix);
    rig.pool.configure(Settings { weights: Weights { prefix: 9, ..Weights::default() }, ..Settings::default() });
    assert_eq!(rig.in_flight().iter().sum::<u32>(), 1);
    assert_eq!(rig.pool.index_stats().entries, 5);
    rig.pool.configure(Settings { prefix_budget_bytes: 1 << 16, ..Settings::default() });
    assert_eq!((rig.pool.index_stats().entries, rig.pool.index_stats().budget_bytes), (0, 1 << 16));
    rig.answer_and_complete(permit);
    let (again, permit) = rig.send(&prefix);
    assert_eq!(again, to, "the draw for a cold prompt has not changed");
    rig.complete(permit);
    assert_eq!(rig.pool.index_stats().entries, 5);
}

#[test]
fn e06_endpoints_that_come_and_go_leave_nothing() {
    let mut rig = Rig::idle(0);
    for life in 0..200 {
        rig.pool.set_endpoints(&[member(life), member(life + 1)], rig.now);
        rig.report(life, Page::default());
        rig.report(life + 1, Page::default());
        for _ in 0..20 {
            let prefix = rig.new_prompt(8);
            let (_, permit) = rig.send(&prefix);
            rig.answer_and_complete(permit);
        }
    }
    rig.pool.set_endpoints(&[member(999)], rig.now);
    for _ in 0..100 {
        rig.report(999, Page::default());
    }
    assert_eq!(rig.pool.index_stats().entries, 0);
    assert!(rig.pool.endpoints.len() <= 4, "places are used again: {}", rig.pool.endpoints.len());
    assert_eq!(rig.pool.slots.len(), 1);
}

#[test]
fn a_large_pool_has_a_bounded_record_with_the_best_first() {
    let mut rig = Rig::idle(300);
    rig.report(123, Page { waiting: 9.0, ..Page::default() });
    rig.report(250, Page { kv_cache: 0.0, ..Page::default() });
    for number in (0..300).filter(|n| ![123, 250].contains(n)) {
        rig.report(number, Page { kv_cache: 0.3 + number as f64 / 1_000.0, ..Page::default() });
    }
    let prefix = rig.new_prompt(3);
    assert_eq!(rig.hold(&prefix), 250);
    let decision = &rig.decision;
    assert_eq!((decision.candidates.len(), decision.omitted), (CANDIDATES_MAX, 300 - CANDIDATES_MAX));
    assert_eq!(decision.picked.len(), 3);
    assert!(decision.candidates.windows(2).all(|w| w[0].total >= w[1].total));
    let listed: Vec<_> = decision.candidates[..3].iter().map(|c| c.endpoint).collect();
    assert_eq!(decision.picked[..], listed[..]);
}

#[test]
fn a_decision_is_explained() {
    let mut rig = Rig::idle(3);
    rig.report(2, Page { waiting: 7.0, ..Page::default() });
    let prefix = prompt(8, 4);
    let (first, permit) = rig.send(&prefix);
    let text = rig.decision.explain();
    assert!(text.contains("wins the draw") && text.contains("llama-2 (full)"), "{text}");
    rig.answer_and_complete(permit);
    rig.hold(&prefix);
    let text = rig.decision.explain();
    let expected = format!("llama-{first} has the highest score, 7.000 (queue 2.000, kvCache 2.000, prefix 3.000)");
    assert!(text.starts_with(&expected), "{text}");
}
