//! Limit: is this caller within its quotas?
//!
//! It stands before Dispatch, so that who is beyond a quota neither waits nor takes a place from others; and what a
//! request holds of a quota is held while it waits, too.

use std::task::{Context, Poll};

use tower::{Layer, Service};

use crate::stage::{Limited, Routed};

/// Makes [`Limit`].
#[derive(Clone, Copy, Debug)]
pub struct LimitLayer;

/// Turns [`Routed`] into [`Limited`].
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

impl<S: Service<Limited>> Service<Routed> for Limit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, routed: Routed) -> Self::Future {
        self.inner.call(Limited { routed })
    }
}
