//! What is done to requests and answers on their way, as plain data, and the texts that come out of it.

use crate::rule::Target;

/// All filters of a rule, or of one backend of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// Before the request goes on.
    pub request_headers: HeaderEdits,
    /// Before the answer goes back.
    pub response_headers: HeaderEdits,
    /// Answers the request; nothing is forwarded.
    pub redirect: Option<Redirect>,
    pub rewrite: Option<Rewrite>,
    /// Copies of the request, whose answers nobody reads.
    pub mirrors: Vec<Mirror>,
}

/// Changes to headers. Names are in lower case. `set` first, then `add`, then `remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    pub set: Vec<(String, String)>,
    pub add: Vec<(String, String)>,
    pub remove: Vec<String>,
}

/// An answer that sends the client elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<String>,
    pub hostname: Option<String>,
    pub path: Option<PathEdit>,
    pub port: Option<u16>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// Another host or path for the request that goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    pub hostname: Option<String>,
    pub path: Option<PathEdit>,
}

/// Another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEdit {
    /// The whole path is this.
    Full(String),
    /// What the rule's path prefix matched becomes this.
    Prefix(String),
}

/// A copy of some of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub target: Target,
    /// `numerator` of every `denominator` requests; the latter is at least 1.
    pub numerator: u32,
    pub denominator: u32,
}
