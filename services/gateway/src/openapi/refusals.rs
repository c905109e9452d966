//! The gateway's refusals, one answer per status of the reason table and per shape of error object.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{Api, Reason, path::Dialect};
use utoipa::openapi::{
    Content, Ref, RefOr, Response, Schema, Type,
    response::ResponseBuilder,
    schema::{ObjectBuilder, SchemaType},
};

use super::headers::{
    ALLOW, DROPPED_REASON_ANSWERED, PICKERS_DROPPED_REASON_ANSWERED, RATE_LIMITS, RETRY_AFTER, SHOULD_RETRY_ANSWERED,
    WWW_AUTHENTICATE, of_every_answer, ref_of_answer,
};

/// Shapes of error objects, which are fewer than dialects of event streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    OpenAi,
    Anthropic,
}

impl Shape {
    const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    fn of(api: Api) -> Self {
        match api.dialect() {
            Dialect::OpenAi | Dialect::Responses => Self::OpenAi,
            Dialect::Anthropic => Self::Anthropic,
        }
    }

    const fn dialect(self) -> Dialect {
        match self {
            Self::OpenAi => Dialect::OpenAi,
            Self::Anthropic => Dialect::Anthropic,
        }
    }

    const fn schema(self) -> &'static str {
        match self {
            Self::OpenAi => "Error",
            Self::Anthropic => "AnthropicError",
        }
    }

    fn response(self, status: u16) -> String {
        match self {
            Self::OpenAi => format!("Refused{status}"),
            Self::Anthropic => format!("AnthropicRefused{status}"),
        }
    }

    fn type_of(self, reason: Reason) -> &'static str {
        match self {
            Self::OpenAi => reason.row().openai_type,
            Self::Anthropic => reason.row().anthropic_type,
        }
    }
}

/// Reasons that a client can read: who left reads nothing.
fn told() -> impl Iterator<Item = Reason> {
    Reason::ALL.into_iter().filter(|reason| *reason != Reason::ClientGone)
}

/// The answers that an operation can be refused with, by status.
pub(super) fn of(api: Api) -> impl Iterator<Item = (String, Ref)> {
    let shape = Shape::of(api);
    let statuses: BTreeSet<u16> =
        told().filter(|reason| applies(*reason, api)).map(|reason| reason.row().status).collect();
    statuses.into_iter().map(move |status| (status.to_string(), Ref::from_response_name(shape.response(status))))
}

/// Whether a request of an API can meet a reason. What the gateway answers itself has no body and no endpoint.
fn applies(reason: Reason, api: Api) -> bool {
    let answered_here = matches!(api, Api::Models | Api::Model);
    match reason {
        Reason::InvalidRequest
        | Reason::Unauthenticated
        | Reason::Forbidden
        | Reason::PathNotFound
        | Reason::HeadTooLarge
        | Reason::RequestTimeout
        | Reason::QuotaExceeded
        | Reason::Draining
        | Reason::Internal => true,
        Reason::ModelNotFound => api != Api::Models,
        Reason::ModelRequired
        | Reason::UnsupportedEncoding
        | Reason::BodyTooLarge
        | Reason::RouteInvalid
        | Reason::QueueFull
        | Reason::ExpiredInQueue
        | Reason::Shed
        | Reason::Evicted
        | Reason::NoEndpoint
        | Reason::EndpointUnreachable
        | Reason::BodyMemory
        | Reason::EndpointBroke
        | Reason::EndpointTimeout => !answered_here,
        Reason::ClientGone => false,
    }
}

/// Whether a request may be refused for it once limits have been asked: then the answer says what is left of them.
fn follows_limits(reason: Reason) -> bool {
    match reason {
        Reason::QuotaExceeded
        | Reason::QueueFull
        | Reason::ExpiredInQueue
        | Reason::Shed
        | Reason::Evicted
        | Reason::NoEndpoint
        | Reason::EndpointUnreachable
        | Reason::Draining
        | Reason::EndpointBroke
        | Reason::EndpointTimeout => true,
        Reason::InvalidRequest
        | Reason::ModelRequired
        | Reason::UnsupportedEncoding
        | Reason::Unauthenticated
        | Reason::Forbidden
        | Reason::ModelNotFound
        | Reason::PathNotFound
        | Reason::BodyTooLarge
        | Reason::HeadTooLarge
        | Reason::RequestTimeout
        | Reason::RouteInvalid
        | Reason::BodyMemory
        | Reason::ClientGone
        | Reason::Internal => false,
    }
}

