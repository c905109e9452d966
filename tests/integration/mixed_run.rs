//! Everything that can happen once, and what the metrics page says of it: each documented metric must move, and none may be
//! shown that is not documented.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::TcpListener,
};

use harness::{Config, Connection, Exchange, Gateway, MetricsPage, ModelServer, Next, Peer, Scheduler, post, soon};

use crate::{
    rig::{AT_ONCE, CHAT, CHATS, STREAM, USAGE, ask, count, count_all, peer, request_bytes},
    telemetry::{pipelined, samples},
};

/// Of another program: the controller, which shows them in a cluster.
const NOT_THE_GATEWAYS: &str = "inference_gateway_controller_";

/// Shown only where clients use HTTPS, tokens or rewritten models: looked at by the tests of those.
const ELSEWHERE: [&str; 3] =
    ["inference_gateway_auth_", "inference_gateway_certificate", "inference_gateway_model_rewrites_total"];

/// The gateway's documented metrics: each row of the page begins with a name.
fn documented() -> BTreeSet<String> {
    let page = include_str!("../../docs/metrics.md");
    let tables = page.split("## Labels").next().expect("tables come first");
    let names = tables.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let here = |name: &&str| !name.starts_with(NOT_THE_GATEWAYS) && !ELSEWHERE.iter().any(|it| name.starts_with(it));
    names.filter(here).map(str::to_owned).collect()
}

/// What a page said over time.
#[derive(Default)]
struct Watched {
    looks: usize,
    values: BTreeMap<String, Vec<f64>>,
}

impl Watched {
    fn look(&mut self, gateway: &Gateway) {
        self.looks += 1;
        for (series, value) in samples(gateway) {
            self.values.entry(series).or_default().push(value);
        }
    }

    /// Metrics of which a series had two values, or came later with one that is not 0.
    fn moved(&self, documented: &BTreeSet<String>) -> BTreeSet<String> {
        let moves = |values: &[f64]| {
            let came_later = values.len() < self.looks && values.iter().any(|value| *value != 0.0);
            came_later || values.windows(2).any(|two| two[0] != two[1])
        };
        let moved = self.values.iter().filter(|(_, values)| moves(values));
        moved.map(|(series, _)| family(series, documented)).collect()
    }

    fn shown(&self, documented: &BTreeSet<String>) -> BTreeSet<String> {
        self.values.keys().map(|series| family(series, documented)).collect()
    }
}

/// The metric that a series belongs to: histograms have three kinds of series.
fn family(series: &str, documented: &BTreeSet<String>) -> String {
    let name = series.split('{').next().expect("a name");
    let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    base.filter(|base| documented.contains(*base)).unwrap_or(name).to_owned()
}

/// A vLLM page with a small cache, and more lines.
fn page(waiting: u32, running: u32, kv_cache: f64, more: &str) -> MetricsPage {
    let MetricsPage::Text(page) = MetricsPage::vllm(waiting, running, kv_cache) else {
        unreachable!("a vLLM page is a text")
    };
    MetricsPage::Text(page + "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"128\"} 1.0\n" + more)
}

/// Holds what says so, streams what is to be streamed, with usage or without, and answers the rest.
fn versatile(exchange: &mut Exchange) -> Next {
    let body = String::from_utf8_lossy(&exchange.request.body).into_owned();
    if body.contains("hold") {
        exchange.wait_for_close(AT_ONCE * 20);
        return Next::Close;
    }
    if !body.contains("\"stream\":true") {
        return exchange.answer_plainly();
    }
    exchange.begin_stream();
    exchange.token("one");
    exchange.token("two");
    if !body.contains("untold") {
        exchange.event(USAGE);
    }
    exchange.event("[DONE]");
    exchange.end_chunks()
}

/// Pools `m1`, whose pages change; `m2` with one place, bands and eviction; `m3`, whose favourite is dead; `m4` under a limit.
struct Scene {
    gateway: Gateway,
    watched: Watched,
    config: Config,
    servers: [ModelServer; 2],
    busy: ModelServer,
    _versatile: Peer,
}

