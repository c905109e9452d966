//! Dispatch: admission and pick in one step.
//!
//! The pool's dispatcher decides under one short lock, on the freshest numbers, after the body is there and its prompt is
//! hashed. A request that has room is sent on in this very call; only who waits costs a future of its own.

use std::task::{Context, Poll};

use tower::{Layer, Service};

use crate::{
    by_hand::Picker,
    extension::{self, Directed},
    pipeline::Work,
    place::{self, Asked},
    rejection::Refused,
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

    fn call(&mut self, Limited { mut routed }: Limited) -> Self::Future {
        match routed.served.picker {
            Picker::Ours => place(&mut self.inner, routed),
            Picker::Foreign(_) => {
                let mut inner = self.inner.clone();
                Box::pin(async move {
                    match extension::direct(&mut routed).await {
                        Ok(Directed::On) => place(&mut inner, routed).await,
                        Ok(Directed::Answered(reply)) => Ok(reply),
                        Err(rejection) => Err(rejection.of(routed.record)),
                    }
                })
            }
        }
    }
}

fn place<S>(inner: &mut S, mut routed: Routed) -> Work<Outgoing>
where
    S: Service<Dispatched, Response = Reply, Error = Refused, Future = Work<Outgoing>> + Clone + Send + 'static,
{
    match place::ask(&mut routed) {
        Asked::Placed(lease) => inner.call(Dispatched { routed, lease }),
        Asked::Refused(rejection) => Box::pin(std::future::ready(Err(rejection.of(routed.record)))),
        Asked::Waits(wait) => {
            let mut inner = inner.clone();
            Box::pin(async move {
                match place::wait(&mut routed, wait).await {
                    Ok(lease) => inner.call(Dispatched { routed, lease }).await,
                    Err(rejection) => Err(rejection.of(routed.record)),
                }
            })
        }
    }
}
