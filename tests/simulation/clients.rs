//! Clients: who asks when, and for what. All of it is drawn before a run: open-loop clients ask whatever becomes of them.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use bench::world::call::{Call, Draft, ENGINE_BLOCK_TOKENS, mix};
use engine::BlockHash;
use fastrand::Rng;
use pool::Moment;

use crate::scenario::{Class, Length, Phase, Scenario};

/// The calls of a scenario in these phases, in order. `capacities` by class, in the order of their names: requests per
/// second of the fleet.
pub(crate) fn calls(scenario: &Scenario, phases: &[Phase], capacities: &[f64]) -> Vec<Call> {
    let classes = scenario.classes.values().zip(capacities).enumerate().map(|(number, (class, &capacity_per_s))| {
        let salt = mix(scenario.seed, number as u64);
        Client { class, salt, capacity_per_s, rng: Rng::with_seed(salt) }
    });
    let names = scenario.classes.keys().map(String::as_str).collect();
    let mut clients =
        Clients { phases, names, classes: classes.collect(), due: BinaryHeap::new(), serial: 0, calls: Vec::new() };
    let mut begins = Moment::ORIGIN;
    for (number, phase) in phases.iter().enumerate() {
        clients.put(begins, Due::PhaseBegins(number));
        begins = begins + Duration::from_secs_f64(phase.seconds);
    }
    while let Some(Reverse((at, _, due))) = clients.due.pop() {
        match due {
            Due::PhaseBegins(phase) => clients.begin_phase(phase, at),
            Due::Arrives { class, phase } => clients.arrives(class, phase, at),
            Due::Burst { class, requests } => (0..requests).for_each(|_| clients.asks(class, at)),
        }
    }
    clients.calls
}

/// The clients of one class.
struct Client<'a> {
    class: &'a Class,
    salt: u64,
    capacity_per_s: f64,
    rng: Rng,
}

struct Clients<'a> {
    phases: &'a [Phase],
    names: Vec<&'a str>,
    classes: Vec<Client<'a>>,
    due: BinaryHeap<Reverse<(Moment, u64, Due)>>,
    serial: u64,
    calls: Vec<Call>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    PhaseBegins(usize),
    Arrives { class: usize, phase: usize },
    Burst { class: usize, requests: u32 },
}

impl Clients<'_> {
    fn put(&mut self, at: Moment, due: Due) {
        self.serial += 1;
        self.due.push(Reverse((at, self.serial, due)));
    }

    /// New rates hold from now on. Poisson arrivals have no memory: what was drawn for the former phase is void.
    fn begin_phase(&mut self, phase: usize, now: Moment) {
        for class in 0..self.classes.len() {
            self.next_arrival(class, phase, now);
        }
        for burst in &self.phases[phase].bursts {
            let class = self.names.iter().position(|name| *name == burst.class).expect("the scenario was checked");
            let at = now + Duration::from_secs_f64(burst.at_s);
            self.put(at, Due::Burst { class, requests: burst.requests });
        }
    }

    fn arrives(&mut self, class: usize, phase: usize, now: Moment) {
        let begins: f64 = self.phases[..phase].iter().map(|phase| phase.seconds).sum();
        let ends = Moment::ORIGIN + Duration::from_secs_f64(begins + self.phases[phase].seconds);
        if now < ends {
            self.asks(class, now);
            self.next_arrival(class, phase, now);
        }
    }

    fn next_arrival(&mut self, class: usize, phase: usize, now: Moment) {
        let load = self.phases[phase].load.get(self.names[class]).copied().unwrap_or(0.0);
        let client = &mut self.classes[class];
        let rate_per_s = load * client.capacity_per_s;
        if rate_per_s > 0.0 {
            let at = now + Duration::from_secs_f64(-(1.0 - client.rng.f64()).ln() / rate_per_s);
            self.put(at, Due::Arrives { class, phase });
        }
    }

    /// One request comes.
    fn asks(&mut self, class: usize, now: Moment) {
        let client = &mut self.classes[class];
        let draft = draft(client.class, client.salt, self.calls.len() as u64, &mut client.rng);
        let mut in_ms = |length: Option<Length>| {
            length.map(|length| now + Duration::from_millis(length.draw(&mut client.rng).into()))
        };
        let (deadline, leaves) = (in_ms(client.class.slo_ms), in_ms(client.class.patience_ms));
        let flow = mix(client.salt, u64::from(client.rng.u32(0..client.class.flows)));
        self.calls.push(Call {
            at: now,
            class,
            flow,
            priority: client.class.priority,
            draft,
            deadline,
            leaves,
            answers: client.class.answers,
            only: client.class.only,
        });
    }
}

/// The next request of a class. `serial` is its own number: what it does not share is unlike all others.
pub(crate) fn draft(class: &Class, salt: u64, serial: u64, rng: &mut Rng) -> Draft {
    let (shared_tokens, group) = match class.prefixes {
        Some(prefixes) => (prefixes.tokens, rng.u32(0..prefixes.groups.max(1))),
        None => (0, 0),
    };
    let prompt_tokens = class.prompt_tokens.draw(rng).max(shared_tokens + 1);
    let text = mix(salt, u64::from(group));
    let shared = |tokens: u32| (0..tokens / ENGINE_BLOCK_TOKENS).map(|i| BlockHash(mix(text, u64::from(i))));
    let mut chain = salt;
    let prefix = (0..prompt_tokens / dispatch::BLOCK_TOKENS).map(|block| {
        let whole = (block + 1) * dispatch::BLOCK_TOKENS <= shared_tokens;
        chain = mix(chain, if whole { mix(text, u64::from(block)) } else { mix(!serial, u64::from(block)) });
        chain
    });
    Draft {
        prompt_tokens,
        output_tokens: class.output_tokens.draw(rng).max(1),
        prefix: prefix.collect(),
        blocks: shared(shared_tokens).collect(),
        adapter: None,
    }
}
