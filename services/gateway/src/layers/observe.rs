//! Observe: every request leaves through here with one outcome, whatever happened further down.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Context, Poll},
};

use http::{HeaderValue, Response};
use protocol::{Reason, path::Dialect};
use tower::{Layer, Service};

use crate::{
    answer::Answer,
    metrics::Outcome,
    pipeline::Work,
    rejection::{Refused, Rejection},
    request_id,
    stage::{Outgoing, Reply, Request, whole},
};

/// Makes [`Observe`].
#[derive(Clone, Copy, Debug)]
pub struct ObserveLayer;

/// Turns refusals into answers, books them, and echoes the request's id.
#[derive(Clone, Debug)]
pub struct Observe<S> {
    inner: S,
}

impl<S> Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Observe { inner }
    }
}

impl<S> Service<Request> for Observe<S>
where
    S: Service<Request, Response = Reply, Error = Refused, Future = Work<Outgoing>>,
{
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Observed;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Our layers are always ready: whether there is room shows only once a request's pool is known.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Observed {
        let (request_id, dialect) = (request.request_id.clone(), request.dialect());
        Observed { work: self.inner.call(request), request_id: Some(request_id), dialect }
    }
}

/// A request on its way.
pub struct Observed {
    work: Work<Outgoing>,
    request_id: Option<HeaderValue>,
    dialect: Dialect,
}

impl Future for Observed {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A panic is a bug of ours and the end of one request, not of the connections that share the core. The work is
        // never polled again, so nobody sees what it left half done.
        let outgoing = match catch_unwind(AssertUnwindSafe(|| self.work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outgoing)) => outgoing,
            Err(_) => {
                let message = "the gateway failed on this request: report it with its x-request-id";
                Ok(whole(Rejection::new(Reason::Internal, message).respond(self.dialect)))
            }
        };
        let mut reply = outgoing.unwrap_or_else(|refused| refuse(refused, self.dialect));
        if let Some(id) = self.request_id.take() {
            request_id::echo(id, self.dialect, reply.headers_mut());
        }
        Poll::Ready(Ok(reply))
    }
}

fn refuse(Refused { rejection, mut record }: Refused, dialect: Dialect) -> Reply {
    let response = rejection.respond(dialect);
    record.status = Some(response.status().as_u16());
    record.bytes_out = response.body().len() as u64;
    record.end(Outcome::Refused(rejection.reason));
    if let Some(detail) = rejection.detail {
        record.detail(detail);
    } else {
        record.detail(rejection.message);
    }
    whole(response)
}
