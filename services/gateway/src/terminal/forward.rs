//! Forward: sends the request to the first endpoint of its list; to the next when nothing could be sent; and once more
//! when an endpoint refused it for want of room and another has some. When none of its list could be sent anything, it asks
//! for a place at the others.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use dispatch::{Band, Verdict};
use http::{
    HeaderValue,
    header::{AUTHORIZATION, HeaderMap},
    request::Parts,
};
use pool::{EndpointId, Moment};
use protocol::{
    Reason,
    headers::{BASE_MODEL_NAME, MODEL_NAME, REQUEST_ID, is_control},
};
use proxy::{
    client::{AnswerBody, Payload, SendError},
    serve::RequestBodyError,
};
use smallvec::SmallVec;
use tokio::time::timeout;
use tower::Service;

use super::{
    tries::{Refusal, Tries},
    verdict,
};

use crate::{
    answer::{Answer, Flow},
    by_hand::Backing,
    errors::chain,
    layers::route::body,
    pipeline::Work,
    place,
    pools::{EndpointHandle, Evicted, Lease},
    record::Record,
    rejection::{Refused, Rejection},
    stage::{Dispatched, ModelHeaders, Outgoing, Reply, Routed, Times},
};

const CLOSED: &str = "the model server closed the connection before it answered: the request is not sent again, since it \
                      may have run; try again if it may run twice";

/// Lists of endpoints that a request is given at most, while none of them can be sent anything.
const LISTS_MAX: usize = 4;

/// The native terminal.
#[derive(Clone, Copy, Debug)]
pub struct Forward;

impl Service<Dispatched> for Forward {
    type Response = Reply;
    type Error = Refused;
    type Future = Work<Outgoing>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, dispatched: Dispatched) -> Self::Future {
        Box::pin(forward(dispatched))
    }
}

async fn forward(Dispatched { mut routed, mut lease }: Dispatched) -> Outgoing {
    prepare(&mut routed.head, routed.model_headers.take(), &routed.request_id);
    if let Some(edits) = &routed.edits {
        edits.change(&mut routed.head);
    }
    if let Some(guided) = &routed.guided {
        guided.change(&mut routed.head.headers);
    }
    let client_authorization = routed.head.headers.get(AUTHORIZATION).cloned();
    let mut tried: SmallVec<[EndpointId; 4]> = SmallVec::new();
    for lists_left in (0..LISTS_MAX).rev() {
        let failed = match try_list(&mut routed, &mut lease, client_authorization.as_ref()).await {
            Tried::Answered(response, began) => {
                let response = match routed.guided.take() {
                    None => response,
                    Some(guided) => {
                        let (mut head, body) = response.into_parts();
                        guided.answered(&mut head, &mut lease).await;
                        http::Response::from_parts(head, body)
                    }
                };
                return Ok(answer(response, routed, lease, began));
            }
            Tried::Refused(rejection) => return Err(rejection.of(routed.record)),
            Tried::NothingSent(failed) => failed,
        };
        tried.extend_from_slice(&lease.ranked);
        // The place goes back before another is asked for.
        drop(lease);
        let elsewhere = if lists_left > 0 { place::ask_again(&mut routed, &tried).await } else { Err(None) };
        lease = match elsewhere {
            Ok(lease) => lease,
            Err(refused) => {
                let rejection = refused.unwrap_or_else(|| unreachable(failed.as_ref()));
                return Err(rejection.of(routed.record));
            }
        };
    }
    unreachable!("after the last list the request is refused")
}

/// What came of a list of endpoints.
enum Tried {
    /// One answered, and this is when that try began.
    Answered(http::Response<AnswerBody>, Option<Moment>),
    /// The request is not to be tried again.
    Refused(Rejection),
    /// None of them could be sent anything, the last of them for this reason; or they left.
    NothingSent(Option<SendError>),
}

