//! Where requests go: by load, by shared prefixes, by adapters, and never all to one place for no reason.

use std::{
    thread,
    time::{Duration, Instant},
};

use harness::{Config, Gateway, MetricsPage, ModelServer, Scheduler, chat_body, chats, post, soon};

pub(crate) const SIGNALS: &str = "signals: {scrapeInterval: 50ms, staleAfter: 1s}";

pub(crate) fn scheduler(servers: &[ModelServer]) -> Scheduler {
    Scheduler::new("m1", servers.iter().map(ModelServer::address))
}

fn config(servers: &[ModelServer]) -> Config {
    Config::new([scheduler(servers)]).line(SIGNALS)
}

pub(crate) fn servers(count: usize, page: &MetricsPage) -> Vec<ModelServer> {
    (0..count).map(|_| ModelServer::start(page.clone())).collect()
}

pub(crate) fn start(config: &Config) -> Gateway {
    let gateway = Gateway::start(config);
    soon("every endpoint is read", || {
        let pool = gateway.admin.pool("m1");
        pool["endpoints"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|endpoint| endpoint["signals"]["waiting"]["value"].is_number())
    });
    gateway
}

/// Shows a page and waits until the gateway has read it.
fn show(gateway: &Gateway, servers: &[ModelServer], index: usize, waiting: u32) {
    servers[index].show(MetricsPage::vllm(waiting, 0, 0.0));
    let name = format!("m1-{index}");
    soon(&format!("{name} is seen with {waiting} waiting"), || {
        gateway.admin.endpoint("m1", &name)["signals"]["waiting"]["value"] == f64::from(waiting)
    });
}

