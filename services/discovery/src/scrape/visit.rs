//! One endpoint, visited again and again.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fastrand::Rng;
use pool::{Load, Moment, NoPage, Observation};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    Cause, Families, Settings, Shared,
    connection::{Answer, Connection, Failure, Reached},
    health,
    merge::merge,
    pace,
    reach::Reach,
    voice::Voice,
};
use crate::{
    Engine,
    engine::{TRTLLM_METRICS_PATH, USUAL_METRICS_PATH},
    page::{self, Reading},
    resolve::Found,
};

/// The state of the visits to one endpoint.
pub(super) struct Visitor {
    found: Found,
    shared: Arc<Shared>,
    connection: Connection,
    reach: Reach,
    /// The health path, for engines without a page.
    health: health::Known,
    /// The page's path, where the engine is to be found out.
    path: Arc<str>,
    load: Load,
    /// Of which dialect the load is.
    families: Option<Families>,
    /// Failed looks in a row.
    failures: u32,
    said: Voice<Option<Cause>>,
    said_families: Voice<Families>,
    rng: Rng,
}

/// How long to rest between two looks.
#[derive(Clone, Copy)]
enum Pacing {
    /// After the very first look.
    First,
    /// After any other.
    Usual,
}

impl Visitor {
    pub(super) fn new(found: Found, shared: Arc<Shared>) -> Self {
        let connection = match found.want.engine {
            Engine::None => Connection::to_serving(&found, shared.clone()),
            Engine::Vllm
            | Engine::Sglang
            | Engine::Tgi
            | Engine::Trtllm
            | Engine::Triton
            | Engine::Llamacpp
            | Engine::Auto => Connection::to_metrics(&found, shared.clone()),
        };
        Self {
            connection,
            reach: Reach::new(found.endpoint.address),
            health: health::Known::default(),
            path: found.want.metrics.path.clone(),
            load: Load::default(),
            families: None,
            failures: 0,
            said: Voice::default(),
            said_families: Voice::default(),
            rng: Rng::new(),
            found,
            shared,
        }
    }

    /// Looks, for ever. Dropping the future ends it wherever it is.
    pub(super) async fn run(mut self) {
        let mut settings = self.shared.settings.clone();
        let mut first = true;
        loop {
            let now = *settings.borrow_and_update();
            let started = self.look(&now).await;
            let pacing = if std::mem::take(&mut first) && self.failures == 0 { Pacing::First } else { Pacing::Usual };
            self.rest(started, pacing, &mut settings).await;
        }
    }

    /// Waits until the next look is due. Changed settings hold at once: a long pause under the old ones ends by the new.
    async fn rest(&mut self, started: Instant, pacing: Pacing, settings: &mut watch::Receiver<Settings>) {
        loop {
            let interval = self.interval(&settings.borrow_and_update());
            let pause = match pacing {
                Pacing::First => pace::first_pause(interval, &mut self.rng),
                Pacing::Usual => pace::pause(interval, self.failures, &mut self.rng),
            };
            tokio::select! {
                () = sleep_until(started + pause) => return,
                Ok(()) = settings.changed() => {}
            }
        }
    }

    fn interval(&self, settings: &Settings) -> Duration {
        match self.found.want.engine {
            Engine::None => settings.interval.max(health::PERIOD),
            Engine::Vllm
            | Engine::Sglang
            | Engine::Tgi
            | Engine::Trtllm
            | Engine::Triton
            | Engine::Llamacpp
            | Engine::Auto => settings.interval,
        }
    }

    /// One look, from the permit to the sink. Returns when it started.
    async fn look(&mut self, settings: &Settings) -> Instant {
        let shared = self.shared.clone();
        let gate = if self.failures == 0 { &shared.healthy } else { &shared.failing };
        let permit = gate.acquire().await.expect("the gates are never closed");
        let (started, began) = (Instant::now(), (shared.clock)());
        let outcome = match self.found.want.engine {
            Engine::None => self.check_health(settings).await.map(|()| Observation::Healthy { began }),
            Engine::Vllm
            | Engine::Sglang
            | Engine::Tgi
            | Engine::Trtllm
            | Engine::Triton
            | Engine::Llamacpp
            | Engine::Auto => self.read_page(settings).await.map(|reading| self.learn(reading, began)),
        };
        let observation = match outcome {
            Ok(observation) => {
                self.failures = 0;
                self.say(None, "", began);
                observation
            }
            Err(failure) => self.fail(&failure, began, settings.timeout).await,
        };
        drop(permit);
        shared.sink.observed(self.found.endpoint.id, observation);
        started
    }

