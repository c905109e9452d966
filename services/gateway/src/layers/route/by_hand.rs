//! A request that a route written by hand takes: answered with a redirect, refused, or given its pool.
//!
//! Such routes forward what they match: any path, any method, a body of any size. A body is read only where it can say
//! something (an inference path in front of model servers), and what it says wrong is the endpoint's to judge; every other
//! body is sent on as it arrives.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header::LOCATION};
use http_body::Body;
use protocol::{Api, Head, Model, Reason, head::Seed, path::BodyShape};
use proxy::client::{Passing, Payload};
use routing::{
    Target,
    filter::{Origin, Redirect},
};
use tower::Service;

use super::{
    ask,
    body::{self, ReadBody},
    prompt_tokens,
};
use crate::{
    body_memory::BodyMemory,
    by_hand::{self, Backing, Edits, Picker, Taken},
    metrics::Outcome,
    pipeline::Work,
    rejection::{Refused, Rejection},
    routes::Served,
    stage::{Outgoing, Reply, Request, Routed, Times, whole},
};

/// Bodies up to this are read whole although nobody looks at them: they can then be sent again when a connection that was
/// kept turns out closed. In bytes.
const KEPT_BYTES_MAX: u64 = 64 * 1024;

/// Takes `request` where its rule says.
pub(super) async fn route<S>(request: Request, taken: Taken, mut inner: S) -> Outgoing
where
    S: Service<Routed, Response = Reply, Error = Refused, Future = Work<Outgoing>>,
{
    if taken.rule.refused.is_none()
        && let Some(redirect) = &taken.rule.filters.redirect
    {
        return answer_elsewhere(redirect, request, taken.prefix_len);
    }
    let (served, backend) = match backend(&request, &taken) {
        Ok(found) => found,
        Err(rejection) => return Err(rejection.of(request.record)),
    };
    let edits = Edits::new(Arc::clone(&taken.rule), backend, &request.head);
    let routed = read(request, &taken, served, edits.clone()).await?;
    let mut reply = inner.call(routed).await?;
    edits.change_answer(reply.headers_mut());
    Ok(reply)
}

/// A request that no route takes.
pub(super) fn not_found() -> Rejection {
    Rejection::new(Reason::PathNotFound, "no route of this gateway takes this host, path, method and headers")
}

fn answer_elsewhere(redirect: &Redirect, mut request: Request, prefix_len: usize) -> Outgoing {
    let Request { head, listener, record, .. } = &mut request;
    let origin = Origin {
        scheme: listener.scheme.as_str(),
        host: routing::without_port(by_hand::host(head).unwrap_or_default()),
        port: listener.port,
        path: head.uri.path(),
        query: head.uri.query(),
        prefix_len,
    };
    let location = HeaderValue::try_from(redirect.location(&origin));
    let (Ok(location), Ok(status)) = (location, StatusCode::from_u16(redirect.status)) else {
        let detail = "the redirect of the route makes no valid Location";
        return Err(invalid(detail).of(request.record));
    };
    record.status = Some(status.as_u16());
    record.end(Outcome::Redirect);
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, location);
    Ok(whole(response))
}

/// The pool that this request goes to, and which of the rule's backends that is.
fn backend(request: &Request, taken: &Taken) -> Result<(Arc<Served>, usize), Rejection> {
    if let Some(why) = &taken.rule.refused {
        return Err(invalid(why.as_str()));
    }
    let chosen = taken.choose(fastrand::u64(..)).ok_or_else(|| invalid("the rule has no backend with a weight"))?;
    let target = &taken.rule.backends[chosen].target;
    if let Target::Invalid(why) = target {
        return Err(invalid(why.as_str()));
    }
    let known = request.routes.by_hand.as_ref().and_then(|routes| routes.served(target));
    let served = known.ok_or_else(|| invalid("the backend is beyond the number of pools that one Gateway may have"))?;
    Ok((Arc::clone(served), chosen))
}

