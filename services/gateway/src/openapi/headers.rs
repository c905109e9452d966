//! Headers that the gateway gives a meaning, in requests and in answers.

use std::collections::{BTreeMap, BTreeSet};

use http::HeaderName;
use protocol::{
    Reason,
    headers::{
        ANTHROPIC_REQUEST_ID, DROPPED_REASON, FAIRNESS_ID, OBJECTIVE, PICKERS_DROPPED_REASON, REQUEST_ID, SHOULD_RETRY,
        SLO_TTFT_MS,
    },
    path::Dialect,
};
use utoipa::openapi::{
    Header, Object, Ref, RefOr, Required, Type,
    header::HeaderBuilder,
    path::{Parameter, ParameterBuilder, ParameterIn},
    schema::ObjectBuilder,
};

use crate::{limits, request_id};

/// Names of the request headers' components, in the order in which they are listed.
const OF_REQUESTS: [&str; 4] = ["RequestId", "Objective", "FairnessId", "SloTtftMs"];

/// Of every answer.
const REQUEST_ID_ANSWERED: &str = "x-request-id";
/// The same, of Anthropic's API.
const ANTHROPIC_REQUEST_ID_ANSWERED: &str = "request-id";
/// Of 429 and 503.
pub(super) const RETRY_AFTER: &str = "Retry-After";
/// Of refusals where the libraries' own rule would be wrong.
pub(super) const SHOULD_RETRY_ANSWERED: &str = "x-should-retry";
/// Of 429 and 503, too.
pub(super) const DROPPED_REASON_ANSWERED: &str = "x-gateway-request-dropped-reason";
/// Of those that the endpoint picker protocol has a word for.
pub(super) const PICKERS_DROPPED_REASON_ANSWERED: &str = "x-llm-d-request-dropped-reason";
/// Of 401.
pub(super) const WWW_AUTHENTICATE: &str = "WWW-Authenticate";
/// Of a path asked by another method.
pub(super) const ALLOW: &str = "Allow";

/// Of answers to requests for which a limit of the configuration counts: requests and tokens, each with its limit, what
/// remains, and when all will be back.
pub(super) const RATE_LIMITS: [&str; 6] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];

/// What each operation of the data port takes.
pub(super) fn refs_of_requests() -> impl Iterator<Item = Ref> {
    OF_REQUESTS.into_iter().map(|name| Ref::new(format!("#/components/parameters/{name}")))
}

/// The headers of every answer of an API, by name.
pub(super) fn of_every_answer(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::OpenAi | Dialect::Responses => &[REQUEST_ID_ANSWERED],
        Dialect::Anthropic => &[REQUEST_ID_ANSWERED, ANTHROPIC_REQUEST_ID_ANSWERED],
    }
}

