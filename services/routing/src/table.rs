//! Where a request goes, by the routes of one Gateway.
//!
//! Asked on every request of such a Gateway, so nothing is copied or allocated: first the listener is found by port and
//! host, then the routes by host, then their matches are tried in the order of precedence. Listeners are walls: a
//! request that belongs to the one with the more exact hostname never meets the routes of another.

mod build;

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use crate::{Hostname, matching::Match, rule::Rule};

/// The rules of one Gateway, ready to be asked.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Listeners by port, the most exact hostname first.
    ports: BTreeMap<u16, Vec<Listener>>,
    rules: Vec<Arc<Rule>>,
}

/// The routes of one listener.
#[derive(Clone, Debug)]
struct Listener {
    hostname: Hostname,
    /// By exact host, sorted.
    exact: Vec<(String, Vec<Entry>)>,
    /// By wildcards, the longest first; every host last.
    wide: Vec<(Hostname, Vec<Entry>)>,
}

/// One match, and the rule (by its place) that it leads to.
#[derive(Clone, Debug)]
struct Entry {
    test: Arc<Match>,
    rule: usize,
}

/// What of a request decides.
#[derive(Clone, Copy)]
pub struct Asked<'r> {
    /// The listener's port, as the Gateway writes it (not the port inside the pod).
    pub port: u16,
    /// Host of the request without a port ([`without_port`]); empty if it has none.
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
    /// Shared, so that it can be kept while newer tables come.
    pub rule: &'t Arc<Rule>,
    /// Bytes of the path that the rule's prefix match took, without a slash at their end: what
    /// [`crate::filter::PathEdit::Prefix`] replaces. 0 where the match was not of a prefix, or of `/`.
    pub prefix_len: usize,
}

impl Table {
    /// The rule that takes a request, by the precedence that the Gateway API lays down.
    #[must_use]
    pub fn find(&self, asked: &Asked<'_>) -> Option<Found<'_>> {
        let listeners = self.ports.get(&asked.port)?;
        let listener = listeners.get(meant(listeners, asked.host)?)?;
        listener.entries(asked.host).flatten().find_map(|entry| {
            let prefix_len = entry.test.takes(asked)?;
            Some(Found { rule: self.rules.get(entry.rule)?, prefix_len })
        })
    }

    /// Every rule, each once.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter()
    }

    /// Whether it holds no rule at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// The listener of one port that a host belongs to.
fn meant(listeners: &[Listener], host: &str) -> Option<usize> {
    listeners.iter().position(|it| it.hostname.takes(host))
}

impl Listener {
    /// The routes for a host, the most exact hostname first.
    fn entries<'l>(&'l self, host: &'l str) -> impl Iterator<Item = &'l [Entry]> {
        let host = host.trim_end_matches('.');
        let exact = self.exact.binary_search_by(|(name, _)| caseless(name, host)).ok();
        let exact = exact.and_then(|at| self.exact.get(at)).map(|(_, entries)| entries.as_slice());
        let wide = self.wide.iter().filter(move |(name, _)| name.takes(host)).map(|(_, entries)| entries.as_slice());
        exact.into_iter().chain(wide)
    }
}

/// Compares a name in lower case with one in any.
fn caseless(lower: &str, other: &str) -> Ordering {
    lower.bytes().cmp(other.bytes().map(|it| it.to_ascii_lowercase()))
}

/// The host of an authority (`example.com:8080`, `[::1]:80`), without its port.
#[must_use]
pub fn without_port(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority.find(']').map_or(authority, |end| authority.get(..=end).unwrap_or(authority));
    }
    authority.split_once(':').map_or(authority, |(host, _)| host)
}
