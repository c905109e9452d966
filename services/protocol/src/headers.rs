//! Header names that the gateway gives a meaning, and those that never pass through it.
//!
//! Names only: which of them are honoured, and for whom, is decided where requests are routed.

use http::HeaderName;

/// The model as the client named it: set by the gateway for the endpoint.
pub const MODEL_NAME: HeaderName = HeaderName::from_static("x-gateway-model-name");
/// The base model of an adapter, or the model itself: set by the gateway for the endpoint.
pub const BASE_MODEL_NAME: HeaderName = HeaderName::from_static("x-gateway-base-model-name");
/// The chosen endpoint, `ip:port`, in the endpoint picker protocol.
pub const DESTINATION: HeaderName = HeaderName::from_static("x-gateway-destination-endpoint");
/// The endpoint that gave the answer, in the same protocol.
pub const DESTINATION_SERVED: HeaderName = HeaderName::from_static("x-gateway-destination-endpoint-served");
/// The endpoints a choice is restricted to, in the same protocol.
pub const DESTINATION_SUBSET: HeaderName = HeaderName::from_static("x-gateway-destination-endpoint-subset");
/// The InferenceObjective of a request, in its two spellings: the first one present counts.
pub const OBJECTIVE: [HeaderName; 2] =
    [HeaderName::from_static("x-gateway-inference-objective"), HeaderName::from_static("x-llm-d-inference-objective")];
/// The flow of a request, in its two spellings: the first one present counts.
pub const FAIRNESS_ID: [HeaderName; 2] = [
    HeaderName::from_static("x-gateway-inference-fairness-id"),
    HeaderName::from_static("x-llm-d-inference-fairness-id"),
];
/// Milliseconds within which the client wants the first token, in its two spellings: the first one present counts.
pub const SLO_TTFT_MS: [HeaderName; 2] =
    [HeaderName::from_static("x-slo-ttft-ms"), HeaderName::from_static("x-llm-d-slo-ttft-ms")];
/// Why the gateway refused a request that was in order: the reason's label. On every 429 and 503 of ours.
pub const DROPPED_REASON: HeaderName = HeaderName::from_static("x-gateway-request-dropped-reason");
/// The same in the words of the endpoint picker protocol, where it has one: see [`crate::Reason::dropped`].
pub const PICKERS_DROPPED_REASON: HeaderName = HeaderName::from_static("x-llm-d-request-dropped-reason");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The same id in answers of Anthropic's API, whose libraries look for it under this name.
pub const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Tells the OpenAI and Anthropic libraries whether to try again: see [`crate::Reason::should_retry`].
pub const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// How the names begin of headers that tell a client what is left of its quotas.
pub const RATE_LIMIT_PREFIX: &str = "x-ratelimit-";

/// Headers about one connection: they end at it, in both directions. So do those that `Connection` names.
pub const HOP_BY_HOP: [HeaderName; 9] = [
    http::header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    http::header::PROXY_AUTHENTICATE,
    http::header::PROXY_AUTHORIZATION,
    http::header::TE,
    http::header::TRAILER,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
];

pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// Whether a client's copy of a header could steer a request past the gateway's own choice: such a copy is dropped
/// before anything reads the headers as the gateway's, and never reaches an endpoint.
pub fn is_control(name: &HeaderName) -> bool {
    let name = name.as_str();
    CONTROL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || CONTROL.contains(&name)
}

/// Families of control headers, so that a spelling that a later picker adds is not let through.
const CONTROL_PREFIXES: [&str; 5] = [
    "x-gateway-model-name",
    "x-gateway-base-model-name",
    "x-gateway-destination-endpoint",
    "x-gateway-inference-",
    "x-llm-d-",
];

/// The rest: latency goals in their short spelling, the addresses by which a disaggregating sidecar or a
/// data-parallel front would be told whom to call, the picker's profile, and what a conformance test reads from the picker.
const CONTROL: [&str; 8] = [
    "x-slo-ttft-ms",
    "x-slo-tpot-ms",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
    "epp-profile",
    "x-conformance-test-served-endpoint",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_picker_protocol_knows_is_control() {
        let named = [MODEL_NAME, BASE_MODEL_NAME, DESTINATION, DESTINATION_SERVED, DESTINATION_SUBSET];
        for name in named.iter().chain(&OBJECTIVE).chain(&FAIRNESS_ID).chain(&SLO_TTFT_MS) {
            assert!(is_control(name), "{name}");
        }
        for name in [
            "x-llm-d-model-name-rewrite",
            "x-gateway-model-name-rewrite",
            "x-llm-d-slo-ttft-ms",
            "x-gateway-destination-endpoint-fallback",
            "X-Prefiller-Host-Port",
            "EPP-Profile",
        ] {
            assert!(is_control(&name.parse().unwrap()), "{name}");
        }
    }

    #[test]
    fn a_clients_ordinary_headers_pass() {
        for name in [
            "authorization",
            "x-request-id",
            "x-data-parallel-rank",
            "x-vllm-priority",
            "x-session-id",
            "x-gateway-team",
            "traceparent",
            "prefer",
            "content-type",
        ] {
            let name = name.parse().unwrap();
            assert!(!is_control(&name) && !is_hop_by_hop(&name), "{name}");
        }
        assert!(is_hop_by_hop(&"Keep-Alive".parse().unwrap()));
    }
}