/// Tries the endpoints of a list in turn, as far as [`Tries`] goes.
async fn try_list(routed: &mut Routed, lease: &mut Lease, authorization: Option<&HeaderValue>) -> Tried {
    let ranked = lease.ranked.clone();
    let mut tries = Tries::new(&ranked);
    let mut failed = None;
    while let Some(endpoint) = tries.next(lease, &routed.prefix) {
        routed.record.tries += 1;
        routed.record.endpoint = Some(Arc::clone(&endpoint.name));
        let began = routed.record.now();
        authorize(&mut routed.head.headers, &endpoint, authorization);
        let Ok(sent) = lease.eviction.unless(send(routed, &endpoint, began)).await else { return evicted(lease) };
        match sent {
            Ok(response) => {
                let kept_back = match routed.served.backing {
                    Backing::Models if routed.body.is_sendable() => {
                        tries.keep_for_later(response, &endpoint, lease, &routed.prefix)
                    }
                    // Any other server's refusal is its answer; and what was sent on as it came cannot be sent again.
                    Backing::Models | Backing::Anything => Some(response),
                };
                if let Some(mut response) = kept_back {
                    tries.end().await;
                    let kept = hold_back(routed, lease, response.body_mut()).await;
                    return if kept.is_ok() { Tried::Answered(response, Some(began)) } else { evicted(lease) };
                }
            }
            Err(Unsent::Failed(SendError::RequestBroke, _)) => return Tried::Refused(sender_failed(&routed.body)),
            Err(Unsent::NoTimeLeft) => return Tried::Refused(refuse(&SendError::FirstByteTimeout, &endpoint)),
            Err(Unsent::Failed(error, fairness)) => {
                if fairness == Fairness::GivenTime {
                    lease.report(verdict::of_error(&error));
                }
                if error.replayed() {
                    replayed(lease, &mut routed.record);
                }
                if !error.nothing_sent() {
                    return Tried::Refused(refuse(&error, &endpoint));
                }
                failed = Some(error);
            }
        }
    }
    // A refusal that could be passed on says more than that the others are gone.
    if let Some(Refusal { response, endpoint }) = tries.refusal.take() {
        routed.record.endpoint = Some(Arc::clone(&endpoint.name));
        return Tried::Answered(response, None);
    }
    Tried::NothingSent(failed)
}

/// Engines send the head of a stream before they have begun to work. An answer that may still be taken back is held until
/// there is more of it than that.
async fn hold_back(routed: &Routed, lease: &mut Lease, body: &mut AnswerBody) -> Result<(), Evicted> {
    if !lease.eviction.is_possible() {
        return Ok(());
    }
    let begun = lease.eviction.unless(body.begun());
    match time_left(&routed.record, routed.times.request) {
        None => begun.await?,
        // Who reads the answer finds out that its time is over.
        Some(left) => timeout(left, begun).await.unwrap_or(Ok(()))?,
    }
    lease.keep();
    Ok(())
}

fn evicted(lease: &Lease) -> Tried {
    lease.pool().queue.evicted();
    let message = "requests of a higher priority needed the place: try again after the time in Retry-After";
    Tried::Refused(Rejection::new(Reason::Evicted, message).retry_after_s(lease.pool().retry_after_s(Band::Sheddable)))
}

/// Turns the client's head into the endpoint's.
fn prepare(head: &mut Parts, model: Option<ModelHeaders>, request_id: &HeaderValue) {
    proxy::headers::prepare_request(&mut head.headers);
    let control: Vec<_> = head.headers.keys().filter(|name| is_control(name)).cloned().collect();
    for name in control {
        head.headers.remove(name);
    }
    if let Some(ModelHeaders { model, base }) = model {
        head.headers.insert(MODEL_NAME, model);
        head.headers.insert(BASE_MODEL_NAME, base);
    }
    head.headers.insert(REQUEST_ID, request_id.clone());
}

/// An endpoint with a key of its own gets that one, and no other endpoint of the list ever does.
fn authorize(headers: &mut HeaderMap, endpoint: &EndpointHandle, clients: Option<&HeaderValue>) {
    match (endpoint.authorization.load().as_deref(), clients) {
        (Some(own), _) => headers.insert(AUTHORIZATION, own.clone()),
        (None, Some(clients)) => headers.insert(AUTHORIZATION, clients.clone()),
        (None, None) => headers.remove(AUTHORIZATION),
    };
}

/// One try. The route's limit covers all of it, connecting too, beside the limits of each step.
async fn send(routed: &Routed, endpoint: &EndpointHandle, began: Moment) -> Result<http::Response<AnswerBody>, Unsent> {
    let send = || {
        let (clients, body) = (&routed.clients, routed.body.clone());
        clients.send(&endpoint.destination, &routed.head, body, &routed.routes.timeouts)
    };
    let given_time = |error| Unsent::Failed(error, Fairness::GivenTime);
    let Times { request, one_try } = routed.times;
    let (left, limit) = match (left(&routed.record, routed.times, Some(began)), one_try) {
        // A try's own time is all it gets, whatever went before.
        (Some(left), Some(one_try)) if left >= one_try => (Some(left), Some(one_try)),
        (left, _) => (left, request),
    };
    match left {
        None => send().await.map_err(given_time),
        Some(Duration::ZERO) => Err(Unsent::NoTimeLeft),
        // Boxed so that the usual case does not carry the rare one's state around.
        Some(left) => match Box::pin(timeout(left, send())).await {
            Ok(sent) => sent.map_err(given_time),
            Err(_) => Err(Unsent::Failed(SendError::FirstByteTimeout, Fairness::of(left, limit.unwrap_or(left)))),
        },
    }
}

