//! Where a request goes, by the routes of one Gateway.

use api::cluster::{ObjectKey, Objects};

use crate::{attach::Attached, rule::Rule};

/// The rules of one Gateway, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rules: Vec<Rule>,
}

/// What of a request decides.
#[derive(Clone, Copy)]
pub struct Asked<'r> {
    /// The listener's port, as the Gateway writes it (not the port inside the pod).
    pub port: u16,
    /// Host of the request without a port; empty if it has none.
    pub host: &'r str,
    pub method: &'r str,
    /// Path as it came, without the query.
    pub path: &'r str,
    /// What follows `?`, without it.
    pub query: Option<&'r str>,
    pub headers: &'r dyn HeaderSource,
}

/// Headers of a request.
pub trait HeaderSource {
    /// Whether `test` holds for one of the values of the header `name` (lower case).
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

/// The rule that takes a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found<'t> {
    pub rule: &'t Rule,
    /// Bytes of the path that the rule's prefix match took, without a slash at their end: what
    /// [`crate::filter::PathEdit::Prefix`] replaces. 0 where the match was not of a prefix, or of `/`.
    pub prefix_len: usize,
}

impl Table {
    /// The table of `gateway`; empty if it is not ours.
    ///
    /// Routes with the label and owner of a config are left out: their Gateway routes by its config.
    #[must_use]
    pub fn of(_objects: &Objects, _attached: &Attached, _gateway: &ObjectKey) -> Self {
        Self::default()
    }

    /// The rule that takes a request, by the precedence that the Gateway API lays down.
    #[must_use]
    pub fn find(&self, _asked: &Asked<'_>) -> Option<Found<'_>> {
        self.rules.first().map(|rule| Found { rule, prefix_len: 0 })
    }

    /// Every rule, each once.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }
}
