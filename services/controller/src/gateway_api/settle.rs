//! Keeps the statuses true: after each look of the loop, what differs is written.
//!
//! The cluster is judged again only when its objects have changed, or a write has failed: between two changes a look
//! costs nothing here.

use std::{sync::Arc, time::Duration};

use api::{cluster::Objects, names};
use futures::{StreamExt, stream};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

use super::{
    Due, Place, StatusKind, Surroundings, due,
    write::{Wrote, installed_release, write},
};
use crate::act::{NotWritten, Writer};

/// Statuses that are written at once.
const AT_ONCE: usize = 8;
/// Wait after a first failure; doubled for each further one.
const WAIT_MIN: Duration = Duration::from_millis(200);
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Between two looks at the installed release, which changes when a person upgrades it.
const RELEASE_MAX: Duration = Duration::from_secs(600);
/// Longest wait for the answer that tells the release.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Whoever keeps them.
pub struct Statuses {
    client: Client,
    writer: Arc<Writer>,
    system_namespace: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was judged last, and found or made true.
    settled: Option<Arc<Objects>>,
    wait: Duration,
    /// When what failed is tried again.
    again: Option<Instant>,
    release: Option<String>,
    release_seen: Option<Instant>,
}

impl Statuses {
    /// Keeps the statuses of Gateways whose data planes are in `system_namespace`.
    #[must_use]
    pub fn new(client: Client, writer: Arc<Writer>, system_namespace: String) -> Self {
        Self { client, writer, system_namespace, state: Mutex::default() }
    }

    /// When somebody should look again because a write failed.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.state().again
    }

    /// Writes what differs in `objects`, with `now` (RFC 3339) as the time of what changes.
    pub async fn settle(&self, objects: &Arc<Objects>, now: &str) {
        self.look_at_release().await;
        let release = {
            let state = self.state();
            if state.again.is_some_and(|it| it > Instant::now()) {
                return;
            }
            let is_known = state.settled.as_ref().is_some_and(|it| Arc::ptr_eq(it, objects));
            if is_known && state.again.is_none() {
                return;
            }
            state.release.clone()
        };
        let around = Surroundings {
            controller: names::CONTROLLER_NAME,
            system_namespace: &self.system_namespace,
            api_release: release.as_deref(),
        };
        let writes = stream::iter(due(objects, &around)).map(|due| self.write(due, now)).buffer_unordered(AT_ONCE);
        let failed = writes.filter(|failed| std::future::ready(*failed)).count().await;
        self.record(objects, failed);
    }

    fn record(&self, objects: &Arc<Objects>, failed: usize) {
        let mut state = self.state();
        state.settled = Some(Arc::clone(objects));
        if failed == 0 {
            (state.again, state.wait) = (None, Duration::ZERO);
            return;
        }
        state.wait = (state.wait * 2).clamp(WAIT_MIN, WAIT_MAX);
        state.again = Some(Instant::now() + state.wait);
    }

    /// Whether it failed.
    async fn write(&self, due: Due, now: &str) -> bool {
        let id = name(&due.place);
        let call = async {
            let wrote = write(&self.client, &due, names::MANAGED_BY, now).await;
            wrote.map_err(|error| NotWritten::of(id.clone(), &error))
        };
        match self.writer.counted("status", id.clone(), call).await {
            Ok(Wrote::Written) => tracing::debug!(%id, "status written"),
            Ok(Wrote::Nothing) => {}
            // Somebody else wrote at the same time: the next look sees it.
            Err(NotWritten::Conflict(_)) => return true,
            Err(error) => {
                tracing::warn!(%id, "status: {error}");
                return true;
            }
        }
        false
    }

    /// Not being told costs a condition, and nothing else.
    async fn look_at_release(&self) {
        let is_fresh = self.state().release_seen.is_some_and(|it| it.elapsed() < RELEASE_MAX);
        if is_fresh {
            return;
        }
        let told = timeout(RELEASE_WAIT_MAX, installed_release(&self.client)).await;
        let mut state = self.state();
        state.release_seen = Some(Instant::now());
        match told {
            Ok(Ok(release)) if state.release != release => (state.release, state.settled) = (release, None),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!("the release of the Gateway API is not told: {error}"),
            Err(_) => tracing::debug!("the release of the Gateway API is not told in time"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn name(place: &Place) -> String {
    let kind = match place.kind {
        StatusKind::GatewayClass => "GatewayClass",
        StatusKind::Gateway => "Gateway",
        StatusKind::HttpRoute => "HTTPRoute",
        StatusKind::InferencePool => "InferencePool",
    };
    format!("{kind} {}", place.key)
}
