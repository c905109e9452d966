//! What a request is after each stage. A layer takes one and gives the next, so the wrong order does not compile.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use flow_control::Ask;
use http::{HeaderValue, Response, request::Parts};
use protocol::{Api, path::Dialect};
use proxy::{
    client::{Clients, Payload},
    serve::{Listener, RequestBody},
};

use crate::{
    answer::Answer,
    body_memory::{BodyMemory, Held},
    by_hand::Edits,
    extension::Guided,
    pools::Lease,
    record::Record,
    rejection::Refused,
    routes::{Routes, Served},
};

/// A request as it came in.
pub struct Request {
    /// Method, path and headers, untouched.
    pub head: Parts,
    /// Its body, unread.
    pub body: RequestBody,
    /// What is known of it.
    pub record: Box<Record>,
    /// Its id, as a header.
    pub request_id: HeaderValue,
    /// The listener it came by.
    pub listener: Listener,
    /// The connections of the core that serves it.
    pub clients: Clients,
    /// Routes in force when it came.
    pub routes: Arc<Routes>,
    /// Pays for bodies.
    pub body_memory: Arc<BodyMemory>,
}

impl Request {
    /// How this client expects errors to look.
    pub fn dialect(&self) -> Dialect {
        let api = Api::classify(&self.head.method, self.head.uri.path(), &self.routes.extra_paths);
        api.map_or(Dialect::OpenAi, Api::dialect)
    }
}

/// A request whose sender may use the gateway.
pub struct Authenticated {
    /// The request.
    pub request: Request,
}

/// A request with its body read and its pool found.
pub struct Routed {
    /// Method, path and headers, untouched but for what the body's decoding changed.
    pub head: Parts,
    /// What is asked for.
    pub api: Api,
    /// The body: whole where it was read, else as it arrives.
    pub body: Payload,
    /// Pays for the body in memory.
    pub held: Held,
    /// Which model of which pool.
    pub served: Arc<Served>,
    /// Model headers for the endpoint; `None` where the body was not read for a model.
    pub model_headers: Option<ModelHeaders>,
    /// Chained hashes of the prompt's blocks.
    pub prefix: Vec<u64>,
    /// The prompt's length, estimated.
    pub prompt_tokens: u32,
    /// The most tokens its client wants generated.
    pub output_tokens_max: Option<u32>,
    /// What its route leaves it of time.
    pub times: Times,
    /// What its route changes of it, if a route written by hand took it.
    pub edits: Option<Edits>,
    /// What another endpoint picker said of it, if its pool has one.
    pub guided: Option<Box<Guided>>,
    /// How urgent it is, and whose.
    pub ask: Ask,
    /// What is known of it.
    pub record: Box<Record>,
    /// Its id, as a header.
    pub request_id: HeaderValue,
    /// The connections of its core.
    pub clients: Clients,
    /// Routes in force when it came.
    pub routes: Arc<Routes>,
}

/// How long a request may take, as its route says. `None` is as long as it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From its head to the end of its answer.
    pub request: Option<Duration>,
    /// From the beginning of a try to the end of its answer.
    pub one_try: Option<Duration>,
}

/// A request within every limit of its caller. What it was charged travels in its record.
pub struct Limited {
    /// The request.
    pub routed: Routed,
}

/// Which model the endpoint is told.
#[derive(Clone, Debug)]
pub struct ModelHeaders {
    /// The model or adapter asked for.
    pub model: HeaderValue,
    /// The model that serves it.
    pub base: HeaderValue,
}

impl ModelHeaders {
    /// Of a model that is served.
    pub fn of(served: &Served) -> Self {
        Self { model: served.model_header.clone(), base: served.base_header.clone() }
    }
}

/// A request with a place reserved on an endpoint.
pub struct Dispatched {
    /// The request.
    pub routed: Routed,
    /// The reservation; dropping it completes the request in the pool's accounts.
    pub lease: Lease,
}

/// The answer on its way to the client.
pub type Reply = Response<Answer>;

/// What our layers give: a reply, or a refusal that still holds its record.
pub type Outgoing = Result<Reply, Refused>;

/// A short answer of our own.
pub fn whole(response: Response<Bytes>) -> Reply {
    response.map(Answer::whole)
}
