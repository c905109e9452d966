//! Clients: when they ask, and when they have had enough.

use std::time::Duration;

use pool::Moment;

use super::{Asked, Happening, World};
use crate::{
    ledger::{Outcome, Record},
    prompt::{Draft, gap, mix},
};

impl World<'_> {
    /// New rates hold from now on. Poisson arrivals have no memory: what was drawn for the former phase is void.
    pub(super) fn begin_phase(&mut self, phase: usize) {
        for class in 0..self.classes.len() {
            self.next_arrival(class, phase);
        }
        for burst in &self.course.phases[phase].bursts {
            let class = self.ledger.classes.iter().position(|name| *name == burst.class);
            let class = class.expect("the scenario was checked");
            let at = self.now + Duration::from_secs_f64(burst.at_s);
            self.agenda.put(at, Happening::Burst { class, requests: burst.requests });
        }
    }

    pub(super) fn arrives(&mut self, class: usize, phase: usize) {
        let begins: f64 = self.course.phases[..phase].iter().map(|phase| phase.seconds).sum();
        let ends = Moment::ORIGIN + Duration::from_secs_f64(begins + self.course.phases[phase].seconds);
        if self.now < ends {
            self.asks(class);
            self.next_arrival(class, phase);
        }
    }

    fn next_arrival(&mut self, class: usize, phase: usize) {
        let load = self.course.phases[phase].load.get(&self.ledger.classes[class]).copied().unwrap_or(0.0);
        let client = &mut self.classes[class];
        let rate_per_s = load * client.capacity_per_s;
        if rate_per_s > 0.0 {
            let at = gap(rate_per_s, self.now, &mut client.rng);
            self.agenda.put(at, Happening::Arrives { class, phase });
        }
    }

    /// One request comes.
    pub(super) fn asks(&mut self, class: usize) {
        let request = self.asked.len() as u64;
        let client = &mut self.classes[class];
        let draft = Draft::draw(client.class, client.salt, request, &mut client.rng);
        let mut in_ms = |length: Option<crate::scenario::Length>| {
            length.map(|length| self.now + Duration::from_millis(length.draw(&mut client.rng).into()))
        };
        let (deadline, leaves) = (in_ms(client.class.slo_ms), in_ms(client.class.patience_ms));
        let flow = mix(client.salt, u64::from(client.rng.u32(0..client.class.flows)));
        self.ledger.requests.push(Record {
            class,
            flow,
            prompt_tokens: draft.prompt_tokens,
            output_tokens: draft.output_tokens,
            arrived: self.now,
            deadline,
            placed: None,
            endpoint: None,
            first_token: None,
            ended: None,
            outcome: None,
        });
        self.asked.push(Asked {
            draft,
            only: client.class.only,
            answers: client.class.answers,
            priority: client.class.priority,
            ticket: None,
            permit: None,
            rest: Vec::new(),
            tried: Vec::new(),
            wait_until: None,
            attempt: 0,
            at_server: None,
            untold_tokens: 0,
            told_at: self.now,
        });
        self.open += 1;
        if let Some(at) = leaves {
            self.agenda.put(at, Happening::ClientLeaves(request));
        }
        self.ask(request);
    }

    /// Its patience is over: it goes, unless the answer has begun.
    pub(super) fn client_leaves(&mut self, request: u64) {
        if self.ended(request) || self.record(request).first_token.is_some() {
            return;
        }
        if let Some(ticket) = self.asked[request as usize].ticket.take() {
            self.tickets.remove(&ticket);
            assert!(self.pool.withdraw(ticket), "a request with a ticket waits");
        }
        self.abandon(request);
        self.end(request, Outcome::ClientGone);
    }
}
