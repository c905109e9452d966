//! Why a request was not served: the closed list, and everything that follows from each entry.
//!
//! One table, because status, error object, metric label, retry advice and blame drift apart as soon as they are decided
//! in different places: a client's mistake counted against an endpoint ejects it, an overload reported as 500 is retried
//! at once. Nothing else in the product picks an HTTP status for a refusal. A new entry is a new row; the compiler
//! points at the rest.

use std::fmt::Write as _;

use http::StatusCode;

/// Why a request was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    InvalidRequest,
    ModelRequired,
    UnsupportedEncoding,
    Unauthenticated,
    Forbidden,
    ModelNotFound,
    PathNotFound,
    BodyTooLarge,
    HeadTooLarge,
    RequestTimeout,
    RouteInvalid,
    QuotaExceeded,
    QueueFull,
    ExpiredInQueue,
    Shed,
    Evicted,
    NoEndpoint,
    EndpointUnreachable,
    BodyMemory,
    Draining,
    EndpointBroke,
    EndpointTimeout,
    ClientGone,
    Internal,
}

/// Whose fault a refusal is: what may be counted against an endpoint, and what wakes a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request cannot be served as it is, or the client left.
    Client,
    /// A mistake in the gateway or in its configuration.
    Gateway,
    /// An endpoint failed.
    Endpoint,
    /// More was asked than there is room for, or nothing is there to serve it.
    Capacity,
}

/// Whether sending the same request again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request would fail again.
    Never,
    /// Yes, after the time that the answer gives.
    Later,
    /// Perhaps; a try may have run already, so nobody but the client can decide.
    ClientDecides,
}

/// What follows from a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub reason: Reason,
    /// Metric label, log field and `code` of the error object.
    pub label: &'static str,
    /// HTTP status. 499 is for logs alone: nobody is left to read it.
    pub status: u16,
    pub openai_type: &'static str,
    pub anthropic_type: &'static str,
    pub retry: Retry,
    pub fault: Fault,
    /// One sentence for operators.
    pub when: &'static str,
}

impl Reason {
    /// Every reason, in the order of the table.
    pub const ALL: [Self; 24] = [
        Self::InvalidRequest,
        Self::ModelRequired,
        Self::UnsupportedEncoding,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::ModelNotFound,
        Self::PathNotFound,
        Self::BodyTooLarge,
        Self::HeadTooLarge,
        Self::RequestTimeout,
        Self::RouteInvalid,
        Self::QuotaExceeded,
        Self::QueueFull,
        Self::ExpiredInQueue,
        Self::Shed,
        Self::Evicted,
        Self::NoEndpoint,
        Self::EndpointUnreachable,
        Self::BodyMemory,
        Self::Draining,
        Self::EndpointBroke,
        Self::EndpointTimeout,
        Self::ClientGone,
        Self::Internal,
    ];

    pub const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    pub const fn label(self) -> &'static str {
        self.row().label
    }

    /// The status of the answer; 499 for [`Reason::ClientGone`], which has none.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().status).expect("the table holds statuses between 100 and 999")
    }

    pub const fn fault(self) -> Fault {
        self.row().fault
    }

    pub const fn retry(self) -> Retry {
        self.row().retry
    }

    /// Whether the answer must carry `Retry-After`: every 429 and 503 does.
    pub const fn has_retry_after(self) -> bool {
        matches!(self.row().status, 429 | 503)
    }

    /// The value of `x-should-retry`, by which the OpenAI and Anthropic clients let a server overrule their own table of
    /// statuses to retry. Nothing where their default is right.
    pub const fn should_retry(self) -> Option<&'static str> {
        match self.retry() {
            Retry::Never => Some("false"),
            Retry::Later => Some("true"),
            Retry::ClientDecides => None,
        }
    }

    /// The value of `x-llm-d-request-dropped-reason`: the word by which the reference endpoint picker calls what flow
    /// control did, for scripts and dashboards that know it. Nothing where it has no word.
    pub const fn dropped(self) -> Option<&'static str> {
        match self {
            Self::QueueFull | Self::Shed => Some("rejected-saturated"),
            Self::ExpiredInQueue => Some("rejected-ttl-expired"),
            Self::Evicted => Some("evicted"),
            Self::NoEndpoint => Some("rejected-no-endpoints"),
            Self::Draining => Some("rejected-shutting-down"),
            Self::InvalidRequest
            | Self::ModelRequired
            | Self::UnsupportedEncoding
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::ModelNotFound
            | Self::PathNotFound
            | Self::BodyTooLarge
            | Self::HeadTooLarge
            | Self::RequestTimeout
            | Self::RouteInvalid
            | Self::QuotaExceeded
            | Self::EndpointUnreachable
            | Self::BodyMemory
            | Self::EndpointBroke
            | Self::EndpointTimeout
            | Self::ClientGone
            | Self::Internal => None,
        }
    }

    /// Whether the connection must be closed after the answer.
    pub const fn closes_connection(self) -> bool {
        matches!(self, Self::Draining | Self::BodyTooLarge | Self::HeadTooLarge | Self::RequestTimeout)
    }
}