/// Components for all of them.
pub(super) fn responses() -> Vec<(String, Response)> {
    let mut by_status: BTreeMap<u16, Vec<Reason>> = BTreeMap::new();
    for reason in told() {
        by_status.entry(reason.row().status).or_default().push(reason);
    }
    let pairs = by_status.iter().flat_map(|pair| Shape::ALL.map(|shape| (shape, pair)));
    pairs.map(|(shape, (status, reasons))| (shape.response(*status), response(shape, reasons))).collect()
}

fn response(shape: Shape, reasons: &[Reason]) -> Response {
    let words: Vec<String> = reasons.iter().map(|reason| words(shape, *reason)).collect();
    let headers = [
        (RETRY_AFTER, reasons.iter().any(|reason| reason.has_retry_after())),
        (DROPPED_REASON_ANSWERED, reasons.iter().any(|reason| reason.has_retry_after())),
        (PICKERS_DROPPED_REASON_ANSWERED, reasons.iter().any(|reason| reason.dropped().is_some())),
        (
            SHOULD_RETRY_ANSWERED,
            // A token is worth sending again where the keys that check it are not there yet.
            reasons.iter().any(|reason| reason.should_retry().is_some() || *reason == Reason::Unauthenticated),
        ),
        (WWW_AUTHENTICATE, reasons.iter().any(|reason| matches!(reason, Reason::Unauthenticated | Reason::Forbidden))),
        (ALLOW, reasons.contains(&Reason::PathNotFound)),
    ];
    let content = Content::new(Some(Ref::from_schema_name(shape.schema())));
    let response = ResponseBuilder::new().description(words.join("\n")).content("application/json", content);
    let some = headers.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name);
    let limited: &[&str] = if reasons.iter().any(|reason| follows_limits(*reason)) { &RATE_LIMITS } else { &[] };
    let named = of_every_answer(shape.dialect()).iter().chain(limited).copied().chain(some);
    named.fold(response, |response, name| response.header_ref(name, ref_of_answer(name))).build()
}

fn words(shape: Shape, reason: Reason) -> String {
    format!("- `{}` (`{}`): {}.", reason.label(), shape.type_of(reason), reason.row().when)
}

/// Components for the error objects.
pub(super) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    Shape::ALL.map(|shape| (shape.schema().to_owned(), error(shape).into())).into()
}

fn error(shape: Shape) -> ObjectBuilder {
    let text = |words: &str| ObjectBuilder::new().schema_type(Type::String).description(Some(words));
    let types: BTreeSet<&str> = told().map(|reason| shape.type_of(reason)).collect();
    let detail = ObjectBuilder::new()
        .property("message", text("What is wrong and what to do about it."))
        .required("message")
        .property("type", text("By which libraries choose their exception.").enum_values(Some(types)))
        .required("type")
        .property("code", text("The reason, from the closed list of docs/errors.md.").enum_values(Some(codes())))
        .required("code");
    match shape {
        Shape::OpenAi => {
            let param = ObjectBuilder::new()
                .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
                .description(Some("The member of the request that is at fault."));
            let detail = detail.property("param", param).required("param");
            ObjectBuilder::new()
                .description(Some("An error of the gateway. An endpoint's own errors pass unchanged."))
                .property("error", detail)
                .required("error")
        }
        Shape::Anthropic => ObjectBuilder::new()
            .description(Some("An error of the gateway in Anthropic's shape. An endpoint's own errors pass unchanged."))
            .property("type", text("Always `error`.").enum_values(Some(["error"])))
            .required("type")
            .property("error", detail)
            .required("error"),
    }
}

fn codes() -> impl Iterator<Item = &'static str> {
    told().map(Reason::label)
}
