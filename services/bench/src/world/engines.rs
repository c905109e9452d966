//! The engines' part: what reaches them, what they say, how they are looked at, and what befalls them.

use std::time::Duration;

use engine::EventKind;
use pool::{EndpointId, Moment, NoPage, Observation};

use super::{
    Answer, Happening, Look, World,
    call::Answers,
    ledger::QueueSample,
    plain::LEARNS_AFTER,
    server::{Member, Page, Process},
    stage::Deed,
};

/// Longest that one look may take, as in `discovery::scrape`.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Tokens of a stream are told to the pool at most this often, and at its end.
const TELL_EVERY: Duration = Duration::from_secs(1);

impl World<'_> {
    pub(super) fn reaches(&mut self, request: u64, server: usize, id: EndpointId) {
        if self.ended(request) {
            return;
        }
        let target = &mut self.servers[server];
        if target.id != id || target.process == Process::Gone {
            let attempt = self.asked[request as usize].attempt;
            let answer = Happening::Answers { request, attempt, answer: Answer::Refused };
            return self.agenda.put(self.now + self.way, answer);
        }
        target.take(request, &self.calls[request as usize].draft, self.now);
        self.plan_step(server);
    }

    pub(super) fn step(&mut self, server: usize, id: EndpointId) {
        let target = &mut self.servers[server];
        if target.id != id || target.step_at != Some(self.now) {
            return;
        }
        for event in target.step(self.now) {
            self.report(server, event.id.0, event.kind, event.at);
        }
        let waiting = self.servers[server].engine.stats().gauges.waiting;
        self.ledger.queues.push(QueueSample { at: self.now, waiting });
        self.plan_step(server);
    }

    fn report(&mut self, server: usize, request: u64, kind: EventKind, at: Moment) {
        let asked = &mut self.asked[request as usize];
        let (attempt, answers) = (asked.attempt, self.calls[request as usize].answers);
        let way = self.way;
        let mut answer = |answer| self.agenda.put(at + way, Happening::Answers { request, attempt, answer });
        if let EventKind::Tokens(tokens) = kind
            && let Some(before) = asked.token_at
        {
            self.ledger.between_tokens_ms.add(at.since(before).as_secs_f64() * 1e3 / f64::from(tokens));
        }
        if matches!(kind, EventKind::FirstToken | EventKind::Tokens(_)) {
            asked.token_at = Some(at);
        }
        match kind {
            EventKind::FirstToken | EventKind::Tokens(_) if answers == Answers::Whole => {}
            EventKind::FirstToken => {
                asked.told_at = at;
                answer(Answer::FirstToken);
            }
            EventKind::Tokens(tokens) => {
                asked.untold_tokens += tokens;
                if at.since(asked.told_at) >= TELL_EVERY {
                    asked.told_at = at;
                    answer(Answer::Tokens(std::mem::take(&mut asked.untold_tokens)));
                }
            }
            EventKind::Finished(_) => {
                if answers == Answers::Whole {
                    answer(Answer::Whole);
                }
                answer(Answer::Tokens(std::mem::take(&mut asked.untold_tokens)));
                answer(Answer::Finished);
                self.servers[server].lets_go(request, at);
            }
            EventKind::Scheduled { cached_tokens } => self.record(request).cached_tokens = Some(cached_tokens),
            EventKind::Preempted => {}
        }
    }

    fn plan_step(&mut self, server: usize) {
        let target = &mut self.servers[server];
        let id = target.id;
        if let Some(at) = target.new_step_at(self.now) {
            self.agenda.put(at, Happening::Step { server, id });
        }
    }

    /// A try is given up; the engine hears of it later.
    pub(super) fn abandon(&mut self, request: u64) {
        if let Some(server) = self.asked[request as usize].at_server.take() {
            let id = self.servers[server].id;
            self.agenda.put(self.now + self.way, Happening::Abandoned { request, server, id });
        }
    }

    pub(super) fn abandoned(&mut self, request: u64, server: usize, id: EndpointId) {
        let target = &mut self.servers[server];
        if target.id == id && target.lets_go(request, self.now) {
            target.engine.abort(engine::RequestId(request), self.now);
        }
    }

    /// Looks begin at this life of an endpoint.
    pub(super) fn watch(&mut self, server: usize) {
        for gateway in 0..self.gateways.len() {
            let target = &mut self.servers[server];
            let (id, at) = (target.id, target.first_look(self.now));
            self.agenda.put(at, Happening::LookBegins { look: Look { gateway, server, id } });
        }
    }

    pub(super) fn look_begins(&mut self, look: Look) {
        let (began, target) = (self.now, &self.servers[look.server]);
        if target.id != look.id || target.member == Member::No {
            return;
        }
        let no_page = |why| Box::new(Observation::NoPage { began, why });
        let way = self.stage.hops.engine;
        let (at, what) = match (target.process, target.page) {
            (Process::Up, Page::Answers) => (way, Happening::LookReads { look, began }),
            (Process::Up, Page::Hangs) => {
                (LOOK_TIMEOUT, Happening::LookEnds { look, began, found: no_page(NoPage::Accepting) })
            }
            (Process::Gone, _) => (way, Happening::LookEnds { look, began, found: no_page(NoPage::Unreachable) }),
        };
        self.agenda.put(began + at, what);
    }

    pub(super) fn look_reads(&mut self, look: Look, began: Moment) {
        if self.servers[look.server].id == look.id {
            let found = Box::new(Observation::Page { began, load: self.servers[look.server].load(began) });
            self.agenda.put(self.now + self.stage.hops.engine, Happening::LookEnds { look, began, found });
        }
    }

    /// Something happens to an endpoint, or to all.
    pub(super) fn change(&mut self, number: usize) {
        let change = self.stage.changes[number];
        for server in 0..self.servers.len() {
            if change.endpoint.is_none_or(|only| only == server) {
                self.befalls(server, change.does);
            }
        }
        self.tell_members();
    }

    fn befalls(&mut self, server: usize, deed: Deed) {
        let target = &mut self.servers[server];
        match deed {
            Deed::Dies => self.dies(server),
            Deed::Returns => target.start(self.now),
            Deed::Drains => target.member = Member::Draining,
            Deed::Leaves => target.member = Member::No,
            Deed::Mutes => target.page = Page::Hangs,
            Deed::Speaks => target.page = Page::Answers,
            Deed::Joins => {
                self.dies(server);
                let target = &mut self.servers[server];
                target.joins(self.ids.next_id());
                target.start(self.now);
                self.watch(server);
            }
        }
        let ready = match deed {
            Deed::Dies | Deed::Drains | Deed::Leaves => false,
            Deed::Returns | Deed::Joins => true,
            Deed::Mutes | Deed::Speaks => return,
        };
        self.agenda.put(self.now + LEARNS_AFTER, Happening::PlainTold { server, ready });
    }

    fn dies(&mut self, server: usize) {
        for request in self.servers[server].die(self.now) {
            let attempt = self.asked[request as usize].attempt;
            let cut = Happening::Answers { request, attempt, answer: Answer::Cut };
            self.agenda.put(self.now + self.way, cut);
        }
    }
}
