//! The pool as others see it: its saturation, how long to wait, and a copy for people.

use std::time::Duration;

use pool::{Moment, State};
use scheduling::{Features, Rejected, Tier};

use super::{PoolDispatch, picking::not_for};
use crate::{
    Band, EndpointView, LatencyView, PoolView, Request,
    endpoint_state::{EndpointState, Presence},
    foresight::{self, Prompt},
    fullness::{self, Haste, Room, room},
    horizon::Horizon,
    load_now::Fresh,
};

impl PoolDispatch {
    /// Load ÷ capacity of the least loaded endpoint, 0–1. It is 1 exactly when none has room, as in an empty pool.
    pub fn saturation(&self, now: Moment) -> f64 {
        self.least_fullness(&Request::default(), Haste::NowOrNever, now).unwrap_or(1.0)
    }

    /// Whole seconds after which a request of this band can expect a place, for the refusal of one: when all who wait
    /// there and above will have been placed, at the speed of the last ten seconds; or when the pause ends that an endpoint
    /// asked for. `random` moves it a little, so that those refused together do not come back together.
    pub fn retry_after_s(&self, band: Band, random: u64, now: Moment) -> u32 {
        let horizon = Horizon::new(&self.settings, now);
        // An engine with more waiting than makes it full has to work that off first.
        let excess = self.usable(&horizon).map(|(state, _)| self.excess(state, &horizon));
        let least_excess = excess.fold(f64::INFINITY, f64::min);
        let endpoints = self.usable(&horizon).count() as f64;
        let beyond = if endpoints > 0.0 { endpoints.mul_add(least_excess, 1.0) } else { 1.0 };
        let served_in = self.queue.served_in(band, beyond, now);
        let nobody_waits = Band::ALL.iter().filter(|&&other| other <= band).all(|&band| self.waiting(band) == 0);
        let room_in =
            self.usable(&horizon).map(|(state, tier)| match self.room(state, tier, Haste::NowOrNever, &horizon) {
                Room::Left(share) if nobody_waits && self.gate(band).lets_pass(share) => Duration::ZERO,
                Room::None(Rejected::BackingOff) => state.backing_off_until.since(now),
                Room::Left(_) | Room::None(_) => served_in,
            });
        flow_control::retry_after_s(room_in.min().unwrap_or(served_in), random)
    }

    /// The least load ÷ capacity, 0–1, among the endpoints that a request could be given to, room or not: the best tier of
    /// those that it may use. `None`: there is none.
    pub(super) fn least_fullness(&self, request: &Request<'_>, haste: Haste, now: Moment) -> Option<f64> {
        let horizon = Horizon::new(&self.settings, now);
        let mut least: Option<(Tier, f64)> = None;
        let mut closed = None;
        for state in self.endpoints.iter().flatten() {
            match not_for(request, state, now) {
                None => {}
                Some(why) => {
                    closed = closed.or(why.is_full().then_some(1.0));
                    continue;
                }
            }
            let tier = state.tier(&horizon);
            let fullness = || self.room(state, tier, haste, &horizon).fullness();
            least = match least {
                Some((best, _)) if best < tier => least,
                Some((best, least)) if best == tier => Some((tier, least.min(fullness()))),
                Some(_) | None => Some((tier, fullness())),
            };
        }
        least.map(|(_, fullness)| fullness).or(closed)
    }

    /// A copy of everything worth seeing.
    pub fn snapshot(&self, now: Moment) -> PoolView {
        let horizon = Horizon::new(&self.settings, now);
        let in_order_of_joining = self.slots.values().filter_map(|&slot| self.endpoints[slot as usize].as_ref());
        PoolView {
            saturation: self.saturation(now),
            endpoints: in_order_of_joining.map(|state| self.view(state, &horizon)).collect(),
            waiting: Band::ALL.map(|band| self.waiting(band)),
            index: self.index.stats(),
        }
    }

    /// Requests that have a place.
    pub fn in_flight(&self) -> usize {
        self.flights.open_count()
    }

    /// Whether any endpoint is known well enough to be used. Makes nothing, unlike a whole view: clients can ask for it.
    pub fn is_any_ready(&self, now: Moment) -> bool {
        let horizon = Horizon::new(&self.settings, now);
        self.endpoints.iter().flatten().any(|state| state.state(&horizon) == State::Ready)
    }

    fn view(&self, state: &EndpointState, horizon: &Horizon) -> EndpointView {
        let seen = |signal| EndpointState::seen(signal, horizon.now);
        EndpointView {
            id: state.endpoint.id,
            name: state.endpoint.name.clone(),
            address: state.endpoint.address,
            state: state.state(horizon),
            fullness: self.room(state, state.tier(horizon), Haste::NowOrNever, horizon).fullness(),
            in_flight: state.own.in_flight(),
            waiting: seen(state.load.waiting),
            running: seen(state.load.running),
            kv_cache: seen(state.load.kv_cache),
            cache: state.load.cache,
            adapters: state.adapters.view(),
            picks: state.picks,
            latency: self.latency_view(state, horizon),
        }
    }

    fn latency_view(&self, state: &EndpointState, horizon: &Horizon) -> LatencyView {
        let typical_tokens = self.typical.uncached_tokens;
        let prompt = Prompt { cached_tokens: 0, uncached_tokens: typical_tokens as u32 };
        let work = foresight::work(state, &Fresh::of(&state.load, horizon), prompt, typical_tokens, horizon.now);
        let predicted = state.predict(&Features::of(&work));
        LatencyView { typical_ttft_s: predicted.ttft_s, confidence: predicted.confidence, error: state.latency.error() }
    }

    /// The endpoints that a request without wishes would be given to, room or not: the best tier of those that serve.
    fn usable(&self, horizon: &Horizon) -> impl Iterator<Item = (&EndpointState, Tier)> {
        let serving = move || {
            let serves = |s: &&EndpointState| s.presence == Presence::Serving && s.health.closed(horizon.now).is_none();
            let states = self.endpoints.iter().flatten().filter(serves);
            states.map(move |state| (state, state.tier(horizon)))
        };
        let best = serving().map(|(_, tier)| tier).min();
        serving().filter(move |(_, tier)| Some(*tier) == best)
    }

    fn room(&self, state: &EndpointState, tier: Tier, haste: Haste, horizon: &Horizon) -> Room {
        room(state, tier, &Fresh::of(&state.load, horizon), &self.settings, haste, horizon.now)
    }

    /// Requests waiting at an endpoint beyond what makes it full.
    fn excess(&self, state: &EndpointState, horizon: &Horizon) -> f64 {
        let waiting = fullness::waiting(state, &Fresh::of(&state.load, horizon), horizon.now);
        (waiting.unwrap_or(0.0) - fullness::waiting_max(state, &self.settings)).max(0.0).ceil()
    }
}
