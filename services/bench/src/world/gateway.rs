//! The gateway's part: the calls it makes to its `PoolDispatch`, and what it does with the answers.

use std::{collections::BTreeMap, time::Duration};

use dispatch::{
    Admitted, Ask, Decision, Dispatched, Failure, FlightId, Flow, Freed, More, PoolDispatch, Refusal, Request,
    Settings, Ticket, Verdict,
};
use pool::{Moment, Observation};

use super::{Answer, Asked, Happening, Look, World, call::mix, ledger::Outcome};

/// How often the gateway looks for room that time alone has made, while someone waits.
const PUMP: Duration = Duration::from_millis(20);

/// One gateway process, as far as it concerns one pool.
pub(super) struct Gateway {
    pub(super) pool: PoolDispatch,
    settings: Settings,
    tickets: BTreeMap<Ticket, u64>,
    flights: BTreeMap<FlightId, u64>,
    decision: Decision,
    freed: Vec<Freed>,
    pumping: bool,
}

impl Gateway {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            pool: PoolDispatch::new(settings.clone()),
            settings,
            tickets: BTreeMap::new(),
            flights: BTreeMap::new(),
            decision: Decision::default(),
            freed: Vec::new(),
            pumping: false,
        }
    }
}

impl World<'_> {
    /// A request asks for a place: when it comes, and again when every endpoint of its list refused the connection.
    pub(super) fn ask(&mut self, request: u64) {
        let (asked, call) = (&mut self.asked[request as usize], &self.calls[request as usize]);
        let (at, gateway) = (asked.gateway, &mut self.gateways[asked.gateway]);
        let adapter = call.draft.adapter.map(adapter_name);
        let view = Request {
            prefix: &call.draft.prefix,
            prompt_tokens: call.draft.prompt_tokens,
            adapter: adapter.as_deref(),
            tie: mix(self.stage.seed, request),
            exclude: &asked.tried,
            only: call.only.map(|number| self.servers[number].id),
        };
        let ask = Ask {
            priority: call.priority,
            flow: Flow(call.flow),
            bytes: u64::from(call.draft.prompt_tokens) * 4,
            deadline: call.deadline,
            wait_until: asked.wait_until,
        };
        let wait_max = gateway.settings.flow.band(ask.band()).max_wait;
        let admitted = gateway.pool.admit(&view, &ask, self.now, &mut gateway.decision, &mut gateway.freed);
        asked.wait_until.get_or_insert(self.now + wait_max);
        match admitted {
            Admitted::Placed(dispatched) => self.place(request, dispatched),
            Admitted::Waiting(waiting) => {
                asked.ticket = Some(waiting.ticket);
                gateway.tickets.insert(waiting.ticket, request);
                self.agenda.put(waiting.expires_at, Happening::WaitEnds { request, ticket: waiting.ticket });
            }
            Admitted::Refused(refusal) => self.end(request, outcome(refusal)),
        }
        self.hand_out(at);
        self.release(at);
    }

    /// Something changed that may have made room.
    pub(super) fn release(&mut self, at: usize) {
        while self.gateways[at].pool.has_waiting() {
            let gateway = &mut self.gateways[at];
            let more = gateway.pool.release(self.now, &mut gateway.freed);
            self.hand_out(at);
            if more == More::No {
                break;
            }
        }
        let gateway = &mut self.gateways[at];
        if gateway.pool.has_waiting() && !gateway.pumping {
            gateway.pumping = true;
            self.agenda.put(self.now + PUMP, Happening::Pump { gateway: at });
        }
    }

    pub(super) fn pump(&mut self, at: usize) {
        self.gateways[at].pumping = false;
        self.release(at);
    }

    /// Tells each request whose fate the pool has decided.
    fn hand_out(&mut self, at: usize) {
        for freed in std::mem::take(&mut self.gateways[at].freed) {
            match freed {
                Freed::Placed { ticket, dispatched, .. } => {
                    let request = self.waited(at, ticket);
                    self.place(request, dispatched);
                }
                Freed::Refused { ticket, refusal } => {
                    let request = self.waited(at, ticket);
                    self.end(request, outcome(refusal));
                }
                Freed::Evict { flight } => {
                    if let Some(&request) = self.gateways[at].flights.get(&flight)
                        && self.record(request).first_token.is_none()
                    {
                        self.abandon(request);
                        self.end(request, Outcome::Evicted);
                    }
                }
            }
        }
    }

    /// The request with this ticket, which it has no more.
    fn waited(&mut self, at: usize, ticket: Ticket) -> u64 {
        let request = self.gateways[at].tickets.remove(&ticket).expect("whose fate is told has waited");
        self.asked[request as usize].ticket = None;
        request
    }

    pub(super) fn wait_ends(&mut self, request: u64, ticket: Ticket) {
        let Asked { ticket: held, gateway: at, .. } = self.asked[request as usize];
        if held != Some(ticket) {
            return;
        }
        let refusal = self.gateways[at].pool.expire(ticket, self.now).expect("a request with a ticket waits");
        self.waited(at, ticket);
        self.end(request, outcome(refusal));
    }

    /// Its client has left: it waits no longer, if it did.
    pub(super) fn withdraw(&mut self, request: u64) {
        let asked = &mut self.asked[request as usize];
        if let Some(ticket) = asked.ticket.take() {
            let gateway = &mut self.gateways[asked.gateway];
            gateway.tickets.remove(&ticket);
            assert!(gateway.pool.withdraw(ticket), "a request with a ticket waits");
        }
    }

    /// A place was given: the request goes to the first of its list.
    fn place(&mut self, request: u64, dispatched: Dispatched) {
        let asked = &mut self.asked[request as usize];
        asked.rest = dispatched.ranked.iter().rev().copied().collect();
        self.gateways[asked.gateway].flights.insert(dispatched.permit.id(), request);
        asked.permit = Some(dispatched.permit);
        let first = asked.rest.pop().expect("a ranked list has a first");
        self.send(request, first);
    }

    /// Something of an answer came.
    pub(super) fn tell_gateway(&mut self, request: u64, answer: Answer) {
        let now = self.now;
        let asked = &self.asked[request as usize];
        let at = asked.gateway;
        let (Some(permit), pool) = (&asked.permit, &mut self.gateways[at].pool) else { return };
        if let Some(verdict) = answer.verdict() {
            pool.report(permit, verdict, now);
        }
        match answer {
            Answer::FirstToken => {
                pool.answered(permit, now);
                pool.prefilled(permit, now);
                pool.generated(permit, 1, now);
            }
            Answer::Whole => pool.answered(permit, now),
            Answer::Tokens(tokens) => pool.generated(permit, tokens, now),
            Answer::Finished => self.end(request, Outcome::Served),
            Answer::Cut => self.end(request, Outcome::Broke),
            Answer::Refused => self.try_next(request),
        }
        self.release(at);
    }

    /// Connect failed: the next on the list, then whatever else there is.
    fn try_next(&mut self, request: u64) {
        while let Some(next) = self.asked[request as usize].rest.pop() {
            let asked = &self.asked[request as usize];
            let pool = &mut self.gateways[asked.gateway].pool;
            let permit = asked.permit.as_ref().expect("it was being tried");
            let prefix = &self.calls[request as usize].draft.prefix;
            if pool.has_room(next, self.now) && pool.pass_on(permit, next, prefix, self.now).is_ok() {
                return self.send(request, next);
            }
        }
        self.give_back(request);
        self.ask(request);
    }

    pub(super) fn give_back(&mut self, request: u64) {
        let asked = &mut self.asked[request as usize];
        if let Some(permit) = asked.permit.take() {
            let gateway = &mut self.gateways[asked.gateway];
            gateway.flights.remove(&permit.id());
            gateway.pool.complete(permit, self.now);
        }
    }

    /// A look at a page is over.
    pub(super) fn look_ends(&mut self, look: Look, began: Moment, found: Observation) {
        if self.servers[look.server].id != look.id {
            return;
        }
        let failed = matches!(found, Observation::NoPage { .. });
        self.gateways[look.gateway].pool.observe(look.id, found, self.now);
        self.release(look.gateway);
        let next = self.servers[look.server].next_look(look.gateway, began, failed).max(self.now);
        self.agenda.put(next, Happening::LookBegins { look });
    }

    /// The configuration names these endpoints.
    pub(super) fn tell_members(&mut self) {
        let members: Vec<_> = self.servers.iter().filter_map(|server| server.membership()).collect();
        for at in 0..self.gateways.len() {
            self.gateways[at].pool.set_endpoints(&members, self.now);
            self.release(at);
        }
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

/// As engines and gateway call an adapter.
pub(super) fn adapter_name(adapter: u32) -> String {
    format!("adapter-{adapter}")
}

fn outcome(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::NoEndpoint => Outcome::NoEndpoint,
        Refusal::Full(_) => Outcome::QueueFull,
        Refusal::Shed => Outcome::Shed,
        Refusal::Expired => Outcome::Expired,
    }
}
