//! From the endpoints an operator wants to the endpoints there are: DNS names become addresses, and each gets an id.
//!
//! `plan` decides (which names to look up when, which answers to believe, which ids live on) and is pure but for the
//! time it is told; [`dns`] asks; this module turns the two against each other. A look-up that fails never takes an
//! endpoint away: only an answer does.
//!
//! It does not know whether an endpoint serves: that is for `scrape` and for the requests themselves to find out.

pub mod dns;
mod plan;

use std::{collections::HashMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use http::HeaderValue;
use pool::{Endpoint, Host};
use tokio::{
    sync::watch,
    task::{Id, JoinSet},
    time::Instant,
};

use crate::Engine;
use dns::{Answer, Dns, Failure, SystemDns};
use plan::{Plan, Query};

/// An endpoint as an operator asked for it: one host, which may turn out to be several addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Want {
    /// The operator's name for it.
    pub name: Arc<str>,
    /// Where it serves.
    pub host: Host,
    /// Port on which it serves.
    pub port: u16,
    /// Where its metrics page is.
    pub metrics: MetricsAt,
    /// How to speak TLS to the serving port; `None` = plain TCP.
    pub tls: Option<TlsTo>,
    /// Sent as `Authorization` with whatever we ask of the serving port. Mark it sensitive.
    pub authorization: Option<HeaderValue>,
    /// Whose metrics page to expect.
    pub engine: Engine,
    /// Hash of whatever else makes it this endpoint (labels, models, keys). Another identity is another life: a new id.
    pub identity: u64,
}

/// Where a metrics page is, on the same host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAt {
    /// Its port. TLS is spoken to it only if it is the serving port: engines that publish on a port of their own
    /// publish in plain text.
    pub port: u16,
    /// Its path, with a leading `/` and any query.
    pub path: Arc<str>,
}

/// How to speak TLS to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsTo {
    /// The name its certificate must bear; `None` = the host.
    pub server_name: Option<String>,
    /// Whom to believe.
    pub trust: Trust,
}

/// Whom to believe when a certificate is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The machine's certificate authorities.
    System,
    /// The authorities in this PEM file, read again for each attempt after a failed one.
    CaFile(PathBuf),
    /// Anyone. For tests and closed networks: the operator is told loudly.
    Anyone,
}

/// A wanted endpoint at one of its addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Its id, name and address. Found by DNS it is called `name/address`, whatever the number of records, so that a
    /// second record renames nobody.
    pub endpoint: Endpoint,
    /// What was asked for.
    pub want: Arc<Want>,
}

impl Found {
    /// Where its metrics page is served.
    pub fn metrics_address(&self) -> SocketAddr {
        SocketAddr::new(self.endpoint.address.ip(), self.want.metrics.port)
    }
}

/// Most look-ups under way at once.
const LOOKUPS_MAX: usize = 16;

/// Longest that one look-up may take, all its tries included.
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(10);

/// Keeps the endpoints that are there in step with the endpoints that are wanted.
pub struct Resolver {
    dns: Arc<dyn Dns>,
}

impl Resolver {
    /// By the machine's own configuration: `/etc/hosts` first, then the servers of `/etc/resolv.conf`.
    pub fn system() -> Self {
        Self { dns: Arc::new(SystemDns) }
    }

    /// By other means.
    pub fn new(dns: Arc<dyn Dns>) -> Self {
        Self { dns }
    }

    /// Calls `on_change` with all endpoints, sorted by name and address: once at the start, then whenever they differ
    /// from the last time. Literal addresses are there at once; names join as they are answered. Ends when `wants` has
    /// no sender left.
    pub async fn run(self, mut wants: watch::Receiver<Arc<[Want]>>, mut on_change: impl FnMut(Arc<[Found]>)) {
        let mut plan = Plan::default();
        let mut lookups = JoinSet::new();
        let mut asked: HashMap<Id, Query> = HashMap::new();
        let mut told = None;
        plan.set_wants(&wants.borrow_and_update().clone(), Instant::now());
        loop {
            while lookups.len() < LOOKUPS_MAX
                && let Some(query) = plan.next_due(Instant::now())
            {
                let task = lookups.spawn(look_up(self.dns.clone(), query.clone()));
                asked.insert(task.id(), query);
            }
            let found = plan.found();
            if told.as_ref() != Some(&found) {
                on_change(found.clone());
                told = Some(found);
            }
            let due = plan.due_at().filter(|_| lookups.len() < LOOKUPS_MAX);
            tokio::select! {
                changed = wants.changed() => match changed {
                    Ok(()) => plan.set_wants(&wants.borrow_and_update().clone(), Instant::now()),
                    Err(_) => return,
                },
                Some(done) = lookups.join_next_with_id() => {
                    let (id, result) = match done {
                        Ok(done) => done,
                        Err(broken) => (broken.id(), Err(Failure(broken.to_string()))),
                    };
                    let query = asked.remove(&id).expect("each look-up under way is in the table");
                    plan.answered(&query, result, Instant::now());
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }
}

async fn look_up(dns: Arc<dyn Dns>, query: Query) -> Result<Answer, Failure> {
    let asked = dns.look_up(query.name, query.family);
    let result = tokio::time::timeout(LOOKUP_TIME_MAX, asked).await;
    result.unwrap_or_else(|_| Err(Failure(format!("no answer within {} s", LOOKUP_TIME_MAX.as_secs()))))
}

#[cfg(test)]
mod tests;
