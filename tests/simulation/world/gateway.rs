//! The gateway's part: the calls it makes to its `PoolDispatch`, and what it does with the answers.

use std::time::Duration;

use dispatch::{Admitted, Ask, Dispatched, Failure, Flow, Freed, More, Refusal, Request, Ticket, Verdict};
use pool::{EndpointId, Moment, Observation};

use super::{Answer, Happening, NETWORK, World};
use crate::{ledger::Outcome, prompt::mix};

/// How often the gateway looks for room that time alone has made, while someone waits.
const PUMP: Duration = Duration::from_millis(20);

impl World<'_> {
    /// A request asks for a place: when it comes, and again when every endpoint of its list refused the connection.
    pub(super) fn ask(&mut self, request: u64) {
        let (asked, record) = (&self.asked[request as usize], &self.ledger.requests[request as usize]);
        let view = Request {
            prefix: &asked.draft.prefix,
            prompt_tokens: asked.draft.prompt_tokens,
            adapter: None,
            tie: mix(self.scenario.seed, request),
            exclude: &asked.tried,
            only: asked.only.map(|number| self.servers[number].id),
        };
        let ask = Ask {
            priority: asked.priority,
            flow: Flow(record.flow),
            bytes: u64::from(asked.draft.prompt_tokens) * 4,
            deadline: record.deadline,
            wait_until: asked.wait_until,
        };
        let wait_max = self.course.settings.flow.band(ask.band()).max_wait;
        let admitted = self.pool.admit(&view, &ask, self.now, &mut self.decision, &mut self.freed);
        let asked = &mut self.asked[request as usize];
        asked.wait_until.get_or_insert(self.now + wait_max);
        match admitted {
            Admitted::Placed(dispatched) => self.place(request, dispatched),
            Admitted::Waiting(waiting) => {
                asked.ticket = Some(waiting.ticket);
                self.tickets.insert(waiting.ticket, request);
                self.agenda.put(waiting.expires_at, Happening::WaitEnds { request, ticket: waiting.ticket });
            }
            Admitted::Refused(refusal) => self.end(request, outcome(refusal)),
        }
        self.hand_out();
        self.release();
    }

    /// Something changed that may have made room.
    pub(super) fn release(&mut self) {
        while self.pool.has_waiting() {
            let more = self.pool.release(self.now, &mut self.freed);
            self.hand_out();
            if more == More::No {
                break;
            }
        }
        if self.pool.has_waiting() && !self.pumping {
            self.pumping = true;
            self.agenda.put(self.now + PUMP, Happening::Pump);
        }
    }

    pub(super) fn pump(&mut self) {
        self.pumping = false;
        self.release();
    }

    /// Tells each request whose fate the pool has decided.
    fn hand_out(&mut self) {
        for freed in std::mem::take(&mut self.freed) {
            match freed {
                Freed::Placed { ticket, dispatched, .. } => {
                    let request = self.tickets.remove(&ticket).expect("who is placed has waited");
                    self.asked[request as usize].ticket = None;
                    self.place(request, dispatched);
                }
                Freed::Refused { ticket, refusal } => {
                    let request = self.tickets.remove(&ticket).expect("who is refused has waited");
                    self.asked[request as usize].ticket = None;
                    self.end(request, outcome(refusal));
                }
                Freed::Evict { flight } => {
                    if let Some(&request) = self.flights.get(&flight)
                        && self.record(request).first_token.is_none()
                    {
                        self.abandon(request);
                        self.end(request, Outcome::Evicted);
                    }
                }
            }
        }
    }

    pub(super) fn wait_ends(&mut self, request: u64, ticket: Ticket) {
        if self.asked[request as usize].ticket != Some(ticket) {
            return;
        }
        let refusal = self.pool.expire(ticket, self.now).expect("a request with a ticket waits");
        self.asked[request as usize].ticket = None;
        self.tickets.remove(&ticket);
        self.end(request, outcome(refusal));
    }

    /// A place was given: the request goes to the first of its list.
    fn place(&mut self, request: u64, dispatched: Dispatched) {
        let asked = &mut self.asked[request as usize];
        asked.rest = dispatched.ranked.iter().rev().copied().collect();
        self.flights.insert(dispatched.permit.id(), request);
        asked.permit = Some(dispatched.permit);
        let first = asked.rest.pop().expect("a ranked list has a first");
        self.send(request, first);
    }

    fn send(&mut self, request: u64, id: EndpointId) {
        let now = self.now;
        let server = self.server_of(id).expect("only endpoints of now are picked");
        let record = self.record(request);
        (record.placed, record.endpoint) = (Some(now), Some(server));
        let asked = &mut self.asked[request as usize];
        asked.tried.push(id);
        asked.attempt += 1;
        asked.at_server = Some(server);
        self.agenda.put(now + NETWORK, Happening::Reaches { request, server, id });
    }

    /// Something of an answer came.
    pub(super) fn answers(&mut self, request: u64, attempt: u32, answer: Answer) {
        let now = self.now;
        let asked = &mut self.asked[request as usize];
        let (Some(permit), true) = (&asked.permit, asked.attempt == attempt) else { return };
        if let Some(verdict) = answer.verdict() {
            self.pool.report(permit, verdict, now);
        }
        match answer {
            Answer::FirstToken => {
                self.pool.answered(permit, now);
                self.pool.prefilled(permit, now);
                self.pool.generated(permit, 1, now);
                self.record(request).first_token = Some(now);
            }
            Answer::Whole => {
                self.pool.answered(permit, now);
                self.record(request).first_token = Some(now);
            }
            Answer::Tokens(tokens) => self.pool.generated(permit, tokens, now),
            Answer::Finished => self.end(request, Outcome::Served),
            Answer::Cut => self.end(request, Outcome::Broke),
            Answer::Refused => self.try_next(request),
        }
        self.release();
    }

    /// Connect failed: the next on the list, then whatever else there is.
    fn try_next(&mut self, request: u64) {
        while let Some(next) = self.asked[request as usize].rest.pop() {
            let asked = &self.asked[request as usize];
            let permit = asked.permit.as_ref().expect("it was being tried");
            if self.pool.has_room(next, self.now)
                && self.pool.pass_on(permit, next, &asked.draft.prefix, self.now).is_ok()
            {
                return self.send(request, next);
            }
        }
        self.give_back(request);
        self.ask(request);
    }

    /// The request is over. Its place comes free.
    pub(super) fn end(&mut self, request: u64, outcome: Outcome) {
        self.give_back(request);
        let now = self.now;
        let record = self.record(request);
        assert!(record.outcome.is_none(), "a request ends once");
        (record.ended, record.outcome) = (Some(now), Some(outcome));
        self.open -= 1;
        self.release();
    }

    fn give_back(&mut self, request: u64) {
        if let Some(permit) = self.asked[request as usize].permit.take() {
            self.flights.remove(&permit.id());
            self.pool.complete(permit, self.now);
        }
    }

    /// A look at a page is over.
    pub(super) fn look_ends(&mut self, server: usize, id: EndpointId, began: Moment, found: Observation) {
        if self.servers[server].id != id {
            return;
        }
        let failed = matches!(found, Observation::NoPage { .. });
        self.pool.observe(id, found, self.now);
        self.release();
        let watched = &mut self.servers[server];
        watched.failures = if failed { watched.failures + 1 } else { 0 };
        let next = watched.next_look(began).max(self.now);
        self.agenda.put(next, Happening::LookBegins { server, id });
    }

    /// The configuration names these endpoints.
    pub(super) fn tell_members(&mut self) {
        let members: Vec<_> = self.servers.iter().filter_map(|server| server.membership()).collect();
        self.pool.set_endpoints(&members, self.now);
        self.release();
    }
}

impl Answer {
    /// What it says of the endpoint.
    fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Refused => Some(Verdict::Failure(Failure::Connect)),
            Self::FirstToken | Self::Whole => Some(Verdict::Begun),
            Self::Tokens(_) => None,
            Self::Finished => Some(Verdict::Success),
            Self::Cut => Some(Verdict::Failure(Failure::Broke)),
        }
    }
}

fn outcome(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::NoEndpoint => Outcome::NoEndpoint,
        Refusal::Full(_) => Outcome::QueueFull,
        Refusal::Shed => Outcome::Shed,
        Refusal::Expired => Outcome::Expired,
    }
}
