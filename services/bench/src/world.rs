//! One pool, its clients and its engines on virtual time.
//!
//! What the gateway does is done by the product: the real `PoolDispatch` gets exactly the calls that the gateway makes,
//! at the moments at which it would make them (after the network's delay, when a look at a page is over, when a wait
//! ends, every 20 ms while someone waits). Everything around it is simulated. Others can route instead of it
//! ([`Router`]): they meet the same calls, the same engines and the same delays, so that the difference is theirs.
//!
//! A run is a function of its stage, its calls and its router.

mod agenda;
pub mod call;
pub mod capacity;
mod engines;
mod gateway;
pub mod knobs;
pub mod ledger;
mod plain;
mod router;
mod server;
pub mod stage;
mod tally;

use std::time::Duration;

use dispatch::{Permit, Ticket};
use fastrand::Rng;
use pool::{EndpointId, EndpointIds, Moment, Observation};

use agenda::Agenda;
use call::Call;
use gateway::Gateway;
use ledger::{End, Ledger, Outcome, Record};
use plain::Plain;
pub use router::Router;
use server::Server;
use stage::Stage;
pub use tally::Tally;

/// Looked on for so long after the last request ended: several looks at each page.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// See the module's text.
pub struct World<'a> {
    stage: &'a Stage,
    calls: &'a [Call],
    servers: Vec<Server>,
    ids: EndpointIds,
    /// None where somebody else routes.
    gateways: Vec<Gateway>,
    plain: Option<Plain>,
    /// From where the routing is done to an engine, one way.
    way: Duration,
    agenda: Agenda<Happening>,
    now: Moment,
    asked: Vec<Asked>,
    open: usize,
    ledger: Ledger,
}

/// One request as whoever routes it holds it.
struct Asked {
    gateway: usize,
    ticket: Option<Ticket>,
    permit: Option<Permit>,
    /// Endpoints still to be tried, best last.
    rest: Vec<EndpointId>,
    tried: Vec<EndpointId>,
    wait_until: Option<Moment>,
    /// Number of the try: answers to an earlier one are nobody's.
    attempt: u32,
    at_server: Option<usize>,
    /// Tokens that the gateway has not been told of.
    untold_tokens: u32,
    told_at: Moment,
    /// When the engine made the last token.
    token_at: Option<Moment>,
}

enum Happening {
    Arrives(usize),
    ClientLeaves(u64),
    WaitEnds { request: u64, ticket: Ticket },
    Pump { gateway: usize },
    Reaches { request: u64, server: usize, id: EndpointId },
    Answers { request: u64, attempt: u32, answer: Answer },
    Abandoned { request: u64, server: usize, id: EndpointId },
    Step { server: usize, id: EndpointId },
    LookBegins { look: Look },
    LookReads { look: Look, began: Moment },
    LookEnds { look: Look, began: Moment, found: Box<Observation> },
    PlainTold { server: usize, ready: bool },
    Changes(usize),
}

/// Whose looks at which endpoint.
#[derive(Clone, Copy)]
struct Look {
    gateway: usize,
    server: usize,
    id: EndpointId,
}

/// What comes back.
#[derive(Clone, Copy)]
enum Answer {
    /// No connection.
    Refused,
    FirstToken,
    /// All of it, where nothing was seen of it before.
    Whole,
    Tokens(u32),
    Finished,
    Cut,
}

impl<'a> World<'a> {
    /// `calls` in the order in which they come.
    pub fn new(stage: &'a Stage, calls: &'a [Call], router: &Router) -> Self {
        let mut ids = EndpointIds::default();
        let gateways: Vec<Gateway> = match router {
            Router::Product { settings, gateways } => {
                (0..*gateways).map(|_| Gateway::new((**settings).clone())).collect()
            }
            Router::Random
            | Router::RoundRobin
            | Router::LeastRequest
            | Router::RandomOfTwo
            | Router::Clairvoyant
            | Router::Schedule(_) => Vec::new(),
        };
        let servers: Vec<Server> =
            (0..stage.fleet.len()).map(|number| Server::new(number, stage, gateways.len(), &mut ids)).collect();
        let way = if gateways.is_empty() { stage.hops.engine } else { stage.hops.engine + stage.hops.gateway };
        Self {
            plain: Plain::new(router, servers.len(), Rng::with_seed(call::mix(stage.seed, 0x0070_1a1e))),
            servers,
            ids,
            gateways,
            way,
            agenda: Agenda::default(),
            now: Moment::ORIGIN,
            asked: Vec::with_capacity(calls.len()),
            open: 0,
            ledger: Ledger::new(stage.classes.clone(), stage.fleet.len(), calls.len()),
            stage,
            calls,
        }
    }

    /// Lets everything happen.
    pub fn run(mut self) -> Ledger {
        self.begin();
        let mut quiet_since = Moment::ORIGIN + self.stage.length;
        let latest = quiet_since + self.stage.patience;
        while let Some((at, what)) = self.agenda.take() {
            if at > latest || (self.open == 0 && at > quiet_since + AFTERWARDS) {
                break;
            }
            self.now = at;
            self.happens(what);
            if self.open > 0 {
                quiet_since = quiet_since.max(at);
            }
        }
        self.finish()
    }

