//! A process without a data port: the door of one core, and what it counts.

use std::{
    cell::Cell,
    collections::HashMap,
    io::{self, Write},
    net::SocketAddr,
    num::NonZeroU64,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use dispatch::{HasPage, Membership, PoolDispatch, Settings, Standing};
use http::{HeaderValue, Request, Response};
use parking_lot::Mutex;
use pool::{Endpoint, EndpointId, Moment, Observation};
use proxy::{
    client::{Clients, Destination, Protocol},
    serve::{Listener, RequestBody, Scheme},
};
use serde_json::Value;
use telemetry::{
    Metrics,
    catalog::{LOG_LINES_DROPPED, PICKS},
    request_log::{self, Style, Writer},
};
use tower::Service;

use super::{
    Head,
    endpoint::{self, Manner},
};
use crate::{
    answer::Answer,
    body_memory::BodyMemory,
    by_hand::{Backing, HandRoutes, Picker},
    clock::Clock,
    decisions::Decisions,
    frontend::http::Door,
    limits::{Condition, Identity, Matching, Rule, rates},
    metrics::{ModelMetrics, QueueMetrics, RetryMetrics},
    pools::{EndpointHandle, LivePools, PoolHandle},
    record::Observer,
    routes::{Listed, OTHER_MODEL, Routes, Served},
    world::{ConfigStatus, Readiness, World},
};

/// Models of this process: one behind which endpoints listen, and one behind which nobody does.
const MODELS: [&str; 2] = ["up", "down"];

const LISTENER: Listener = Listener { port: 80, scheme: Scheme::Http };

pub(super) struct Site {
    runtime: tokio::runtime::Runtime,
    world: Arc<World>,
    clients: Clients,
    pools: [Arc<PoolHandle>; 2],
    addresses: [Vec<SocketAddr>; 2],
    next_id: Cell<u64>,
    written: Written,
    writer: Writer,
}

/// Where the log goes.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Site {
    /// With so many endpoints behind each model. Nobody waits for room, so that whoever has a place knows it.
    pub(super) fn new(endpoints: usize) -> Self {
        let mut flow = flow_control::Settings::default();
        for band in &mut flow.bands {
            band.max_wait = Duration::ZERO;
        }
        Self::with(endpoints, &Settings { flow, ..Settings::default() })
    }

    /// With so many endpoints behind each model, in pools with these settings but for pages, which nobody has.
    pub(super) fn with(endpoints: usize, settings: &Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (clock, metrics, written) = (Clock::start(), Metrics::default(), Written::default());
        let dropped = metrics.counter(&LOG_LINES_DROPPED, &[]);
        let (log, writer) = request_log::start(Style::Json, written.clone(), dropped).unwrap();
        let unrouted = ModelMetrics::new(&metrics, "".into(), OTHER_MODEL.into());
        let observer = Arc::new(Observer {
            clock,
            log,
            decisions: Arc::new(Decisions::default()),
            cutting: AtomicBool::new(false),
            unrouted,
        });
        let pools = MODELS.map(|name| {
            let settings = Settings { has_page: HasPage::No, ..settings.clone() };
            let retries = RetryMetrics::new(&metrics, name.into());
            let queue = QueueMetrics::new(&metrics, name.into());
            PoolHandle::new(name.into(), PoolDispatch::new(settings), retries, queue, clock)
        });
        let world = Arc::new(World {
            clock,
            observer,
            body_memory: BodyMemory::new(1 << 20),
            routes: ArcSwap::from_pointee(routes(&pools, &metrics)),
            pools: LivePools::default(),
            config: ArcSwap::from_pointee(ConfigStatus {
                generation: 1,
                source: "here".into(),
                loaded_at: SystemTime::UNIX_EPOCH,
                error: None,
                metrics_enabled: true,
            }),
            front: None,
            readiness: Readiness::default(),
            metrics,
        });
        let addresses = runtime.block_on(async {
            let (mut up, mut down) = (Vec::new(), Vec::new());
            for _ in 0..endpoints {
                up.push(endpoint::start().await);
                down.push(endpoint::nobody().await);
            }
            [up, down]
        });
        let (clients, next_id) = (Clients::new(), Cell::new(1));
        let site = Self { runtime, world, clients, pools, addresses, next_id, written, writer };
        site.replace_endpoints();
        site
    }

    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// What becomes of a request of any kind.
    pub(super) async fn send(&self, request: Request<RequestBody>) -> Response<Answer> {
        let answered = Door::new(Arc::clone(&self.world), self.clients.clone(), LISTENER).call(request);
        answered.await.unwrap_or_else(|never| match never {})
    }

    /// Puts routes written by hand in force.
    pub(super) fn put_by_hand(&self, routes: HandRoutes) {
        let models = self::routes(&self.pools, &self.world.metrics);
        self.world.routes.store(Arc::new(Routes { by_hand: Some(Arc::new(routes)), ..models }));
    }

    /// What any request to this pool is served with.
    pub(super) fn served(&self, pool: &Arc<PoolHandle>, backing: Backing) -> Arc<Served> {
        Arc::new(Served { backing, limits: Matching::default(), ..served(pool, OTHER_MODEL, &self.world.metrics) })
    }

    /// Servers of any kind, at these addresses.
    pub(super) fn servers(&self, name: &str, addresses: &[SocketAddr], protocol: Protocol) -> Arc<PoolHandle> {
        let (metrics, settings) = (&self.world.metrics, Settings { has_page: HasPage::Unasked, ..Settings::default() });
        let (retries, queue) = (RetryMetrics::new(metrics, name.into()), QueueMetrics::new(metrics, name.into()));
        let pool = PoolHandle::new(name.into(), PoolDispatch::new(settings), retries, queue, self.world.clock);
        let members: Vec<Membership> = addresses.iter().map(|address| self.member(address)).collect();
        let handle = |m: &Membership| (m.endpoint.id, self.handle(&pool, &m.endpoint, protocol));
        pool.set_endpoints(members.iter().map(handle).collect::<HashMap<_, _>>(), &members);
        pool
    }

    fn member(&self, address: &SocketAddr) -> Membership {
        let id = EndpointId::new(self.next_id.replace(self.next_id.get() + 1));
        let endpoint = Endpoint { id, name: address.to_string().into(), address: *address };
        Membership { endpoint, standing: Standing::Serving }
    }

    /// A request that is answered in this manner.
    pub(super) fn ask(&self, id: &str, manner: Manner) -> Head {
        let model = if manner == Manner::Refuse { MODELS[1] } else { MODELS[0] };
        let stream = matches!(manner, Manner::Stream | Manner::CutStream);
        let body = serde_json::json!({
            "model": model, "stream": stream, "messages": [{"role": "user", "content": manner.word()}],
        });
        let request = Request::post("/v1/chat/completions").header("x-request-id", id);
        let request = request.header("content-type", "application/json");
        let request = request.body(RequestBody::from(Bytes::from(body.to_string()))).unwrap();
        let answered = Door::new(Arc::clone(&self.world), self.clients.clone(), LISTENER).call(request);
        Box::pin(async { answered.await.unwrap_or_else(|never| match never {}) })
    }

    /// The same addresses, in another life: what was under way is with endpoints that left.
    pub(super) fn replace_endpoints(&self) {
        for (pool, addresses) in self.pools.iter().zip(&self.addresses) {
            let members: Vec<Membership> = addresses.iter().map(|address| self.member(address)).collect();
            let handle = |m: &Membership| (m.endpoint.id, self.handle(pool, &m.endpoint, Protocol::Http1));
            pool.set_endpoints(members.iter().map(handle).collect::<HashMap<_, _>>(), &members);
            for member in members {
                pool.observe(member.endpoint.id, Observation::Healthy { began: self.world.clock.now() });
            }
        }
    }

    fn handle(&self, pool: &PoolHandle, endpoint: &Endpoint, protocol: Protocol) -> Arc<EndpointHandle> {
        let destination = Destination {
            id: endpoint.id.get(),
            address: endpoint.address,
            protocol,
            tls: None,
            authority: HeaderValue::from_static("endpoint"),
        };
        Arc::new(EndpointHandle {
            name: Arc::clone(&endpoint.name),
            destination: Arc::new(destination),
            authorization: Arc::new(ArcSwapOption::empty()),
            picks: self.world.metrics.counter(&PICKS, &[&pool.name, &endpoint.name]),
        })
    }

    /// Requests in flight by the pools' accounts.
    pub(super) fn in_flight(&self) -> u32 {
        let endpoints = self.pools.iter().flat_map(|pool| pool.view().endpoints);
        endpoints.map(|endpoint| endpoint.in_flight.requests).sum()
    }

    /// Requests that wait for room.
    pub(super) fn waiting(&self) -> u32 {
        self.pools.iter().flat_map(|pool| pool.waiting()).map(|waiting| waiting.requests).sum()
    }

    /// The pool behind which endpoints listen.
    pub(super) fn pool(&self) -> &Arc<PoolHandle> {
        &self.pools[0]
    }

    /// Those of these open requests that were given a place: picked, and not over.
    pub(super) fn places(&self, ids: &[&str]) -> u32 {
        let decisions = &self.world.observer.decisions;
        let has_place = |id: &&&str| {
            let entry = decisions.find(id);
            entry.is_some_and(|entry| !entry.decision.picked.is_empty() && entry.after.is_none())
        };
        u32::try_from(ids.iter().filter(has_place).count()).unwrap()
    }

    /// Requests that hold something of the limit.
    pub(super) fn held(&self) -> u64 {
        self.world.routes.load().limits.iter().map(|limit| limit.levels().1).sum()
    }

    /// Places, bytes of bodies and holds that are taken.
    pub(super) fn left_over(&self) -> (u32, usize, u64) {
        (self.in_flight(), self.body_bytes(), self.held())
    }

    /// Request bodies held.
    pub(super) fn body_bytes(&self) -> usize {
        self.world.body_memory.held_bytes()
    }

    /// Ends the process: its log's lines, each of which was counted once.
    pub(super) fn finish(self) -> Vec<Value> {
        let page = self.world.metrics.render(telemetry::Format::asked_by(None));
        let counts = page.lines().filter(|line| line.starts_with("inference_gateway_requests_total"));
        let counted: f64 = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
        drop(self.writer);
        let written = self.written.0.lock();
        let lines = std::str::from_utf8(&written).unwrap().lines();
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!((counted - lines.len() as f64).abs() < 0.5, "{counted} counted, {} logged", lines.len());
        lines
    }
}

