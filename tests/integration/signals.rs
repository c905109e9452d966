//! What endpoints say of themselves, as far as it decides where requests go: read from any page that an engine may show,
//! trusted while it is fresh, done without when it is not.

use std::{
    net::{IpAddr, Ipv6Addr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use harness::{Config, Gateway, MetricsPage, ModelServer, Peer, Scheduler, chat_body, chats, eventually, post, soon};

/// Quick looks, so that tests need not wait.
pub(crate) const SIGNALS: &str = "signals: {scrapeInterval: 50ms, staleAfter: 1s}";

pub(crate) fn config(servers: &[&ModelServer]) -> Config {
    Config::new([Scheduler::new("m1", servers.iter().map(|server| server.address()))]).line(SIGNALS)
}

/// So many different short requests.
pub(crate) fn bodies(count: usize) -> Vec<String> {
    (0..count).map(|n| chat_body("m1", &format!("{n}, a question of its own"))).collect()
}

/// Sends so many requests one after the other; each must be served. How many each server got.
pub(crate) fn shares(gateway: &Gateway, servers: &[&ModelServer], count: usize) -> Vec<usize> {
    let before: Vec<usize> = servers.iter().map(|server| server.served()).collect();
    for answer in chats(gateway.data, &bodies(count), 1) {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    servers.iter().zip(before).map(|(server, before)| server.served() - before).collect()
}

pub(crate) fn signal(gateway: &Gateway, endpoint: &str, name: &str) -> Option<f64> {
    gateway.admin.endpoint("m1", endpoint)["signals"][name]["value"].as_f64()
}

pub(crate) fn state(gateway: &Gateway, endpoint: &str) -> String {
    gateway.admin.endpoint("m1", endpoint)["state"].as_str().expect("a text").to_owned()
}

/// Waits until a signal of `m1-0` has a value.
pub(crate) fn reads(gateway: &Gateway, name: &str, value: f64) {
    soon(&format!("{name} of m1-0 is {value}"), || signal(gateway, "m1-0", name) == Some(value));
}

pub(crate) fn lines_with(gateway: &Gateway, texts: &[&str]) -> usize {
    gateway.log().lines().filter(|line| texts.iter().all(|text| line.contains(text))).count()
}

#[test]
fn d09_an_endpoint_that_stops_reporting_does_not_win_by_its_last_numbers() {
    let [quiet, b, c] = [MetricsPage::vllm(0, 0, 0.0), MetricsPage::vllm(3, 1, 0.3), MetricsPage::vllm(3, 1, 0.3)]
        .map(ModelServer::start);
    let all = [&quiet, &b, &c];
    let gateway = Gateway::start(&config(&all));
    soon("all are read", || ["m1-0", "m1-1", "m1-2"].iter().all(|name| signal(&gateway, name, "waiting").is_some()));
    assert_eq!(shares(&gateway, &all, 20), [20, 0, 0]);
    quiet.show(MetricsPage::Hang);
    soon("its report is too old", || state(&gateway, "m1-0") == "stale");
    assert!(shares(&gateway, &all, 100)[0] <= 33);
    let id = post(gateway.data, "/v1/chat/completions", chat_body("m1", "why?"));
    let decision = gateway.admin.json(&format!("/api/v1/decisions/{}", id.header("x-request-id").unwrap()));
    let candidates = decision["candidates"].as_array().unwrap();
    let left_out = candidates.iter().find(|candidate| candidate["endpoint"] == "m1-0").unwrap();
    assert_eq!((&left_out["rejected"], &decision["basis"]), (&"stale".into(), &"reports".into()), "{decision}");
    assert!(left_out["signals"]["waiting"]["age_ms"].as_u64() > Some(1000), "{decision}");

    // All stale: nothing fails, own work spreads, and it is said in three places.
    assert_eq!(gateway.admin.metric("inference_gateway_own_signals_only", &[]), Some(0.0));
    for server in [&b, &c] {
        server.show(MetricsPage::Hang);
    }
    soon("all are stale", || gateway.admin.metric("inference_gateway_own_signals_only", &[]) == Some(1.0));
    let spread = shares(&gateway, &all, 90);
    assert!(spread.iter().all(|share| (20..=40).contains(share)), "{spread:?}");
    let id = post(gateway.data, "/v1/chat/completions", chat_body("m1", "why?"));
    let decision = gateway.admin.json(&format!("/api/v1/decisions/{}", id.header("x-request-id").unwrap()));
    assert_eq!(decision["basis"], "own_work_all_stale", "{decision}");
    soon("the log says so", || lines_with(&gateway, &["own requests", "m1"]) == 1);

    // And back by itself.
    quiet.show(MetricsPage::vllm(0, 0, 0.0));
    soon("it is back", || state(&gateway, "m1-0") == "ready");
    assert_eq!(gateway.admin.metric("inference_gateway_own_signals_only", &[]), Some(0.0));
    assert_eq!(shares(&gateway, &all, 20), [20, 0, 0]);
    soon("the log says that too", || lines_with(&gateway, &["reports", "again", "m1"]) >= 1);
}

#[test]
fn d10_an_endpoint_without_a_page_yet_gets_its_share_and_no_more() {
    let [a, b, new] =
        [MetricsPage::vllm(1, 1, 0.2), MetricsPage::vllm(1, 1, 0.2), MetricsPage::status("404 Not Found")]
            .map(ModelServer::start);
    let all = [&a, &b, &new];
    let mut config = config(&[&a, &b]);
    let gateway = Gateway::start(&config);
    config.schedulers[0].endpoints.push(new.address());
    gateway.apply(&config);
    // New ones are left alone for at most two seconds while others are known.
    eventually("it is used", Duration::from_secs(6), || (state(&gateway, "m1-2") == "ready").then_some(()));
    let without = shares(&gateway, &all, 99);
    assert!((15..=45).contains(&without[2]), "{without:?}");
    new.show(MetricsPage::Text(String::new()));
    let empty = shares(&gateway, &all, 99);
    assert!((15..=45).contains(&empty[2]), "{empty:?}");
    new.show(MetricsPage::vllm(1, 1, 0.2));
    soon("it is read", || signal(&gateway, "m1-2", "waiting") == Some(1.0));
    let read = shares(&gateway, &all, 99);
    assert!((15..=50).contains(&read[2]), "{read:?}");
    // Three minutes without a page would be no different: the state holds while its port accepts.
    assert_eq!(gateway.admin.metric("inference_gateway_requests_total", &[r#"outcome="ok""#]), Some(297.0));
}

#[test]
fn d11_an_endpoint_at_an_ipv6_address_is_read_and_served() {
    let server = ModelServer::start_at(IpAddr::V6(Ipv6Addr::LOCALHOST), MetricsPage::vllm(1, 2, 0.25));
    let gateway = Gateway::start(&config(&[&server]));
    reads(&gateway, "running", 2.0);
    assert_eq!(shares(&gateway, &[&server], 3), [3]);
    let host = format!("[::1]:{}", server.address().port());
    assert_eq!(server.peer.seen()[0].header("host"), Some(host.as_str()));
    assert_eq!(gateway.admin.endpoint("m1", "m1-0")["address"], host.as_str());
}

#[test]
fn d11_each_address_of_a_name_is_an_endpoint() {
    // Every machine knows `localhost`; which families it means differs, so the server is on the one that all have.
    let server = ModelServer::start(MetricsPage::vllm(0, 1, 0.25));
    let mut config = config(&[]);
    config.documents = format!(
        "---\napiVersion: inference-gateway/v1alpha1\nkind: Endpoint\nmetadata: {{name: local, labels: {{app: m1}}}}\n\
         spec: {{address: localhost, port: {}}}\n",
        server.address().port()
    );
    let gateway = Gateway::start(&config);
    soon("the name is looked up", || {
        let pool = gateway.admin.pool("m1");
        pool["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .any(|e| e["name"] == "local/127.0.0.1" && e["signals"]["running"]["value"] == 1.0)
    });
    for answer in chats(gateway.data, &bodies(5), 1) {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let host = format!("localhost:{}", server.address().port());
    assert_eq!(server.peer.seen()[0].header("host"), Some(host.as_str()));
}

#[test]
fn d12_a_closed_metrics_port_is_counted_and_backed_off_from_and_said_once() {
    let servers: Vec<ModelServer> = (0..4).map(|_| ModelServer::start(MetricsPage::Hang)).collect();
    // A port that nobody listens on any more.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let scheduler = Scheduler::new("m1", servers.iter().map(ModelServer::address));
    let scheduler = scheduler.endpoint_line(&format!("metricsPort: {closed}"));
    let started = Instant::now();
    let gateway = Gateway::start(&Config::new([scheduler]).line(SIGNALS));
    let failures = || gateway.admin.metric("inference_gateway_scrape_failures_total", &[r#"cause="connect""#]);
    eventually("sixteen looks", Duration::from_secs(20), || (failures() >= Some(40.0)).then_some(()));
    let elapsed_s = started.elapsed().as_secs_f64();
    // 50, 100, 200, 400, 800 ms, then a look a second: not one every 50 ms.
    assert!(failures().unwrap() <= 4.0 * (8.0 + elapsed_s * 1.3), "{:?} in {elapsed_s} s", failures());
    assert_eq!(lines_with(&gateway, &["no usable metrics page"]), 4, "{}", gateway.log());
    assert!(gateway.log().lines().count() < 20, "{}", gateway.log());
    // They serve all the same.
    let all: Vec<&ModelServer> = servers.iter().collect();
    let spread = shares(&gateway, &all, 40);
    assert!(spread.iter().all(|share| (5..=15).contains(share)), "{spread:?}");
}

#[test]
fn d12_failures_are_as_many_as_attempts() {
    let server = ModelServer::start(MetricsPage::status("500 Internal Server Error"));
    let gateway = Gateway::start(&config(&[&server]));
    let failures = || {
        gateway.admin.metric("inference_gateway_scrape_failures_total", &[r#"cause="status""#, r#"endpoint="m1-0""#])
    };
    eventually("seven looks", Duration::from_secs(20), || (server.looks() >= 7).then_some(()));
    soon("each is counted", || {
        let before = server.looks();
        let counted = failures();
        before == server.looks() && counted == Some(before as f64)
    });
}

#[test]
fn d13_numbers_that_are_none_are_missing_and_poison_nothing() {
    let page = |value: &str| {
        MetricsPage::Text(format!(
            "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc {value}\n"
        ))
    };
    let odd = ModelServer::start(page("NaN"));
    let [half, low] = [MetricsPage::vllm(0, 0, 0.5), MetricsPage::vllm(0, 0, 0.1)].map(ModelServer::start);
    let all = [&odd, &half, &low];
    let gateway = Gateway::start(&config(&all));
    for value in ["NaN", "-1", "1.7e308", "+Inf"] {
        odd.show(page(value));
        let looks = odd.looks();
        soon("it is read", || odd.looks() >= looks + 2);
        assert_eq!(signal(&gateway, "m1-0", "kv_cache"), None, "{value}");
        let spread = shares(&gateway, &all, 30);
        // What is missing is taken as the mean of the others, 0.3: second best.
        assert!(spread[2] > spread[0] && spread[0] >= spread[1], "{value}: {spread:?}");
    }
    odd.show(MetricsPage::Text(
        "vllm:num_requests_waiting +Inf\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0\n".into(),
    ));
    soon("its cache is read", || signal(&gateway, "m1-0", "kv_cache") == Some(0.0));
    let spread = shares(&gateway, &all, 30);
    assert!(spread[0] == 30, "{spread:?}");
}

#[test]
fn engine_type_none_is_asked_for_its_health_instead() {
    let [up, down] = [MetricsPage::Hang, MetricsPage::Hang].map(ModelServer::start);
    let gateway = Gateway::start(&Config::plain("m1", [up.address(), down.address()]).line(SIGNALS));
    soon("both are known", || state(&gateway, "m1-0") == "ready" && state(&gateway, "m1-1") == "ready");
    // Health is asked for once a second: in between it stands, however short `staleAfter` is.
    let checks = Arc::new(AtomicUsize::new(0));
    down.peer.follow({
        let checks = Arc::clone(&checks);
        move |exchange| {
            checks.fetch_add(usize::from(exchange.request.line.starts_with("GET /health")), Ordering::AcqRel);
            exchange.answer_plainly()
        }
    });
    soon("four more checks", || {
        assert_eq!(state(&gateway, "m1-1"), "ready");
        checks.load(Ordering::Acquire) >= 4
    });
    let spread = shares(&gateway, &[&up, &down], 40);
    assert!(spread.iter().all(|share| *share >= 10), "{spread:?}");
    down.peer.follow(|exchange| exchange.answer("503 Service Unavailable", &[], ""));
    eventually("it is left out", Duration::from_secs(15), || (state(&gateway, "m1-1") == "stale").then_some(()));
    assert_eq!(shares(&gateway, &[&up, &down], 20), [20, 0]);
    assert_eq!((up.looks(), down.looks()), (0, 0), "nobody asked for a page");
    down.peer.follow(harness::Exchange::answer_plainly);
    eventually("it is back by itself", Duration::from_secs(15), || (state(&gateway, "m1-1") == "ready").then_some(()));
    let spread = shares(&gateway, &[&up, &down], 40);
    assert!(spread.iter().all(|share| *share >= 10), "{spread:?}");
}

#[test]
fn no_proxy_of_the_environment_is_ever_used() {
    let proxy = ModelServer::start(MetricsPage::vllm(9, 9, 0.9));
    let server = ModelServer::start(MetricsPage::vllm(0, 1, 0.1));
    let url = format!("http://{}", proxy.address());
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let environment: Vec<(&str, &str)> =
        names.iter().map(|name| (*name, url.as_str())).chain([("NO_PROXY", "")]).collect();
    let gateway = Gateway::start_in(&config(&[&server]), &environment);
    reads(&gateway, "running", 1.0);
    assert_eq!(shares(&gateway, &[&server], 5), [5]);
    assert_eq!((proxy.looks(), proxy.served()), (0, 0));
}

#[test]
fn series_of_a_removed_endpoint_go_within_a_minute() {
    let [stays, goes] = [MetricsPage::vllm(0, 1, 0.1), MetricsPage::status("500 Oops")].map(ModelServer::start);
    let mut config = config(&[&stays, &goes]);
    let gateway = Gateway::start(&config);
    let of = |endpoint: &str| {
        let page = gateway.admin.get("/metrics").text();
        page.lines().filter(|line| line.contains(&format!("endpoint=\"{endpoint}\""))).count()
    };
    soon("both have series", || of("m1-0") > 5 && of("m1-1") > 3);
    // Another comes, is on a page, and goes at once.
    let passing = Peer::plain();
    config.schedulers[0].endpoints.push(passing.address);
    gateway.apply(&config);
    soon("so has a third", || of("m1-2") > 3);
    config.schedulers[0].endpoints.truncate(1);
    gateway.apply(&config);
    for gone in ["m1-1", "m1-2"] {
        eventually("its series are gone", Duration::from_secs(60), || (of(gone) == 0).then_some(()));
    }
    assert!(of("m1-0") > 5);
}

#[test]
fn changed_times_of_signals_hold_within_a_second() {
    let server = ModelServer::start(MetricsPage::vllm(0, 1, 0.1));
    let with = |signals: &str| Config::new([Scheduler::new("m1", [server.address()])]).line(signals);
    let gateway = Gateway::start(&with("signals: {scrapeInterval: 50s, staleAfter: 100s}"));
    reads(&gateway, "running", 1.0);
    server.show(MetricsPage::vllm(0, 2, 0.1));
    let started = Instant::now();
    gateway.apply(&with(SIGNALS));
    reads(&gateway, "running", 2.0);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let looks = server.looks();
    soon("ten more looks", || server.looks() >= looks + 10);
    server.show(MetricsPage::Hang);
    soon("it is stale by the new time", || state(&gateway, "m1-0") == "stale");
    gateway.apply(&with("signals: {scrapeInterval: 1s, staleAfter: 100s}"));
    assert_eq!(state(&gateway, "m1-0"), "ready", "by the newer time its last page still counts");
}

#[test]
fn it_is_ready_after_the_first_look_or_two_seconds_even_with_nobody_to_serve() {
    let hanging = ModelServer::start(MetricsPage::Hang);
    for servers in [&[][..], &[&hanging]] {
        let started = Instant::now();
        let gateway =
            Gateway::launch(&Config::new([Scheduler::new("m1", servers.iter().map(|s| s.address()))]).yaml(), &[]);
        assert_eq!(gateway.admin.get("/readyz").status, 503, "nobody was looked at yet");
        gateway.ready();
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    let gateway = Gateway::start(&config(&[]));
    let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", "hello"));
    assert_eq!((answer.status, answer.code().as_str()), (503, "no_endpoint"));
    assert!(answer.header("retry-after").and_then(|wait| wait.parse::<u32>().ok()) >= Some(1));
    let id = answer.header("x-request-id").expect("each answer has an id");
    assert_eq!(gateway.request(id)["outcome"], "no_endpoint");
    let decision = gateway.admin.json(&format!("/api/v1/decisions/{id}"));
    assert_eq!(
        (&decision["reason"], &decision["outcome"]),
        (&"no_endpoint".into(), &"no_endpoint".into()),
        "{decision}"
    );
    assert_eq!(gateway.admin.pool("m1")["saturation"], 1.0);
}
