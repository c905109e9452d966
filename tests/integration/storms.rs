//! What stands around the gateway fails, as a whole: the process goes on, and what it says of itself stays true.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use harness::{Config, Connection, Exchange, Gateway, Http2, Next, Peer, Scheduler, eventually, post, soon};
use serde_json::Value;

use crate::rig::{AT_ONCE, CHAT, CHATS, USAGE, ask, number, peer, request_bytes};

/// Requests whose log lines are more than a pipe holds (64 KiB), and more than one write of the log's.
const MORE_THAN_A_PIPE: usize = 400;

/// Configurations that are refused one after the other, each with an event in the log.
const REFUSED: usize = 3;

#[test]
fn a_log_that_nobody_reads_stops_neither_requests_nor_changes_nor_the_end() {
    let peer = Peer::plain();
    let good = Config::plain("m1", [peer.address]);
    let mut gateway = Gateway::launch_unread(&good.yaml(), &[]);
    gateway.ready();
    for _ in 0..MORE_THAN_A_PIPE {
        assert_eq!(post(gateway.data, "/v1/nothing-here", CHAT).status, 404);
    }
    for bad in 0..REFUSED {
        gateway.write(&format!("apiVersion: v1\nkind: Nothing{bad}\nmetadata: {{name: n}}\n"));
        soon("the refusal is told", || {
            let status = gateway.admin.json("/api/v1/config");
            status["error"]["message"].as_str().is_some_and(|message| message.contains(&format!("Nothing{bad}")))
        });
    }
    assert_eq!(post(gateway.data, CHATS, CHAT).status, 200, "and connections are still accepted");
    gateway.apply(&good.line("timeouts: {firstByte: 9s}"));
    assert_eq!(post(gateway.data, CHATS, CHAT).status, 200);
    gateway.process.signal("TERM");
    let code = eventually("the process ends", Duration::from_secs(10), || gateway.process.ended());
    assert_eq!(code, Some(0));
}

/// File descriptors of a process that may not have many.
const FEW_DESCRIPTORS: &str = "64";

/// More connections than that, of clients that say nothing.
const FLOOD: usize = 120;

