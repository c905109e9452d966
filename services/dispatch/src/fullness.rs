//! Whether an endpoint has room, and how near it is to having none.
//!
//! Only what it reports can make it full: enough requests waiting, or a full cache with one waiting. Own requests that
//! the report cannot have shown count only beyond its *slack*, which is what its free cache will hold, so that a burst
//! onto idle engines is not refused. Requests that can wait are given less: what it will begin at once, so that work waits
//! here and not in its queue. What its own answers show to have left a reported queue is taken off. An endpoint whose
//! report is missing or old is never full by guesswork: then the operator's cap, or its own request for a pause, is all
//! that stops work.

use std::time::Duration;

use pool::Moment;
use scheduling::{BLOCK_TOKENS, Rejected, Tier};

use crate::{
    Settings,
    endpoint_state::EndpointState,
    load_now::{self, Fresh},
    work::Stage,
};

/// Requests that an idle engine is taken to hold when its free cache is unknown.
const SLACK_UNKNOWN: f64 = 64.0;

/// How near to full an endpoint is whose cache has just become full and that has no queue: healthy, and what is above is
/// kept for higher bands by the bands' limits.
const CACHE_ALONE: f64 = 0.8;

/// A full cache counts more than [`CACHE_ALONE`] where fewer requests than this share of those that run still fit, and no
/// more than [`CACHE_FITS_MIN`]; the fewer, the more. A few long requests may hold nearly all of a cache that has room for
/// many short ones.
const CACHE_FITS: f64 = 0.25;

/// See [`CACHE_FITS`].
const CACHE_FITS_MIN: f64 = 8.0;

/// Nothing but a queue makes an endpoint full.
const NEARLY_FULL: f64 = 0.99;

/// What is computed within this time after now is begun at once: a little more than it takes a request to get there and to
/// be taken into a batch.
const AHEAD: Duration = Duration::from_millis(100);

/// Prompt tokens that any endpoint begins at once: a quarter of the smallest usual budget of one step. So requests whose
/// prompts are cached, after which an endpoint looks slow (what they take is not computing), stay with their cache.
const BEGUN_TOKENS_MIN: f64 = 512.0;

/// An endpoint that had answered everything within this time before takes a burst.
const BURST_FOR: Duration = Duration::from_secs(1);

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

/// Whether the one who asks can wait for room instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// It can: then it is not sent to stand in an engine's queue, see [`slack`].
    CanWait,
    /// It is sent now or refused.
    NowOrNever,
}

/// The room an endpoint of this tier has.
pub(crate) fn room(
    state: &EndpointState,
    tier: Tier,
    fresh: &Fresh,
    settings: &Settings,
    haste: Haste,
    now: Moment,
) -> Room {
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
    let (Tier::Ready, Some(backlog)) = (tier, backlog(state, fresh)) else {
        return Room::Left(capped);
    };
    let slack = slack(state, fresh, haste, now);
    let limit = waiting_limit(state, fresh, settings);
    if backlog.beyond(slack) >= limit {
        return Room::None(Rejected::Full);
    }
    Room::Left(
        backlog
            .share(limit, slack)
            .max(cache_share(state, fresh, load_now::kv_cache(&state.own, fresh, &state.load), settings.full.kv_cache))
            .max(capped),
    )
}

/// How many requests must end before an endpoint has room: 0 if it has, `None` where it is no matter of load.
pub(crate) fn lacking(
    state: &EndpointState,
    tier: Tier,
    fresh: &Fresh,
    settings: &Settings,
    haste: Haste,
    now: Moment,
) -> Option<f64> {
    let beyond = |load: f64, limit: f64| (load - limit).max(0.0) + 1.0;
    match room(state, tier, fresh, settings, haste, now) {
        Room::Left(_) => Some(0.0),
        Room::None(Rejected::AtCap) => {
            let cap = settings.max_in_flight_per_endpoint?;
            Some(beyond(state.own.total().requests.into(), cap.get().into()))
        }
        Room::None(Rejected::Full) => {
            let waiting = backlog(state, fresh)?.beyond(slack(state, fresh, haste, now));
            Some(beyond(waiting, waiting_limit(state, fresh, settings)))
        }
        Room::None(_) => None,
    }
}

/// Requests waiting that make an endpoint full, when its cache is as it is.
fn waiting_limit(state: &EndpointState, fresh: &Fresh, settings: &Settings) -> f64 {
    let cache_is_full = fresh.kv_cache.unwrap_or(0.0) >= settings.full.kv_cache;
    if cache_is_full { 1.0 } else { waiting_max(state, settings) }
}

/// Requests waiting that make an endpoint full.
pub(crate) fn waiting_max(state: &EndpointState, settings: &Settings) -> f64 {
    f64::from(settings.full.waiting.max(1)) * f64::from(state.load.ranks.max(1))
}

/// Requests that wait or must be taken to wait, for fullness. `None` when the endpoint does not say.
pub(crate) fn waiting(state: &EndpointState, fresh: &Fresh, now: Moment) -> Option<f64> {
    Some(backlog(state, fresh)?.beyond(slack(state, fresh, Haste::NowOrNever, now)))
}

/// Requests that have not begun, or may not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Backlog {
    /// They wait.
    queued: f64,
    /// They were sent lately: the endpoint may begin them at once.
    sent: f64,
}

impl Backlog {
    pub(crate) fn all(self) -> f64 {
        self.queued + self.sent
    }

