//! The vLLM page against a page of a real engine (0.32.0, one adapter), committed under `fixtures/`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::client::{get, post, sample, start};

const REAL: &str = include_str!("../../fixtures/vllm-0.32.0-lora-metrics.txt");

/// What a page is made of: per family its type, its help, and the label sets of its samples.
#[derive(Debug, Default, PartialEq)]
struct Family {
    kind: String,
    help: String,
    samples: BTreeSet<String>,
}

/// Labels whose values say which model, machine or moment it is.
const FREE: [&str; 2] = ["version", "patchlevel"];

fn families(page: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            families.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            families.get_mut(&current).unwrap().kind = rest.split_once(' ').unwrap().1.to_owned();
        } else {
            families.get_mut(&current).unwrap().samples.insert(shape(line));
        }
    }
    families
}

/// A sample without its value and without label values that differ from machine to machine.
fn shape(line: &str) -> String {
    let (series, value) = line.rsplit_once(' ').unwrap();
    assert!(value.contains(['.', 'e']) || value == "+Inf", "a Python float: {line}");
    let Some((name, labels)) = series.split_once('{') else { return series.to_owned() };
    let labels = labels.strip_suffix('}').unwrap();
    let shapes = labels.split("\",").map(|label| {
        let (name, value) = label.split_once("=\"").unwrap();
        let is_free = FREE.contains(&name) || series.starts_with("vllm:cache_config_info");
        if is_free { name.to_owned() } else { format!("{name}={}", value.trim_end_matches('"')) }
    });
    format!("{name}{{{}}}", shapes.collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn the_page_has_a_real_pages_families_labels_and_formats() {
    let server = start(|options| {
        options.version = "0.32".parse().unwrap();
        options.served_names = vec!["tiny-a".to_owned()];
        options.adapters = vec!["sql-lora".parse().unwrap()];
        options.profile.max_loras = 2;
        options.profile.max_model_tokens = 2_048;
    })
    .await;
    get(server.address(), "/v1/models").await;
    for model in ["tiny-a", "sql-lora"] {
        let body = json!({"model": model, "prompt": "A prompt of some words.", "max_tokens": 5});
        post(server.address(), "/v1/completions", &body).await;
    }
    let ours = families(&get(server.address(), "/metrics").await.text());
    let mut real = families(REAL);
    // The real interpreter was another patch release.
    real.get_mut("python_info").unwrap().samples.clone_from(&ours["python_info"].samples);
    let names = |page: &BTreeMap<String, Family>| page.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&real));
    for (name, family) in &real {
        assert_eq!(&ours[name], family, "{name}");
    }
    let order = |page: &str| -> Vec<String> {
        let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(order(&get(server.address(), "/metrics").await.text()), order(REAL));
}

#[tokio::test]
async fn releases_differ_in_their_names() {
    let has = async |version: &str, families: &[&str]| -> Vec<bool> {
        let server = start(|options| options.version = version.parse().unwrap()).await;
        let page = get(server.address(), "/metrics").await.text();
        families.iter().map(|family| page.contains(&format!("# TYPE vllm:{family} "))).collect()
    };
    let families = [
        "gpu_cache_usage_perc",
        "kv_cache_usage_perc",
        "num_requests_waiting_by_reason",
        "time_per_output_token_seconds",
        "inter_token_latency_seconds",
        "admission_rejections_total",
    ];
    assert_eq!(has("0.9", &families).await, [true, false, false, true, false, false]);
    assert_eq!(has("0.10.2", &families).await, [true, true, false, true, true, false]);
    assert_eq!(has("0.12", &families).await, [false, true, false, true, true, false]);
    assert_eq!(has("0.33", &families).await, [false, true, true, false, true, true]);
}

#[tokio::test]
async fn waiting_requests_and_used_blocks_show() {
    let server = start(|options| {
        options.profile.max_seqs = 2;
        options.time_scale = 1.0;
    })
    .await;
    let address = server.address();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..5 {
        let body =
            json!({"model": "llama", "prompt": format!("number {number}"), "max_tokens": 4000, "ignore_eos": true});
        running.spawn(async move { post(address, "/v1/completions", &body).await });
    }
    let labels = "{engine=\"0\",model_name=\"llama\"}";
    let page = crate::client::eventually(
        async || get(address, "/metrics").await.text(),
        |page| sample(page, &format!("vllm:num_requests_waiting{labels}")) == Some(3.0),
    )
    .await;
    assert_eq!(sample(&page, &format!("vllm:num_requests_running{labels}")), Some(2.0));
    assert!(sample(&page, &format!("vllm:kv_cache_usage_perc{labels}")).unwrap() > 0.0);
    let by_reason = "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"llama\",reason=\"capacity\"}";
    assert_eq!(sample(&page, by_reason), Some(3.0));
}
