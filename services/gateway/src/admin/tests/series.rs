//! Levels on the metrics page, and series that go.

use std::collections::{BTreeMap, BTreeSet};

use dispatch::Band;
use telemetry::catalog::SCRAPE_FAILURES;

use super::*;
use crate::{admin::Sweeper, metrics::Outcome};

fn assert_has(page: &str, line: &str) {
    assert!(page.lines().any(|got| got == line), "no line `{line}` in\n{page}");
}

#[tokio::test]
async fn every_level_is_on_the_page() {
    let (site, pool) = Site::with_llama();
    let (lease, _) = site.pick(&pool, "a");
    let picked = lease.ranked[0].get() - 1;
    let page = site.metrics().await;
    let llama_0 = r#"{pool="llama",endpoint="llama-0"}"#;
    for line in [
        &format!(r#"inference_gateway_in_flight_requests{{pool="llama",endpoint="llama-{picked}"}} 1"#),
        &format!(r#"inference_gateway_in_flight_requests{{pool="llama",endpoint="llama-{}"}} 0"#, 1 - picked),
        &format!("inference_gateway_endpoint_waiting{llama_0} 1"),
        &format!("inference_gateway_endpoint_running{llama_0} 4"),
        &format!("inference_gateway_endpoint_kv_cache_ratio{llama_0} 0.25"),
        r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="ready"} 1"#,
        r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="stale"} 0"#,
        r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="ejected"} 0"#,
        r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="draining"} 0"#,
        r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="starting"} 0"#,
        r#"inference_gateway_endpoint_adapter_resident{pool="llama",endpoint="llama-0",adapter="sql"} 1"#,
        r#"inference_gateway_own_signals_only{pool="llama"} 0"#,
        r#"inference_gateway_prefix_index_entries{pool="llama"} 2"#,
        r#"inference_gateway_prefix_index_evictions_total{pool="llama"} 0"#,
        "inference_gateway_config_valid 1",
        "inference_gateway_config_generation 3",
        "inference_gateway_body_memory_bytes 0",
        &format!(r#"inference_gateway_build_info{{version="{}"}} 1"#, env!("CARGO_PKG_VERSION")),
    ] {
        assert_has(&page, line);
    }
    for name in ["endpoint_signal_age_seconds{", "saturation{", "prefix_index_bytes{"] {
        assert!(page.contains(&format!("\ninference_gateway_{name}")), "{name}");
    }
    assert!(value(&page, "process_resident_memory_bytes") > 1e6);
    assert!(value(&page, "process_start_time_seconds") > 1.7e9);
    assert!(page.contains("\nprocess_cpu_seconds_total "));
}

fn value(page: &str, name: &str) -> f64 {
    let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
}

