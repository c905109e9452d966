//! One life of one endpoint: its standing, its last report, and our own work there.

use std::time::Duration;

use pool::{Adapters, Endpoint, Load, Moment, NoPage, Observation, Signal, State};
use scheduling::{EndpointLatency, Features, Lane, PoolLatency, Prediction, Tier, name_hash};

use crate::{
    HasPage, Seen, Standing,
    adapters::AdapterHistory,
    ended::Ended,
    flights::{Flight, Flights, Line},
    health::{Health, Judged},
    horizon::Horizon,
    prefill_line::PrefillLine,
    prefill_speed::PrefillSpeed,
    work::{OwnWork, Stage},
};

/// How long a dispatched request may take to show up in the engine's own numbers: the way there, parsing, and
/// tokenizing behind others (a 100,000-token prompt takes a common tokenizer 0.1–0.3 s).
const SETTLING_FOR: Duration = Duration::from_secs(1);

/// Less between two starts is no restart, which takes an engine longer: some libraries work the start out anew for each
/// page, from a boot time that is whole seconds.
const START_JITTER_S: f64 = 2.0;

/// An endpoint of which nothing is learned for so long is known less well.
const FADE_EVERY: Duration = Duration::from_secs(5);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct EndpointState {
    pub(crate) endpoint: Endpoint,
    pub(crate) name_hash: u64,
    pub(crate) presence: Presence,
    pub(crate) joined_at: Moment,
    /// Its entries in the prefix index, where there was room for them.
    pub(crate) lane: Option<Lane>,
    pub(crate) load: Load,
    pub(crate) own: OwnWork,
    pub(crate) adapters: AdapterHistory,
    pub(crate) health: Health,
    /// It asked not to be given work before this.
    pub(crate) backing_off_until: Moment,
    /// Number of the pick that chose it last; 0 = never.
    pub(crate) last_picked: u64,
    pub(crate) picks: u64,
    page_at: Option<Moment>,
    look: Option<Look>,
    since: Line,
    settling: Line,
    pub(crate) ended: Ended,
    /// Own requests without an answer that were in the last report.
    pub(crate) unanswered_in_report: u32,
    /// Since when there is always an own request without an answer here.
    unanswered_since: Moment,
    pub(crate) prefill_speed: PrefillSpeed,
    pub(crate) prefill_line: PrefillLine,
    pub(crate) latency: EndpointLatency,
    /// When [`EndpointState::latency`] last learned or faded.
    latency_at: Moment,
}

/// Whether it takes new work, and whether it is still a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A member that takes new work.
    Serving,
    /// A member that finishes what it has.
    Draining,
    /// No member any more; known until its last request ends.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    began: Moment,
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Page,
    Healthy,
    Accepting,
    Unreachable,
}

/// Whether the process behind the address is the one that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Same,
    Another,
}

/// A start that is later than the one known. An earlier one is the other half of a page that several processes serve in
/// turn: believing both would forget everything at each look.
fn has_restarted(known: &Load, load: &Load) -> bool {
    known.started_unix_s.zip(load.started_unix_s).is_some_and(|(known, now)| now > known + START_JITTER_S)
}

fn latest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

impl From<Standing> for Presence {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Serving => Self::Serving,
            Standing::Draining => Self::Draining,
        }
    }
}

impl EndpointState {
    pub(crate) fn new(endpoint: Endpoint, presence: Presence, joined_at: Moment) -> Self {
        Self {
            name_hash: name_hash(&endpoint.name),
            endpoint,
            presence,
            joined_at,
            lane: None,
            load: Load::default(),
            own: OwnWork::default(),
            adapters: AdapterHistory::default(),
            health: Health::default(),
            backing_off_until: Moment::ORIGIN,
            last_picked: 0,
            picks: 0,
            page_at: None,
            look: None,
            since: Line::EMPTY,
            settling: Line::EMPTY,
            ended: Ended::default(),
            unanswered_in_report: 0,
            unanswered_since: joined_at,
            prefill_speed: PrefillSpeed::default(),
            prefill_line: PrefillLine::EMPTY,
            latency: EndpointLatency::default(),
            latency_at: joined_at,
        }
    }

