//! Route, the Body-Based Router: reads the body once, finds the model in it and the pool behind the model.
//!
//! The body is read whole before anything is picked, since a second `model` may be its last member; its head is read
//! piece by piece as it arrives. What is forwarded are the client's own bytes (decoded if they were compressed).

mod ask;
pub(crate) mod body;
mod by_hand;
mod edit;
mod rewrite;

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, header::CONTENT_TYPE};
use protocol::{
    Api, Head, Model, PathError, Reason,
    error_body::NO_MATCHING_MODEL,
    head::Seed,
    models,
    path::{BodyShape, ModelIn},
};
use tower::{Layer, Service};

use self::{body::ReadBody, edit::Edits};
use crate::{
    by_hand::Asked,
    metrics::Outcome,
    pipeline::Work,
    record::Record,
    rejection::{Refused, Rejection},
    routes::{Fallback, Routes, Served},
    stage::{Authenticated, ModelHeaders, Outgoing, Reply, Request, Routed, Times, whole},
};

/// Bytes of prompt that make one token, on average: the estimate that upstream pickers use.
const BYTES_PER_TOKEN: u64 = 4;

/// Makes [`Route`].
#[derive(Clone, Copy, Debug)]
pub struct RouteLayer;

/// Turns [`Authenticated`] into [`Routed`], or answers by itself.
#[derive(Clone, Debug)]
pub struct Route<S> {
    inner: S,
}

impl<S> Layer<S> for RouteLayer {
    type Service = Route<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Route { inner }
    }
}

impl<S> Service<Authenticated> for Route<S>
where
    S: Service<Routed, Response = Reply, Error = Refused, Future = Work<Outgoing>> + Clone + Send + 'static,
{
    type Response = Reply;
    type Error = Refused;
    type Future = Work<Outgoing>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, Authenticated { request }: Authenticated) -> Self::Future {
        if let Some(by_hand) = &request.routes.by_hand {
            match by_hand.find(&request.head, request.listener) {
                Asked::Taken(taken) => return Box::pin(by_hand::route(request, taken, self.inner.clone())),
                Asked::Nobodys => return Box::pin(std::future::ready(Err(by_hand::not_found().of(request.record)))),
                Asked::Configs => {}
            }
        }
        let mut inner = self.inner.clone();
        Box::pin(async move {
            match route(request).await? {
                Next::Routed(routed) => inner.call(*routed).await,
                Next::Answered(reply) => Ok(reply),
            }
        })
    }
}

enum Next {
    Routed(Box<Routed>),
    Answered(Reply),
}

async fn route(mut request: Request) -> Result<Next, Refused> {
    let path = request.head.uri.path();
    let api = match Api::classify(&request.head.method, path, &request.routes.extra_paths) {
        Ok(api) => api,
        Err(error) => return Err(not_served(error).of(request.record)),
    };
    request.record.api = Some(api);
    match api {
        Api::Models | Api::Model => Ok(Next::Answered(list_models(api, request)?)),
        Api::ChatCompletions
        | Api::Completions
        | Api::Responses
        | Api::ResponseById
        | Api::Embeddings
        | Api::Pooling
        | Api::Classify
        | Api::Rerank
        | Api::Score
        | Api::Tokenize
        | Api::Detokenize
        | Api::ImagesGenerations
        | Api::ImagesEdits
        | Api::ImagesVariations
        | Api::AudioTranscriptions
        | Api::AudioTranslations
        | Api::AudioSpeech
        | Api::Messages
        | Api::CountTokens
        | Api::Generate
        | Api::GenerateStream
        | Api::Invocations
        | Api::Extra
        | Api::Other => read_and_find(api, request).await.map(|routed| Next::Routed(Box::new(routed))),
    }
}

fn not_served(error: PathError) -> Rejection {
    let rejection = Rejection::new(Reason::PathNotFound, error.to_string());
    match error {
        PathError::Unknown => rejection,
        PathError::Method { allowed } => Rejection { allow: Some(allowed), ..rejection },
    }
}

/// `/v1/models` and `/v1/models/{id}`: what can be asked for now.
fn list_models(api: Api, Request { head, mut record, routes, .. }: Request) -> Result<Reply, Refused> {
    let body = if api == Api::Models {
        models::list(routes.available().map(|served| routes.card(served)))
    } else {
        let id = models::id_in_path(head.uri.path());
        let Some(served) = id.and_then(|id| routes.available().find(|served| *served.model == *id)) else {
            let message = "no such model is being served now: GET /v1/models lists those that are";
            return Err(Rejection::new(Reason::ModelNotFound, message).param("model").of(record));
        };
        models::one(routes.card(served))
    };
    record.status = Some(200);
    record.bytes_out = body.len() as u64;
    record.end(Outcome::Ok);
    let mut response = Response::new(if head.method == Method::HEAD { Bytes::new() } else { body });
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(whole(response))
}

