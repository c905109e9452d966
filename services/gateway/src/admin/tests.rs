mod answers;
mod series;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use axum::body::Body;
use dispatch::{Decision, Membership, PoolDispatch, Settings, Standing};
use http::{HeaderValue, Method, Request, Response, StatusCode, header::ACCEPT};
use http_body_util::BodyExt;
use pool::{Adapters, CacheShape, Endpoint, EndpointId, Load, Moment, Observation, Signal};
use proxy::client::{Destination, Protocol};
use serde_json::Value;
use telemetry::{
    Metrics,
    catalog::{LOG_LINES_DROPPED, PICKS},
    request_log::{self, Style, Writer},
};
use tower::ServiceExt;

use crate::{
    admin,
    body_memory::BodyMemory,
    clock::Clock,
    decisions::{After, Decisions, Entry, Kept},
    metrics::{ModelMetrics, QueueMetrics, RetryMetrics},
    pools::{Asked, EndpointHandle, Lease, LivePools, PoolHandle},
    record::Observer,
    routes::{Listed, OTHER_MODEL, Routes, Served},
    world::{ConfigError, ConfigStatus, Readiness, World},
};

/// A process without sockets: what the admin API sees, and who changes it.
struct Site {
    world: Arc<World>,
    _writer: Writer,
}

