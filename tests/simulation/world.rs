//! One gateway pool, its clients and its engines on virtual time.
//!
//! What the gateway does is done by the product: the real `PoolDispatch` gets exactly the calls that the gateway makes,
//! at the moments at which it would make them (after the network's delay, when a look at a page is over, when a wait
//! ends, every 20 ms while someone waits). Everything around it is simulated. A run is a function of its scenario.

mod clients;
mod fleet;
mod gateway;

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use dispatch::{Decision, FlightId, Freed, Permit, PoolDispatch, Settings, Ticket};
use fastrand::Rng;
use pool::{EndpointId, EndpointIds, Moment, Observation};

use crate::{
    agenda::Agenda,
    capacity,
    ledger::{End, Ledger, Record},
    prompt::{Draft, mix},
    scenario::{Answers, Class, Phase, Scenario},
    server::Server,
};

/// One way between gateway and engine.
const NETWORK: Duration = Duration::from_micros(300);
/// What is not over so long after the last arrival never will be.
const PATIENCE: Duration = Duration::from_secs(180);
/// Looked on for so long after the last request ended: several looks at each page.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// Load that is not the scenario's own: what it is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) settings: Settings,
    pub(crate) phases: Vec<Phase>,
    pub(crate) with_changes: bool,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    course: Course,
    classes: Vec<Client<'a>>,
    servers: Vec<Server>,
    ids: EndpointIds,
    pool: PoolDispatch,
    agenda: Agenda<Happening>,
    now: Moment,
    asked: Vec<Asked>,
    open: usize,
    tickets: BTreeMap<Ticket, u64>,
    flights: BTreeMap<FlightId, u64>,
    decision: Decision,
    freed: Vec<Freed>,
    pumping: bool,
    ledger: Ledger,
}

/// The clients of one class.
struct Client<'a> {
    class: &'a Class,
    salt: u64,
    /// Requests per second that are its whole fleet's capacity.
    capacity_per_s: f64,
    rng: Rng,
}

/// One request as the gateway holds it.
struct Asked {
    draft: Draft,
    only: Option<usize>,
    answers: Answers,
    priority: i32,
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
}

enum Happening {
    PhaseBegins(usize),
    Arrives { class: usize, phase: usize },
    Burst { class: usize, requests: u32 },
    ClientLeaves(u64),
    WaitEnds { request: u64, ticket: Ticket },
    Pump,
    Reaches { request: u64, server: usize, id: EndpointId },
    Answers { request: u64, attempt: u32, answer: Answer },
    Abandoned { request: u64, server: usize, id: EndpointId },
    Step { server: usize, id: EndpointId },
    LookBegins { server: usize, id: EndpointId },
    LookReads { server: usize, id: EndpointId, began: Moment },
    LookEnds { server: usize, id: EndpointId, began: Moment, found: Box<Observation> },
    Changes(usize),
}

/// What comes back to the gateway.
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
    /// `capacities` by class, in the order of their names: requests per second of the fleet.
    pub(crate) fn new(scenario: &'a Scenario, course: Course, capacities: &[f64]) -> Result<Self> {
        let mut ids = EndpointIds::default();
        let mut servers = Vec::new();
        for machines in &scenario.fleet {
            for _ in 0..machines.count {
                servers.push(Server::new(servers.len(), capacity::profile(machines)?, scenario.seed, &mut ids));
            }
        }
        let classes =
            scenario.classes.values().zip(capacities).enumerate().map(|(number, (class, &capacity_per_s))| {
                let salt = mix(scenario.seed, number as u64);
                Client { class, salt, capacity_per_s, rng: Rng::with_seed(salt) }
            });
        Ok(Self {
            classes: classes.collect(),
            servers,
            ids,
            pool: PoolDispatch::new(course.settings.clone()),
            agenda: Agenda::default(),
            now: Moment::ORIGIN,
            asked: Vec::new(),
            open: 0,
            tickets: BTreeMap::new(),
            flights: BTreeMap::new(),
            decision: Decision::default(),
            freed: Vec::new(),
            pumping: false,
            ledger: Ledger { classes: scenario.classes.keys().cloned().collect(), ..Ledger::default() },
            scenario,
            course,
        })
    }

    /// Lets everything happen.
    pub(crate) fn run(mut self) -> Ledger {
        self.begin();
        let length = Duration::from_secs_f64(self.course.phases.iter().map(|phase| phase.seconds).sum());
        let mut quiet_since = Moment::ORIGIN + length;
        let latest = quiet_since + PATIENCE;
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
        let view = self.pool.snapshot(self.now);
        self.ledger.end = End {
            in_flight: view.endpoints.iter().map(|endpoint| endpoint.in_flight.requests).sum(),
            waiting: view.waiting.iter().sum(),
            saturation: view.saturation,
        };
        self.ledger
    }

    fn begin(&mut self) {
        self.tell_members();
        for server in 0..self.servers.len() {
            self.watch(server);
        }
        let mut begins = Moment::ORIGIN;
        for (number, phase) in self.course.phases.iter().enumerate() {
            self.agenda.put(begins, Happening::PhaseBegins(number));
            begins = begins + Duration::from_secs_f64(phase.seconds);
        }
        if self.course.with_changes {
            for (number, change) in self.scenario.changes.iter().enumerate() {
                let at = Moment::ORIGIN + Duration::from_secs_f64(change.at_s);
                self.agenda.put(at, Happening::Changes(number));
            }
        }
    }

    fn happens(&mut self, what: Happening) {
        match what {
            Happening::PhaseBegins(phase) => self.begin_phase(phase),
            Happening::Arrives { class, phase } => self.arrives(class, phase),
            Happening::Burst { class, requests } => (0..requests).for_each(|_| self.asks(class)),
            Happening::ClientLeaves(request) => self.client_leaves(request),
            Happening::WaitEnds { request, ticket } => self.wait_ends(request, ticket),
            Happening::Pump => self.pump(),
            Happening::Reaches { request, server, id } => self.reaches(request, server, id),
            Happening::Answers { request, attempt, answer } => self.answers(request, attempt, answer),
            Happening::Abandoned { request, server, id } => self.abandoned(request, server, id),
            Happening::Step { server, id } => self.step(server, id),
            Happening::LookBegins { server, id } => self.look_begins(server, id),
            Happening::LookReads { server, id, began } => self.look_reads(server, id, began),
            Happening::LookEnds { server, id, began, found } => self.look_ends(server, id, began, *found),
            Happening::Changes(number) => self.change(number),
        }
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