    /// Takes in what a look found. A look that began before one already taken in says nothing new.
    pub(crate) fn observe(&mut self, observation: Observation, flights: &mut Flights) -> Life {
        let (began, found) = match &observation {
            Observation::Page { began, .. } => (*began, Found::Page),
            Observation::Healthy { began } => (*began, Found::Healthy),
            Observation::NoPage { began, why: NoPage::Accepting } => (*began, Found::Accepting),
            Observation::NoPage { began, why: NoPage::Unreachable } => (*began, Found::Unreachable),
        };
        if self.look.is_some_and(|look| began < look.began) {
            return Life::Same;
        }
        self.look = Some(Look { began, found });
        let mut life = Life::Same;
        if let Observation::Page { load, .. } = observation {
            if has_restarted(&self.load, &load) {
                life = Life::Another;
                self.begin_anew();
            }
            if let Some(adapters) = load.adapters.as_ref().filter(|a| a.at >= began) {
                self.adapters.reported(adapters);
            }
            self.page_at = Some(began);
            let started = latest(self.load.started_unix_s, load.started_unix_s);
            self.load = Load { started_unix_s: started, ..load };
            // A family missing from this page kept its former value: own work counts from the page that it was on.
            self.advance(self.load.waiting.map_or(began, |waiting| waiting.at), flights);
        } else if self.page_at.is_none() {
            self.advance(began, flights);
        }
        life
    }

    /// Another process answers at the address: what the former one held, asked for and did is gone. Our requests that are
    /// still with the former one stay counted until they end, and say nothing of this one.
    fn begin_anew(&mut self) {
        self.backing_off_until = Moment::ORIGIN;
        self.adapters.unload();
        self.ended = Ended::default();
        self.health.begin_anew();
    }