    fn begin(&mut self) {
        self.tell_members();
        for server in 0..self.servers.len() {
            self.watch(server);
        }
        for (number, change) in self.stage.changes.iter().enumerate() {
            let at = Moment::ORIGIN + Duration::from_secs_f64(change.at_s);
            self.agenda.put(at, Happening::Changes(number));
        }
        self.expect_call(0);
    }

    fn finish(mut self) -> Ledger {
        for (server, idle) in self.servers.iter().zip(&mut self.ledger.idle) {
            *idle = server.idle();
        }
        let views = self.gateways.iter().map(|gateway| gateway.pool.snapshot(self.now));
        for view in views {
            let End { in_flight, waiting, saturation } = &mut self.ledger.end;
            *in_flight += view.endpoints.iter().map(|endpoint| endpoint.in_flight.requests).sum::<u32>();
            *waiting += view.waiting.iter().sum::<u32>();
            *saturation = saturation.max(view.saturation);
        }
        self.ledger
    }

    fn happens(&mut self, what: Happening) {
        match what {
            Happening::Arrives(number) => self.arrives(number),
            Happening::ClientLeaves(request) => self.client_leaves(request),
            Happening::WaitEnds { request, ticket } => self.wait_ends(request, ticket),
            Happening::Pump { gateway } => self.pump(gateway),
            Happening::Reaches { request, server, id } => self.reaches(request, server, id),
            Happening::Answers { request, attempt, answer } => self.answers(request, attempt, answer),
            Happening::Abandoned { request, server, id } => self.abandoned(request, server, id),
            Happening::Step { server, id } => self.step(server, id),
            Happening::LookBegins { look } => self.look_begins(look),
            Happening::LookReads { look, began } => self.look_reads(look, began),
            Happening::LookEnds { look, began, found } => self.look_ends(look, began, *found),
            Happening::PlainTold { server, ready } => self.plain_told(server, ready),
            Happening::Changes(number) => self.change(number),
        }
    }

    /// The next call is on its way.
    fn expect_call(&mut self, number: usize) {
        if let Some(call) = self.calls.get(number) {
            self.agenda.put(call.at + self.stage.hops.front, Happening::Arrives(number));
        }
    }

    /// One request comes.
    fn arrives(&mut self, number: usize) {
        self.expect_call(number + 1);
        let (request, call) = (number as u64, &self.calls[number]);
        self.ledger.requests.push(Record::of(call));
        self.asked.push(Asked {
            gateway: number % self.gateways.len().max(1),
            ticket: None,
            permit: None,
            rest: Vec::new(),
            tried: Vec::new(),
            wait_until: None,
            attempt: 0,
            at_server: None,
            untold_tokens: 0,
            told_at: self.now,
            token_at: None,
        });
        self.open += 1;
        if let Some(at) = call.leaves {
            self.agenda.put(at, Happening::ClientLeaves(request));
        }
        if self.plain.is_some() { self.route_plainly(request) } else { self.ask(request) }
    }

    /// Its patience is over: it goes, unless the answer has begun.
    fn client_leaves(&mut self, request: u64) {
        if self.ended(request) || self.record(request).first_token.is_some() {
            return;
        }
        self.withdraw(request);
        self.abandon(request);
        self.end(request, Outcome::ClientGone);
    }

    /// Something of an answer came.
    fn answers(&mut self, request: u64, attempt: u32, answer: Answer) {
        if self.asked[request as usize].attempt != attempt || self.ended(request) {
            return;
        }
        let seen = self.now + self.stage.hops.front;
        match answer {
            Answer::FirstToken | Answer::Whole => self.record(request).first_token = Some(seen),
            Answer::Finished | Answer::Cut | Answer::Refused | Answer::Tokens(_) => {}
        }
        if self.plain.is_some() {
            match answer {
                Answer::FirstToken | Answer::Whole | Answer::Tokens(_) => {}
                Answer::Finished => self.end(request, Outcome::Served),
                Answer::Cut | Answer::Refused => self.end(request, Outcome::Broke),
            }
        } else {
            self.tell_gateway(request, answer);
        }
    }

    /// The request is over. Its place comes free.
    fn end(&mut self, request: u64, outcome: Outcome) {
        self.give_back(request);
        let seen = self.now + self.stage.hops.front;
        let record = self.record(request);
        assert!(record.outcome.is_none(), "a request ends once");
        (record.ended, record.outcome) = (Some(seen), Some(outcome));
        self.open -= 1;
        if let Some(plain) = &mut self.plain {
            plain.ended(self.ledger.requests[request as usize].endpoint);
        } else {
            self.release(self.asked[request as usize].gateway);
        }
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
        self.agenda.put(now + self.way_there(), Happening::Reaches { request, server, id });
    }

    fn record(&mut self, request: u64) -> &mut Record {
        &mut self.ledger.requests[request as usize]
    }

    fn ended(&self, request: u64) -> bool {
        self.ledger.requests[request as usize].outcome.is_some()
    }

    /// The server that has this id now.
    fn server_of(&self, id: EndpointId) -> Option<usize> {
        self.servers.iter().position(|server| server.id == id)
    }
}
