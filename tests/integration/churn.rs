//! Endpoints that leave, move, hang or ask for a key while there is traffic.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use harness::{
    Config, Exchange, Gateway, MetricsPage, ModelServer, Next, Peer, Scheduler, chat_body, post, request, soon,
};
use serde_json::Value;

use crate::rig::{AT_ONCE, CHAT, CHATS, STREAM, ask, begin, count, count_all, held, number};

/// `m1` on endpoints of these names and places, without metrics pages.
fn named(endpoints: &[(&str, SocketAddr)]) -> Config {
    let scheduler = Scheduler::new("m1", []).line("engineType: none");
    endpoints.iter().fold(Config::new([scheduler]), |config, (name, at)| {
        config.document(&format!(
            "apiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: {name}, labels: {{app: m1}}}}\n\
             spec: {{address: 127.0.0.1, port: {}}}",
            at.port()
        ))
    })
}

/// The endpoints of `m1` that take work, by name and address.
fn set(gateway: &Gateway) -> Vec<(String, String)> {
    let pool = gateway.admin.pool("m1");
    let list = pool["endpoints"].as_array().expect("a list of endpoints");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let open = list.iter().filter(|endpoint| endpoint["state"] != "draining");
    let mut all: Vec<_> = open.map(|endpoint| (text(&endpoint["name"]), text(&endpoint["address"]))).collect();
    all.sort();
    all
}

/// What [`set`] should be.
fn expected(endpoints: &[(&str, SocketAddr)]) -> Vec<(String, String)> {
    let mut all: Vec<_> = endpoints.iter().map(|(name, at)| ((*name).to_owned(), at.to_string())).collect();
    all.sort();
    all
}

/// Sends chats with ids from `first` on.
fn calls(gateway: &Gateway, first: usize, count: usize) {
    for n in first..first + count {
        let answer = post(gateway.data, CHATS, chat_body("m1", &format!("question {n}")));
        assert_eq!(answer.status, 200, "call {n}: {}", answer.text());
    }
}

#[test]
fn g01_an_endpoint_that_leaves_gets_nothing_new_and_finishes_what_it_has() {
    let (leaving, end) = held();
    let staying = Peer::plain();
    let gateway = Gateway::start(&named(&[("leaving", leaving.address)]));
    let mut stream = begin(&gateway, "stream", STREAM);
    stream.read_until(|bytes| bytes.windows(5).any(|at| at == b"first")).unwrap();
    gateway.apply(&named(&[("leaving", leaving.address), ("staying", staying.address)]));

    let (left, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (before, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (gateway, left, stop, before, after) = (&gateway, &left, &stop, &before, &after);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Acquire) {
                    let has_left = left.load(Ordering::Acquire);
                    let text = format!("{} {worker} {n}", if has_left { "after" } else { "before" });
                    assert_eq!(post(gateway.data, CHATS, chat_body("m1", &text)).status, 200, "{text}");
                    if has_left { after } else { before }.fetch_add(1, Ordering::AcqRel);
                    n += 1;
                }
            });
        }
        soon("both are at work", || leaving.seen().len() > 20 && staying.seen().len() > 20);
        gateway.apply(&named(&[("staying", staying.address)]));
        left.store(true, Ordering::Release);
        soon("there was traffic afterwards", || after.load(Ordering::Acquire) > 100);
        stop.store(true, Ordering::Release);
    });
    let is_after = |seen: &harness::Seen| seen.body.windows(6).any(|at| at == b"after ");
    assert_eq!(leaving.seen().iter().filter(|seen| is_after(seen)).count(), 0, "nothing new");
    assert_eq!(gateway.admin.endpoint("m1", "leaving")["state"], "draining");
    assert_eq!(gateway.admin.in_flight("m1"), 1, "its stream is still accounted for");
    end.send(()).unwrap();
    let answer = stream.answer().unwrap();
    assert!(answer.complete && answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    soon("it is gone", || gateway.admin.pool("m1")["endpoints"].as_array().is_some_and(|all| all.len() == 1));
    let total = (before.into_inner() + after.into_inner() + 1) as u64;
    soon("all are counted", || count_all(&gateway) == total);
    assert_eq!(count(&gateway, "ok"), total);
}

