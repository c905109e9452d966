//! The life of a request, top to bottom. The stages' types allow only this order.

use http::Response;
use tower::{Service, ServiceBuilder};

use crate::{
    answer::Answer,
    layers::{
        authenticate::AuthenticateLayer, dispatch::DispatchLayer, limit::LimitLayer, observe::ObserveLayer,
        route::RouteLayer,
    },
    rejection::Refused,
    stage::{Dispatched, Outgoing, Reply, Request},
};

/// A stage's work, boxed once per stage: noise beside a model's first token.
pub type Work<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// The stack in front of `terminal`, which forwards a request (or, behind Envoy, names its destination).
pub fn pipeline<T>(
    terminal: T,
) -> impl Service<Request, Response = Response<Answer>, Error = std::convert::Infallible, Future: Send> + Clone
where
    T: Service<Dispatched, Response = Reply, Error = Refused, Future = Work<Outgoing>> + Clone + Send + 'static,
{
    ServiceBuilder::new()
        .layer(ObserveLayer) // outermost: every outcome passes here once, a panic included
        .layer(AuthenticateLayer) // headers only, so that a stranger never costs a body
        .layer(RouteLayer) // reads the body once, names model and pool
        .layer(LimitLayer) // knows caller, model and size; before the queue, so that nobody waits beyond their quota
        .layer(DispatchLayer) // after the body: waits or refuses, and picks on the freshest numbers
        .service(terminal)
}

#[cfg(test)]
mod tests;