    async fn check_health(&mut self, settings: &Settings) -> Result<(), Failure> {
        let check = health::check(&mut self.connection, &mut self.health);
        in_time(settings.timeout.max(health::TIME_MAX), check).await
    }

    async fn read_page(&mut self, settings: &Settings) -> Result<Reading, Failure> {
        let get = self.connection.get(&self.path, settings.page_bytes_max);
        let answer = in_time(settings.timeout, get).await?;
        let body = accept(&answer)?;
        let reading = page::read(body, self.found.want.engine, wall_now_s());
        if reading.families.is_none() {
            let detail =
                format!("no family of {:?} among {} bytes at {}", self.found.want.engine, body.len(), self.path);
            return Err(Failure { cause: Cause::NoKnownFamily, detail });
        }
        Ok(reading)
    }

    /// A page was read: what is now known.
    fn learn(&mut self, reading: Reading, began: Moment) -> Observation {
        let dialect = |families: Option<Families>| families.map(Families::dialect);
        if dialect(self.families) != dialect(reading.families) {
            // Another engine answers here now: what the former said is not its load.
            self.load = Load::default();
        }
        self.families = reading.families;
        if reading.skipped_samples > 0 {
            self.shared.sink.skipped(self.found.endpoint.id, reading.skipped_samples);
        }
        if let Some(families) = reading.families
            && self.said_families.speaks(families, began)
        {
            self.shared.sink.families(self.found.endpoint.id, &families);
        }
        self.load = merge(&self.load, reading, began);
        Observation::Page { began, load: self.load.clone() }
    }

    /// A look failed: what is known all the same.
    async fn fail(&mut self, failure: &Failure, began: Moment, probe_time_max: Duration) -> Observation {
        self.failures = self.failures.saturating_add(1);
        self.connection.close();
        self.shared.sink.failed(self.found.endpoint.id, failure.cause);
        self.say(Some(failure.cause), &failure.detail, began);
        self.try_other_path(failure.cause);
        Observation::NoPage { began, why: self.why(began, probe_time_max).await }
    }

    /// Whether the endpoint takes requests although it shows no page. A failed health check says that it does not.
    async fn why(&mut self, began: Moment, probe_time_max: Duration) -> NoPage {
        if self.found.want.engine == Engine::None {
            return NoPage::Unreachable;
        }
        if self.found.want.metrics.port != self.found.want.port {
            return self.reach.probe(began, probe_time_max).await;
        }
        match self.connection.reached() {
            Reached::Port => NoPage::Accepting,
            Reached::Nothing => NoPage::Unreachable,
        }
    }

    /// Where the engine is to be found out, one of them has its page elsewhere: the two paths are tried in turn until
    /// a page is found, and again when it is lost.
    fn try_other_path(&mut self, cause: Cause) {
        let here = matches!(cause, Cause::NoKnownFamily | Cause::Status);
        if self.found.want.engine != Engine::Auto || !here || &*self.found.want.metrics.path != USUAL_METRICS_PATH {
            return;
        }
        let other = if &*self.path == USUAL_METRICS_PATH { TRTLLM_METRICS_PATH } else { USUAL_METRICS_PATH };
        self.path = other.into();
    }

    fn say(&mut self, cause: Option<Cause>, detail: &str, now: Moment) {
        let at_first = self.said.is_silent();
        if !self.said.speaks(cause, now) {
            return;
        }
        let (endpoint, address) = (&*self.found.endpoint.name, self.connection.address());
        match cause {
            None if at_first => tracing::debug!(endpoint, %address, "endpoint is seen"),
            None => tracing::info!(endpoint, %address, "endpoint is seen again"),
            Some(cause) => {
                tracing::warn!(endpoint, %address, cause = cause.label(), detail, "endpoint shows no usable metrics page or health");
            }
        }
    }
}

async fn in_time<T>(time_max: Duration, look: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(time_max, look).await.unwrap_or_else(|_| Err(Cause::Timeout.into()))
}

fn accept(answer: &Answer) -> Result<&[u8], Failure> {
    let refused = |cause| Failure { cause, detail: format!("answered {}", answer.status) };
    if answer.status.is_redirection() {
        return Err(refused(Cause::Redirect));
    }
    if !answer.status.is_success() {
        return Err(refused(Cause::Status));
    }
    answer.body.as_deref().map_err(|cause| (*cause).into())
}

/// Unix seconds; an adapter set's age is told by the wall clock, as its time is.
fn wall_now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