/// The table as a Markdown page.
pub fn reasons_markdown() -> String {
    let mut page = String::from(MARKDOWN_HEAD);
    for row in &TABLE {
        let status = if row.reason == Reason::ClientGone {
            "– (499 in logs)".to_owned()
        } else if row.reason.has_retry_after() {
            format!("{} + `Retry-After`", row.status)
        } else {
            row.status.to_string()
        };
        let retry = match row.retry {
            Retry::Never => "no (`x-should-retry: false`)",
            Retry::Later => "later (`x-should-retry: true`)",
            Retry::ClientDecides => "the client decides",
        };
        let fault = match row.fault {
            Fault::Client => "client",
            Fault::Gateway => "gateway",
            Fault::Endpoint => "endpoint",
            Fault::Capacity => "capacity",
        };
        writeln!(
            page,
            "| `{}` | {status} | `{}` | `{}` | {retry} | {fault} | {} | {} |",
            row.label,
            row.openai_type,
            row.anthropic_type,
            row.reason.dropped().map_or_else(|| "–".to_owned(), |word| format!("`{word}`")),
            row.when
        )
        .expect("writing to a String does not fail");
    }
    page
}

const MARKDOWN_HEAD: &str = "# Why a request was not served

Generated from `services/protocol/src/reason.rs` by `cargo xtask codegen`; do not edit.

Every refusal of the gateway has one reason of this list. It is the `code` of the error object, the `outcome` label of
`inference_gateway_requests_total` and the `outcome` of the log line. Errors of an endpoint are not in the list: they
pass on unchanged. After the first byte of a streamed answer the status is out, and the reason comes as an
error event. Every 429 and 503 of the gateway has its reason in `x-gateway-request-dropped-reason` too, and, where the
reference endpoint picker has a word for it, that word in `x-llm-d-request-dropped-reason` (the column *dropped*).

| reason | HTTP status | OpenAI `type` | Anthropic `type` | retry? | fault | dropped | when |
|---|---|---|---|---|---|---|---|
";

const fn row(
    reason: Reason,
    label: &'static str,
    status: u16,
    types: (&'static str, &'static str),
    verdict: (Retry, Fault),
    when: &'static str,
) -> Row {
    let ((openai_type, anthropic_type), (retry, fault)) = (types, verdict);
    Row { reason, label, status, openai_type, anthropic_type, retry, fault, when }
}

// Types that more than one row has: (OpenAI's, Anthropic's).
const INVALID: (&str, &str) = ("invalid_request_error", "invalid_request_error");
const NOT_FOUND: (&str, &str) = ("not_found_error", "not_found_error");
const OVERLOADED: (&str, &str) = ("overloaded_error", "overloaded_error");
const UNAVAILABLE: (&str, &str) = ("service_unavailable_error", "overloaded_error");
const API: (&str, &str) = ("api_error", "api_error");

// Verdicts that more than one row has.
const CLIENTS: (Retry, Fault) = (Retry::Never, Fault::Client);
const CAPACITY: (Retry, Fault) = (Retry::Later, Fault::Capacity);

