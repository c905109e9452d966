//! `spec.flowControl`: who waits, and who is refused, when a pool is full.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{duration::GatewayDuration, quantity::ByteQuantity};

/// Who waits, and who is refused, when a pool is full.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FlowControl {
    /// Off: every request is sent on at once, however full its pool is.
    ///
    /// Changed by operators that queue elsewhere.
    pub enabled: bool,
    /// When an endpoint has no room.
    pub endpoint_full: EndpointFullAt,
    /// Requests of this gateway at one endpoint; 0: no cap.
    ///
    /// Changed from 0 by operators of engines without metrics, or with small batches (as by vLLM's `--max-num-seqs`), to a few
    /// more than a batch holds: no engine reports how many that are, and a burst may else be sent on by what the cache holds.
    #[schemars(range(max = 1_000_000), extend("x-unit" = "requests"))]
    pub max_in_flight_per_endpoint: u32,
    /// The three bands of priority. A request is in that of the `InferenceObjective` which it names in the header
    /// `x-gateway-inference-objective`.
    pub bands: Bands,
    /// Whose turn it is among waiting requests of one priority. Callers are told apart by the header
    /// `x-gateway-inference-fairness-id`; all requests without it are one caller.
    ///
    /// Changed by operators whose callers send requests of very different cost.
    pub fairness: Fairness,
    /// Which waiting request of one caller is first.
    ///
    /// Changed by operators whose callers send `x-slo-ttft-ms`: within how many milliseconds they want the first token.
    pub ordering: Ordering,
    /// Whether requests of the lowest band that are at an endpoint already give way when others have to wait.
    ///
    /// Changed from `never` by operators whose batch work fills every endpoint, and may be sent twice.
    pub eviction: Eviction,
    /// Which claim of a token chooses the band. Only with `auth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub band_claim: Option<BandClaim>,
}

impl Default for FlowControl {
    fn default() -> Self {
        Self {
            enabled: true,
            endpoint_full: EndpointFullAt::default(),
            max_in_flight_per_endpoint: 0,
            bands: Bands::default(),
            fairness: Fairness::default(),
            ordering: Ordering::default(),
            eviction: Eviction::default(),
            band_claim: None,
        }
    }
}

/// When an endpoint has no room.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EndpointFullAt {
    /// This many requests wait there, per data-parallel rank.
    ///
    /// Changed to higher by operators that want throughput before latency.
    #[schemars(range(min = 1, max = 100_000), extend("x-unit" = "requests"))]
    pub waiting: u32,
    /// This share of its KV cache is used while at least one request waits.
    ///
    /// Changed to higher by operators whose engine preempts seldom.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0, "x-unit" = "share, 0 to 1"))]
    pub kv_cache: f64,
}

impl Default for EndpointFullAt {
    fn default() -> Self {
        Self { waiting: 5, kv_cache: 0.8 }
    }
}

/// The three bands of priority; higher ones go first.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Bands {
    /// Objectives of a priority above 0.
    pub critical: CriticalBand,
    /// Objectives of priority 0, and requests without one.
    pub standard: StandardBand,
    /// Objectives of a priority below 0.
    pub sheddable: SheddableBand,
}

/// The bands have the same fields and different defaults, so each is a struct of its own.
macro_rules! band {
    ($(#[$doc:meta])* $name:ident: $saturation:literal, $wait_s:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
        pub struct $name {
            /// The pool's saturation up to which the band is served at once. What is above stays for higher bands.
            ///
            /// Changed to lower by operators that reserve more for higher bands.
            #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0.0, "x-unit" = "share, 0 to 1"))]
            pub max_saturation: f64,
            /// Longest wait for room; `0s`: none, an immediate 429.
            ///
            /// Changed by operators whose clients retry by themselves, to `0s`.
            #[schemars(extend("x-at-most" = "10m"))]
            pub max_wait: GatewayDuration,
            /// Requests that may wait, per pool.
            ///
            /// Changed by operators of bursty callers.
            #[schemars(range(max = 1_000_000), extend("x-unit" = "requests"))]
            pub max_queued_requests: u32,
            /// Bodies that may wait, per pool. A larger body does not wait.
            ///
            /// Changed by operators with more memory, or less.
            #[schemars(extend("x-unit" = "bytes"))]
            pub max_queued_bytes: ByteQuantity,
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    max_saturation: $saturation,
                    max_wait: GatewayDuration::from_s($wait_s),
                    max_queued_requests: 1_000,
                    max_queued_bytes: ByteQuantity(64 << 20),
                }
            }
        }
    };
}

band! {
    /// Requests that go first.
    CriticalBand: 1.0, 30
}
band! {
    /// Requests of no special kind.
    StandardBand: 0.9, 10
}
band! {
    /// Requests that are refused first.
    SheddableBand: 0.8, 0
}

/// Whose turn it is inside a band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Fairness {
    /// One request of each caller in turn.
    #[default]
    RoundRobin,
    /// The caller that was served fewest tokens in the last minutes.
    LeastAttainedService,
}

/// Which request of one caller is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Ordering {
    /// The oldest.
    #[default]
    Fcfs,
    /// The one whose deadline is nearest; without one, the end of its longest wait counts as such.
    Deadline,
}

/// Whether running work of the lowest band gives way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Eviction {
    /// What was sent to an endpoint stays there.
    #[default]
    Never,
    /// Sheddable requests without a byte of their answer are cancelled and get a 429 while a higher band waits: one for each
    /// that waits, at most, which makes no room where many more than `endpointFull.waiting` queue already. Not those that were
    /// sent before this was set.
    BeforeFirstByte,
}

/// Which claim of a token chooses the band.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BandClaim {
    /// The claim's name.
    ///
    /// Changed by platform teams.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The band of each value; others are `standard`.
    ///
    /// Changed by platform teams, when a tier is sold.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 100))]
    pub values: BTreeMap<String, BandName>,
}

/// A band's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BandName {
    /// First.
    Critical,
    /// In between.
    Standard,
    /// Refused first.
    Sheddable,
}
