//! Endpoints become loads: each is asked for its metrics page (or its health) again and again, and what each look
//! found goes to a [`Sink`].
//!
//! One task per endpoint (`visit`), each with its own connection, its own pace and its own past, so that one that
//! hangs delays nobody; removing an endpoint drops its task and with it the connection, at once. Looks under way are
//! bounded, and endpoints that failed last time wait for each other, not for the healthy. Nothing here reads a proxy
//! from the environment: the connection goes to the endpoint's address.
//!
//! It keeps no numbers for operators (the sink counts) and decides nothing about fitness: it says what it saw and when
//! the look began.

mod body;
mod connection;
mod health;
mod merge;
mod pace;
mod reach;
mod tls;
mod visit;
mod voice;

use std::{collections::HashMap, sync::Arc, time::Duration};

use pool::{EndpointId, Moment, Observation};
use tokio::{
    sync::{Semaphore, watch},
    task::{AbortHandle, Id, JoinError, JoinSet},
};

pub use crate::page::Families;
use crate::resolve::{Found, Want};
use tls::Roots;
use visit::Visitor;

/// How to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the start of one look to the start of the next, ±10 %. After failures it doubles up to 1 s (or stays, if
    /// longer): a recovered endpoint is seen within about a second.
    pub interval: Duration,
    /// Longest that one look may take: connecting, TLS, head and body together.
    pub timeout: Duration,
    /// Most looks under way at once, and as many again at endpoints that failed last time. Read once, at the start.
    pub concurrency_max: usize,
    /// Largest page read, before and after decompression.
    pub page_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(200),
            timeout: Duration::from_secs(1),
            concurrency_max: 64,
            page_bytes_max: 4 << 20,
        }
    }
}

/// Whoever wants to know what was seen. Called from the scraper's runtime: it must not block.
pub trait Sink: Send + Sync {
    /// A look is over, and this is what is now known. Each look ends in exactly one of these.
    fn observed(&self, id: EndpointId, observation: Observation);

    /// A look found no page (or no health), for this reason; the matching [`Sink::observed`] follows.
    fn failed(&self, id: EndpointId, cause: Cause);

    /// The set of families on an endpoint's page is new, or is no longer what was told last: worth one log line. Told
    /// at most every 10 s per endpoint.
    fn families(&self, id: EndpointId, found: &Families);

    /// A page that was read all the same held this many samples, of families we know, that could not be used: broken,
    /// NaN, infinite, negative or absurd.
    fn skipped(&self, id: EndpointId, samples: u32) {
        let _ = (id, samples);
    }
}

/// Why a look failed. A closed set: its [`Cause::label`] is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// No TCP connection, or no TLS session.
    Connect,
    /// Not done in time.
    Timeout,
    /// An HTTP status that is neither success nor redirection; for a health check, 5xx.
    Status,
    /// More bytes than are read.
    TooLarge,
    /// A content coding we do not read, or a body that is not in the coding it claims.
    Encoding,
    /// A redirection. Not followed: a page elsewhere would be some other process's.
    Redirect,
    /// Not HTTP/1.1, or closed before the answer was complete.
    Protocol,
    /// A page without one family of the engine expected: another server, metrics turned off, or not up yet.
    NoKnownFamily,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Connect,
        Self::Timeout,
        Self::Status,
        Self::TooLarge,
        Self::Encoding,
        Self::Redirect,
        Self::Protocol,
        Self::NoKnownFamily,
    ];

    /// Its value as a metric label and in logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::Encoding => "encoding",
            Self::Redirect => "redirect",
            Self::Protocol => "protocol",
            Self::NoKnownFamily => "no_known_family",
        }
    }
}

/// Tells the time on the process's own line.
pub type Clock = Arc<dyn Fn() -> Moment + Send + Sync>;

/// Looks at endpoints.
pub struct Scraper {
    sink: Arc<dyn Sink>,
    clock: Clock,
}

/// What all visits share.
struct Shared {
    sink: Arc<dyn Sink>,
    clock: Clock,
    settings: watch::Receiver<Settings>,
    /// Permits for endpoints whose last look succeeded, or that were never looked at.
    healthy: Semaphore,
    /// Permits for the others.
    failing: Semaphore,
    roots: Roots,
}

/// How long a visit that panicked is left alone: it would likely meet the same bytes again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

impl Scraper {
    /// A scraper that tells `sink`, in the time of `clock`.
    pub fn new(sink: Arc<dyn Sink>, clock: Clock) -> Self {
        Self { sink, clock }
    }

    /// Looks at whatever is in `endpoints` until that has no sender left. Changed settings hold at
    /// once: no endpoint sits out a pause of the old ones. An endpoint whose want changed is visited anew.
    pub async fn run(self, settings: watch::Receiver<Settings>, mut endpoints: watch::Receiver<Arc<[Found]>>) {
        let permits = settings.borrow().concurrency_max.clamp(1, Semaphore::MAX_PERMITS);
        let mut visits = Visits {
            shared: Arc::new(Shared {
                sink: self.sink,
                clock: self.clock,
                settings,
                healthy: Semaphore::new(permits),
                failing: Semaphore::new(permits),
                roots: Roots::default(),
            }),
            running: JoinSet::new(),
            by_endpoint: HashMap::new(),
        };
        visits.follow(&endpoints.borrow_and_update().clone());
        loop {
            tokio::select! {
                changed = endpoints.changed() => match changed {
                    Ok(()) => visits.follow(&endpoints.borrow_and_update().clone()),
                    Err(_) => return,
                },
                Some(ended) = visits.running.join_next() => visits.ended(&ended),
            }
        }
    }
}

/// The visits under way. Dropping them ends them.
struct Visits {
    shared: Arc<Shared>,
    running: JoinSet<()>,
    by_endpoint: HashMap<EndpointId, Visit>,
}

struct Visit {
    task: AbortHandle,
    found: Found,
}

impl Visits {
    fn follow(&mut self, endpoints: &[Found]) {
        let now: HashMap<EndpointId, &Arc<Want>> = endpoints.iter().map(|f| (f.endpoint.id, &f.want)).collect();
        self.by_endpoint.retain(|id, visit| {
            let stays = now.get(id).is_some_and(|want| **want == visit.found.want);
            if !stays {
                visit.task.abort();
            }
            stays
        });
        for found in endpoints {
            if !self.by_endpoint.contains_key(&found.endpoint.id) {
                self.start(found.clone(), Duration::ZERO);
            }
        }
    }

    fn start(&mut self, found: Found, after: Duration) {
        let visitor = Visitor::new(found.clone(), self.shared.clone());
        let task = self.running.spawn(async move {
            tokio::time::sleep(after).await;
            visitor.run().await;
        });
        self.by_endpoint.insert(found.endpoint.id, Visit { task, found });
    }

    /// A visit ends when it is aborted, which we did; or by a bug, and then the endpoint must not be forgotten.
    fn ended(&mut self, ended: &Result<(), JoinError>) {
        let Err(error) = ended else { return };
        if error.is_cancelled() {
            return;
        }
        let Some(found) = self.visit_of(error.id()) else { return };
        tracing::error!(endpoint = &*found.endpoint.name, %error, "scraping an endpoint failed by a bug and is started anew");
        self.start(found, RESTART_AFTER);
    }

    fn visit_of(&self, task: Id) -> Option<Found> {
        self.by_endpoint.values().find(|visit| visit.task.id() == task).map(|visit| visit.found.clone())
    }
}

#[cfg(test)]
pub(crate) mod tests;