impl Site {
    fn new() -> Self {
        let (clock, metrics) = (Clock::start(), Metrics::default());
        let dropped = metrics.counter(&LOG_LINES_DROPPED, &[]);
        let (log, writer) = request_log::start(Style::Json, std::io::sink(), dropped).unwrap();
        let unrouted = ModelMetrics::new(&metrics, "".into(), OTHER_MODEL.into());
        let observer = Arc::new(Observer {
            clock,
            log,
            decisions: Arc::new(Decisions::default()),
            cutting: AtomicBool::new(false),
            unrouted,
        });
        let config = ConfigStatus {
            generation: 3,
            source: "/etc/gateway".into(),
            loaded_at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_796_047_378_250),
            error: None,
            metrics_enabled: true,
        };
        let world = Arc::new(World {
            clock,
            metrics,
            observer,
            body_memory: BodyMemory::new(1 << 20),
            routes: ArcSwap::from_pointee(Routes::none()),
            pools: LivePools::default(),
            config: ArcSwap::from_pointee(config),
            front: None,
            readiness: Readiness::default(),
        });
        Self { world, _writer: writer }
    }

    fn pool(&self, name: &str, settings: Settings) -> Arc<PoolHandle> {
        let retries = RetryMetrics::new(&self.world.metrics, name.into());
        let queue = QueueMetrics::new(&self.world.metrics, name.into());
        PoolHandle::new(name.into(), PoolDispatch::new(settings), retries, queue, self.world.clock)
    }

    /// Puts these endpoints in force: name and life of each.
    fn endpoints(&self, pool: &Arc<PoolHandle>, endpoints: &[(&str, u64)]) {
        let handle = |(name, id): &(&str, u64)| {
            let destination = Destination {
                id: *id,
                address: endpoint(name, *id).address,
                protocol: Protocol::Http1,
                tls: None,
                authority: HeaderValue::from_static("llama"),
            };
            let handle = EndpointHandle {
                name: (*name).into(),
                destination: Arc::new(destination),
                authorization: Arc::new(ArcSwapOption::empty()),
                picks: self.world.metrics.counter(&PICKS, &[&pool.name, name]),
            };
            (EndpointId::new(*id), Arc::new(handle))
        };
        let member =
            |(name, id): &(&str, u64)| Membership { endpoint: endpoint(name, *id), standing: Standing::Serving };
        let handles: HashMap<_, _> = endpoints.iter().map(handle).collect();
        let members: Vec<_> = endpoints.iter().map(member).collect();
        pool.set_endpoints(handles, &members);
    }

    /// Puts these pools in force: each with its base model and adapters.
    fn serve(&self, pools: &[(&Arc<PoolHandle>, &[&str])]) {
        let mut routes = Routes::none();
        for (pool, models) in pools {
            let models: Vec<Arc<str>> = models.iter().map(|model| (*model).into()).collect();
            for model in &models {
                routes.models.insert(Arc::clone(model), self.served(pool, model, &models[0]));
            }
            routes.pools.push(Listed { pool: Arc::clone(pool), adapters: models[1..].to_vec(), models });
        }
        self.world.routes.store(Arc::new(routes));
    }

    fn served(&self, pool: &Arc<PoolHandle>, model: &Arc<str>, base: &Arc<str>) -> Arc<Served> {
        let metrics = ModelMetrics::new(&self.world.metrics, Arc::clone(&pool.name), Arc::clone(model));
        Arc::new(Served {
            backing: crate::by_hand::Backing::Models,
            picker: crate::by_hand::Picker::Ours,
            pool: Arc::clone(pool),
            model: Arc::clone(model),
            base: Arc::clone(base),
            adapter: (model != base).then(|| Arc::clone(model)),
            model_header: HeaderValue::from_str(model).unwrap(),
            base_header: HeaderValue::from_str(base).unwrap(),
            log_level: 0,
            route_timeout: None,
            limits: crate::limits::Matching::default(),
            band_claim: None,
            objectives: Arc::default(),
            metrics: Arc::new(metrics),
        })
    }

    /// One pool of two endpoints that have reported, with one adapter.
    fn with_llama() -> (Self, Arc<PoolHandle>) {
        let site = Self::new();
        let pool = site.pool("llama", Settings::default());
        site.endpoints(&pool, &[("llama-0", 1), ("llama-1", 2)]);
        site.serve(&[(&pool, &["meta/llama", "sql"])]);
        site.report(&pool, 1, load(1.0, 4.0, 0.25));
        site.report(&pool, 2, load(0.0, 2.0, 0.5));
        (site, pool)
    }

    fn report(&self, pool: &Arc<PoolHandle>, id: u64, load: impl FnOnce(Moment) -> Load) {
        let began = self.world.clock.now();
        pool.observe(EndpointId::new(id), Observation::Page { began, load: load(began) });
    }

    /// Picks an endpoint for a request and keeps the decision.
    fn pick(&self, pool: &Arc<PoolHandle>, request_id: &str) -> (Lease, Kept) {
        let decisions = &self.world.observer.decisions;
        let (shard, mut decision) = decisions.buffer();
        let request = dispatch::Request { prefix: &[7, 8], prompt_tokens: 130, ..dispatch::Request::default() };
        let asked = pool.admit(&request, &dispatch::Ask::default(), &mut decision);
        let Asked::Placed(lease, at) = asked else { panic!("{request_id} has no place") };
        let kept = decisions.keep(shard, entry(request_id, at, decision));
        (lease, kept)
    }

    async fn ask(&self, request: Request<Body>) -> Response<Body> {
        admin::router(Arc::clone(&self.world)).oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response<Body> {
        self.ask(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn text(&self, path: &str) -> (StatusCode, String) {
        let response = self.get(path).await;
        (response.status(), text(response).await)
    }

    async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.headers()["content-type"], "application/json", "{path}");
        serde_json::from_str(&text(response).await).unwrap()
    }

    async fn metrics(&self) -> String {
        self.text("/metrics").await.1
    }
}

fn endpoint(name: &str, id: u64) -> Endpoint {
    let address = format!("10.0.0.{id}:8000").parse().unwrap();
    Endpoint { id: EndpointId::new(id), name: name.into(), address }
}

fn entry(request_id: &str, at: Moment, decision: Decision) -> Entry {
    let (pool, model) = ("llama".into(), "meta/llama".into());
    Entry { request_id: request_id.into(), at, pool, model, decision, after: None }
}

fn load(waiting: f64, running: f64, kv_cache: f64) -> impl FnOnce(Moment) -> Load {
    move |at| Load {
        waiting: Some(Signal { value: waiting, at, source: "vllm:num_requests_waiting" }),
        running: Some(Signal { value: running, at, source: "vllm:num_requests_running" }),
        kv_cache: Some(Signal { value: kv_cache, at, source: "vllm:kv_cache_usage_perc" }),
        ranks: 1,
        cache: Some(CacheShape { block_tokens: 16, blocks: 1000 }),
        adapters: Some(Adapters { running: vec!["sql".into()], waiting: Vec::new(), slots: Some(4), at }),
        started_unix_s: None,
    }
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
