//! The native door: HTTP requests of one core's connections, made into [`Request`]s.
//!
//! Health is answered here, outside the pipeline and its counts, so that a probe neither waits for anything nor shows up
//! as traffic.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE},
};
use protocol::{Api, Reason, headers::REQUEST_ID, path::Dialect};
use proxy::{
    client::Clients,
    serve::{Listener, RequestBody},
};
use tower::Service;

use crate::{
    answer::Answer,
    metrics::Outcome,
    pipeline::pipeline,
    record::Record,
    rejection::{DRAINING, Rejection},
    request_id,
    stage::Request,
    terminal::forward::Forward,
    world::World,
};

/// What serves the connections of one core.
#[derive(Clone)]
pub struct Door {
    world: Arc<World>,
    clients: Clients,
    listener: Listener,
}

impl Door {
    /// The door of the core that `clients` belong to, for connections that came by `listener`.
    pub fn new(world: Arc<World>, clients: Clients, listener: Listener) -> Self {
        Self { world, clients, listener }
    }
}

type Opened = std::pin::Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

impl Service<http::Request<RequestBody>> for Door {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Opened;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> Opened {
        if let Some(health) = self.health(request.uri().path()) {
            return Box::pin(std::future::ready(Ok(health)));
        }
        let (head, body) = request.into_parts();
        let (id, header) = request_id::keep_or_make(head.headers.get(REQUEST_ID));
        let record = Record::new(Arc::clone(&self.world.observer), id);
        if self.world.readiness.is_closed() {
            return Box::pin(std::future::ready(Ok(draining(record, header, &head))));
        }
        let request = Request {
            head,
            body,
            record,
            request_id: header,
            listener: self.listener,
            clients: self.clients.clone(),
            routes: self.world.routes.load_full(),
            body_memory: Arc::clone(&self.world.body_memory),
        };
        let mut pipeline = pipeline(Forward);
        Box::pin(pipeline.call(request))
    }
}

impl Door {
    fn health(&self, path: &str) -> Option<Response<Answer>> {
        let verdict = match path {
            "/healthz" => Ok("ok"),
            "/readyz" => self.world.readiness.check().map(|()| "ready"),
            _ => return None,
        };
        let (status, text) = match verdict {
            Ok(text) => (StatusCode::OK, text),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why.as_str()),
        };
        let mut response = Response::new(Answer::whole(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        Some(response)
    }
}

/// New work is refused while running answers end; the connection closes so that its client goes elsewhere.
fn draining(mut record: Box<Record>, id: HeaderValue, head: &http::request::Parts) -> Response<Answer> {
    record.api = Api::classify(&head.method, head.uri.path(), &[]).ok();
    let dialect = record.api.map_or(Dialect::OpenAi, Api::dialect);
    let mut response = Rejection::new(Reason::Draining, DRAINING).respond(dialect).map(Answer::whole);
    record.status = Some(response.status().as_u16());
    record.end(Outcome::Refused(Reason::Draining));
    if head.version < http::Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    } else {
        response.headers_mut().remove(CONNECTION);
    }
    request_id::echo(id, dialect, response.headers_mut());
    response
}