/// A header of an answer, by its name.
pub(super) fn ref_of_answer(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

/// Components for the requests' headers.
pub(super) fn of_requests() -> BTreeMap<String, RefOr<Parameter>> {
    let [objective, objective_alias] = OBJECTIVE;
    let [fairness, fairness_alias] = FAIRNESS_ID;
    let [slo, slo_alias] = SLO_TTFT_MS;
    let texts = [
        (
            REQUEST_ID.to_string(),
            format!(
                "Names the request in every log and under `/api/v1/decisions/`. Kept if it is printable ASCII without \
                 spaces and at most {} characters; else the gateway makes one.",
                request_id::LENGTH_MAX
            ),
        ),
        (
            objective.to_string(),
            format!(
                "The request's InferenceObjective, whose priority says in which band it is served (also read as \
                 `{objective_alias}`). One that the pool does not have counts as priority 0. Never sent on."
            ),
        ),
        (
            fairness.to_string(),
            format!(
                "The flow that the request belongs to: flows of one priority take turns while they wait (also read as \
                 `{fairness_alias}`). Requests without it are one flow. Never sent on."
            ),
        ),
        (
            slo.to_string(),
            format!(
                "Whole milliseconds within which the first token is wanted (also read as `{slo_alias}`); at most an hour. \
                 It orders waiting requests of one flow under `ordering: deadline`. Never sent on."
            ),
        ),
    ];
    let parameter = |(name, words): (String, String)| {
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(Required::False)
            .description(Some(words))
            .schema(Some(Object::with_type(Type::String)))
            .build();
        RefOr::T(parameter)
    };
    OF_REQUESTS.into_iter().map(str::to_owned).zip(texts.map(parameter)).collect()
}

/// Components for the answers' headers.
pub(super) fn of_answers() -> BTreeMap<String, RefOr<Header>> {
    debug_assert_eq!(ANTHROPIC_REQUEST_ID_ANSWERED, ANTHROPIC_REQUEST_ID.as_str());
    debug_assert_eq!((REQUEST_ID_ANSWERED, SHOULD_RETRY_ANSWERED), (REQUEST_ID.as_str(), SHOULD_RETRY.as_str()));
    debug_assert_eq!(DROPPED_REASON_ANSWERED, DROPPED_REASON.as_str());
    debug_assert_eq!(PICKERS_DROPPED_REASON_ANSWERED, PICKERS_DROPPED_REASON.as_str());
    debug_assert!(limits::REQUESTS.iter().chain(&limits::TOKENS).map(HeaderName::as_str).eq(RATE_LIMITS));
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    let headers = [
        (REQUEST_ID_ANSWERED, text(), "The request's id: the client's, or the one that the gateway made."),
        (ANTHROPIC_REQUEST_ID_ANSWERED, text(), "The same id, under the name by which Anthropic's libraries know it."),
        (RETRY_AFTER, seconds, "Whole seconds after which to come back."),
        (
            SHOULD_RETRY_ANSWERED,
            text().enum_values(Some(["true", "false"])),
            "Tells OpenAI's and Anthropic's libraries whether trying again can help; absent where the client decides.",
        ),
        (
            DROPPED_REASON_ANSWERED,
            text().enum_values(Some(dropped(|reason| reason.has_retry_after().then(|| reason.label())))),
            "The reason, as in the error's `code`.",
        ),
        (
            PICKERS_DROPPED_REASON_ANSWERED,
            text().enum_values(Some(dropped(Reason::dropped))),
            "The reason in the words of the endpoint picker protocol, where it has one.",
        ),
        (WWW_AUTHENTICATE, text(), "How to authenticate."),
        (ALLOW, text(), "Methods that the path takes, when it was asked by another one."),
    ];
    headers
        .into_iter()
        .chain(of_rate_limits())
        .map(|(name, schema, words)| {
            let header = HeaderBuilder::new().schema(Some(schema)).description(Some(words)).build();
            (name.to_owned(), RefOr::T(header))
        })
        .collect()
}

/// An endpoint's own headers of these names are not passed on where a limit of the gateway counts.
fn of_rate_limits() -> impl Iterator<Item = (&'static str, ObjectBuilder, &'static str)> {
    let count = || ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    let time = || ObjectBuilder::new().schema_type(Type::String).examples(["12ms", "1s", "6m0s"]);
    let words = [
        "What the tightest limit of requests that counts for the caller allows in a minute. Only where one does.",
        "What is left of it now.",
        "When all of it is back.",
        "What the tightest limit of tokens that counts for the caller allows in a minute. Only where one does.",
        "What is left of it now, with an estimate taken off for requests that are still answered.",
        "When all of it is back.",
    ];
    let schemas = [count(), count(), time(), count(), count(), time()];
    RATE_LIMITS.into_iter().zip(schemas).zip(words).map(|((name, schema), words)| (name, schema, words))
}

/// Every word that reasons have, once.
fn dropped(word: impl Fn(Reason) -> Option<&'static str>) -> BTreeSet<&'static str> {
    Reason::ALL.into_iter().filter_map(word).collect()
}
