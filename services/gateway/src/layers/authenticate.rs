//! Authenticate: who sends this? Reads headers only.
//!
//! A configuration that asks for tokens is refused until they are checked here, so everybody may pass.

use std::task::{Context, Poll};

use tower::{Layer, Service};

use crate::stage::{Authenticated, Request};

/// Makes [`Authenticate`].
#[derive(Clone, Copy, Debug)]
pub struct AuthenticateLayer;

/// Lets a request pass on as [`Authenticated`].
#[derive(Clone, Debug)]
pub struct Authenticate<S> {
    inner: S,
}

impl<S> Layer<S> for AuthenticateLayer {
    type Service = Authenticate<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Authenticate { inner }
    }
}

impl<S: Service<Authenticated>> Service<Request> for Authenticate<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.inner.call(Authenticated { request })
    }
}
