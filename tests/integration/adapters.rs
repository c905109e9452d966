//! LoRA adapters: what engines tell of them, and where requests for them go.

use std::time::{SystemTime, UNIX_EPOCH};

use harness::{Config, Gateway, MetricsPage, ModelServer, chat_body, post};

use crate::picking::{SIGNALS, decision, scheduler, servers, start, text};

fn lora_page(combinations: &[(u32, &str, &str, f64)], waiting: u32) -> MetricsPage {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs_f64();
    let line = |(slots, running, queued, ago_s): &(u32, &str, &str, f64)| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"{slots}\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{queued}\"}} {:e}\n",
            now_s - ago_s
        )
    };
    let all: String = combinations.iter().map(line).collect();
    // Requests run, so the set is of now whatever its time.
    MetricsPage::Text(format!(
        "vllm:num_requests_running{{model_name=\"base\"}} 1\nvllm:num_requests_waiting{{model_name=\"base\"}} {waiting}\n\
         vllm:kv_cache_usage_perc{{model_name=\"base\"}} 0.1\n{all}"
    ))
}

fn with_adapters(pods: &[ModelServer]) -> Gateway {
    start(&Config::new([scheduler(pods).line("loraAdapters: [a, b, c, d, e]")]).line(SIGNALS))
}

/// What loraAffinity said of an endpoint in a decision.
fn affinity(decision: &serde_json::Value, endpoint: &str) -> f64 {
    let candidates = decision["candidates"].as_array().expect("a list");
    let found = candidates.iter().find(|candidate| candidate["endpoint"] == endpoint).expect("it was looked at");
    found["scores"]["loraAffinity"]["score"].as_f64().expect("a number")
}

/// Which of two pods a short request of this model goes to.
fn goes_to(gateway: &Gateway, pods: &[ModelServer], model: &str) -> usize {
    let before = pods[0].served();
    let answer = post(gateway.data, "/v1/chat/completions", chat_body(model, "hello"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    usize::from(pods[0].served() == before)
}

#[test]
fn e05_a_prompt_seen_for_the_base_model_is_none_for_an_adapter() {
    let pods = servers(2, &MetricsPage::vllm(0, 0, 0.0));
    // Without the adapter's own affinity, which would hide where the prefix points.
    let gateway = start(
        &Config::new([scheduler(&pods)
            .line("loraAdapters: [lora-a]")
            .line("weights: {queue: 2, kvCache: 2, prefix: 3, loraAffinity: 0}")])
        .line(SIGNALS),
    );
    let mut same = 0;
    for number in 0..100 {
        let prompt = text(number, 300);
        let ask = |model: &str| {
            let before = pods[0].served();
            let answer = post(gateway.data, "/v1/chat/completions", chat_body(model, &prompt));
            assert_eq!(answer.status, 200);
            (pods[0].served() > before, answer)
        };
        let (base, _) = ask("m1");
        let (adapter, answer) = ask("lora-a");
        same += usize::from(base == adapter);
        let why = decision(&gateway, &answer);
        assert!(why["candidates"].as_array().unwrap().iter().all(|c| c["matched_blocks"] == 0), "{why}");
    }
    // Four deviations of a fair coin.
    assert!((30..=70).contains(&same), "{same} of 100 went where the base model's went");
}

#[test]
fn d03_the_newest_of_many_adapter_series_counts_in_any_order() {
    let mut lines = [(4, "d", "", 9.0), (4, "a, b", "", 4.0), (4, "a", "c", 6.0)];
    let mut room_for_c = Vec::new();
    for _ in 0..3 {
        lines.rotate_left(1);
        let pods =
            vec![ModelServer::start(lora_page(&lines, 0)), ModelServer::start(lora_page(&[(4, "", "", 4.0)], 0))];
        let gateway = with_adapters(&pods);
        assert_eq!(goes_to(&gateway, &pods, "b"), 0, "{lines:?}");
        let loaded = gateway.admin.endpoint("m1", "m1-0")["signals"]["loras"]["value"].clone();
        let names = loaded.as_array().expect("a list");
        assert!(names.iter().all(|name| name != "c" && name != "d"), "c only waited and d was long ago: {loaded}");
        for adapter in ["d", "c"] {
            let answer = post(gateway.data, "/v1/chat/completions", chat_body(adapter, "hello"));
            let why = decision(&gateway, &answer);
            let [first, second] = ["m1-0", "m1-1"].map(|name| affinity(&why, name));
            assert!(first <= second, "no bonus for {adapter} where it is no more: {why}");
            if adapter == "c" {
                room_for_c.push(first);
            }
        }
    }
    assert!(room_for_c.iter().all(|room| (room - room_for_c[0]).abs() < 1e-9), "the order counted: {room_for_c:?}");
}

#[test]
fn e07_an_adapter_that_runs_and_waits_takes_one_slot() {
    let pods = vec![
        ModelServer::start(lora_page(&[(2, "a", "a", 0.0)], 0)),
        ModelServer::start(lora_page(&[(2, "c,d", "", 0.0)], 0)),
    ];
    let gateway = with_adapters(&pods);
    let answer = post(gateway.data, "/v1/chat/completions", chat_body("b", "hello"));
    let why = decision(&gateway, &answer);
    assert_eq!(why["endpoint"], "m1-0", "{why}");
    // One of two slots is free here, none there.
    assert!(affinity(&why, "m1-0") > 0.5 && affinity(&why, "m1-1") < 1e-9, "{why}");
}

#[test]
fn e08_gauges_belong_to_the_endpoint_whatever_model_they_name() {
    let pods = vec![
        ModelServer::start(lora_page(&[(4, "a", "", 0.0)], 20)),
        ModelServer::start(lora_page(&[(4, "", "", 0.0)], 0)),
    ];
    let gateway = with_adapters(&pods);
    for _ in 0..50 {
        assert_eq!(goes_to(&gateway, &pods, "a"), 1);
    }
}

#[test]
fn requests_for_an_adapter_go_where_it_is_loaded_else_where_there_is_most_room() {
    let full = [(1, "e", "", 0.0)];
    let pods = vec![
        ModelServer::start(lora_page(&full, 0)),
        ModelServer::start(lora_page(&[(4, "a", "", 0.0)], 1)),
        ModelServer::start(lora_page(&full, 0)),
    ];
    let gateway = with_adapters(&pods);
    let served_by = |model: &str| {
        let answer = post(gateway.data, "/v1/chat/completions", chat_body(model, "hello"));
        gateway.request(answer.header("x-request-id").unwrap())["endpoint"].as_str().unwrap().to_owned()
    };
    // Where it is loaded, though another waits there.
    assert_eq!(served_by("a"), "m1-1");
    // Loaded nowhere: where there is a slot.
    assert_eq!(served_by("b"), "m1-1");
    // And where it went it stays.
    for _ in 0..10 {
        assert_eq!(served_by("b"), "m1-1");
    }
    let resident = |adapter: &str| {
        gateway.admin.metric(
            "inference_gateway_endpoint_adapter_resident",
            &[r#"endpoint="m1-1""#, &format!("adapter=\"{adapter}\"")],
        )
    };
    assert_eq!((resident("a"), resident("b"), resident("c")), (Some(1.0), Some(1.0), Some(0.0)));
}
