//! Limit: is this caller within its quotas?
//!
//! It stands before Dispatch, so that who is beyond a quota neither waits nor takes a place from others; and what a
//! request holds of a quota is held while it waits, too. From here on the hold travels in the request's record, which
//! ends it, whatever becomes of the request. A request that no limit counts for passes as if this layer were not there.

use std::task::{Context, Poll};

use tower::{Layer, Service};

use crate::{
    clock::Clock,
    limits::{self, Standing},
    metrics::Outcome,
    pipeline::Work,
    rejection::Refused,
    stage::{Limited, Outgoing, Reply, Routed},
};

/// Makes [`Limit`].
#[derive(Clone, Copy, Debug)]
pub struct LimitLayer;

/// Turns [`Routed`] into [`Limited`], and tells clients what they have left.
#[derive(Clone, Debug)]
pub struct Limit<S> {
    inner: S,
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limit { inner }
    }
}

impl<S> Service<Routed> for Limit<S>
where
    S: Service<Limited, Response = Reply, Error = Refused, Future = Work<Outgoing>>,
{
    type Response = Reply;
    type Error = Refused;
    type Future = Work<Outgoing>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut routed: Routed) -> Self::Future {
        let caller = routed.record.admitted.as_ref().map(|admitted| &*admitted.identity);
        let asked = routed.record.asked_model.as_deref();
        let standing = routed.served.limits.standing(&routed.head.headers, caller, asked);
        // What let it in was meant for the gateway. Limits are the last that look at it: neither a picker nor an endpoint does.
        if let Some(admitted) = &routed.record.admitted {
            routed.head.headers.remove(&admitted.credential);
        }
        if standing.is_empty() {
            return self.inner.call(Limited { routed });
        }
        let clock = routed.record.observer().clock;
        match admit(routed, &standing) {
            Ok(limited) => Box::pin(tell(self.inner.call(limited), standing, clock)),
            Err(refused) => Box::pin(tell(std::future::ready(Err(*refused)), standing, clock)),
        }
    }
}

fn admit(mut routed: Routed, standing: &Standing) -> Result<Limited, Box<Refused>> {
    let estimate = limits::estimate(routed.api, routed.prompt_tokens, routed.output_tokens_max);
    match standing.reserve(estimate, routed.record.now()) {
        Ok(charge) => {
            routed.record.charge = Some(charge);
            Ok(Limited { routed })
        }
        Err((rule, refusal)) => Err(Box::new(limits::refuse(&rule, &refusal).of(routed.record))),
    }
}

/// Puts what is left into the answer: after what a refusal gives back, and beside what an answer still holds.
async fn tell(work: impl Future<Output = Outgoing>, standing: Standing, clock: Clock) -> Outgoing {
    match work.await {
        Ok(mut reply) => {
            standing.left(clock.now()).write(reply.headers_mut());
            Ok(reply)
        }
        Err(mut refused) => {
            refused.record.settle(Outcome::Refused(refused.rejection.reason));
            refused.rejection.rate_limits = Some(Box::new(standing.left(clock.now())));
            Err(refused)
        }
    }
}