/// Why a try has no answer.
enum Unsent {
    /// The route's limit was over before it began.
    NoTimeLeft,
    Failed(SendError, Fairness),
}

/// Whether a failed try says something of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fairness {
    /// It does.
    GivenTime,
    /// Most of the route's limit had gone by before: that the rest was too short is not the endpoint's fault.
    CutShort,
}

impl Fairness {
    fn of(left: Duration, limit: Duration) -> Self {
        if left * 2 >= limit { Self::GivenTime } else { Self::CutShort }
    }
}

/// The client's side of this request was sent once more on a fresh connection.
fn replayed(lease: &Lease, record: &mut Record) {
    lease.pool().retries.reused_closed();
    lease.pool().charge_retry();
    record.tries += 1;
}

/// What is left of the times of a request whose try began then.
fn left(record: &Record, times: Times, began: Option<Moment>) -> Option<Duration> {
    let request = time_left(record, times.request);
    let one_try = times.one_try.zip(began).map(|(limit, began)| limit.saturating_sub(record.now().since(began)));
    request.into_iter().chain(one_try).min()
}

fn time_left(record: &Record, route_timeout: Option<Duration>) -> Option<Duration> {
    route_timeout.map(|limit| limit.saturating_sub(record.now().since(record.started)))
}

fn answer(response: http::Response<AnswerBody>, mut routed: Routed, lease: Lease, began: Option<Moment>) -> Reply {
    let (mut head, body) = response.into_parts();
    if body.replayed() {
        replayed(&lease, &mut routed.record);
    }
    proxy::headers::prepare_response(&routed.head.method, head.status, &mut head.headers);
    routed.record.status = Some(head.status.as_u16());
    if let Some(verdict @ Verdict::Failure(_)) = verdict::of_status(head.status) {
        lease.report(verdict);
    }
    let left = left(&routed.record, routed.times, began);
    let flow = Flow::new(&mut head, routed.api, body, routed.record, lease, left, routed.routes.stream_keep_alive);
    http::Response::from_parts(head, Answer::flowing(flow))
}

fn refuse(error: &SendError, endpoint: &EndpointHandle) -> Rejection {
    let (reason, message) = match error {
        SendError::Connect(_) | SendError::ConnectTimeout => {
            (Reason::EndpointUnreachable, "the model server could not be reached: try again in a moment")
        }
        SendError::FirstByteTimeout => (
            Reason::EndpointTimeout,
            "the model server did not answer in time: try again, with a shorter prompt if it was long",
        ),
        SendError::AfterReplay(error) => match **error {
            SendError::FirstByteTimeout | SendError::Protocol(_) => return refuse(error, endpoint),
            SendError::Connect(_)
            | SendError::ConnectTimeout
            | SendError::RequestBroke
            | SendError::ClosedBeforeAnswer { .. }
            | SendError::AfterReplay(_) => (Reason::EndpointBroke, CLOSED),
        },
        SendError::RequestBroke => (Reason::ClientGone, body::GONE),
        SendError::ClosedBeforeAnswer { .. } => (Reason::EndpointBroke, CLOSED),
        SendError::Protocol(_) => {
            (Reason::EndpointBroke, "the model server's answer broke the HTTP protocol: tell its operator")
        }
    };
    Rejection::new(reason, message).detail(format!("{}: {}", endpoint.name, chain(error)))
}

/// The client's body broke off while it was sent on.
fn sender_failed(body: &Payload) -> Rejection {
    let failure = match body {
        Payload::Passing(passing) => passing.take_failure(),
        Payload::Whole(_) => None,
    };
    let failure = failure.and_then(|failure| failure.downcast::<RequestBodyError>().ok());
    failure.map_or_else(|| Rejection::new(Reason::ClientGone, body::GONE), |failure| body::broken(&failure))
}

fn unreachable(failed: Option<&SendError>) -> Rejection {
    let detail = failed.map_or_else(|| "every endpoint of the list left meanwhile".to_owned(), |error| chain(error));
    let message = "no model server of this model could be reached: try again in a moment";
    Rejection::new(Reason::EndpointUnreachable, message).detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_was_given_little_of_the_routes_time_is_not_blamed() {
        let of = |left_ms, limit_ms| Fairness::of(Duration::from_millis(left_ms), Duration::from_millis(limit_ms));
        assert_eq!([of(1000, 1000), of(500, 1000)], [Fairness::GivenTime; 2]);
        assert_eq!([of(499, 1000), of(1, 1000)], [Fairness::CutShort; 2]);
    }
}
