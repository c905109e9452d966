//! One reachable model-server process, and the states it can be seen in.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

/// Names one life of one endpoint. An endpoint that leaves and comes back, even with the same name and address, gets a
/// new id: a count, a cache entry or a late answer of the former life can never be booked on the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(u64);

impl EndpointId {
    /// For whoever keeps ids of its own, as simulations and tests do. A process uses one [`EndpointIds`].
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The bare number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Hands out ids that are never used twice by this value.
#[derive(Debug, Default)]
pub struct EndpointIds(u64);

impl EndpointIds {
    /// The next unused id.
    pub fn next_id(&mut self) -> EndpointId {
        self.0 += 1;
        EndpointId(self.0)
    }
}

/// An endpoint's identity and where it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// This life of it.
    pub id: EndpointId,
    /// What the operator calls it; for a DNS name with several records, `name/address`. Unique within a pool.
    pub name: Arc<str>,
    /// Where it takes requests.
    pub address: SocketAddr,
}

/// Host and port as written by an operator: `10.0.0.7:8000`, `[fd00::1]:8000` or `llama.example:8000`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// IP address or DNS name.
    pub host: Host,
    /// TCP port, never 0.
    pub port: u16,
}

/// The host half of an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A literal address.
    Ip(IpAddr),
    /// A DNS name, in lower case.
    Name(Arc<str>),
}

/// Why a text is no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an IP address nor a DNS name (letters, digits, `-`, `_` and `.`, at most 253 characters)")]
pub struct InvalidAddress(String);

impl FromStr for Host {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Some(inner) = bare {
            return inner.parse::<Ipv6Addr>().map(|ip| Self::Ip(ip.into())).map_err(|_| InvalidAddress(text.into()));
        }
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let label = |l: &str| {
            !l.is_empty() && l.len() <= 63 && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        // A name whose last label is all digits would be a mistyped IPv4 address, never a host of ours.
        let last_is_number =
            text.trim_end_matches('.').rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
        if text.len() > 253 || last_is_number || !text.trim_end_matches('.').split('.').all(label) {
            return Err(InvalidAddress(text.into()));
        }
        Ok(Self::Name(text.to_ascii_lowercase().into()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// What an operator sees an endpoint as. Exactly one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Its signals are fresh (or it has none to give and is scored neutrally): a candidate.
    Ready,
    /// Its signals are too old, or nobody listens there: a candidate only when no other is better.
    Stale,
    /// Taken out after failures of its own, until a probe of it succeeds.
    Ejected,
    /// Takes no new work and finishes what it has.
    Draining,
    /// Never read yet.
    Starting,
}

impl State {
    /// Every state, in the order in which they are documented.
    pub const ALL: [Self; 5] = [Self::Ready, Self::Stale, Self::Ejected, Self::Draining, Self::Starting];

    /// The word used in the admin API and as a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Stale => "stale",
            Self::Ejected => "ejected",
            Self::Draining => "draining",
            Self::Starting => "starting",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d11_ipv6_is_written_in_brackets_and_read_with_or_without() {
        for text in ["fd00::1", "[fd00::1]"] {
            let address = Address { host: text.parse().unwrap(), port: 8000 };
            assert_eq!(address.to_string(), "[fd00::1]:8000");
        }
    }

    #[test]
    fn hosts() {
        assert_eq!("Llama.Example".parse::<Host>().unwrap().to_string(), "llama.example");
        assert_eq!("10.0.0.7".parse::<Host>().unwrap().to_string(), "10.0.0.7");
        for bad in ["", "a b", "10.0.0.700", "http://x", "a..b", "[10.0.0.7]", "x:80"] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_never_used_twice() {
        let mut ids = EndpointIds::default();
        assert_ne!(ids.next_id(), ids.next_id());
    }
}