#[tokio::test]
async fn an_adapter_that_is_not_loaded_is_zero() {
    let (site, pool) = Site::with_llama();
    site.serve(&[(&pool, &["meta/llama", "sql", "chat"])]);
    let page = site.metrics().await;
    assert_has(
        &page,
        r#"inference_gateway_endpoint_adapter_resident{pool="llama",endpoint="llama-0",adapter="chat"} 0"#,
    );
    assert!(!page.contains(r#"adapter="meta/llama""#), "a base model is no adapter");
}

#[tokio::test]
async fn an_unknown_signal_has_no_series_also_after_it_was_known() {
    let (site, pool) = Site::with_llama();
    assert!(site.metrics().await.contains(r#"endpoint_waiting{pool="llama",endpoint="llama-0"}"#));
    // The same name, another life: nothing of it has been read yet.
    site.endpoints(&pool, &[("llama-0", 3), ("llama-1", 2)]);
    let page = site.metrics().await;
    for name in ["waiting", "running", "kv_cache_ratio", "signal_age_seconds"] {
        let series = format!(r#"inference_gateway_endpoint_{name}{{pool="llama",endpoint="llama-0"}}"#);
        assert!(!page.contains(&series), "{series} in\n{page}");
    }
    assert_has(&page, r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="starting"} 1"#);
    assert!(page.contains(r#"endpoint_waiting{pool="llama",endpoint="llama-1"}"#));
}

#[tokio::test]
async fn own_signals_only_is_said_while_all_are_stale() {
    let site = Site::new();
    let impatient = Settings { stale_after: Duration::ZERO, starting_for: Duration::ZERO, ..Settings::default() };
    let pool = site.pool("llama", impatient);
    site.endpoints(&pool, &[("llama-0", 1)]);
    site.serve(&[(&pool, &["m"])]);
    site.report(&pool, 1, load(0.0, 0.0, 0.0));
    let page = site.metrics().await;
    assert_has(&page, r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="stale"} 1"#);
    assert_has(&page, r#"inference_gateway_own_signals_only{pool="llama"} 1"#);
    pool.with(|dispatch, _| dispatch.configure(Settings::default()));
    assert_has(&site.metrics().await, r#"inference_gateway_own_signals_only{pool="llama"} 0"#);
}

#[tokio::test]
async fn two_lives_of_one_name_are_one_series() {
    let (site, pool) = Site::with_llama();
    site.endpoints(&pool, &[("llama-0", 1)]);
    let (old, _) = site.pick(&pool, "a");
    site.endpoints(&pool, &[("llama-0", 9)]);
    site.report(&pool, 9, load(3.0, 0.0, 0.0));
    let (new, _) = site.pick(&pool, "b");
    let page = site.metrics().await;
    let series = r#"{pool="llama",endpoint="llama-0"}"#;
    assert_has(&page, &format!("inference_gateway_in_flight_requests{series} 2"));
    assert_has(&page, &format!("inference_gateway_endpoint_waiting{series} 3"));
    assert_has(&page, r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="ready"} 1"#);
    drop((old, new));
}

#[tokio::test]
async fn what_comes_and_goes_between_two_sweeps_goes_from_the_page_too() {
    let (site, pool) = Site::with_llama();
    let other = site.pool("other", Settings::default());
    let mut sweeper = Sweeper::default();
    sweeper.sweep(&site.world);
    site.endpoints(&pool, &[("llama-0", 1), ("short-lived", 7)]);
    site.endpoints(&other, &[("other-0", 8)]);
    site.serve(&[(&pool, &["meta/llama"]), (&other, &["passing"])]);
    sweeper.note(&site.world.routes.load());
    sweeper.note_members([&pool, &other].into_iter());
    site.world.routes.load().models["passing"].metrics.ended(Band::Standard, Outcome::Ok, 0.2);
    let page = site.metrics().await;
    for name in ["short-lived", "other-0", "passing"] {
        assert!(page.contains(name), "{name}");
    }
    site.endpoints(&pool, &[("llama-0", 1)]);
    site.serve(&[(&pool, &["meta/llama"])]);
    drop(other);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    for name in ["short-lived", "other", "passing"] {
        assert!(!page.contains(&format!("=\"{name}")), "{name} in\n{page}");
    }
    assert!(page.contains("llama-0"));
}

#[tokio::test]
async fn the_page_is_one_that_parsers_take() {
    let (site, pool) = Site::with_llama();
    let served = Arc::clone(&site.world.routes.load().models["sql"]);
    served.metrics.ended(Band::Standard, Outcome::Ok, 0.2);
    served.metrics.streamed(0.1, Some(0.01));
    drop(site.pick(&pool, "a"));
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    for (accept, kind) in [
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (prometheus, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
    ] {
        let request = Request::get("/metrics").header(ACCEPT, accept).body(Body::empty()).unwrap();
        let response = site.ask(request).await;
        assert_eq!(response.headers()["content-type"], kind);
        let page = text(response).await;
        check_exposition(&page);
        assert_eq!(page.ends_with("# EOF\n"), accept == prometheus);
    }
}

/// The rules that make a scrape fail: each family is introduced once, right before its samples, and no series stands
/// twice.
fn check_exposition(page: &str) {
    let (mut families, mut series) = (BTreeMap::new(), BTreeSet::new());
    let mut family = String::new();
    for line in page.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            family = name.to_owned();
        } else if !line.starts_with('#') {
            let (key, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(series.insert(key.to_owned()), "{key} twice");
            let name = key.split('{').next().unwrap();
            assert!(name.starts_with(&family), "{name} under {family}");
            let is_counter = families[&family] == "counter";
            assert_eq!(is_counter, name.ends_with("_total"), "{name}");
        }
    }
    assert!(families.len() > 15, "{families:?}");
}

#[tokio::test]
async fn metrics_can_be_turned_off() {
    let (site, _) = Site::with_llama();
    let off = ConfigStatus { metrics_enabled: false, ..ConfigStatus::clone(&site.world.config.load()) };
    site.world.config.store(Arc::new(off));
    let (status, page) = site.text("/metrics").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(page.contains("observability.metrics.enabled"), "{page}");
}

#[tokio::test]
async fn series_of_a_removed_endpoint_go_once_its_last_request_ended() {
    let (site, pool) = Site::with_llama();
    let mut sweeper = Sweeper::default();
    site.world.metrics.counter(&SCRAPE_FAILURES, &["llama-0", "timeout"]).increment(1);
    site.endpoints(&pool, &[("llama-0", 1)]);
    let (lease, _) = site.pick(&pool, "a");
    site.endpoints(&pool, &[("llama-0", 1), ("llama-1", 2)]);
    sweeper.sweep(&site.world);
    site.endpoints(&pool, &[("llama-1", 2)]);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    assert_has(&page, r#"inference_gateway_in_flight_requests{pool="llama",endpoint="llama-0"} 1"#);
    assert_has(&page, r#"inference_gateway_endpoint_state{pool="llama",endpoint="llama-0",state="draining"} 1"#);
    assert_has(&page, r#"inference_gateway_scrape_failures_total{endpoint="llama-0",cause="timeout"} 1"#);
    drop(lease);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    assert!(!page.contains("llama-0"), "{page}");
    assert!(page.contains(r#"picks_total{pool="llama",endpoint="llama-1"}"#));
}

#[tokio::test]
async fn what_is_idle_stays_however_often_it_is_swept() {
    let (site, pool) = Site::with_llama();
    drop(site.pick(&pool, "a"));
    site.world.routes.load().models["sql"].metrics.ended(Band::Standard, Outcome::Ok, 0.1);
    let mut sweeper = Sweeper::default();
    let before = site.metrics().await;
    let names = |page: &str| {
        page.lines().filter_map(|line| line.rsplit_once(' ')).map(|(key, _)| key.to_owned()).collect::<BTreeSet<_>>()
    };
    for _ in 0..5 {
        sweeper.sweep(&site.world);
    }
    assert_eq!(names(&site.metrics().await), names(&before));
}

#[tokio::test]
async fn a_look_that_ended_after_the_sweep_leaves_nothing() {
    let (site, pool) = Site::with_llama();
    let mut sweeper = Sweeper::default();
    sweeper.sweep(&site.world);
    site.endpoints(&pool, &[("llama-1", 2)]);
    sweeper.sweep(&site.world);
    site.world.metrics.counter(&SCRAPE_FAILURES, &["llama-0", "timeout"]).increment(1);
    sweeper.sweep(&site.world);
    assert!(!site.metrics().await.contains("llama-0"));
}

#[tokio::test]
async fn an_endpoint_of_two_pools_loses_only_the_series_of_the_pool_it_left() {
    let (site, llama) = Site::with_llama();
    let other = site.pool("other", Settings::default());
    site.endpoints(&other, &[("llama-0", 11)]);
    site.serve(&[(&llama, &["meta/llama"]), (&other, &["m"])]);
    site.world.metrics.counter(&SCRAPE_FAILURES, &["llama-0", "timeout"]).increment(1);
    let mut sweeper = Sweeper::default();
    sweeper.sweep(&site.world);
    site.endpoints(&llama, &[("llama-1", 2)]);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    assert!(!page.contains(r#"pool="llama",endpoint="llama-0""#), "{page}");
    assert!(page.contains(r#"pool="other",endpoint="llama-0""#));
    assert!(page.contains(r#"scrape_failures_total{endpoint="llama-0""#));
}

#[tokio::test]
async fn an_endpoint_that_came_back_in_time_keeps_counting() {
    let (site, pool) = Site::with_llama();
    let mut sweeper = Sweeper::default();
    sweeper.sweep(&site.world);
    site.endpoints(&pool, &[("llama-1", 2)]);
    sweeper.sweep(&site.world);
    site.endpoints(&pool, &[("llama-0", 5), ("llama-1", 2)]);
    pool.endpoints()[&EndpointId::new(5)].picks.increment(1);
    sweeper.sweep(&site.world);
    sweeper.sweep(&site.world);
    assert_has(&site.metrics().await, r#"inference_gateway_picks_total{pool="llama",endpoint="llama-0"} 1"#);
}

#[tokio::test]
async fn a_removed_pool_goes_once_it_holds_no_work() {
    let (site, llama) = Site::with_llama();
    let other = site.pool("other", Settings::default());
    site.serve(&[(&llama, &["meta/llama", "sql"]), (&other, &["m"])]);
    let (first, _) = site.pick(&llama, "a");
    let (second, _) = site.pick(&llama, "b");
    site.metrics().await;
    let mut sweeper = Sweeper::default();
    sweeper.sweep(&site.world);
    // Endpoints of a removed pool may stay in its accounts: nobody sets them any more.
    site.serve(&[(&other, &["m"])]);
    drop(first);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    let in_flight: f64 = page
        .lines()
        .filter(|line| line.starts_with(r#"inference_gateway_in_flight_requests{pool="llama""#))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert!((in_flight - 1.0).abs() < 1e-9, "what is left of it is still counted down:\n{page}");
    drop(second);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    assert!(!page.contains(r#"pool="llama""#), "{page}");
    assert!(page.contains(r#"pool="other""#));
    // Whoever still holds it may give it another request, by the routes of an older configuration.
    drop(site.pick(&llama, "late"));
    site.world.metrics.counter(&PICKS, &["llama", "llama-0"]).increment(1);
    sweeper.sweep(&site.world);
    assert!(!site.metrics().await.contains(r#"pool="llama""#));
    drop(llama);
    sweeper.sweep(&site.world);
    assert!(sweeper.remembered().eq(["other"]), "nothing of it is kept in memory");
}

#[tokio::test]
async fn a_pool_that_came_back_is_not_swept_for_its_former_life() {
    let (site, old) = Site::with_llama();
    let (lease, _) = site.pick(&old, "a");
    let mut sweeper = Sweeper::default();
    sweeper.sweep(&site.world);
    site.serve(&[]);
    sweeper.sweep(&site.world);
    let new = site.pool("llama", Settings::default());
    site.endpoints(&new, &[("llama-0", 21)]);
    site.serve(&[(&new, &["meta/llama"])]);
    new.retries.connect();
    drop((old, lease));
    sweeper.sweep(&site.world);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    assert!(page.contains(r#"picks_total{pool="llama",endpoint="llama-0"}"#), "{page}");
    assert!(page.contains(r#"upstream_retries_total{pool="llama""#), "{page}");
    assert!(!page.contains(r#"endpoint="llama-1""#), "{page}");
}

#[tokio::test]
async fn a_model_no_longer_served_goes_with_its_last_request() {
    let (site, pool) = Site::with_llama();
    let mut sweeper = Sweeper::default();
    let request = Arc::clone(&site.world.routes.load().models["sql"]);
    request.metrics.ended(Band::Standard, Outcome::Ok, 0.1);
    site.metrics().await;
    sweeper.sweep(&site.world);
    site.serve(&[(&pool, &["meta/llama"])]);
    sweeper.sweep(&site.world);
    let page = site.metrics().await;
    assert!(!page.contains(r#"adapter="sql""#), "{page}");
    assert!(page.contains(r#"requests_total{pool="llama",model="sql""#), "a request may still end:\n{page}");
    drop(request);
    sweeper.sweep(&site.world);
    assert!(!site.metrics().await.contains(r#"model="sql""#));
}
