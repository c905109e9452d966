//! Hostnames of listeners and routes: exact ones, and wildcards whose first label is `*`.
//!
//! Case does not count, and neither does a dot at the end: both are taken away when a name is read, so that comparing on
//! the path of a request copies nothing.

use std::fmt;

/// A hostname, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hostname {
    /// Every host.
    Any,
    /// `*.example.com`, kept as `.example.com`: one or more labels before it.
    Suffix(String),
    /// This host only.
    Exact(String),
}

impl Hostname {
    /// Reads a hostname of a listener or a route; absent or empty means every host.
    #[must_use]
    pub fn read(text: Option<&str>) -> Self {
        let text = text.unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        match text.strip_prefix('*') {
            Some(suffix) if suffix.starts_with('.') => Self::Suffix(suffix.to_owned()),
            Some(_) => Self::Any,
            None if text.is_empty() => Self::Any,
            None => Self::Exact(text),
        }
    }

    /// Whether a request for `host` (without a port) is meant.
    #[must_use]
    pub fn takes(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        match self {
            Self::Any => true,
            Self::Suffix(suffix) => {
                host.len() > suffix.len()
                    && host
                        .as_bytes()
                        .get(host.len() - suffix.len()..)
                        .is_some_and(|it| it.eq_ignore_ascii_case(suffix.as_bytes()))
            }
            Self::Exact(name) => name.eq_ignore_ascii_case(host),
        }
    }

    /// The hosts that both mean, if there are any.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, it) | (it, Self::Any) => Some(it.clone()),
            (Self::Exact(one), two) | (two, Self::Exact(one)) => two.takes(one).then(|| Self::Exact(one.clone())),
            (Self::Suffix(one), Self::Suffix(two)) => {
                let (long, short) = if one.len() >= two.len() { (one, two) } else { (two, one) };
                long.ends_with(short.as_str()).then(|| Self::Suffix(long.clone()))
            }
        }
    }

    /// What wins where several take a host: exact names, then wildcards by length, then everything. Larger wins.
    #[must_use]
    pub fn precision(&self) -> (u8, usize) {
        match self {
            Self::Any => (0, 0),
            Self::Suffix(suffix) => (1, suffix.len()),
            Self::Exact(name) => (2, name.len()),
        }
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
            Self::Exact(name) => f.write_str(name),
        }
    }
}
