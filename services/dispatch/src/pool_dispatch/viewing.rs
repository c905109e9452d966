//! The pool as others see it: its saturation, how long to wait, and a copy for people.

use pool::Moment;
use scheduling::{Rejected, Tier};

use super::PoolDispatch;
use crate::{
    Band, EndpointView, PoolView,
    drain_rate::WINDOW_S,
    endpoint_state::{EndpointState, Presence},
    fullness::{self, Room, room},
    horizon::Horizon,
    load_now::Fresh,
};

/// Seconds to wait that are ever named: whole ones, at least 1 by contract, and no more than a client would believe.
const RETRY_AFTER_S: std::ops::RangeInclusive<f64> = 1.0..=60.0;

impl PoolDispatch {
    /// Load ÷ capacity of the least loaded endpoint, 0–1. It is 1 exactly when none has room, as in an empty pool.
    pub fn saturation(&self, now: Moment) -> f64 {
        let horizon = Horizon::new(&self.settings, now);
        self.usable(&horizon).map(|(state, tier)| self.room(state, tier, &horizon).fullness()).fold(1.0, f64::min)
    }

    /// Whole seconds after which room can be expected, for the refusal of a request: the time in which the queue will
    /// have been worked off at the rate of the last ten seconds, or the end of the pause that an endpoint asked for.
    pub fn retry_after_s(&self, _band: Band, _random: u64, now: Moment) -> u32 {
        let horizon = Horizon::new(&self.settings, now);
        let queued: f64 = self.usable(&horizon).filter_map(|(state, _)| queued(state, &horizon)).sum();
        let rate_per_s = self.drain_rate.per_s(now);
        // Nothing ended within the whole window: it takes at least that long.
        let drained_in_s = if rate_per_s > 0.0 { queued.max(1.0) / rate_per_s } else { WINDOW_S as f64 };
        let room_in_s = self.usable(&horizon).map(|(state, tier)| match self.room(state, tier, &horizon) {
            Room::Left(_) => 0.0,
            Room::None(Rejected::BackingOff) => state.backing_off_until.since(now).as_secs_f64(),
            Room::None(_) => drained_in_s,
        });
        let seconds = room_in_s.fold(f64::INFINITY, f64::min).min(*RETRY_AFTER_S.end());
        seconds.max(*RETRY_AFTER_S.start()).ceil() as u32
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

    fn view(&self, state: &EndpointState, horizon: &Horizon) -> EndpointView {
        let seen = |signal| EndpointState::seen(signal, horizon.now);
        EndpointView {
            id: state.endpoint.id,
            name: state.endpoint.name.clone(),
            address: state.endpoint.address,
            state: state.state(horizon),
            fullness: self.room(state, state.tier(horizon), horizon).fullness(),
            in_flight: state.own.in_flight(),
            waiting: seen(state.load.waiting),
            running: seen(state.load.running),
            kv_cache: seen(state.load.kv_cache),
            cache: state.load.cache,
            adapters: state.adapters.view(),
            picks: state.picks,
        }
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

    fn room(&self, state: &EndpointState, tier: Tier, horizon: &Horizon) -> Room {
        room(state, tier, &Fresh::of(&state.load, horizon), &self.settings, horizon.now)
    }
}

fn queued(state: &EndpointState, horizon: &Horizon) -> Option<f64> {
    fullness::waiting(&state.own, &Fresh::of(&state.load, horizon), &state.load)
}