    /// Whether nobody listened there at the last look.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.look.is_some_and(|look| look.found == Found::Unreachable)
    }

    /// How well it is known.
    pub(crate) fn tier(&self, horizon: &Horizon) -> Tier {
        let fresh = |at: Moment| if at >= horizon.reports { Tier::Ready } else { Tier::Stale };
        let page_at = match horizon.has_page {
            HasPage::Yes => self.page_at,
            HasPage::No => None,
            HasPage::Unasked => return Tier::Ready,
        };
        match (self.look.map(|look| (look.found, look.began)), page_at) {
            (Some((Found::Unreachable, _)), _) => Tier::Stale,
            (Some(_), Some(page_at)) => fresh(page_at),
            (Some((Found::Page | Found::Healthy, began)), None) => fresh(began),
            (Some((Found::Accepting, _)) | None, _) if self.joined_at >= horizon.starting => Tier::Starting,
            (Some((Found::Accepting, began)), None) if began >= horizon.accepting => Tier::Ready,
            (Some((Found::Accepting, _)) | None, _) => Tier::Stale,
        }
    }

    /// What an operator sees it as.
    pub(crate) fn state(&self, horizon: &Horizon) -> State {
        match (self.presence, self.tier(horizon)) {
            (Presence::Draining | Presence::Leaving, _) => State::Draining,
            (Presence::Serving, _) if self.health.is_ejected() => State::Ejected,
            (Presence::Serving, Tier::Ready) => State::Ready,
            (Presence::Serving, Tier::Starting) => State::Starting,
            (Presence::Serving, Tier::Stale) => State::Stale,
        }
    }

    /// Its list of busy adapters, unless it is too old to be believed.
    pub(crate) fn adapter_report(&self, horizon: &Horizon, running: Option<f64>) -> Option<&Adapters> {
        self.load.adapters.as_ref().filter(|a| a.at >= horizon.adapters || running.is_some_and(|r| r > 0.0))
    }

    /// A flight begins here.
    pub(crate) fn board(&mut self, index: u32, adapter: Option<&str>, flights: &mut Flights) {
        // Requests wait for the pool's lock in any order: the line stays ordered by time all the same.
        let flight = flights.get_mut(index);
        flight.stage = Stage::Since;
        (flight.term, flight.judged) = (self.health.board(), Judged::No);
        flight.adapter = adapter.and_then(|name| self.adapters.sent(name));
        if self.own.total().unanswered == 0 {
            self.unanswered_since = flight.dispatched_at;
        }
        flight.prefill_place = self.prefill_line.send(flight.uncached_tokens, flight.dispatched_at);
        self.own.add(Stage::Since, flight.work());
        flights.join(&mut self.since, index);
    }

    /// A flight ends here, or goes on to another endpoint.
    pub(crate) fn depart(&mut self, index: u32, flights: &mut Flights) {
        let flight = flights.get(index);
        let stage = flight.stage;
        self.own.take(stage, flight.work());
        self.health.depart(flight.term);
        if let Some(name) = &flight.adapter {
            self.adapters.ended(name);
        }
        if let Some(line) = self.line(stage) {
            flights.leave(line, index);
        }
    }

    /// Changes a flight that is here, and what it counts.
    pub(crate) fn change(&mut self, index: u32, flights: &mut Flights, change: impl FnOnce(&mut Flight)) {
        let flight = flights.get_mut(index);
        self.own.take(flight.stage, flight.work());
        change(flight);
        self.own.add(flight.stage, flight.work());
    }

    /// Its first token came.
    pub(crate) fn prefilled(&mut self, index: u32, flights: &mut Flights, pool: &mut PoolLatency, now: Moment) {
        let Flight { ahead_tokens, dispatched_at, prefilled, prefill_place, features, .. } = *flights.get(index);
        if prefilled {
            return;
        }
        let after = now.since(dispatched_at);
        if ahead_tokens > 0 {
            self.prefill_speed.note(ahead_tokens, after);
        }
        if let Some(features) = features {
            self.latency.learn(&features, after, pool);
            pool.learn(&features, after);
            self.latency_at = now;
        }
        self.prefill_line.computed(prefill_place, now);
        self.change(index, flights, |flight| flight.prefilled = true);
    }

    /// A request that was answered has ended: its prompt was computed, whether its first token was seen or not.
    pub(crate) fn finished(&mut self, flight: &Flight, now: Moment) {
        if flight.answered {
            self.prefill_line.computed(flight.prefill_place, now);
        }
    }

    /// What is predicted for such a request.
    pub(crate) fn predict(&self, features: &Features) -> Prediction {
        Prediction {
            ttft_s: self.latency.predict_s(features),
            confidence: self.latency.confidence(),
            usual_error: self.latency.usual_error(),
        }
    }

    /// Nothing was learned of it for this time.
    pub(crate) fn fade(&mut self, pool: &PoolLatency, now: Moment) {
        let elapsed = now.since(self.latency_at);
        if elapsed >= FADE_EVERY {
            self.latency.fade(elapsed, pool);
            self.latency_at = now;
        }
    }

    /// Whether all own requests had been answered within this time.
    pub(crate) fn caught_up_within(&self, time: Duration, now: Moment) -> bool {
        self.own.total().unanswered == 0 || now.since(self.unanswered_since) <= time
    }

    pub(crate) fn seen(signal: Option<Signal>, now: Moment) -> Option<Seen> {
        signal.map(|s| Seen { value: s.value, age: now.since(s.at), source: s.source })
    }

    /// A report that began at `split` covers what was dispatched before.
    fn advance(&mut self, split: Moment, flights: &mut Flights) {
        self.ended.reported(split);
        while let Some(index) = flights.first(&self.since).filter(|&i| flights.get(i).dispatched_at < split) {
            self.move_on(index, Stage::Settling, flights);
        }
        let settled = |i: u32, flights: &Flights| flights.get(i).dispatched_at + SETTLING_FOR < split;
        while let Some(index) = flights.first(&self.settling).filter(|&i| settled(i, flights)) {
            self.move_on(index, Stage::Before, flights);
        }
        self.unanswered_in_report = self.own.at(Stage::Settling).unanswered + self.own.at(Stage::Before).unanswered;
    }

    fn move_on(&mut self, index: u32, to: Stage, flights: &mut Flights) {
        let (from, work) = (flights.get(index).stage, flights.get(index).work());
        self.own.take(from, work);
        self.own.add(to, work);
        if let Some(line) = self.line(from) {
            flights.leave(line, index);
        }
        flights.get_mut(index).stage = to;
        if let Some(line) = self.line(to) {
            flights.join(line, index);
        }
    }

    fn line(&mut self, stage: Stage) -> Option<&mut Line> {
        match stage {
            Stage::Since => Some(&mut self.since),
            Stage::Settling => Some(&mut self.settling),
            Stage::Before => None,
        }
    }
}
