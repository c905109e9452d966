//! What the operator says they want.
//!
//! Kubernetes documents, from files or from a cluster, become one checked [`Config`]: each text is composed into trees
//! that remember lines ([`load()`] step 1), each tree is held against the schema of its kind (2), rules that span fields
//! and documents are tried (3), fields whose effect is not built yet are refused (4), and only when nothing was wrong
//! the typed documents become the `Config` (5). Every violation is found in one go, because an operator who mends one
//! and then meets the next has been served badly.
//!
//! A knob is declared once, as a field of a document's struct with its type, unit, bounds, default and a sentence on
//! who would change it and why: the schema, the defaults and `docs/config.md` all come from there.
//!
//! The crate refuses to do IO: files are read by `discovery`, keys and certificates by whoever uses them. It knows
//! neither the observed world (`pool`) nor the wire (`protocol`).

pub use config::{
    ApiKeySource, ApiKeys, AppProtocol, Auth, Band, BandClaim, Bands, Bbr, ClaimHolds, Config, EndpointFull,
    EndpointSpec, EndpointTls, EngineType, Eviction, Fairness, FlowBand, FlowControl, Hidden, Jwt, KeyPair, Limit,
    LimitKey, Objective, Ordering, PickerProfile, RequiredClaim, Rewrite, RewriteTarget, Scheduler, Signals, Timeouts,
    Tls, Usage, Weights,
};
pub use duration::GatewayDuration;
pub use load::{load, load_from_cluster, load_in_cluster};
pub use quantity::ByteQuantity;
pub use reference::{config_json_schema, config_reference_markdown};
pub use selector::{Operator, Requirement, Selector};
pub use violation::{Source, Violation, Violations};

pub mod cluster;
pub mod config;
pub mod crd;
pub mod document;
mod duration;
mod effect;
mod format;
mod load;
pub mod names;
mod place;
mod quantity;
mod reference;
mod resolve;
mod rules;
mod schema;
mod secret;
mod selector;
mod violation;
mod yaml;

/// A configuration that may be put in force, and what the operator should be told about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What programs run on.
    pub config: Config,
    /// What was accepted and has no effect here, or is worth a look; each as `file:line: field: message`.
    pub notices: Vec<String>,
    /// What is wrong with objects beside a configuration of a cluster (adapters, objectives, rewrites), each of which was
    /// left out. In files that is a violation.
    pub left_out: Vec<Violation>,
}