#[test]
fn a_flood_of_connections_leaves_operators_and_endpoints_their_descriptors() {
    let peer = Peer::plain();
    let good = Config::plain("m1", [peer.address]);
    let gateway = Gateway::start_limited(&good, FEW_DESCRIPTORS);
    let flood: Vec<_> = (0..FLOOD).map(|_| Connection::open(gateway.data)).collect();
    soon("connections are refused", || {
        gateway.admin.metric("inference_gateway_connections_refused_total", &[r#"cause="limit""#]) > Some(0.0)
    });
    assert_eq!(gateway.admin.get("/readyz").status, 200);
    gateway.apply(&good.line("timeouts: {firstByte: 9s}"));
    assert!(!gateway.log().contains("cannot accept connections"), "{}", gateway.log());
    drop(flood);
    soon("requests are answered again", || {
        let mut connection = Connection::open(gateway.data);
        connection.send(request_bytes(CHATS, "after", &[], CHAT)).is_ok()
            && connection.answer().is_ok_and(|answer| answer.status == 200)
    });
}

/// Models of a gateway that serves many.
const MODELS: usize = 20;

/// Most resident memory of a model that nobody asked for yet.
const IDLE_MODEL_BYTES_MAX: u64 = 1 << 20;

#[test]
fn many_models_take_little_memory_while_nobody_asks_for_them() {
    let resident = |models: usize| {
        let schedulers = (0..models).map(|model| Scheduler::new(&format!("m{model}"), []));
        let gateway = Gateway::start(&Config::new(schedulers));
        gateway.memory_bytes()
    };
    let (one, many) = (resident(1), resident(MODELS));
    let each = many.saturating_sub(one) / (MODELS as u64 - 1);
    assert!(each < IDLE_MODEL_BYTES_MAX, "{each} bytes each: {one} bytes with one, {many} with {MODELS}");
}

/// Clients of the storm below. Each asks once.
const CLIENTS: usize = 10_000;

/// So many at a time.
const AT_A_TIME: usize = 32;

/// What more resident memory there may be in the last quarter of the storm than in the second one.
const STORM_GROWTH_BYTES_MAX: u64 = 8 << 20;

/// When a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    InHead,
    InBody,
    AtOnce,
    /// While it waits for the first byte: for a place, or for the endpoint.
    Waiting,
    MidStream,
    /// With the last event read, and not the end of its framing.
    AfterDone,
    Never,
}

impl Leaves {
    const ALL: [Self; 7] =
        [Self::InHead, Self::InBody, Self::AtOnce, Self::Waiting, Self::MidStream, Self::AfterDone, Self::Never];
}

/// One client: what it asks for, and when it leaves.
struct Client {
    id: String,
    leaves: Leaves,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// Longest time that one that leaves while it waits does so.
    waits: Duration,
}

impl Client {
    fn draw(random: &mut fastrand::Rng, id: String) -> Self {
        let leaves = Leaves::ALL[random.usize(..Leaves::ALL.len())];
        let model = ["m1", "m1", "m2", "m2", "m2", "lora", "nobody"][random.usize(..7)];
        let mut headers = Vec::new();
        // Who leaves while it waits is to find an endpoint that says nothing; others one that answers at a pace.
        let pace = if leaves == Leaves::Waiting { "silent".into() } else { random.u8(..8).to_string() };
        headers.push(("x-pace", pace));
        headers.push(("x-team", ["red", "green", "blue"][random.usize(..3)].into()));
        match random.u8(..4) {
            0 => headers.push(("x-gateway-inference-objective", format!("gold-{model}"))),
            1 => headers.push(("x-gateway-inference-objective", format!("free-{model}"))),
            _ => {}
        }
        headers.push(("x-gateway-inference-fairness-id", random.u8(..5).to_string()));
        let text = "word ".repeat(random.usize(1..400));
        let body = format!(
            r#"{{"model":"{model}","stream":{},"messages":[{{"role":"user","content":"{text}"}}]}}"#,
            // Whoever wants to see events asks for them.
            matches!(leaves, Leaves::MidStream | Leaves::AfterDone) || random.bool()
        );
        let waits = Duration::from_micros(random.u64(..30_000));
        Self { id, leaves, headers, body, waits }
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// Asks over HTTP/1.1. What it waits for may not come: then it leaves with the answer it got.
    fn ask_http1(&self, gateway: &Gateway) {
        let mut connection = Connection::open(gateway.data);
        let bytes = request_bytes(CHATS, &self.id, &self.headers(), &self.body);
        let head = bytes.len() - self.body.len();
        let sent = match self.leaves {
            Leaves::InHead => &bytes[..head / 2],
            Leaves::InBody => &bytes[..head + self.body.len() / 2],
            Leaves::AtOnce | Leaves::Waiting | Leaves::MidStream | Leaves::AfterDone | Leaves::Never => &bytes,
        };
        connection.send(sent).expect("the gateway reads");
        match self.leaves {
            Leaves::InHead | Leaves::InBody | Leaves::AtOnce => {}
            Leaves::Waiting => {
                connection.patience(self.waits.max(Duration::from_micros(1)));
                let _ = connection.read_until(|bytes| !bytes.is_empty());
            }
            Leaves::MidStream => _ = connection.read_until(|bytes| is_refusal(bytes) || has(bytes, b"first")),
            Leaves::AfterDone => _ = connection.read_until(|bytes| is_refusal(bytes) || has(bytes, b"[DONE]")),
            Leaves::Never => _ = connection.answer().expect("an answer"),
        }
    }

    /// Asks over HTTP/2, on a connection that others use after it.
    fn ask_http2(&self, client: &Http2) {
        let mut headers = self.headers();
        headers.push(("x-request-id", &self.id));
        if matches!(self.leaves, Leaves::InHead | Leaves::InBody) {
            return client.start_unfinished(CHATS, &headers, &self.body[..self.body.len() / 2]).reset();
        }
        let mut open = client.start("POST", CHATS, &headers, &self.body);
        match self.leaves {
            Leaves::InHead | Leaves::InBody | Leaves::AtOnce => {}
            Leaves::Waiting => _ = client.hears_within(&mut open, self.waits),
            Leaves::MidStream => _ = client.head(&mut open),
            // All of it, but for what the framing adds.
            Leaves::AfterDone => while client.hears_within(&mut open, AT_ONCE * 20) {},
            Leaves::Never => return drop(client.finish(open)),
        }
        open.reset();
    }
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|at| at == what)
}

/// Whether an answer that is no stream has come as far as its error object.
fn is_refusal(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.1 4") && has(bytes, b"\r\n\r\n{")
}

/// Answers at the pace that a request names.
fn paced(exchange: &mut Exchange) -> Next {
    let pace = exchange.request.header("x-pace").expect("each names a pace").parse::<u64>();
    let Ok(pace_ms) = pace else {
        exchange.wait_for_close(AT_ONCE * 20);
        return Next::Close;
    };
    // The pace of a model.
    let step = || thread::sleep(Duration::from_millis(pace_ms));
    step();
    if !has(&exchange.request.body, b"\"stream\":true") {
        return exchange.answer_plainly();
    }
    exchange.begin_stream();
    exchange.token("first");
    for _ in 0..3 {
        step();
        exchange.token("on");
    }
    exchange.event(USAGE);
    exchange.event("[DONE]");
    exchange.end_chunks()
}

/// Two pools, one with few places and bands that wait for them, objectives of each kind, and a limit that is often reached.
fn storm_config(peers: &[Peer]) -> Config {
    let at = |range: std::ops::Range<usize>| peers[range].iter().map(|peer| peer.address).collect::<Vec<_>>();
    let wide = Scheduler::new("m1", at(0..2)).line("engineType: none").line("loraAdapters: [lora]");
    let narrow = Scheduler::new("m2", at(2..4)).line("engineType: none").line(
        "flowControl: {maxInFlightPerEndpoint: 2, bands: {critical: {maxWait: 2s}, standard: {maxWait: 1s, maxQueuedRequests: 8}}}",
    );
    let limit = "{name: teams, key: {header: x-team}, concurrentRequests: 9, requestsPerMinute: 900000, tokensPerMinute: 900000000}";
    let objectives = ["m1", "m2"].map(|pool| [("gold", 5, pool), ("free", -5, pool)]);
    objectives.into_iter().flatten().fold(
        Config::new([wide, narrow]).line(&format!("limits: [{limit}]")),
        |config, (name, priority, pool)| {
            config.document(&format!(
                "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}-{pool}}}\n\
                 spec: {{priority: {priority}, poolRef: {{name: {pool}}}}}"
            ))
        },
    )
}

/// What is held for requests now, by the metrics and by the admin API; all of it is to be 0 in the end.
fn held(gateway: &Gateway) -> BTreeMap<&'static str, f64> {
    let metric = |name: &str| gateway.admin.metric(name, &[]).unwrap_or(f64::NAN);
    let pools = gateway.admin.json("/api/v1/pools");
    let pools = pools["pools"].as_array().expect("a list of pools");
    let bands = ["critical", "standard", "sheddable"];
    let queued = pools.iter().flat_map(|pool| bands.map(|band| pool["queue"][band].as_f64().unwrap_or(f64::NAN)));
    let endpoints = pools.iter().flat_map(|pool| pool["endpoints"].as_array().expect("a list of endpoints"));
    let work = |what: &'static str| {
        endpoints.clone().map(move |endpoint| endpoint["in_flight"][what].as_f64().unwrap_or(f64::NAN)).sum::<f64>()
    };
    BTreeMap::from([
        ("in flight", metric("inference_gateway_in_flight_requests")),
        ("queued", metric("inference_gateway_queue_depth")),
        ("bytes queued", metric("inference_gateway_queue_bytes")),
        ("bytes of bodies", metric("inference_gateway_body_memory_bytes")),
        ("let in under the limit", metric("inference_gateway_limit_open_requests")),
        ("connections", metric("inference_gateway_connections")),
        ("queued, by the API", queued.sum()),
        ("in flight, by the API", work("requests")),
        ("unanswered, by the API", work("unanswered")),
        ("prompt tokens, by the API", work("prompt_tokens")),
    ])
}