fn invalid(why: impl Into<Box<str>>) -> Rejection {
    let message = "the route of this request leads nowhere: tell whoever operates this gateway";
    Rejection::new(Reason::RouteInvalid, message).detail(why)
}

async fn read(mut request: Request, taken: &Taken, served: Arc<Served>, edits: Edits) -> Result<Routed, Refused> {
    let Some(target) = edits.target(&request.head.uri, taken.prefix_len) else {
        return Err(invalid("the route makes no valid path of this one").of(request.record));
    };
    request.head.uri = target;
    let api = legible(&request, &served);
    request.record.api = Some(api.unwrap_or(Api::Other));
    let bytes_max = request.routes.body_bytes_max;
    let read = match (api, &served.picker) {
        (Some(api), _) => body::read_as_it_is(api, &mut request, bytes_max).await.map(Read::from),
        // Another picker looks at any body, and is to see all of it.
        (None, Picker::Foreign(_)) => body::read_as_it_is(Api::Other, &mut request, bytes_max).await.map(Read::from),
        (None, Picker::Ours) => pass_on(&mut request).await,
    };
    let read = match read {
        Ok(read) => read,
        Err(rejection) => return Err(rejection.of(request.record)),
    };
    let Request { head, mut record, request_id, clients, routes, .. } = request;
    record.body_read = Some(record.now());
    record.served = Some(Arc::clone(&served));
    record.asked_model = read.head.as_ref().and_then(model).map(Into::into);
    let mut prefix = Vec::new();
    if let Some(read) = &read.head {
        read.prompt.chain(Seed { model: model(read).unwrap_or_default() }, &mut prefix);
    }
    let times = Times { request: taken.rule.timeouts.request, one_try: taken.rule.timeouts.backend_request };
    let ask = ask::ask(&head.headers, record.admitted.as_ref(), &served, read.held_bytes, record.started, times);
    record.band = ask.band();
    Ok(Routed {
        head,
        api: api.unwrap_or(Api::Other),
        body: read.body,
        held: read.held,
        served,
        model_headers: None,
        prefix,
        prompt_tokens: prompt_tokens(read.head.as_ref()),
        output_tokens_max: read.head.as_ref().and_then(|head| head.max_output_tokens),
        times,
        edits: Some(edits),
        guided: None,
        ask,
        record,
        request_id,
        clients,
        routes,
    })
}

/// What the request asks for, if its body can say something that helps to pick an endpoint.
fn legible(request: &Request, served: &Served) -> Option<Api> {
    match served.backing {
        Backing::Anything => return None,
        Backing::Models => {}
    }
    let api = Api::classify(&request.head.method, request.head.uri.path(), &[]).ok()?;
    let has_body = api.body() != BodyShape::None && !request.body.is_end_stream();
    (has_body && body::is_legible(request)).then_some(api)
}

/// A body that is there or on its way.
struct Read {
    body: Payload,
    held: crate::body_memory::Held,
    held_bytes: u64,
    head: Option<Head>,
}

impl From<ReadBody> for Read {
    fn from(read: ReadBody) -> Self {
        Self { held_bytes: read.body.len_bytes(), body: read.body.into(), held: read.held, head: read.head }
    }
}

/// A body that nobody reads.
async fn pass_on(request: &mut Request) -> Result<Read, Rejection> {
    if request.body.size_hint().exact().is_some_and(|bytes| bytes <= KEPT_BYTES_MAX) {
        return body::read_as_it_is(Api::Other, request, KEPT_BYTES_MAX).await.map(Read::from);
    }
    let body = std::mem::replace(&mut request.body, Bytes::new().into());
    let passing = Passing::new(body);
    request.record.bytes_passing = Some(passing.taken_bytes());
    let held = BodyMemory::account(&request.body_memory);
    Ok(Read { body: Payload::Passing(passing), held, held_bytes: 0, head: None })
}

fn model(head: &Head) -> Option<&str> {
    match &head.model {
        Model::Named(name) => Some(name),
        Model::Missing | Model::Empty | Model::NotAString => None,
    }
}
