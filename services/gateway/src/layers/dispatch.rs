//! Dispatch: admission and pick in one step.
//!
//! The pool's dispatcher decides under one short lock, on the freshest numbers, after the body is there and its prompt is
//! hashed. A pool whose every endpoint is full refuses at once; waiting in bands belongs here, before the step.

use std::task::{Context, Poll};

use dispatch::Refusal;
use protocol::Reason;
use tower::{Layer, Service};

use crate::{
    decisions::Entry,
    pipeline::Work,
    rejection::{Refused, Rejection},
    stage::{Dispatched, Limited, Outgoing, Reply, Routed},
};

/// Makes [`Dispatch`].
#[derive(Clone, Copy, Debug)]
pub struct DispatchLayer;

/// Turns [`Limited`] into [`Dispatched`].
#[derive(Clone, Debug)]
pub struct Dispatch<S> {
    inner: S,
}

impl<S> Layer<S> for DispatchLayer {
    type Service = Dispatch<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Dispatch { inner }
    }
}

impl<S> Service<Limited> for Dispatch<S>
where
    S: Service<Dispatched, Response = Reply, Error = Refused, Future = Work<Outgoing>> + Clone + Send + 'static,
{
    type Response = Reply;
    type Error = Refused;
    type Future = Work<Outgoing>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, Limited { routed }: Limited) -> Self::Future {
        match reserve(routed) {
            Ok(dispatched) => self.inner.call(*dispatched),
            Err(refused) => Box::pin(std::future::ready(Err(*refused))),
        }
    }
}

fn reserve(mut routed: Routed) -> Result<Box<Dispatched>, Box<Refused>> {
    let served = &routed.served;
    let decisions = &routed.record.observer().decisions;
    let (shard, mut decision) = decisions.buffer();
    let request = dispatch::Request {
        prefix: &routed.prefix,
        prompt_tokens: routed.prompt_tokens,
        adapter: served.adapter.as_deref(),
        tie: fastrand::u64(..),
        exclude: &[],
        only: None,
    };
    let reserved = served.pool.dispatch(&request, &mut decision);
    let at = reserved.as_ref().map_or_else(|_| routed.record.now(), |(_, at)| *at);
    let kept = decisions.keep(
        shard,
        Entry {
            request_id: routed.record.request_id.clone(),
            at,
            pool: served.pool.name.clone(),
            model: served.model.clone(),
            decision,
            after: None,
        },
    );
    routed.record.decision = Some(kept);
    match reserved {
        Ok((lease, at)) => {
            routed.record.dispatched = Some(at);
            Ok(Box::new(Dispatched { routed, lease }))
        }
        Err((refusal, retry_after_s)) => Err(Box::new(refuse(refusal, retry_after_s).of(routed.record))),
    }
}

fn refuse(refusal: Refusal, retry_after_s: u32) -> Rejection {
    match refusal {
        Refusal::NoEndpoint => {
            let message = "no endpoint of this model can be used now: try again in a moment";
            Rejection::new(Reason::NoEndpoint, message)
        }
        Refusal::Full(_) | Refusal::Shed | Refusal::Expired => {
            let message = "every endpoint of this model is full: try again after the time in Retry-After";
            Rejection::new(Reason::QueueFull, message).retry_after_s(retry_after_s)
        }
    }
}