/// Requests by pool, band and outcome.
type Ended = BTreeMap<(String, String, String), u64>;

fn ended_by_log(lines: &[Value]) -> Ended {
    let mut ended = Ended::new();
    for line in lines {
        let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        *ended.entry((word("pool"), word("band"), word("outcome"))).or_default() += 1;
    }
    ended
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small whole numbers")]
fn ended_by_metrics(gateway: &Gateway) -> Ended {
    let page = gateway.admin.get("/metrics").text();
    let mut ended = Ended::new();
    for line in page.lines().filter(|line| line.starts_with("inference_gateway_requests_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\"")).expect("a label");
            rest.split('"').next().expect("a value").to_owned()
        };
        let value = line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a value");
        *ended.entry((label("pool"), label("band"), label("outcome"))).or_default() += value as u64;
    }
    ended
}

/// Clients of the storm that were sent so far, and what of theirs the gateway must have seen.
#[derive(Default)]
struct Tally {
    started: AtomicUsize,
    /// Heads that were sent whole over HTTP/1.1.
    heads: AtomicUsize,
    /// Requests over HTTP/2; a stream that is reset at once may never have been sent.
    streams: AtomicUsize,
    answered_streams: AtomicUsize,
}

/// One of those that send the clients of the storm.
fn blow(gateway: &Gateway, tally: &Tally, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut http2 = Http2::open(gateway.data);
    loop {
        let number = tally.started.fetch_add(1, Ordering::AcqRel);
        if number >= CLIENTS {
            return;
        }
        if random.u8(..3) > 0 {
            let client = Client::draw(&mut random, format!("h1-{number}"));
            client.ask_http1(gateway);
            if client.leaves != Leaves::InHead {
                tally.heads.fetch_add(1, Ordering::AcqRel);
            }
            continue;
        }
        let client = Client::draw(&mut random, format!("h2-{number}"));
        client.ask_http2(&http2);
        tally.streams.fetch_add(1, Ordering::AcqRel);
        if matches!(client.leaves, Leaves::MidStream | Leaves::Never) {
            tally.answered_streams.fetch_add(1, Ordering::AcqRel);
        }
        if random.u8(..20) == 0 {
            // With what is open on it.
            http2 = Http2::open(gateway.data);
        }
    }
}