#[test]
fn g04_the_set_is_what_the_ports_say_after_each_change() {
    const CALLS: usize = 50;
    let mut ports = [(); 3].map(|()| Some(Peer::plain()));
    let at = ports.each_ref().map(|peer| peer.as_ref().unwrap().address);
    let rounds: [&[(&str, SocketAddr)]; 5] = [
        &[("pod-8101", at[0]), ("pod-8102", at[1])],
        &[("pod-8101", at[0])],
        &[("pod-8101", at[0]), ("pod-8102", at[1])],
        // Only the port's number changes, under the same name; then that one alone.
        &[("pod-8101", at[0]), ("pod-8102", at[2])],
        &[("pod-8101", at[2])],
    ];
    let gateway = Gateway::start(&named(rounds[0]));
    for (round, endpoints) in rounds.into_iter().enumerate() {
        if round > 0 {
            gateway.apply(&named(endpoints));
        }
        soon("the set follows", || set(&gateway) == expected(endpoints));
        let before: Vec<_> = ports.iter().flatten().map(|peer| peer.seen().len()).collect();
        calls(&gateway, round * CALLS, CALLS);
        for ((peer, before), at) in ports.iter().flatten().zip(before).zip(at) {
            let is_member = endpoints.iter().any(|(_, member)| *member == at);
            assert_eq!(peer.seen().len() > before, is_member, "round {round}: {at}");
        }
    }
    // Nobody connects to what left, not even to look.
    ports[0] = None;
    ports[1] = None;
    calls(&gateway, 1000, CALLS);
    assert_eq!(number(&gateway, "inference_gateway_upstream_retries_total", &[]), 0, "no connection was refused");
    assert_eq!(count_all(&gateway), 6 * CALLS as u64);
}

#[test]
fn g06_an_endpoint_that_answers_no_look_holds_up_no_change() {
    let servers = [(); 2].map(|()| ModelServer::start(MetricsPage::vllm(0, 0, 0.1)));
    let hung = AtomicBool::new(true);
    let hung = Arc::new(hung);
    let third = Peer::start({
        let hung = Arc::clone(&hung);
        move |exchange: &mut Exchange| {
            if hung.load(Ordering::Acquire) {
                exchange.wait_for_close(Duration::from_secs(60));
                return Next::Close;
            }
            if exchange.request.line.starts_with("GET /metrics") {
                let page = "vllm:num_requests_running{model_name=\"m1\"} 0\n\
                            vllm:num_requests_waiting{model_name=\"m1\"} 0\nvllm:kv_cache_usage_perc{model_name=\"m1\"} 0.1\n";
                return exchange.answer("200 OK", &[("content-type", "text/plain; version=0.0.4")], page);
            }
            exchange.answer_plainly()
        }
    });
    let of = |endpoints: &[(&str, SocketAddr)]| {
        let mut config = named(endpoints);
        config.schedulers[0].lines.clear();
        config
    };
    let at = servers.each_ref().map(ModelServer::address);
    let gateway = Gateway::start(&of(&[("p1", at[0]), ("p2", at[1])]));
    soon("both are read", || gateway.admin.endpoint("m1", "p2")["state"] == "ready");
    gateway.apply(&of(&[("p1", at[0]), ("p2", at[1]), ("p3", third.address)]));
    // Right after it another change, while the newcomer's page hangs.
    let removed = Instant::now();
    gateway.apply(&of(&[("p2", at[1]), ("p3", third.address)]));
    soon("p1 is gone", || !set(&gateway).iter().any(|(name, _)| name == "p1"));
    // It is noticed within a second; what the machine adds is its own.
    assert!(removed.elapsed() < AT_ONCE * 3, "{:?}", removed.elapsed());
    let served = servers[0].served();
    let age = || gateway.admin.endpoint("m1", "p2")["signals"]["waiting"]["age_ms"].as_u64();
    for n in 0..20 {
        let answer = post(gateway.data, CHATS, chat_body("m1", &format!("meanwhile {n}")));
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(age().is_some_and(|age| age < 2000), "the others' pages are read on: {:?}", age());
    }
    assert_eq!(servers[0].served(), served, "what left gets nothing");
    assert_eq!(gateway.admin.endpoint("m1", "p3")["state"], "starting", "it is known and not ready");
    assert!(third.seen().is_empty(), "and not used while another is");
    hung.store(false, Ordering::Release);
    soon("it joins by itself", || gateway.admin.endpoint("m1", "p3")["state"] == "ready");
    soon("and is used", || {
        calls(&gateway, 0, 10);
        !third.seen().is_empty()
    });
}