    /// Those that must be taken to wait at an endpoint that begins so many at once.
    fn beyond(self, slack: f64) -> f64 {
        self.queued + (self.sent - slack).max(0.0)
    }

    /// Share of what makes the endpoint full: 1 where [`Backlog::beyond`] reaches the limit.
    fn share(self, limit: f64, slack: f64) -> f64 {
        (self.queued / limit).max(self.all() / (limit + slack))
    }
}

/// What is known of an endpoint's queue. `None` when it does not say.
pub(crate) fn backlog(state: &EndpointState, fresh: &Fresh) -> Option<Backlog> {
    let own = &state.own;
    let reported = fresh.waiting?;
    let [before, settling, since] =
        [Stage::Before, Stage::Settling, Stage::Since].map(|stage| f64::from(own.at(stage).unanswered));
    // Those that are being answered run. Which of the others do is unknown: each further one that runs is taken to be the
    // oldest. An engine that does not say how many run cannot be caught hanging.
    let answered = f64::from(own.total().requests - own.total().unanswered);
    let running = (fresh.running.unwrap_or(f64::INFINITY) - answered).max(0.0);
    if reported > 0.0 {
        let queued = still_queued(state, reported, before + settling).max(before + settling - running);
        return Some(Backlog { queued: queued + since, sent: 0.0 });
    }
    let hanging = (before - running).max(0.0);
    let not_running = (settling - (running - before).max(0.0)).max(0.0);
    Some(Backlog { queued: hanging, sent: not_running + since })
}

/// What is left of a reported queue: each own request that has ended since has made room for one, and of the own ones that
/// had no answer then, no more can be waiting than have none now.
fn still_queued(state: &EndpointState, reported: f64, unanswered: f64) -> f64 {
    let unanswered_then = f64::from(state.unanswered_in_report);
    let of_others = (reported - unanswered_then).max(0.0);
    let by_answers = of_others + unanswered.min(reported.min(unanswered_then));
    let by_ends = (reported - f64::from(state.ended.in_report())).max(0.0);
    by_answers.min(by_ends)
}

/// Requests like those dispatched lately that the endpoint will begin at once: what its free cache will hold. But who can
/// wait here, where the next room at any endpoint is theirs, is not sent to stand in a queue there: for them it is what
/// the endpoint has computed since its report, at the speed seen, and will in the next moment. So it is for everybody at an
/// endpoint that has been behind for some time.
fn slack(state: &EndpointState, fresh: &Fresh, haste: Haste, now: Moment) -> f64 {
    let Some(mean_tokens) = lately_sent_tokens(state) else { return SLACK_UNKNOWN };
    let held = state.load.cache.zip(fresh.kv_cache).map_or(SLACK_UNKNOWN, |(cache, kv_cache)| {
        let free_tokens = cache.tokens() as f64 * (1.0 - kv_cache).max(0.0);
        let since = state.own.at(Stage::Since);
        let answered = f64::from(since.requests - since.unanswered);
        (free_tokens / mean_tokens - answered).max(0.0).floor()
    });
    let burst = haste == Haste::NowOrNever && state.caught_up_within(BURST_FOR, now);
    match (state.prefill_speed.tokens_per_s(), state.load.waiting) {
        (Some(tokens_per_s), Some(report)) if !burst => {
            let computed = (tokens_per_s * (now.since(report.at) + AHEAD).as_secs_f64()).max(BEGUN_TOKENS_MIN);
            held.min((computed / mean_tokens).floor())
        }
        _ => held,
    }
}

/// Mean of what own requests of the last second take of a cache, at least a block. `None`: there were none.
fn lately_sent_tokens(state: &EndpointState) -> Option<f64> {
    let (since, settling) = (state.own.at(Stage::Since), state.own.at(Stage::Settling));
    let requests = since.requests + settling.requests;
    let tokens = (since.new_tokens + settling.new_tokens) as f64;
    (requests > 0).then(|| (tokens / f64::from(requests)).max(f64::from(BLOCK_TOKENS)))
}

/// Prompt tokens of the requests that an endpoint has not begun. `None` when it does not say.
pub(crate) fn tokens_ahead(state: &EndpointState, fresh: &Fresh) -> Option<u64> {
    let (since, settling) = (state.own.at(Stage::Since), state.own.at(Stage::Settling));
    let requests = f64::from((since.requests + settling.requests).max(1));
    let mean_tokens = (since.new_tokens + settling.new_tokens) as f64 / requests;
    Some((backlog(state, fresh)?.all() * mean_tokens) as u64)
}

/// The cache's part in fullness: up to [`CACHE_ALONE`] while it is not full, and more the fewer requests still fit.
fn cache_share(state: &EndpointState, fresh: &Fresh, kv_cache: f64, full: f64) -> f64 {
    if kv_cache < full {
        return kv_cache / full * CACHE_ALONE;
    }
    let Some((cache, mean_tokens)) = state.load.cache.zip(lately_sent_tokens(state)) else { return CACHE_ALONE };
    let fits = cache.tokens() as f64 * (1.0 - kv_cache).max(0.0) / mean_tokens;
    let running = fresh.running.unwrap_or(0.0).max(f64::from(state.own.total().requests));
    let above = 1.0 - (fits / (running * CACHE_FITS).max(CACHE_FITS_MIN)).min(1.0);
    (CACHE_ALONE + above * (1.0 - CACHE_ALONE)).min(NEARLY_FULL)
}

#[cfg(test)]
mod tests;