#[test]
fn ten_thousand_clients_that_leave_at_any_moment_leave_nothing_behind() {
    let peers = [(); 4].map(|()| peer(paced));
    let gateway = Gateway::start(&storm_config(&peers));
    let (tally, over) = (Tally::default(), AtomicBool::new(false));
    // The most memory of each quarter.
    let quarters = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut quarters = [0; 4];
            while !over.load(Ordering::Acquire) {
                let quarter = tally.started.load(Ordering::Acquire) * 4 / CLIENTS;
                quarters[quarter.min(3)] = gateway.memory_bytes().max(quarters[quarter.min(3)]);
                thread::sleep(Duration::from_millis(20));
            }
            quarters
        });
        let blowing: Vec<_> = (0..AT_A_TIME)
            .map(|n| {
                scope.spawn({
                    let (gateway, tally) = (&gateway, &tally);
                    move || blow(gateway, tally, 0xAB0 + n as u64)
                })
            })
            .collect();
        blowing.into_iter().for_each(|one| one.join().expect("no client saw anything else"));
        over.store(true, Ordering::Release);
        sampler.join().expect("sampling does not panic")
    });

    let given_up = Instant::now() + AT_ONCE * 10;
    let mut left = held(&gateway);
    while left.values().any(|value| *value != 0.0) && Instant::now() < given_up {
        thread::sleep(Duration::from_millis(5));
        left = held(&gateway);
    }
    assert!(left.values().all(|value| *value == 0.0), "{left:?}");
    let lines = gateway.requests();
    let (by_log, by_metrics) = (ended_by_log(&lines), ended_by_metrics(&gateway));
    assert_eq!(by_log, by_metrics, "one line and one count for each");
    let of = |protocol: &str| {
        lines.iter().filter(|line| line["x-request-id"].as_str().is_some_and(|id| id.starts_with(protocol))).count()
    };
    assert_eq!(of("h1-"), tally.heads.into_inner(), "each head that was read is one request");
    let streams = of("h2-");
    assert!(streams <= tally.streams.into_inner() && streams >= tally.answered_streams.into_inner(), "{streams}");
    assert_eq!(number(&gateway, "inference_gateway_log_lines_dropped_total", &[]), 0);
    let outcomes =
        |outcome: &str| by_log.iter().filter(|(key, _)| key.2 == outcome).map(|(_, count)| count).sum::<u64>();
    for outcome in ["ok", "client_gone", "quota_exceeded", "queue_full", "model_not_found"] {
        assert!(outcomes(outcome) > 50, "the storm had some of each: {by_log:?}");
    }
    for outcome in ["internal", "endpoint_broke", "endpoint_timeout", "endpoint_unreachable", "no_endpoint", "draining"]
    {
        assert_eq!(outcomes(outcome), 0, "{by_log:?}");
    }
    let waited = number(&gateway, "inference_gateway_queue_wait_seconds_count", &[]);
    assert!(waited > 100, "and many waited for a place: {waited}");
    let [_, second, _, fourth] = quarters;
    assert!(fourth < second + STORM_GROWTH_BYTES_MAX, "{quarters:?}");
    for model in ["m1", "m2", "lora"] {
        for peer in &peers {
            peer.follow(|exchange| exchange.answer_plainly());
        }
        assert_eq!(ask(&gateway, &format!("after-{model}"), &CHAT.replace("m1", model)).status, 200, "{model}");
    }
}