impl Scene {
    fn start() -> Self {
        let servers = [(); 2].map(|()| ModelServer::start(page(0, 0, 0.0, "")));
        let busy = ModelServer::start(page(3, 1, 0.1, ""));
        let versatile = peer(versatile);
        let dead = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
        let m1 = Scheduler::new("m1", servers.each_ref().map(ModelServer::address)).line("loraAdapters: [lora]");
        let m2 = Scheduler::new("m2", [versatile.address])
            .line("engineType: none")
            .line("flowControl: {maxInFlightPerEndpoint: 1, eviction: beforeFirstByte}");
        let m4 = Scheduler::new("m4", [versatile.address]).line("engineType: none");
        let objective = |name: &str, priority: i32| {
            format!(
                "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}}}\n\
                 spec: {{priority: {priority}, poolRef: {{name: m2}}}}"
            )
        };
        let favourite = format!(
            "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: m3-dead, labels: {{app: m3}}}}\n\
             spec: {{address: 127.0.0.1, port: {}, metricsPort: {}}}",
            dead.port(),
            servers[0].address().port()
        );
        let config = Config::new([m1, m2, Scheduler::new("m3", [busy.address()]), m4])
            .line("signals: {scrapeInterval: 50ms, staleAfter: 400ms}")
            .line("limits: [{name: tight, key: {header: x-team}, models: [m4], requestsPerMinute: 2}]")
            .document(&objective("gold", 5))
            .document(&objective("free", -5))
            .document(&favourite);
        let gateway = Gateway::start(&config);
        let mut scene = Self { gateway, watched: Watched::default(), config, servers, busy, _versatile: versatile };
        soon("pages are read", || scene.states("m1", "ready") == 2 && scene.states("m3", "ready") == 2);
        scene.look();
        scene
    }

    fn look(&mut self) {
        self.watched.look(&self.gateway);
    }

    fn states(&self, pool: &str, state: &str) -> usize {
        let shown = self.gateway.admin.pool(pool);
        shown["endpoints"].as_array().expect("a list").iter().filter(|endpoint| endpoint["state"] == state).count()
    }

    fn ask(&self, model: &str, objective: &str, text: &str) -> u16 {
        self.begin(model, objective, text).answer().expect("an answer").status
    }

    fn begin(&self, model: &str, objective: &str, text: &str) -> Connection {
        let mut connection = Connection::open(self.gateway.data);
        let body = CHAT.replace("m1", model).replace("hi", text);
        let headers = [("x-gateway-inference-objective", objective)];
        let headers = if objective.is_empty() { &[] } else { &headers[..] };
        connection.send(request_bytes(CHATS, "mixed", headers, &body)).expect("a request can be sent");
        connection
    }

    /// Requests that are answered, refused as mistakes, or abandoned.
    fn everyday(&mut self) {
        assert_eq!(self.ask("m1", "", "hi"), 200);
        assert_eq!(self.ask("lora", "", "hi"), 200);
        assert_eq!(self.ask("nobody", "", "hi"), 404);
        for n in 0..8 {
            // Prompts that are more than the small caches hold.
            assert_eq!(self.ask("m1", "", &format!("{n} ").repeat(8_000)), 200);
        }
        for body in [STREAM.replace("m1", "m2"), STREAM.replace("m1", "m2").replace("hi", "untold")] {
            assert_eq!(post(self.gateway.data, CHATS, body).status, 200);
        }
        let mut half = Connection::open(self.gateway.data);
        let bytes = request_bytes(CHATS, "half", &[], CHAT);
        half.send(&bytes[..bytes.len() - 9]).expect("half a request can be sent");
        let held = || self.gateway.admin.metric("inference_gateway_body_memory_bytes", &[]) > Some(0.0);
        soon("its bytes are held", held);
        self.look();
        drop(half);
        let mut nonsense = Connection::open(self.gateway.data);
        nonsense.send("NONSENSE\r\n\r\n").expect("anything can be sent");
        assert_eq!(nonsense.answer().expect("an answer").status, 400);
        self.look();
    }

