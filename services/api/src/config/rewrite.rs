//! Which models requests are sent to in place of those that they name.

/// One rule. In [`Config::rewrites`](crate::Config) the first that fits a request counts, once those without a model have
/// been put last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// The scheduler whose requests it is for; one of the configuration.
    pub pool: String,
    /// What requests name; empty: whatever they name.
    pub models: Vec<String>,
    /// What they are sent to; never empty.
    pub targets: Vec<RewriteTarget>,
}

/// A model that requests are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewriteTarget {
    /// The name that is put in the request.
    pub model: String,
    /// Its share among those of its rule, 1 to 1,000,000.
    pub weight: u32,
}
