//! Asks a pool for a place for a request, and waits for it if it must; what is refused becomes an answer.
//!
//! Apart from the layer that does it first, since a request asks again when none of the endpoints it was given could be
//! reached.

use dispatch::{Decision, QueueFull, Refusal};
use pool::{EndpointId, Moment};
use protocol::Reason;

use crate::{
    by_hand::Backing,
    decisions::Entry,
    pools::{self, Fate, Lease, Refused, Wait},
    rejection::{DRAINING, Rejection},
    stage::Routed,
};

/// The answer to [`ask`].
pub enum Asked {
    /// The request has a place.
    Placed(Lease),
    /// It waits: see [`wait`].
    Waits(Wait),
    /// It is refused.
    Refused(Rejection),
}

/// Asks for a place at one of the pool's endpoints.
pub fn ask(routed: &mut Routed) -> Asked {
    ask_but(routed, &[])
}

/// Asks once more, after none of `tried` could be reached. It may have to wait, as long as it might have before.
///
/// # Errors
/// When there is no place: says why, or nothing if there is no other endpoint.
pub async fn ask_again(routed: &mut Routed, tried: &[EndpointId]) -> Result<Lease, Option<Rejection>> {
    let lease = match ask_but(routed, tried) {
        Asked::Placed(lease) => return Ok(lease),
        Asked::Waits(waiting) => wait(routed, waiting).await,
        Asked::Refused(rejection) => Err(rejection),
    };
    lease.map_err(|rejection| Some(rejection).filter(|rejection| rejection.reason != Reason::NoEndpoint))
}

/// Where another picker has said where to, its endpoints are asked in turn, past those that cannot take anything.
fn ask_but(routed: &mut Routed, exclude: &[EndpointId]) -> Asked {
    let Some(guided) = &routed.guided else { return ask_for(routed, exclude, None) };
    let mut asked = Asked::Refused(refuse(Refused::ByPool(Refusal::NoEndpoint, 1), routed.served.backing));
    for only in guided.endpoints.clone().into_iter().filter(|id| !exclude.contains(id)) {
        asked = ask_for(routed, exclude, Some(only));
        if !matches!(&asked, Asked::Refused(rejection) if rejection.reason == Reason::NoEndpoint) {
            break;
        }
    }
    asked
}

fn ask_for(routed: &mut Routed, exclude: &[EndpointId], only: Option<EndpointId>) -> Asked {
    let served = &routed.served;
    let (shard, mut decision) = routed.record.observer().decisions.buffer();
    let request = dispatch::Request {
        prefix: &routed.prefix,
        prompt_tokens: routed.prompt_tokens,
        adapter: served.adapter.as_deref(),
        tie: fastrand::u64(..),
        exclude,
        only,
    };
    let asked = served.pool.admit(&request, &routed.ask, &mut decision);
    let (at, asked) = match asked {
        pools::Asked::Placed(lease, at) => {
            routed.record.dispatched.get_or_insert(at);
            (at, Asked::Placed(lease))
        }
        pools::Asked::Waits(wait) => {
            routed.record.queued.get_or_insert(wait.since);
            // Whatever happens further on, it waits no longer than this in all.
            routed.ask.wait_until = Some(wait.expires_at);
            (wait.since, Asked::Waits(wait))
        }
        pools::Asked::Refused(refused) => (routed.record.now(), Asked::Refused(refuse(refused, served.backing))),
    };
    // That nobody else is there either does not hide who was picked before.
    if exclude.is_empty() || !matches!(asked, Asked::Refused(_)) {
        keep(routed, shard, at, decision);
    }
    asked
}

/// Waits for the place.
///
/// # Errors
/// When there was none in time, or something else ended the wait.
pub async fn wait(routed: &mut Routed, wait: Wait) -> Result<Lease, Rejection> {
    match wait.over().await {
        Fate::Refused(refused) => Err(refuse(refused, routed.served.backing)),
        Fate::Placed(lease, at, mut decision) => {
            routed.record.dispatched = Some(at);
            let decisions = &routed.record.observer().decisions;
            let is_revised = routed.record.decision.is_some_and(|kept| decisions.revise(kept, at, &mut decision));
            if !is_revised {
                let (shard, _) = decisions.buffer();
                keep(routed, shard, at, *decision);
            }
            Ok(lease)
        }
    }
}

fn keep(routed: &mut Routed, shard: usize, at: Moment, decision: Decision) {
    let entry = Entry {
        request_id: routed.record.request_id.clone(),
        at,
        pool: routed.served.pool.name.clone(),
        model: routed.served.model.clone(),
        decision,
        after: None,
    };
    routed.record.decision = Some(routed.record.observer().decisions.keep(shard, entry));
}

fn refuse(refused: Refused, backing: Backing) -> Rejection {
    let Refused::ByPool(refusal, retry_after_s) = refused else {
        return Rejection::new(Reason::Draining, DRAINING);
    };
    match refusal {
        Refusal::NoEndpoint => {
            let message = match backing {
                Backing::Models => "no endpoint of this model can be used now: try again in a moment",
                Backing::Anything => "no server is behind this route now: try again in a moment",
            };
            Rejection::new(Reason::NoEndpoint, message)
        }
        Refusal::Full(why) => {
            let message = match why {
                QueueFull::NoWaiting => "every endpoint of this model is full: try again after the time in Retry-After",
                QueueFull::TooLarge => {
                    "every endpoint of this model is full, and the request is too large to wait: try again after the time \
                     in Retry-After"
                }
                QueueFull::Requests | QueueFull::Bytes | QueueFull::TooSlow | QueueFull::PushedOut => {
                    "every endpoint of this model is full, and so is its queue: try again after the time in Retry-After"
                }
            };
            Rejection::new(Reason::QueueFull, message).retry_after_s(retry_after_s).detail(why.to_string())
        }
        Refusal::Shed => {
            let message =
                "this model is too loaded for requests of low priority: try again after the time in Retry-After";
            Rejection::new(Reason::Shed, message).retry_after_s(retry_after_s)
        }
        Refusal::Expired => {
            let message = "no endpoint of this model had room in time: try again after the time in Retry-After";
            Rejection::new(Reason::ExpiredInQueue, message).retry_after_s(retry_after_s)
        }
    }
}