/// In the order of the enum: `row` indexes it.
#[rustfmt::skip]
const TABLE: [Row; 24] = [
    row(Reason::InvalidRequest, "invalid_request", 400, INVALID, CLIENTS,
        "The body, a header or the way the request is framed cannot be read"),
    row(Reason::ModelRequired, "model_required", 400, INVALID, CLIENTS,
        "The body names no model, an empty one or something that is no string"),
    row(Reason::UnsupportedEncoding, "unsupported_encoding", 415, INVALID, CLIENTS,
        "The body is compressed in a way that the gateway does not read"),
    row(Reason::Unauthenticated, "unauthenticated", 401, ("authentication_error", "authentication_error"), CLIENTS,
        "No token, or one that does not verify"),
    row(Reason::Forbidden, "forbidden", 403, ("permission_error", "permission_error"), CLIENTS,
        "A good token that may not do this"),
    row(Reason::ModelNotFound, "model_not_found", 404, NOT_FOUND, CLIENTS,
        "No pool serves the model"),
    row(Reason::PathNotFound, "path_not_found", 404, NOT_FOUND, CLIENTS,
        "The path is not one that is forwarded, or not with this method"),
    row(Reason::BodyTooLarge, "body_too_large", 413, ("invalid_request_error", "request_too_large"), CLIENTS,
        "The body is larger than `bbr.maxRequestBodyBytes`, as sent or once decoded"),
    row(Reason::HeadTooLarge, "head_too_large", 431, ("invalid_request_error", "request_too_large"), CLIENTS,
        "The request head is larger than the limit"),
    row(Reason::RequestTimeout, "request_timeout", 408, INVALID, (Retry::ClientDecides, Fault::Client),
        "The client stopped sending in the middle of a request"),
    row(Reason::RouteInvalid, "route_invalid", 500, API, (Retry::Never, Fault::Gateway),
        "The route's back-end reference cannot be resolved"),
    row(Reason::QuotaExceeded, "quota_exceeded", 429, ("rate_limit_error", "rate_limit_error"), CAPACITY,
        "A limit of the configuration is used up for this caller: the message names it, and its unit. A request that alone is more than the limit gets `x-should-retry: false`"),
    row(Reason::QueueFull, "queue_full", 429, OVERLOADED, CAPACITY,
        "Every endpoint is full, and the request may not wait: its band does not, or as much waits as may, or its turn would come too late, or it gave way to a caller with less waiting"),
    row(Reason::ExpiredInQueue, "expired_in_queue", 429, OVERLOADED, CAPACITY,
        "No endpoint had room within the band's longest wait, or before the route's time was over"),
    row(Reason::Shed, "shed", 429, OVERLOADED, CAPACITY,
        "The pool is too loaded for requests of this band"),
    row(Reason::Evicted, "evicted", 429, OVERLOADED, CAPACITY,
        "A request of a higher band needed the place, and nothing of the answer had come yet"),
    row(Reason::NoEndpoint, "no_endpoint", 503, UNAVAILABLE, CAPACITY,
        "The pool has no endpoint that could be used"),
    row(Reason::EndpointUnreachable, "endpoint_unreachable", 503, UNAVAILABLE, (Retry::Later, Fault::Endpoint),
        "None of the chosen endpoints could be connected to; nothing was sent"),
    row(Reason::BodyMemory, "body_memory", 503, UNAVAILABLE, CAPACITY,
        "The bodies held by the gateway together have reached `--body-memory`"),
    row(Reason::Draining, "draining", 503, UNAVAILABLE, CAPACITY,
        "This gateway is shutting down; the connection closes"),
    row(Reason::EndpointBroke, "endpoint_broke", 502, API, (Retry::ClientDecides, Fault::Endpoint),
        "The endpoint closed the connection or broke the protocol before its answer was complete"),
    row(Reason::EndpointTimeout, "endpoint_timeout", 504, ("timeout_error", "timeout_error"),
        (Retry::ClientDecides, Fault::Endpoint),
        "The endpoint's first byte, or the next one, took longer than the limit"),
    row(Reason::ClientGone, "client_gone", 499, ("–", "–"), CLIENTS,
        "The client left before its answer was complete; nothing is sent"),
    row(Reason::Internal, "internal", 500, API, (Retry::Never, Fault::Gateway),
        "A bug in the gateway"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_labels_are_unique() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert_eq!(reason.row().reason, reason);
            assert_eq!(Reason::ALL.iter().filter(|other| other.label() == reason.label()).count(), 1);
            assert_eq!(reason.status().as_u16(), reason.row().status);
        }
    }

    #[test]
    fn labels_are_the_snake_case_of_the_names() {
        for reason in Reason::ALL {
            let mut snake = String::new();
            for letter in format!("{reason:?}").chars() {
                if letter.is_uppercase() && !snake.is_empty() {
                    snake.push('_');
                }
                snake.push(letter.to_ascii_lowercase());
            }
            assert_eq!(reason.label(), snake);
        }
    }

    #[test]
    fn every_429_and_503_says_when_to_come_back_and_nothing_else_does() {
        for reason in Reason::ALL {
            let waits = matches!(reason.status().as_u16(), 429 | 503);
            assert_eq!(reason.has_retry_after(), waits, "{reason:?}");
            assert_eq!(reason.retry() == Retry::Later, waits, "{reason:?}");
        }
    }

    /// The words of the endpoint picker protocol, which other people's scripts know.
    #[test]
    fn what_flow_control_drops_is_called_by_the_pickers_words() {
        let named =
            |word: &str| Reason::ALL.into_iter().filter(|reason| reason.dropped() == Some(word)).collect::<Vec<_>>();
        assert_eq!(named("rejected-saturated"), [Reason::QueueFull, Reason::Shed]);
        assert_eq!(named("rejected-ttl-expired"), [Reason::ExpiredInQueue]);
        assert_eq!(named("rejected-no-endpoints"), [Reason::NoEndpoint]);
        assert_eq!(named("rejected-shutting-down"), [Reason::Draining]);
        assert_eq!(named("evicted"), [Reason::Evicted]);
        assert!(Reason::ALL.into_iter().all(|reason| reason.dropped().is_none() || reason.has_retry_after()));
    }

    #[test]
    fn a_clients_fault_is_never_a_server_error() {
        for reason in Reason::ALL {
            assert_eq!(reason.fault() == Fault::Client, reason.status().is_client_error() && reason.status() != 429);
        }
    }

    #[test]
    fn the_page_has_a_row_for_every_reason() {
        let page = reasons_markdown();
        for reason in Reason::ALL {
            assert_eq!(page.matches(&format!("\n| `{}` |", reason.label())).count(), 1);
        }
        assert!(page.contains("| `queue_full` | 429 + `Retry-After` | `overloaded_error` |"));
    }
}