    /// A full pool, one of whose pages has a wrong line, then nothing to read at all.
    fn signals(&mut self) {
        self.servers.iter().for_each(|server| {
            server.show(page(7, 9, 0.9, "vllm:num_requests_running{model_name=\"m1\"} many\n"));
        });
        soon("it is full", || {
            self.gateway.admin.metric("inference_gateway_saturation", &[r#"pool="m1""#]) == Some(1.0)
        });
        self.look();
        self.servers.iter().for_each(|server| server.show(MetricsPage::status("500 Internal Server Error")));
        soon("all are stale", || self.states("m1", "stale") == 2);
        self.look();
        self.servers.iter().for_each(|server| server.show(page(0, 0, 0.0, "")));
        soon("all are read again", || self.states("m1", "ready") == 2);
    }

    /// One place: who holds it gives way or is waited for.
    fn waiting(&mut self) {
        assert_eq!(self.ask("m2", "nobody-set-this", "hi"), 200);
        let mut evicted = self.begin("m2", "free", "hold");
        soon("it has the place", || self.gateway.admin.in_flight("m2") == 1);
        assert_eq!(self.ask("m2", "gold", "hi"), 200);
        assert_eq!(evicted.answer().expect("an answer").code(), "evicted");
        let holds = self.begin("m2", "", "hold");
        soon("it has the place", || self.gateway.admin.in_flight("m2") == 1);
        let mut waits = self.begin("m2", "", "hi");
        soon("one waits", || self.gateway.admin.pool("m2")["queue"]["standard"] == 1);
        self.look();
        drop(holds);
        assert_eq!(waits.answer().expect("an answer").status, 200);
        self.look();
    }

    /// A favourite that cannot be reached, until it is taken out.
    fn failures(&mut self) {
        soon("its favourite is taken out", || {
            assert_eq!(self.ask("m3", "", "hi"), 200);
            self.states("m3", "ejected") == 1
        });
        assert!(self.busy.served() > 0);
        self.look();
    }

    /// Two a minute: one that runs, one that is over, none.
    fn limits(&mut self) {
        let runs = self.begin("m4", "", "hold");
        soon("it runs", || self.gateway.admin.in_flight("m4") == 1);
        // Counted every now and then, not for each look.
        soon("its connection is counted", || open(&self.gateway) == Some(1.0));
        self.look();
        drop(runs);
        soon("its connection is counted no more", || open(&self.gateway) == Some(0.0));
        self.look();
        assert_eq!((self.ask("m4", "", "hi"), self.ask("m4", "", "hi")), (200, 429));
        self.look();
    }

    /// A configuration that is refused, and one that is not.
    fn changes(&mut self) {
        self.gateway.write("apiVersion: v1\nkind: Nothing\nmetadata: {name: n}\n");
        soon("it is refused", || self.gateway.admin.metric("inference_gateway_config_valid", &[]) == Some(0.0));
        self.look();
        self.gateway.apply(&self.config.clone().line("timeouts: {firstByte: 9s}"));
        self.look();
    }
}

fn open(gateway: &Gateway) -> Option<f64> {
    gateway.admin.metric("inference_gateway_connections", &[])
}

/// Limits of a configuration that has many, so that few accounts are left for each, and more callers than those.
const LIMITS: usize = 100;
const CALLERS: usize = 3_200;

/// More lines than are kept for a log that nobody reads, twice: one lot waits, another is being written.
const UNREAD: usize = 16_800;

/// More callers than accounts, and more lines than a log's reader takes.
fn overrun() -> Watched {
    let peer = Peer::plain();
    let scheduler = |model: &str| Scheduler::new(model, [peer.address]).line("engineType: none");
    let of = |name: &str, model: &str| {
        format!("{{name: {name}, key: {{header: x-caller}}, models: [{model}], requestsPerMinute: 1}}")
    };
    let limits: Vec<_> = (1..LIMITS).map(|n| of(&format!("other-{n}"), "m2")).chain([of("callers", "m1")]).collect();
    let config = Config::new([scheduler("m1"), scheduler("m2")]).line(&format!("limits: [{}]", limits.join(", ")));
    let gateway = Gateway::launch_unread(&config.yaml(), &[]);
    gateway.ready();
    let mut watched = Watched::default();
    watched.look(&gateway);
    let caller = |n: usize| request_bytes(CHATS, "caller", &[("x-caller", &n.to_string())], CHAT);
    pipelined(gateway.data, &(0..CALLERS).map(caller).collect::<Vec<_>>());
    assert!(count(&gateway, "ok") >= CALLERS as u64 / 2);
    let unread: Vec<_> = (0..UNREAD).map(|_| b"GET /nothing HTTP/1.1\r\nhost: g\r\n\r\n".to_vec()).collect();
    pipelined(gateway.data, &unread);
    soon("all are counted", || count_all(&gateway) == (CALLERS + UNREAD) as u64);
    watched.look(&gateway);
    watched
}

/// Metrics whose value is the same for a process's whole life, or as good as: the index has its memory from the beginning.
/// All of them are above 0.
const CONSTANT: [&str; 3] =
    ["inference_gateway_build_info", "inference_gateway_prefix_index_bytes", "process_start_time_seconds"];

#[test]
fn j08_every_documented_metric_moves_and_none_is_undocumented() {
    let documented = documented();
    assert!(documented.len() > 30, "{documented:?}");
    let mut scene = Scene::start();
    scene.everyday();
    scene.signals();
    scene.waiting();
    scene.failures();
    scene.limits();
    scene.changes();
    assert_eq!(ask(&scene.gateway, "last", CHAT).status, 200);
    scene.look();
    let overrun = overrun();
    let [shown, moved] =
        [Watched::shown, Watched::moved].map(|of| &of(&scene.watched, &documented) | &of(&overrun, &documented));
    let differ = &shown ^ &documented;
    assert!(differ.is_empty(), "shown or documented, and not both: {differ:?}");
    for (series, values) in &scene.watched.values {
        let is_constant = CONSTANT.contains(&family(series, &documented).as_str());
        assert!(!is_constant || values.iter().all(|value| *value > 0.0), "{series} {values:?}");
    }
    let still: Vec<_> = documented.difference(&moved).filter(|name| !CONSTANT.contains(&name.as_str())).collect();
    assert!(still.is_empty(), "nothing feeds {still:?}");
}
