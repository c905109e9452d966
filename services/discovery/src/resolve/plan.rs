//! Which names to look up when, which answers to believe, and which ids live on.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use pool::{Endpoint, EndpointId, EndpointIds, Host};
use tokio::time::Instant;

use super::{
    Found, Want,
    dns::{Answer, Failure, Family},
};

/// A TTL below this would have us ask without end.
const TTL_MIN: Duration = Duration::from_secs(1);

/// A TTL above this would keep us at an address that its owner has long left.
const TTL_MAX: Duration = Duration::from_secs(300);

/// "No such record" is believed for less: somebody is probably about to start the servers.
const EMPTY_TTL_MAX: Duration = Duration::from_secs(30);

/// First wait after a failed look-up; doubled for each further one.
const RETRY_MIN: Duration = Duration::from_secs(1);

/// Longest wait between failed look-ups.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Most addresses believed of one name and family.
const ADDRESSES_MAX: usize = 256;

/// A question for the DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Query {
    pub(super) name: Arc<str>,
    pub(super) family: Family,
}

/// What keeps an id: with any of these changed it is another life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    name: Arc<str>,
    address: SocketAddr,
    identity: u64,
}

/// What is known about one question.
#[derive(Debug)]
struct Known {
    /// The last good answer, sorted.
    addresses: Vec<IpAddr>,
    /// When to ask again; `None` while being asked.
    ask_at: Option<Instant>,
    failures: u32,
}

/// The state of the resolver.
#[derive(Debug, Default)]
pub(super) struct Plan {
    wants: Vec<Arc<Want>>,
    known: BTreeMap<Query, Known>,
    lives: BTreeMap<Life, EndpointId>,
    ids: EndpointIds,
    /// Names that were said to have no address.
    nowhere: BTreeSet<Arc<str>>,
}

impl Plan {
    /// Takes over what is wanted. Names new to us are due at once, names no longer wanted are forgotten.
    pub(super) fn set_wants(&mut self, wants: &[Want], now: Instant) {
        self.wants = wants.iter().cloned().map(Arc::new).collect();
        let queries: BTreeSet<Query> = self.wants.iter().flat_map(|want| queries(&want.host)).collect();
        self.known.retain(|query, _| queries.contains(query));
        self.nowhere.retain(|name| queries.iter().any(|query| query.name == *name));
        for query in queries {
            self.known.entry(query).or_insert(Known { addresses: Vec::new(), ask_at: Some(now), failures: 0 });
        }
    }

    /// A question that is due, marked as being asked.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Query> {
        let due = |known: &Known| known.ask_at.is_some_and(|at| at <= now);
        let (query, known) = self.known.iter_mut().find(|(_, known)| due(known))?;
        known.ask_at = None;
        Some(query.clone())
    }

    /// When the next question falls due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.known.values().filter_map(|known| known.ask_at).min()
    }

    /// Takes in an answer, or the lack of one. One that nobody waits for any more is dropped.
    pub(super) fn answered(&mut self, query: &Query, result: Result<Answer, Failure>, now: Instant) {
        let Some(known) = self.known.get_mut(query) else { return };
        match result {
            Ok(answer) => {
                if known.failures > 0 {
                    tracing::info!(name = &*query.name, family = ?query.family, "name is resolved again");
                }
                known.take(answer, now);
                self.tell_if_nowhere(&query.name);
            }
            Err(failure) => {
                if known.failures == 0 {
                    tracing::warn!(name = &*query.name, family = ?query.family, error = %failure, kept = known.addresses.len(),
                        "name could not be resolved: the addresses known are kept");
                }
                let wait = RETRY_MIN.saturating_mul(1 << known.failures.min(16)).min(RETRY_MAX);
                known.failures = known.failures.saturating_add(1);
                known.ask_at = Some(now + wait);
            }
        }
    }

    /// Names that were said to have no address.
    #[cfg(test)]
    pub(super) fn nowhere(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nowhere.iter()
    }

    /// Says once that a name has no address at all, and says it again only after it had one.
    fn tell_if_nowhere(&mut self, name: &Arc<str>) {
        let mut families = self.known.iter().filter(|(query, _)| query.name == *name);
        if families.any(|(_, known)| !known.addresses.is_empty() || known.ask_at.is_none()) {
            self.nowhere.remove(name);
        } else if self.nowhere.insert(Arc::clone(name)) {
            tracing::warn!(name = &**name, "name has no address: its endpoint gets no requests");
        }
    }

    /// The endpoints there are, sorted by name and address. The same ones as before keep their ids, those that went
    /// lose them for good.
    pub(super) fn found(&mut self) -> Arc<[Found]> {
        let mut lives = BTreeMap::new();
        let mut found = Vec::new();
        for want in &self.wants {
            for (name, ip) in self.places(want) {
                let address = SocketAddr::new(ip, want.port);
                let life = Life { name, address, identity: want.identity };
                let former = lives.get(&life).or_else(|| self.lives.get(&life)).copied();
                let id = former.unwrap_or_else(|| self.ids.next_id());
                let endpoint = Endpoint { id, name: life.name.clone(), address };
                if lives.insert(life, id).is_none() {
                    found.push(Found { endpoint, want: want.clone() });
                }
            }
        }
        self.lives = lives;
        found.sort_by(|a, b| (&a.endpoint.name, a.endpoint.address).cmp(&(&b.endpoint.name, b.endpoint.address)));
        found.into()
    }

    /// Name and address of each endpoint that a want amounts to.
    fn places(&self, want: &Want) -> Vec<(Arc<str>, IpAddr)> {
        match &want.host {
            Host::Ip(ip) => vec![(want.name.clone(), *ip)],
            Host::Name(_) => {
                let answers = queries(&want.host).filter_map(|query| self.known.get(&query));
                let addresses = answers.flat_map(|known| known.addresses.iter().copied());
                addresses.map(|ip| (format!("{}/{ip}", want.name).into(), ip)).collect()
            }
        }
    }
}

impl Known {
    fn take(&mut self, answer: Answer, now: Instant) {
        let longest = if answer.addresses.is_empty() { EMPTY_TTL_MAX } else { TTL_MAX };
        self.ask_at = Some(now + answer.ttl.clamp(TTL_MIN, longest));
        self.failures = 0;
        self.addresses = answer.addresses;
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self.addresses.truncate(ADDRESSES_MAX);
    }
}

/// The questions that a host raises: none for a literal address.
fn queries(host: &Host) -> impl Iterator<Item = Query> {
    let name = match host {
        Host::Ip(_) => None,
        Host::Name(name) => Some(name.clone()),
    };
    name.into_iter().flat_map(|name| [Family::V4, Family::V6].map(|family| Query { name: name.clone(), family }))
}