#[test]
fn g09_liveness_is_about_the_process_and_readiness_about_its_work() {
    let alive = |gateway: &Gateway| {
        let [admin, data] = [gateway.admin.address, gateway.data];
        [admin, data].map(|at| request(at, "GET", "/healthz", &[], "").status)
    };
    let (peer, end) = held();
    let config = Config::plain("m1", [peer.address]);
    // Nobody was looked at yet: it lives, whatever it is ready for.
    let gateway = Gateway::launch(&config.yaml(), &[]);
    assert_eq!(alive(&gateway), [200, 200]);
    gateway.ready();
    // A configuration that is refused.
    gateway.write("apiVersion: v1\nkind: Nothing\nmetadata: {name: n}\n");
    soon("it is refused", || !gateway.admin.json("/api/v1/config")["error"].is_null());
    assert_eq!((alive(&gateway), gateway.admin.get("/readyz").status), ([200, 200], 200));
    gateway.write(&config.yaml());
    soon("it is in force again", || gateway.admin.json("/api/v1/config")["error"].is_null());
    // Every endpoint gone.
    gateway.apply(&Config::plain("m1", []));
    assert_eq!(ask(&gateway, "nobody", CHAT).status, 503);
    assert_eq!((alive(&gateway), gateway.admin.get("/readyz").status), ([200, 200], 200));
    gateway.apply(&config);
    // On its way to its end.
    let mut stream = begin(&gateway, "stream", STREAM);
    stream.read_until(|bytes| bytes.windows(5).any(|at| at == b"first")).unwrap();
    gateway.process.signal("TERM");
    soon("it is not ready", || gateway.admin.get("/readyz").status == 503);
    assert_eq!(gateway.admin.get("/healthz").status, 200, "whoever restarts it now cuts its stream");
    end.send(()).unwrap();
    assert!(stream.answer().unwrap().complete);
}

#[test]
fn g10_an_endpoints_key_is_shown_wherever_the_gateway_knocks() {
    const KEY: &str = "Bearer k1";
    // Also for what engines keep open: an endpoint behind a proxy of its own may ask for it everywhere.
    for engine in ["vllm", "none"] {
        let knocks = Arc::new(Mutex::new(Vec::new()));
        let peer = Peer::start({
            let knocks = Arc::clone(&knocks);
            move |exchange: &mut Exchange| {
                let key = exchange.request.header("authorization").map(str::to_owned);
                let is_known = key.as_deref() == Some(KEY);
                knocks.lock().unwrap().push((exchange.request.line.clone(), key));
                if !is_known {
                    return exchange.answer("401 Unauthorized", &[("www-authenticate", "Bearer")], "");
                }
                if exchange.request.line.starts_with("GET /metrics") {
                    let page = "vllm:num_requests_running{model_name=\"m1\"} 0\n\
                                vllm:num_requests_waiting{model_name=\"m1\"} 0\nvllm:kv_cache_usage_perc{model_name=\"m1\"} 0\n";
                    return exchange.answer("200 OK", &[("content-type", "text/plain; version=0.0.4")], page);
                }
                exchange.answer_plainly()
            }
        });
        let scheduler = Scheduler::new("m1", [peer.address])
            .line(&format!("engineType: {engine}"))
            .endpoint_line("apiKey: {env: INFERENCE_GATEWAY_TEST_KEY}");
        let gateway = Gateway::start_in(&Config::new([scheduler]), &[("INFERENCE_GATEWAY_TEST_KEY", "k1")]);
        soon("it counts as ready", || gateway.admin.endpoint("m1", "m1-0")["state"] == "ready");
        let answer = request(gateway.data, "POST", CHATS, &[("authorization", "Bearer clients")], CHAT);
        assert_eq!(answer.status, 200, "{engine}: {}", answer.text());
        let knocks = knocks.lock().unwrap();
        assert!(knocks.iter().any(|(line, _)| line.starts_with("POST")), "{knocks:?}");
        assert!(knocks.iter().any(|(line, _)| line.starts_with("GET")), "{knocks:?}");
        for (line, key) in &*knocks {
            assert_eq!(key.as_deref(), Some(KEY), "{engine}: {line}");
        }
    }
}