/// One that counts and never refuses.
fn limit(metrics: &Metrics) -> Arc<Rule> {
    let plenty = NonZeroU64::new(1_000_000);
    let limit = api::Limit {
        name: "all".into(),
        key: api::LimitKey::Authorization,
        models: None,
        requests_per_minute: plenty,
        tokens_per_minute: plenty,
        input_tokens_per_minute: None,
        output_tokens_per_minute: plenty,
        concurrent_requests: plenty,
    };
    let rule = Rule::new(Identity::new(None, &limit), metrics);
    rule.configure(rates(&limit), 1, Moment::ORIGIN);
    rule
}

fn routes(pools: &[Arc<PoolHandle>; 2], metrics: &Metrics) -> Routes {
    let limit = limit(metrics);
    let mut routes = Routes { body_bytes_max: 1 << 20, limits: vec![Arc::clone(&limit)], ..Routes::none() };
    for (pool, name) in pools.iter().zip(MODELS) {
        let model: Arc<str> = name.into();
        let counting = Matching::new([(Arc::clone(&limit), Condition::Always)]);
        let served = Served { limits: counting, ..served(pool, name, metrics) };
        routes.models.insert(Arc::clone(&model), Arc::new(served));
        routes.pools.push(Listed { pool: Arc::clone(pool), models: vec![model], adapters: Vec::new() });
    }
    routes
}

fn served(pool: &Arc<PoolHandle>, name: &'static str, metrics: &Metrics) -> Served {
    let model: Arc<str> = name.into();
    Served {
        pool: Arc::clone(pool),
        model: Arc::clone(&model),
        base: Arc::clone(&model),
        adapter: None,
        model_header: HeaderValue::from_static(name),
        base_header: HeaderValue::from_static(name),
        log_level: 0,
        route_timeout: None,
        limits: Matching::default(),
        band_claim: None,
        objectives: Arc::default(),
        backing: Backing::Models,
        picker: Picker::Ours,
        metrics: Arc::new(ModelMetrics::new(metrics, Arc::clone(&pool.name), model)),
    }
}
