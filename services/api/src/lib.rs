//! What the operator says they want.
//!
//! Kubernetes documents, from files or from a cluster, become one checked [`Config`]: each text is composed into trees
//! that remember lines ([`load`] step 1), each tree is held against the schema of its kind (2), rules that span fields
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
    ApiKeySource, AppProtocol, Bbr, Config, EndpointFull, EndpointSpec, EndpointTls, EngineType, PickerProfile,
    Scheduler, Signals, Timeouts, Weights,
};
pub use selector::{Operator, Requirement, Selector};
pub use violation::{Source, Violation, Violations};

pub mod config;
mod selector;
mod violation;

/// A configuration that may be put in force, and what the operator should be told about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What programs run on.
    pub config: Config,
    /// Sentences about what was accepted and has no effect here, each naming its field.
    pub notices: Vec<String>,
}

/// Reads documents into a configuration.
///
/// # Errors
/// Every violation at once, in the order of sources and lines.
pub fn load(sources: &[Source]) -> Result<Loaded, Violations> {
    let first = sources.first().map(|source| source.name.clone()).unwrap_or_default();
    Err(Violations(vec![Violation {
        source: first,
        line: None,
        path: String::new(),
        message: "no document is read".into(),
    }]))
}

/// The page of every field for operators, as Markdown.
pub fn config_reference_markdown() -> String {
    String::new()
}
