//! The proof that operators know from the workshop, on simulated model servers as they would deploy them: a shared prompt
//! prefix lands on one pod, prompts of their own spread, and weights say otherwise when they are set so.

use std::time::Duration;

use harness::{Answer, Config, Gateway, Scheduler, Sim, chat_body, chats, eventually, post, request, soon};

/// A simulated H100 that serves `m1`, as fast as it would.
fn pod(options: &[&str]) -> Sim {
    let usual = ["--engine", "vllm", "--profile", "llama-3.1-8b-h100", "--model", "m1"];
    let speed: &[&str] = if options.contains(&"--time-scale") { &[] } else { &["--time-scale", "1.0"] };
    Sim::start(&[&usual, speed, options].concat())
}

/// Answers that a pod gave, by its own count.
fn served(pod: &Sim) -> f64 {
    let page = request(pod.address, "GET", "/metrics", &[], "").text();
    let lines = page.lines().filter(|line| line.starts_with("vllm:request_success_total"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn pods(count: usize) -> Vec<Sim> {
    (0..count).map(|_| pod(&[])).collect()
}

fn start(pods: &[Sim], weights: Option<&str>) -> Gateway {
    let mut scheduler = Scheduler::new("m1", pods.iter().map(|pod| pod.address));
    if let Some(weights) = weights {
        scheduler = scheduler.line(&format!("weights: {weights}"));
    }
    let gateway = Gateway::start(&Config::new([scheduler]));
    soon("both pods are read", || {
        let pool = gateway.admin.pool("m1");
        pool["endpoints"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|endpoint| endpoint["signals"]["waiting"]["value"].is_number())
    });
    gateway
}

/// About 700 tokens that `seed` decides.
fn context(seed: &str) -> String {
    (0..100).map(|n| format!("Clause {n} of contract {seed}: ")).collect()
}

fn body(context: &str, question: usize) -> String {
    let text = format!("{context}\nQuestion {question}: what does it say?");
    serde_json::json!({"model": "m1", "max_tokens": 8, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// How many of these answers each of two pods gave.
fn split(gateway: &Gateway, answers: &[Answer]) -> [usize; 2] {
    let mut counts = [0, 0];
    for answer in answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let line = gateway.request(answer.header("x-request-id").expect("each answer has an id"));
        counts[usize::from(line["endpoint"] == "m1-1")] += 1;
    }
    counts
}

#[test]
fn twelve_requests_with_one_prefix_land_on_one_pod() {
    let pods = pods(2);
    let gateway = start(&pods, None);
    for (round, at_a_time) in [(0, 1), (1, 12), (2, 12)] {
        let shared = context(&format!("number {round}"));
        let bodies: Vec<String> = (0..12).map(|question| body(&shared, question)).collect();
        let mut counts = split(&gateway, &chats(gateway.data, &bodies, at_a_time));
        counts.sort_unstable();
        assert_eq!(counts, [0, 12], "{at_a_time} at a time");
    }
    // The pods counted the same, and the cache there was hit.
    let served: f64 = pods.iter().map(served).sum();
    assert!((served - 36.0).abs() < 0.5, "{served}");
    let cached = gateway.admin.metric("inference_gateway_tokens_total", &[r#"kind="cached""#]);
    let prompt = gateway.admin.metric("inference_gateway_tokens_total", &[r#"kind="prompt""#]);
    assert!(cached.unwrap() > 0.7 * prompt.unwrap(), "{cached:?} of {prompt:?}");
}

#[test]
fn prompts_of_their_own_spread() {
    let pods = pods(2);
    let gateway = start(&pods, None);
    let bodies =
        |from: usize| -> Vec<String> { (from..from + 24).map(|n| body(&context(&format!("{n}")), n)).collect() };
    let together = split(&gateway, &chats(gateway.data, &bodies(0), 24));
    assert!(together.iter().all(|count| (8..=16).contains(count)), "{together:?}");
    let in_turn = split(&gateway, &chats(gateway.data, &bodies(100), 1));
    assert!(in_turn.iter().all(|count| *count >= 4), "{in_turn:?}");
}

#[test]
fn with_prefix_0_queue_3_kv_cache_2_the_shared_batch_spreads_too() {
    let pods = pods(2);
    let gateway = start(&pods, Some("{prefix: 0, queue: 3, kvCache: 2}"));
    // What each pod last said may be of requests that have ended since, so the spread need not be even.
    for (at_a_time, least) in [(12, 3), (1, 2)] {
        let shared = context(&format!("batch {at_a_time}"));
        let bodies: Vec<String> = (0..12).map(|question| body(&shared, question)).collect();
        let counts = split(&gateway, &chats(gateway.data, &bodies, at_a_time));
        assert!(counts.iter().all(|count| *count >= least), "{at_a_time} at a time: {counts:?}");
    }
}

#[test]
fn adapters_stay_where_they_were_loaded() {
    let pods: Vec<Sim> = (0..2).map(|_| pod(&["--lora", "sql", "--lora", "chat", "--max-loras", "1"])).collect();
    let scheduler = Scheduler::new("m1", pods.iter().map(|pod| pod.address)).line("loraAdapters: [sql, chat]");
    let gateway = Gateway::start(&Config::new([scheduler]));
    let ask = |model: &str, n: usize| {
        let answer = post(gateway.data, "/v1/chat/completions", chat_body(model, &format!("{n} {model}")));
        assert_eq!(answer.status, 200, "{}", answer.text());
        gateway.request(answer.header("x-request-id").unwrap())["endpoint"].as_str().unwrap().to_owned()
    };
    let (sql, chat) = (ask("sql", 0), ask("chat", 0));
    assert_ne!(sql, chat, "each pod has one slot");
    for n in 1..6 {
        assert_eq!((ask("sql", n), ask("chat", n)), (sql.clone(), chat.clone()));
    }
}

#[test]
fn a_pool_nobody_of_which_listens_refuses_with_503_and_takes_work_again() {
    let pod = pod(&[]);
    let gateway = start(std::slice::from_ref(&pod), None);
    let fault = |refuse: bool| pod.faults(&serde_json::json!({ "refuse": refuse }));
    let ask = || post(gateway.data, "/v1/chat/completions", body("hello", 1));
    assert_eq!(ask().status, 200);
    fault(true);
    // A connection that was being made as the port closed may have broken instead.
    let refused = eventually("it is refused", Duration::from_secs(10), || {
        let answer = ask();
        assert!([200, 502, 503].contains(&answer.status), "{}", answer.text());
        (answer.status == 503).then_some(answer)
    });
    assert_eq!((refused.status, refused.code().as_str()), (503, "endpoint_unreachable"));
    assert_eq!(refused.json()["error"]["type"], "service_unavailable_error");
    assert!(refused.header("retry-after").and_then(|wait| wait.parse::<u32>().ok()) >= Some(1));
    assert_eq!(gateway.admin.in_flight("m1"), 0);
    soon("it is known to be gone", || gateway.admin.endpoint("m1", "m1-0")["state"] == "stale");
    assert_eq!(ask().status, 503);
    fault(false);
    soon("it serves again by itself", || ask().status == 200);
    soon("and is known again", || gateway.admin.endpoint("m1", "m1-0")["state"] == "ready");
}

#[test]
fn engine_type_auto_reads_each_simulated_engine() {
    let engines =
        [("vllm", "vllm:num_requests_waiting"), ("sglang", "sglang:num_queue_reqs"), ("tgi", "tgi_queue_size")];
    let pods = engines.map(|(engine, _)| Sim::start(&["--engine", engine, "--model", "m1"]));
    let scheduler = Scheduler::new("m1", pods.iter().map(|pod| pod.address)).line("engineType: auto");
    let gateway = Gateway::start(&Config::new([scheduler]));
    for (index, (engine, source)) in engines.iter().enumerate() {
        soon(&format!("{engine} is read"), || {
            gateway.admin.endpoint("m1", &format!("m1-{index}"))["signals"]["waiting"]["source"] == *source
        });
    }
    let bodies: Vec<String> = (0..30).map(|n| body(&context(&format!("{n}")), n)).collect();
    for answer in chats(gateway.data, &bodies, 6) {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert!(pods.iter().all(|pod| !pod.requests().is_empty()), "each engine serves");
}

#[test]
fn whatever_happens_to_its_page_a_simulated_server_goes_on_serving() {
    let pod = pod(&["--time-scale", "0.01"]);
    let scheduler = Scheduler::new("m1", [pod.address]);
    let signals = "signals: {scrapeInterval: 50ms, staleAfter: 500ms}";
    let gateway = Gateway::start(&Config::new([scheduler]).line(signals));
    let age_ms = || gateway.admin.endpoint("m1", "m1-0")["signals"]["running"]["age_ms"].as_u64();
    for (fault, cause) in [
        ("missing", "no_known_family"),
        ("empty", "no_known_family"),
        ("broken", "no_known_family"),
        ("half", "protocol"),
        ("404", "status"),
        ("500", "status"),
        ("redirect", "redirect"),
        ("hang", "timeout"),
    ] {
        let failures = || {
            let labels = [format!("cause=\"{cause}\"")];
            gateway.admin.metric("inference_gateway_scrape_failures_total", &[&labels[0]]).unwrap_or(0.0)
        };
        let before = failures();
        pod.faults(&serde_json::json!({ "metrics": fault }));
        soon(&format!("{fault} is counted as {cause}"), || failures() > before);
        soon("what it said before is too old", || gateway.admin.endpoint("m1", "m1-0")["state"] == "stale");
        assert_eq!(post(gateway.data, "/v1/chat/completions", body("hello", 1)).status, 200, "{fault}");
        pod.faults(&serde_json::json!({ "metrics": "ok" }));
        soon("it is read again", || age_ms() < Some(400) && gateway.admin.endpoint("m1", "m1-0")["state"] == "ready");
    }
    let skipped = || gateway.admin.metric("inference_gateway_scrape_samples_skipped_total", &[]);
    assert_eq!(skipped(), None);
    pod.faults(&serde_json::json!({ "metrics": "nan" }));
    soon("numbers that are none are counted", || skipped() > Some(0.0));
    assert_eq!(post(gateway.data, "/v1/chat/completions", body("hello", 1)).status, 200);
}