/// Sends these and gives how many each server got; each must be served.
fn shares(gateway: &Gateway, servers: &[ModelServer], bodies: &[String], at_a_time: usize) -> Vec<usize> {
    let before: Vec<usize> = servers.iter().map(ModelServer::served).collect();
    for answer in chats(gateway.data, bodies, at_a_time) {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    servers.iter().zip(before).map(|(server, before)| server.served() - before).collect()
}

/// A text of about so many tokens that shares no block with another number's.
pub(crate) fn text(number: usize, tokens: usize) -> String {
    let mut text = format!("{number:08} ");
    while text.len() < tokens * 4 {
        text.push_str(&format!("{:08x} ", number.wrapping_mul(2_654_435_761) ^ text.len().wrapping_mul(40_503)));
    }
    text.truncate(tokens * 4);
    text
}

fn unique(count: usize, tokens: usize) -> Vec<String> {
    (0..count).map(|number| chat_body("m1", &text(number, tokens))).collect()
}

pub(crate) fn decision(gateway: &Gateway, answer: &harness::Answer) -> serde_json::Value {
    let id = answer.header("x-request-id").expect("each answer has an id");
    gateway.admin.json(&format!("/api/v1/decisions/{id}"))
}

#[test]
fn a_burst_of_n_onto_n_equal_endpoints_puts_one_on_each_and_k_n_spread_evenly() {
    let pods = servers(8, &MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&config(&pods).line("timeouts: {firstByte: 60s}"));
    for rounds in [1, 3] {
        pods.iter().for_each(ModelServer::close);
        // Long enough for a tie to be broken by what they say, which alone would not spread them evenly.
        let bodies = unique(8 * rounds, 300);
        let data = gateway.data;
        let burst = thread::spawn(move || chats(data, &bodies, bodies.len()));
        soon("all are there", || pods.iter().map(ModelServer::inside).sum::<usize>() == 8 * rounds);
        let inside: Vec<usize> = pods.iter().map(ModelServer::inside).collect();
        assert!(inside.iter().all(|count| count.abs_diff(rounds) <= 1), "{inside:?}");
        if rounds == 1 {
            assert_eq!(inside, [1; 8]);
        }
        assert_eq!(gateway.admin.in_flight("m1"), 8 * rounds as u64);
        pods.iter().for_each(ModelServer::open);
        assert!(burst.join().unwrap().iter().all(|answer| answer.status == 200));
        soon("nothing is in flight", || gateway.admin.in_flight("m1") == 0);
    }
}

#[test]
fn e01_own_requests_count_between_two_reports() {
    let pods = servers(2, &MetricsPage::vllm(0, 0, 0.0));
    pods[1].show(MetricsPage::vllm(1, 0, 0.0));
    // Reports are rare: what is known is the first one.
    let gateway = start(&Config::new([scheduler(&pods)]).line("signals: {scrapeInterval: 30s, staleAfter: 60s}"));
    pods.iter().for_each(ModelServer::close);
    let data = gateway.data;
    let burst = thread::spawn(move || chats(data, &unique(8, 50), 8));
    soon("all are there", || pods.iter().map(ModelServer::inside).sum::<usize>() == 8);
    let inside: Vec<usize> = pods.iter().map(ModelServer::inside).collect();
    assert!(inside == [4, 4] || inside == [5, 3], "{inside:?}");
    pods.iter().for_each(ModelServer::open);
    burst.join().unwrap();
    // Two hundred onto two idle ones, each for a while.
    let pods = servers(2, &MetricsPage::Live { batch: 64 });
    let gateway = start(&Config::new([scheduler(&pods)]).line("signals: {scrapeInterval: 1s, staleAfter: 3s}"));
    pods.iter().for_each(|pod| pod.work_for(Duration::from_millis(300)));
    let answers = chats(gateway.data, &unique(100, 50), 100);
    assert!(answers.iter().all(|answer| answer.status == 200), "{:?}", answers.iter().find(|a| a.status != 200));
    let most: Vec<usize> = pods.iter().map(ModelServer::inside_most).collect();
    assert!(most[0].abs_diff(most[1]) * 5 <= most[0].max(most[1]), "peaks: {most:?}");
}

/// An engine whose cache holds a few prompts, and whose numbers are those of before the burst.
fn small_and_idle() -> MetricsPage {
    let MetricsPage::Text(page) = MetricsPage::vllm(0, 0, 0.0) else { unreachable!("a vLLM page is a text") };
    MetricsPage::Text(page + "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"128\"} 1.0\n")
}

#[test]
fn e01_what_has_no_room_waits_in_the_gateway_and_not_in_the_engine() {
    const CALLS: usize = 60;
    // Four prompts of 512 tokens fill a cache of 128 blocks of 16; an engine is full with five more.
    const MOST: usize = 4 + 5;
    let servers = servers(2, &small_and_idle());
    let gateway = start(&Config::new([scheduler(&servers)]).line("signals: {scrapeInterval: 1s, staleAfter: 4s}"));
    servers.iter().for_each(|server| server.work_for(Duration::from_millis(100)));
    let bodies = unique(CALLS, 512);
    let waited = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while servers.iter().map(ModelServer::served).sum::<usize>() < CALLS {
                most = most.max(gateway.admin.pool("m1")["queue"]["standard"].as_u64().unwrap_or(0));
            }
            most
        });
        let split = shares(&gateway, &servers, &bodies, CALLS);
        assert!(split.iter().all(|share| (CALLS * 2 / 5..=CALLS * 3 / 5).contains(share)), "{split:?}");
        watch.join().expect("watching does not panic")
    });
    let most: Vec<usize> = servers.iter().map(ModelServer::inside_most).collect();
    assert!(most.iter().all(|most| *most <= MOST), "{most:?} at a time in the engines");
    assert!(waited > 0, "the rest waited in the gateway");
    let waits = gateway.admin.metric("inference_gateway_queue_wait_seconds_count", &[r#"pool="m1""#]);
    assert!(waits >= Some((CALLS - 2 * MOST) as f64 / 2.0), "{waits:?}");
}

#[test]
fn e01_one_full_endpoint_of_four_is_not_hidden_by_the_mean() {
    let pods = servers(4, &MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&config(&pods));
    // All want to go where their prompt is known, and that one is full.
    let shared = text(5, 2_000);
    let bodies: Vec<String> = (0..60).map(|n| chat_body("m1", &format!("{shared} question {n}"))).collect();
    let warm = shares(&gateway, &pods, &bodies[..1], 1).iter().position(|&share| share == 1).expect("it was served");
    assert_eq!(shares(&gateway, &pods, &bodies[1..10], 1)[warm], 9);
    show(&gateway, &pods, warm, 9);
    let spread = shares(&gateway, &pods, &bodies[10..], 4);
    assert_eq!(spread[warm], 0, "{spread:?}");
    assert_eq!(spread.iter().sum::<usize>(), 50);
    show(&gateway, &pods, warm, 0);
    let idle = shares(&gateway, &pods, &unique(60, 50), 4);
    assert!(idle.iter().all(|&share| share >= 8), "{idle:?}");
}

#[test]
fn e02_equal_endpoints_share_equally_one_by_one_and_in_parallel() {
    let pods = servers(4, &MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&config(&pods));
    let spread = shares(&gateway, &pods, &unique(200, 20), 1);
    assert!(spread.iter().all(|share| (30..=70).contains(share)), "short ones, one by one: {spread:?}");
    let spread = shares(&gateway, &pods, &unique(200, 300), 1);
    assert!(spread.iter().all(|share| (30..=70).contains(share)), "with blocks, one by one: {spread:?}");
    let long: Vec<String> = (1000..1060).map(|number| chat_body("m1", &text(number, 32_000))).collect();
    let spread = shares(&gateway, &pods, &long, 20);
    assert!(spread.iter().all(|share| (9..=21).contains(share)), "long ones, in parallel: {spread:?}");
}

#[test]
fn e03_a_hot_prefix_spills_over_and_is_sticky_again_afterwards() {
    // Room for all that are open at a time, but not on one.
    let pods = servers(4, &MetricsPage::Live { batch: 12 });
    let gateway = start(&config(&pods));
    let shared = text(77, 8_000);
    let bodies: Vec<String> = (0..200).map(|n| chat_body("m1", &format!("{shared} question {n}"))).collect();
    // Warm, and idle latency.
    pods.iter().for_each(|pod| pod.work_for(Duration::from_millis(500)));
    let started = Instant::now();
    shares(&gateway, &pods, &bodies[..1], 1);
    let idle = started.elapsed();
    let started = Instant::now();
    let spread = shares(&gateway, &pods, &bodies, 40);
    let warm = *spread.iter().max().unwrap();
    assert!(warm < 120, "the warm one got {warm} of 200: {spread:?}");
    // 200 requests, 40 at a time: five waves if no one queues.
    assert!(started.elapsed() < 3 * 5 * idle, "{:?}, idle {idle:?}", started.elapsed());
    pods.iter().for_each(|pod| pod.work_for(Duration::ZERO));
    soon("reports are calm", || {
        let pool = gateway.admin.pool("m1");
        pool["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .all(|e| e["signals"]["running"]["value"] == 0.0 && e["in_flight"]["requests"] == 0)
    });
    let later: Vec<String> = (0..40).map(|n| chat_body("m1", &format!("{shared} later {n}"))).collect();
    let spread = shares(&gateway, &pods, &later, 1);
    assert!(*spread.iter().max().unwrap() >= 37, "{spread:?}");
}

#[test]
fn e04_prefixes_match_from_their_start_and_not_by_blocks_in_the_middle() {
    let pods = servers(2, &MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&config(&pods));
    for round in 0..8 {
        let (x, y) = (text(2 * round, 128), text(2 * round + 1, 128));
        let completion = |prompt: &str| serde_json::json!({"model": "m1", "prompt": prompt}).to_string();
        let send = |prompt: &str| {
            let before = pods[0].served();
            let answer = post(gateway.data, "/v1/completions", completion(prompt));
            assert_eq!(answer.status, 200);
            (usize::from(pods[0].served() == before), answer)
        };
        show(&gateway, &pods, 1, 9);
        assert_eq!(send(&x).0, 0);
        show(&gateway, &pods, 1, 0);
        show(&gateway, &pods, 0, 9);
        assert_eq!(send(&y).0, 1);
        show(&gateway, &pods, 0, 0);
        let (third, answer) = send(&(y.clone() + &x));
        let why = decision(&gateway, &answer);
        assert_eq!(third, 1, "round {round}: {why}");
        let matched = |name: &str| {
            let candidates = why["candidates"].as_array().unwrap();
            candidates.iter().find(|c| c["endpoint"] == name).unwrap()["matched_blocks"].as_u64().unwrap()
        };
        assert!(matched("m1-1") >= 1 && matched("m1-0") == 0, "{why}");
    }
}

#[test]
fn e06_the_prefix_index_is_bounded_shown_and_empties_with_its_endpoints() {
    let pods = servers(2, &MetricsPage::vllm(0, 0, 0.0));
    let mut config = config(&pods);
    let gateway = start(&config);
    shares(&gateway, &pods, &unique(200, 1024), 4);
    let index = gateway.admin.pool("m1")["prefix_index"].clone();
    // 16 blocks of 64 tokens each.
    assert!((3_000..=3_600).contains(&index["blocks"].as_u64().unwrap()), "{index}");
    assert!(index["bytes"].as_u64() <= index["budget_bytes"].as_u64(), "{index}");
    let metric =
        |name: &str| gateway.admin.metric(&format!("inference_gateway_prefix_index_{name}"), &[r#"pool="m1""#]);
    assert_eq!(metric("entries"), index["blocks"].as_f64());
    assert_eq!(metric("evictions_total"), Some(0.0));
    // Pods come and go; what is left is what those that stay were sent.
    for _ in 0..3 {
        let fresh = servers(2, &MetricsPage::vllm(0, 0, 0.0));
        config.schedulers[0].endpoints = fresh.iter().map(ModelServer::address).collect();
        gateway.apply(&config);
        soon("the old ones are gone", || {
            gateway.admin.pool("m1")["endpoints"]
                .as_array()
                .unwrap()
                .iter()
                .all(|e| e["signals"]["waiting"]["value"].is_number())
        });
        shares(&gateway, &fresh, &unique(20, 1024), 4);
    }
    soon("only the last ones' prompts are known", || metric("entries").is_some_and(|blocks| blocks <= 400.0));
    // An engine says how much its cache holds, and no more than that is remembered of it.
    let cached = |waiting: u32| {
        let MetricsPage::Text(page) = MetricsPage::vllm(waiting, 0, 0.0) else { unreachable!("a vLLM page is a text") };
        MetricsPage::Text(page + "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"128\"} 1.0\n")
    };
    let small = servers(1, &cached(0));
    config.schedulers[0].endpoints = small.iter().map(ModelServer::address).collect();
    gateway.apply(&config);
    soon("its cache is known", || gateway.admin.endpoint("m1", "m1-0")["cache"]["blocks"] == 128);
    shares(&gateway, &small, &unique(20, 1024), 1);
    assert_eq!(gateway.admin.pool("m1")["prefix_index"]["blocks"], 32, "128 × 16 tokens");
    assert!(metric("evictions_total") > Some(0.0));
}

#[test]
fn e09_a_busy_past_does_not_count_once_it_is_over() {
    let pods = servers(2, &MetricsPage::Live { batch: 64 });
    let gateway = start(&config(&pods[..1]));
    shares(&gateway, &pods, &unique(50, 300), 10);
    soon("gauges are back to 0", || {
        gateway.admin.metric("inference_gateway_in_flight_requests", &[]) == Some(0.0)
            && gateway.admin.endpoint("m1", "m1-0")["in_flight"]["prompt_tokens"] == 0
    });
    gateway.apply(&config(&pods));
    soon("the second is read", || gateway.admin.endpoint("m1", "m1-1")["signals"]["waiting"]["value"].is_number());
    let later: Vec<String> = (500..550).map(|number| chat_body("m1", &text(number, 300))).collect();
    let spread = shares(&gateway, &pods, &later, 5);
    assert!(spread.iter().all(|share| (15..=35).contains(share)), "{spread:?}");
}

#[test]
fn e10_what_clients_do_wrong_takes_no_endpoint_away() {
    let pods = servers(1, &MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&config(&pods));
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "404 Not Found",
        "413 Content Too Large",
        "422 Unprocessable Content",
        "501 Not Implemented",
    ] {
        pods[0].peer.follow(move |exchange| {
            if exchange.request.line.starts_with("GET /metrics") {
                let MetricsPage::Text(page) = MetricsPage::vllm(0, 0, 0.0) else {
                    unreachable!("a vLLM page is a text")
                };
                return exchange.answer("200 OK", &[], page);
            }
            if String::from_utf8_lossy(&exchange.request.body).contains("marked") {
                return exchange.answer(
                    status,
                    &[("content-type", "application/json")],
                    r#"{"error":{"message":"no"}}"#,
                );
            }
            exchange.answer_plainly()
        });
        for n in 0..20 {
            let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", &format!("marked {n}")));
            assert_eq!(answer.status.to_string(), status[..3], "{}", answer.text());
        }
        for n in 0..20 {
            let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", &format!("good {n}")));
            assert_eq!(answer.status, 200, "after {status}: {}", answer.text());
        }
        assert_eq!(gateway.admin.endpoint("m1", "m1-0")["state"], "ready", "{status}");
    }
    let counted =
        |outcome: &str| gateway.admin.metric("inference_gateway_requests_total", &[&format!("outcome=\"{outcome}\"")]);
    assert_eq!(
        (counted("ok"), counted("upstream_4xx"), counted("upstream_5xx")),
        (Some(120.0), Some(100.0), Some(20.0))
    );
}

/// What some operators prefer: a pool without room refuses at once, and nothing is kept for higher bands.
const NO_WAITING: &str = "flowControl: {bands: {standard: {maxSaturation: 1.0, maxWait: 0s}}}";

#[test]
fn a_pool_without_room_refuses_at_once_and_takes_work_again() {
    let pods = servers(2, &MetricsPage::vllm(5, 8, 0.5));
    let gateway = start(&config(&pods).line(NO_WAITING));
    let started = Instant::now();
    let answer = post(gateway.data, "/v1/chat/completions", chat_body("m1", "hello"));
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!((answer.status, answer.code().as_str()), (429, "queue_full"));
    assert_eq!(answer.json()["error"]["type"], "overloaded_error");
    let wait: u32 = answer.header("retry-after").expect("a time to wait").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(pods.iter().map(ModelServer::served).sum::<usize>(), 0);
    assert_eq!(gateway.admin.pool("m1")["saturation"], 1.0);
    assert_eq!(gateway.admin.metric("inference_gateway_saturation", &[r#"pool="m1""#]), Some(1.0));
    assert_eq!(gateway.request(answer.header("x-request-id").unwrap())["outcome"], "queue_full");
    show(&gateway, &pods, 1, 0);
    assert_eq!(shares(&gateway, &pods, &unique(5, 50), 1), [0, 5]);
    // A full cache is full only while somebody waits for it.
    pods[1].show(MetricsPage::vllm(0, 8, 0.95));
    soon("its cache is seen", || gateway.admin.endpoint("m1", "m1-1")["signals"]["kv_cache"]["value"] == 0.95);
    assert_eq!(shares(&gateway, &pods, &unique(5, 50), 1), [0, 5]);
    pods[1].show(MetricsPage::vllm(1, 8, 0.95));
    soon("the one waiting is seen", || gateway.admin.endpoint("m1", "m1-1")["signals"]["waiting"]["value"] == 1.0);
    assert_eq!(post(gateway.data, "/v1/chat/completions", chat_body("m1", "hello")).status, 429);
}

#[test]
fn an_engine_that_hangs_while_its_page_says_idle_attracts_no_more_work() {
    let pods = servers(2, &MetricsPage::vllm(0, 0, 0.0));
    let gateway = start(&config(&pods));
    pods[0].close();
    let data = gateway.data;
    // Each prompt alone: nothing but load decides.
    let all = thread::spawn(move || chats(data, &unique(60, 20), 20));
    soon("all are there or done", || pods[0].inside() + pods[1].served() == 60);
    // While some were on their way to both, it got its share of those; then it was seen to hold what it got.
    assert!(pods[0].inside() <= 12, "{} hang", pods[0].inside());
    let hanging = pods[0].inside();
    let later = shares(&gateway, &pods, &unique(20, 20), 1);
    assert_eq!((later[1], pods[0].inside()), (20, hanging), "{later:?}");
    pods[0].open();
    assert!(all.join().expect("all are answered").iter().all(|answer| answer.status == 200));
}
