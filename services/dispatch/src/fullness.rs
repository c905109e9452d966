//! Whether an endpoint has room, and how near it is to having none.
//!
//! Only what it reports can make it full: enough requests waiting, or a full cache with one waiting. Own requests that
//! the report cannot have shown count only beyond its *slack*, which is what its free cache will hold, so that a burst
//! onto idle engines is not refused. Own requests that the report counts and that have ended since have each made room for
//! one of those that it shows waiting. An endpoint whose report is missing or old is never full by guesswork: then the
//! operator's cap, or its own request for a pause, is all that stops work.

use pool::{Load, Moment};
use scheduling::{BLOCK_TOKENS, Rejected, Tier};

use crate::{
    Settings,
    endpoint_state::EndpointState,
    load_now::Fresh,
    work::{OwnWork, Stage},
};

/// Requests that an idle engine is taken to hold when its free cache is unknown.
const SLACK_UNKNOWN: f64 = 64.0;

/// How near to full a full cache without a queue is: healthy, and one waiting request away from full.
const CACHE_ALONE: f64 = 0.5;

/// Load ÷ capacity of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Room {
    /// It has room; the share in use is below 1.
    Left(f64),
    /// It has none.
    None(Rejected),
}

impl Room {
    /// 0–1, and 1 exactly when there is no room.
    pub(crate) fn fullness(self) -> f64 {
        match self {
            Self::Left(share) => share,
            Self::None(_) => 1.0,
        }
    }
}

/// The room an endpoint of this tier has.
pub(crate) fn room(state: &EndpointState, tier: Tier, fresh: &Fresh, settings: &Settings, now: Moment) -> Room {
    if let Some(why) = state.health.closed(now) {
        return Room::None(why);
    }
    if state.backing_off_until > now {
        return Room::None(Rejected::BackingOff);
    }
    let requests = state.own.total().requests;
    let capped = match settings.max_in_flight_per_endpoint {
        Some(cap) if requests >= cap.get() => return Room::None(Rejected::AtCap),
        Some(cap) => f64::from(requests) / f64::from(cap.get()),
        None => 0.0,
    };
    let window = state.health.window_in_use(now);
    if window >= 1.0 {
        return Room::None(Rejected::SlowStart);
    }
    let capped = capped.max(window);
    let (Tier::Ready, Some(waiting)) = (tier, waiting(state, fresh)) else {
        return Room::Left(capped);
    };
    let kv_cache = fresh.kv_cache.unwrap_or(0.0);
    let kv_cache_max = settings.full.kv_cache;
    let waiting_max = waiting_max(state, settings);
    if waiting >= waiting_max || (kv_cache >= kv_cache_max && waiting >= 1.0) {
        return Room::None(Rejected::Full);
    }
    let cache_share = if kv_cache >= kv_cache_max { 1.0 } else { kv_cache / kv_cache_max };
    Room::Left((waiting / waiting_max).max(cache_share * CACHE_ALONE).max(capped))
}

/// Requests waiting that make an endpoint full.
pub(crate) fn waiting_max(state: &EndpointState, settings: &Settings) -> f64 {
    f64::from(settings.full.waiting.max(1)) * f64::from(state.load.ranks.max(1))
}

/// Requests that wait or must be taken to wait, for fullness. `None` when the endpoint does not say.
pub(crate) fn waiting(state: &EndpointState, fresh: &Fresh) -> Option<f64> {
    waiting_of(&state.own, f64::from(state.ended.in_report()), fresh, &state.load)
}

fn waiting_of(own: &OwnWork, ended: f64, fresh: &Fresh, load: &Load) -> Option<f64> {
    let reported = fresh.waiting?;
    let [before, settling, since] =
        [Stage::Before, Stage::Settling, Stage::Since].map(|stage| f64::from(own.at(stage).unanswered));
    // Which of our requests run is unknown: each running one is taken to be the oldest unanswered one. An engine that
    // does not say how many run cannot be caught hanging.
    let running = fresh.running.unwrap_or(f64::INFINITY);
    if reported > 0.0 {
        let still = (reported - ended).max(0.0);
        return Some(still.max(before + settling - running) + since);
    }
    let hanging = (before - running).max(0.0);
    let not_running = (settling - (running - before).max(0.0)).max(0.0);
    Some(hanging + (not_running + since - slack(own, fresh, load)).max(0.0))
}

/// Requests like those dispatched lately that the free cache will hold.
fn slack(own: &OwnWork, fresh: &Fresh, load: &Load) -> f64 {
    let (Some(cache), Some(kv_cache)) = (load.cache, fresh.kv_cache) else { return SLACK_UNKNOWN };
    let (since, settling) = (own.at(Stage::Since), own.at(Stage::Settling));
    let requests = since.requests + settling.requests;
    if requests == 0 {
        return SLACK_UNKNOWN;
    }
    let mean_tokens = (since.new_tokens + settling.new_tokens) as f64 / f64::from(requests);
    let free_tokens = cache.tokens() as f64 * (1.0 - kv_cache).max(0.0);
    let answered = f64::from(since.requests - since.unanswered);
    (free_tokens / mean_tokens.max(f64::from(BLOCK_TOKENS)) - answered).max(0.0).floor()
}

#[cfg(test)]
mod tests;