async fn read_and_find(api: Api, mut request: Request) -> Result<Routed, Refused> {
    let read = match body::read(api, &mut request).await {
        Ok(read) => read,
        Err(rejection) => return Err(rejection.of(request.record)),
    };
    let Request { mut head, mut record, request_id, clients, routes, .. } = request;
    record.body_read = Some(record.now());
    let found = find(api, read.head.as_ref(), &routes, &mut record).map_err(|rejection| *rejection);
    let (served, model_headers) = match found {
        Ok(found) => found,
        Err(rejection) => return Err(rejection.of(record)),
    };
    let mut edits = Edits::default();
    let (served, model_headers) = match rewrite::of(read.head.as_ref(), &served, &routes) {
        Some(rewritten) => {
            let model_headers = model_headers.map(|_| ModelHeaders::of(rewritten.served()));
            (rewritten.put(&mut edits, &mut head.headers, &mut record), model_headers)
        }
        None => (served, model_headers),
    };
    record.served = Some(Arc::clone(&served));
    let (prefix, prompt_tokens) = prompt(read.head.as_ref(), &served);
    let output_tokens_max = read.head.as_ref().and_then(|head| head.max_output_tokens);
    let wish = read.head.as_ref().and_then(|head| head.usage_wish).filter(|_| routes.usage == api::Usage::Always);
    let ReadBody { body, held, .. } = read;
    let times = Times { request: served.route_timeout, one_try: None };
    let ask = ask::ask(&head.headers, record.admitted.as_ref(), &served, body.len_bytes(), record.started, times);
    record.band = ask.band();
    if let Some(splice) = wish {
        edits.wish(splice, &mut head.headers, &mut record);
    }
    Ok(Routed {
        head,
        api,
        body: edits.applied(body).into(),
        held,
        times,
        edits: None,
        guided: None,
        served,
        model_headers,
        prefix,
        prompt_tokens,
        output_tokens_max,
        ask,
        record,
        request_id,
        clients,
        routes,
    })
}

type Found = (Arc<Served>, Option<ModelHeaders>);

/// Which pool a request goes to, by the contract's rules.
fn find(api: Api, head: Option<&Head>, routes: &Routes, record: &mut Record) -> Result<Found, Box<Rejection>> {
    let only = |message: &'static str| {
        let none = || Box::new(Rejection::new(Reason::ModelNotFound, message).param("model"));
        routes.only.clone().map(|served| (served, None)).ok_or_else(none)
    };
    let named = match head.map(|head| &head.model) {
        Some(Model::Named(name)) => Some(name.as_str()),
        Some(Model::Missing) | None => None,
        Some(Model::Empty | Model::NotAString) if routes.body_based => {
            return Err(model_required("a non-empty string"));
        }
        Some(Model::Empty | Model::NotAString) => None,
    };
    match (named, api.model_in()) {
        (Some(name), ModelIn::Body | ModelIn::BodyIfGiven | ModelIn::Nowhere) => by_name(name, routes, record),
        (None, _) if !routes.body_based => only(NO_MATCHING_MODEL),
        (None, ModelIn::Body) => Err(model_required("missing")),
        (None, ModelIn::BodyIfGiven | ModelIn::Nowhere) => match (&routes.only, &routes.fallback) {
            (None, Some(Fallback::DefaultBackend(served))) => Ok((Arc::clone(served), None)),
            _ => only(
                "this path names no model, and the gateway serves more than one pool: use a path whose body has a model",
            ),
        },
    }
}

fn by_name(name: &str, routes: &Routes, record: &mut Record) -> Result<Found, Box<Rejection>> {
    if let Some(served) = routes.models.get(name).or_else(|| routes.aliases.get(name)) {
        return Ok((Arc::clone(served), routes.body_based.then(|| ModelHeaders::of(served))));
    }
    record.asked_model = Some(name.into());
    match &routes.fallback {
        Some(Fallback::OnlyPool(served)) => Ok((Arc::clone(served), None)),
        Some(Fallback::DefaultBackend(served)) => {
            // A name that is no header value goes without: the body still says it.
            let model = HeaderValue::from_str(name).ok();
            Ok((Arc::clone(served), model.map(|model| ModelHeaders { base: model.clone(), model })))
        }
        None => Err(Box::new(Rejection::new(Reason::ModelNotFound, NO_MATCHING_MODEL).param("model"))),
    }
}

fn model_required(what: &str) -> Box<Rejection> {
    let message = match what {
        "missing" => format!("model is missing: {}", advice()),
        must_be => format!("model must be {must_be}: {}", advice()),
    };
    Box::new(Rejection::new(Reason::ModelRequired, message).param("model"))
}

/// What the contract's 404 tells people to do.
fn advice() -> &'static str {
    NO_MATCHING_MODEL.split_once(": ").map_or(NO_MATCHING_MODEL, |(_, advice)| advice)
}

fn prompt(head: Option<&Head>, served: &Served) -> (Vec<u64>, u32) {
    let mut prefix = Vec::new();
    let Some(head) = head else { return (prefix, 0) };
    head.prompt.chain(Seed { model: &served.model }, &mut prefix);
    (prefix, prompt_tokens(Some(head)))
}

/// The prompt's length, estimated.
fn prompt_tokens(head: Option<&Head>) -> u32 {
    let tokens = head.map_or(0, |head| head.prompt.bytes().div_ceil(BYTES_PER_TOKEN));
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// Whether a body of this shape and content type is read as multipart form data.
fn is_multipart(shape: BodyShape, content_type: Option<&HeaderValue>) -> bool {
    let labelled = content_type
        .and_then(|value| value.as_bytes().get(..MULTIPART.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(MULTIPART.as_bytes()));
    match shape {
        BodyShape::Multipart => true,
        BodyShape::JsonOrMultipart | BodyShape::Any => labelled,
        BodyShape::Json | BodyShape::None => false,
    }
}

const MULTIPART: &str = "multipart/form-data";
