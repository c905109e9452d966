//! Routers that ask nobody: a choice per request, a count of what is in flight, no queue and no second try.
//!
//! They learn of a dead endpoint as a Kubernetes Service does, some time later; until then its requests fail.

use std::time::Duration;

use fastrand::Rng;
use pool::Moment;

use super::{Router, World};
use crate::world::ledger::Outcome;

/// From a container's end to the last node's knowing of it: the kubelet's report, the EndpointSlice, kube-proxy. And the
/// same for one that is ready again.
pub(super) const LEARNS_AFTER: Duration = Duration::from_secs(2);

/// See the module's text.
pub(super) struct Plain {
    way: Way,
    ready: Vec<bool>,
    in_flight: Vec<u32>,
    rng: Rng,
}

enum Way {
    Any,
    InTurn { next: usize },
    Fewest,
    FewerOfTwo,
    Soonest,
    Given(Vec<usize>),
}

impl Plain {
    /// `None` where the product routes.
    pub(super) fn new(router: &Router, endpoints: usize, rng: Rng) -> Option<Self> {
        let way = match router {
            Router::Product { .. } => return None,
            Router::Random => Way::Any,
            Router::RoundRobin => Way::InTurn { next: 0 },
            Router::LeastRequest => Way::Fewest,
            Router::RandomOfTwo => Way::FewerOfTwo,
            Router::Clairvoyant => Way::Soonest,
            Router::Schedule(endpoints) => Way::Given(endpoints.clone()),
        };
        Some(Self { way, ready: vec![true; endpoints], in_flight: vec![0; endpoints], rng })
    }

    pub(super) fn ended(&mut self, server: Option<usize>) {
        if let Some(server) = server {
            self.in_flight[server] -= 1;
        }
    }

    /// The endpoint of request number `request`. `None` when no endpoint is ready.
    fn choose(&mut self, request: usize) -> Option<usize> {
        let ready: Vec<usize> = (0..self.ready.len()).filter(|&server| self.ready[server]).collect();
        let first = *ready.first()?;
        Some(match &mut self.way {
            Way::InTurn { next } => {
                let chosen = ready.iter().copied().find(|&server| server >= *next).unwrap_or(first);
                *next = chosen + 1;
                chosen
            }
            Way::Any => ready[self.rng.usize(..ready.len())],
            Way::Fewest => {
                let fewest = ready.iter().map(|&server| self.in_flight[server]).min()?;
                let equals: Vec<usize> = ready.into_iter().filter(|&s| self.in_flight[s] == fewest).collect();
                equals[self.rng.usize(..equals.len())]
            }
            Way::FewerOfTwo => {
                let mut draw = || ready[self.rng.usize(..ready.len())];
                let (one, other) = (draw(), draw());
                if self.in_flight[other] < self.in_flight[one] { other } else { one }
            }
            Way::Soonest => first,
            Way::Given(endpoints) => *endpoints.get(request)?,
        })
    }
}

impl World<'_> {
    pub(super) fn route_plainly(&mut self, request: u64) {
        let soonest = match &self.plain {
            Some(Plain { way: Way::Soonest, ready, .. }) => self.soonest(request, ready),
            Some(_) | None => None,
        };
        let plain = self.plain.as_mut().expect("somebody else than the product routes");
        let Some(server) = soonest.or_else(|| plain.choose(request as usize)) else {
            return self.end(request, Outcome::NoEndpoint);
        };
        plain.in_flight[server] += 1;
        self.send(request, self.servers[server].id);
    }

    pub(super) fn plain_told(&mut self, server: usize, ready: bool) {
        if let Some(plain) = &mut self.plain {
            plain.ready[server] = ready;
        }
    }

    /// Where the first token comes soonest. What is on its way has been submitted already: see [`World::way_there`].
    fn soonest(&self, request: u64, ready: &[bool]) -> Option<usize> {
        let asked = self.calls[request as usize].draft.for_engine(request);
        let (mut limit, mut best) = (Moment::from_origin(Duration::MAX), None);
        for (server, target) in self.servers.iter().enumerate().filter(|(server, _)| ready[*server]) {
            if let Some(at) = target.engine.foresee(&asked, self.now, limit) {
                (limit, best) = (at, Some(server));
            }
        }
        best
    }

    /// From here to an engine. Who knows everything also knows what is on its way: for that router, nothing is.
    pub(super) fn way_there(&self) -> Duration {
        match &self.plain {
            Some(Plain { way: Way::Soonest, .. }) => Duration::ZERO,
            Some(_) | None => self.way,
        }
    }
}
