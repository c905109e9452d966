//! The engines' part: what reaches them, what they say, how they are looked at, and what befalls them.

use std::time::Duration;

use engine::EventKind;
use pool::{EndpointId, Moment, NoPage, Observation};

use super::{Answer, Happening, NETWORK, World};
use crate::{
    ledger::QueueSample,
    scenario::{Answers, Deed},
    server::{Member, Page, Process},
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
        let asked = &self.asked[request as usize];
        if target.id != id || target.process == Process::Gone {
            let answer = Happening::Answers { request, attempt: asked.attempt, answer: Answer::Refused };
            return self.agenda.put(self.now + NETWORK, answer);
        }
        target.holds.insert(request);
        let submitted = target.engine.submit(asked.draft.for_engine(request), self.now);
        submitted.expect("a scenario's lengths fit its engines");
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
        let (attempt, answers) = (asked.attempt, asked.answers);
        let mut answer = |answer| self.agenda.put(at + NETWORK, Happening::Answers { request, attempt, answer });
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
                self.servers[server].holds.remove(&request);
            }
            EventKind::Scheduled { .. } | EventKind::Preempted => {}
        }
    }

    fn plan_step(&mut self, server: usize) {
        let target = &mut self.servers[server];
        let id = target.id;
        if let Some(at) = target.new_step_at(self.now) {
            self.agenda.put(at, Happening::Step { server, id });
        }
    }

    /// The gateway gives a try up; the engine hears of it later.
    pub(super) fn abandon(&mut self, request: u64) {
        if let Some(server) = self.asked[request as usize].at_server.take() {
            let id = self.servers[server].id;
            self.agenda.put(self.now + NETWORK, Happening::Abandoned { request, server, id });
        }
    }

    pub(super) fn abandoned(&mut self, request: u64, server: usize, id: EndpointId) {
        let target = &mut self.servers[server];
        if target.id == id && target.holds.remove(&request) {
            target.engine.abort(engine::RequestId(request), self.now);
        }
    }

    /// Looks begin at this life of an endpoint.
    pub(super) fn watch(&mut self, server: usize) {
        let target = &mut self.servers[server];
        let (id, at) = (target.id, target.first_look(self.now));
        self.agenda.put(at, Happening::LookBegins { server, id });
    }

    pub(super) fn look_begins(&mut self, server: usize, id: EndpointId) {
        let (began, target) = (self.now, &self.servers[server]);
        if target.id != id || target.member == Member::No {
            return;
        }
        let no_page = |why| Box::new(Observation::NoPage { began, why });
        let (at, what) = match (target.process, target.page) {
            (Process::Up, Page::Answers) => (NETWORK, Happening::LookReads { server, id, began }),
            (Process::Up, Page::Hangs) => {
                (LOOK_TIMEOUT, Happening::LookEnds { server, id, began, found: no_page(NoPage::Accepting) })
            }
            (Process::Gone, _) => {
                (NETWORK, Happening::LookEnds { server, id, began, found: no_page(NoPage::Unreachable) })
            }
        };
        self.agenda.put(began + at, what);
    }

    pub(super) fn look_reads(&mut self, server: usize, id: EndpointId, began: Moment) {
        if self.servers[server].id == id {
            let found = Box::new(Observation::Page { began, load: self.servers[server].load(began) });
            self.agenda.put(self.now + NETWORK, Happening::LookEnds { server, id, began, found });
        }
    }

    /// Something happens to an endpoint, or to all.
    pub(super) fn change(&mut self, number: usize) {
        let change = self.scenario.changes[number];
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
                target.id = self.ids.next_id();
                (target.member, target.failures) = (Member::Serving, 0);
                target.start(self.now);
                self.watch(server);
            }
        }
    }

    fn dies(&mut self, server: usize) {
        for request in self.servers[server].die() {
            let cut =
                Happening::Answers { request, attempt: self.asked[request as usize].attempt, answer: Answer::Cut };
            self.agenda.put(self.now + NETWORK, cut);
        }
    }
}
