//! Forward: sends the request to the first endpoint of its list, and to the next when nothing could be sent.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderValue,
    header::{AUTHORIZATION, HeaderMap},
    request::Parts,
};
use pool::EndpointId;
use protocol::{
    Reason,
    headers::{BASE_MODEL_NAME, MODEL_NAME, REQUEST_ID, is_control},
};
use proxy::client::{AnswerBody, SendError};
use tokio::time::timeout;
use tower::Service;

use crate::{
    answer::{Answer, Flow},
    errors::chain,
    pipeline::Work,
    pools::{EndpointHandle, Lease},
    record::Record,
    rejection::{Refused, Rejection},
    stage::{Dispatched, ModelHeaders, Outgoing, Reply, Routed},
};

const CLOSED: &str = "the model server closed the connection before it answered: the request is not sent again, since it \
                      may have run; try again if it may run twice";

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

async fn forward(Dispatched { mut routed, lease }: Dispatched) -> Outgoing {
    prepare(&mut routed.head, routed.model_headers.take(), &routed.request_id);
    let client_authorization = routed.head.headers.get(AUTHORIZATION).cloned();
    let mut failed = None;
    for (rank, id) in lease.ranked.iter().enumerate() {
        let Some(endpoint) = place(&lease, rank, *id, &routed.prefix) else { continue };
        if rank == 0 {
            endpoint.picks.increment(1);
        } else {
            lease.pool().retries.connect();
        }
        routed.record.tries += 1;
        routed.record.endpoint = Some(Arc::clone(&endpoint.name));
        authorize(&mut routed.head.headers, &endpoint, client_authorization.as_ref());
        match send(&routed, &endpoint).await {
            Ok(response) => return Ok(answer(response, routed, lease)),
            Err(error) if error.nothing_sent() => failed = Some(error),
            Err(error) => {
                if error.replayed() {
                    replayed(&lease, &mut routed.record);
                }
                return Err(refuse(&error, &endpoint).of(routed.record));
            }
        }
    }
    Err(unreachable(failed.as_ref()).of(routed.record))
}

/// Where the request's place is now: moved there if it is not the first of the list. Nothing when that endpoint left.
fn place(lease: &Lease, rank: usize, id: EndpointId, prefix: &[u64]) -> Option<Arc<EndpointHandle>> {
    let endpoint = lease.endpoint(id)?;
    (rank == 0 || lease.pass_on(id, prefix)).then_some(endpoint)
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
async fn send(routed: &Routed, endpoint: &EndpointHandle) -> Result<http::Response<AnswerBody>, SendError> {
    let send = || {
        let (clients, body) = (&routed.clients, routed.body.clone());
        clients.send(&endpoint.destination, &routed.head, body, &routed.routes.timeouts)
    };
    match time_left(&routed.record, routed.served.route_timeout) {
        None => send().await,
        Some(Duration::ZERO) => Err(SendError::FirstByteTimeout),
        // Boxed so that the usual case does not carry the rare one's state around.
        Some(left) => Box::pin(timeout(left, send())).await.unwrap_or(Err(SendError::FirstByteTimeout)),
    }
}

/// The client's side of this request was sent once more on a fresh connection.
fn replayed(lease: &Lease, record: &mut Record) {
    lease.pool().retries.reused_closed();
    record.tries += 1;
}

fn time_left(record: &Record, route_timeout: Option<Duration>) -> Option<Duration> {
    route_timeout.map(|limit| limit.saturating_sub(record.now().since(record.started)))
}

fn answer(response: http::Response<AnswerBody>, mut routed: Routed, lease: Lease) -> Reply {
    let (mut head, body) = response.into_parts();
    if body.replayed() {
        replayed(&lease, &mut routed.record);
    }
    proxy::headers::prepare_response(&routed.head.method, head.status, &mut head.headers);
    routed.record.status = Some(head.status.as_u16());
    let left = time_left(&routed.record, routed.served.route_timeout);
    let flow = Flow::new(&mut head, routed.api, body, routed.record, lease, left);
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
            | SendError::ClosedBeforeAnswer { .. }
            | SendError::AfterReplay(_) => (Reason::EndpointBroke, CLOSED),
        },
        SendError::ClosedBeforeAnswer { .. } => (Reason::EndpointBroke, CLOSED),
        SendError::Protocol(_) => {
            (Reason::EndpointBroke, "the model server's answer broke the HTTP protocol: tell its operator")
        }
    };
    Rejection::new(reason, message).detail(format!("{}: {}", endpoint.name, chain(error)))
}

fn unreachable(failed: Option<&SendError>) -> Rejection {
    let detail = failed.map_or_else(|| "every endpoint of the list left meanwhile".to_owned(), |error| chain(error));
    let message = "no model server of this model could be reached: try again in a moment";
    Rejection::new(Reason::EndpointUnreachable, message).detail(detail)
}
