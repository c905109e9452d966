//! Authenticate: may its sender use this gateway? Reads headers only, so that a stranger never costs a body.
//!
//! Usually that is known at once. A token that the known keys do not check may wait a moment for newer ones, and is asked
//! about once more. Where everybody may send requests this layer is not there at all.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use tower::{Layer, Service};

use crate::{
    auth::{Auth, Held, Waiting},
    pipeline::Work,
    rejection::Refused,
    stage::{Authenticated, Outgoing, Reply, Request},
};

/// Makes [`Authenticate`].
#[derive(Clone, Copy, Debug)]
pub struct AuthenticateLayer;

/// Lets a request pass on as [`Authenticated`], or refuses it.
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

impl<S> Service<Request> for Authenticate<S>
where
    S: Service<Authenticated, Response = Reply, Error = Refused, Future = Work<Outgoing>> + Clone + Send + 'static,
{
    type Response = Reply;
    type Error = Refused;
    type Future = Work<Outgoing>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let Some(auth) = request.routes.auth.clone() else { return self.inner.call(Authenticated { request }) };
        match auth.admit(&request.head.headers, SystemTime::now()) {
            Ok(admitted) => {
                request.record.admitted = Some(admitted);
                self.inner.call(Authenticated { request })
            }
            Err(Held::Refused(rejection)) => Box::pin(std::future::ready(Err(rejection.of(request.record)))),
            Err(Held::Waiting(waiting)) => Box::pin(wait(auth, waiting, request, self.inner.clone())),
        }
    }
}

async fn wait<S>(auth: Arc<Auth>, waiting: Waiting, mut request: Request, mut inner: S) -> Outgoing
where
    S: Service<Authenticated, Response = Reply, Error = Refused, Future = Work<Outgoing>>,
{
    waiting.over().await;
    match auth.admit_now(&request.head.headers, SystemTime::now()) {
        Ok(admitted) => {
            request.record.admitted = Some(admitted);
            inner.call(Authenticated { request }).await
        }
        Err(rejection) => Err(rejection.of(request.record)),
    }
}
