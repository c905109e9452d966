//! Metrics pages as engines write them, and as they should not: what is read off them, and what is made of the rest.

use std::{io::Write as _, net::SocketAddr};

use harness::{Config, Gateway, MetricsPage, ModelServer, Scheduler, soon};

use crate::signals::{SIGNALS, config, lines_with, reads, shares, signal};

#[test]
fn d01_a_family_that_is_missing_spoils_no_other_and_is_said_once() {
    let [busy, idle] = [MetricsPage::vllm(4, 2, 0.5), MetricsPage::vllm(0, 0, 0.0)].map(ModelServer::start);
    let gateway = Gateway::start(&config(&[&busy, &idle]));
    reads(&gateway, "waiting", 4.0);
    reads(&gateway, "kv_cache", 0.5);
    assert_eq!(shares(&gateway, &[&busy, &idle], 50), [0, 50]);
    // The numbers go on being read.
    busy.show(MetricsPage::vllm(1, 7, 0.25));
    reads(&gateway, "running", 7.0);
    reads(&gateway, "kv_cache", 0.25);
    let looks = busy.looks();
    soon("twenty more looks", || busy.looks() >= looks + 20);
    assert_eq!(lines_with(&gateway, &["metric families", "\"m1-0\""]), 1, "{}", gateway.log());
    assert_eq!(gateway.admin.metric("inference_gateway_scrape_failures_total", &[]), None);
    // One that stops being told grows old alone, and the others stay fresh.
    busy.show(MetricsPage::Text("vllm:num_requests_running 3\n".into()));
    reads(&gateway, "running", 3.0);
    soon("the count of waiting requests is old", || {
        let signals = &gateway.admin.endpoint("m1", "m1-0")["signals"];
        signals["waiting"]["age_ms"].as_u64() > Some(500) && signals["running"]["age_ms"].as_u64() < Some(400)
    });
}

#[test]
fn d02_series_of_data_parallel_engines_are_summed_in_any_order() {
    let rank = |engine: u8, waiting: u32, kv_cache: f64| {
        format!(
            "vllm:num_requests_waiting{{engine=\"{engine}\",model_name=\"m1\"}} {waiting}\n\
             vllm:kv_cache_usage_perc{{engine=\"{engine}\",model_name=\"m1\"}} {kv_cache}\n"
        )
    };
    let two = ModelServer::start(MetricsPage::Text(rank(0, 4, 0.9) + &rank(1, 0, 0.1)));
    let one = ModelServer::start(MetricsPage::vllm(2, 0, 0.5));
    let gateway = Gateway::start(&config(&[&two, &one]));
    reads(&gateway, "waiting", 4.0);
    reads(&gateway, "kv_cache", 0.5);
    assert_eq!(shares(&gateway, &[&two, &one], 20), [0, 20]);
    two.show(MetricsPage::Text(rank(1, 0, 0.1) + &rank(0, 3, 0.9)));
    reads(&gateway, "waiting", 3.0);
    reads(&gateway, "kv_cache", 0.5);
    assert_eq!(shares(&gateway, &[&two, &one], 20), [0, 20]);
    // Twelve on one of two ranks is full (5 each), six on one too.
    two.show(MetricsPage::Text(rank(1, 0, 0.1) + &rank(0, 12, 0.9)));
    reads(&gateway, "waiting", 12.0);
    assert_eq!(gateway.admin.endpoint("m1", "m1-0")["fullness"], 1.0);
}

#[test]
fn d02_tensor_parallel_ranks_are_one_engine() {
    let page = |label: &str| {
        let series = |rank: u8| {
            format!(
                "sglang:num_queue_reqs{{model_name=\"m1\",{label}=\"{rank}\",priority=\"\"}} 2\n\
                 sglang:num_running_reqs{{model_name=\"m1\",{label}=\"{rank}\"}} 3\nsglang:token_usage{{{label}=\"{rank}\"}} 0.4\n"
            )
        };
        MetricsPage::Text(series(1) + &series(0))
    };
    let server = ModelServer::start(page("tp_rank"));
    let scheduler = Scheduler::new("m1", [server.address()]).line("engineType: sglang");
    let gateway = Gateway::start(&Config::new([scheduler]).line(SIGNALS));
    reads(&gateway, "waiting", 2.0);
    reads(&gateway, "running", 3.0);
    for (label, waiting) in [("dp_rank", 4.0), ("pp_rank", 2.0)] {
        server.show(page(label));
        reads(&gateway, "waiting", waiting);
        reads(&gateway, "kv_cache", 0.4);
    }
}

#[test]
fn d04_old_and_new_names_of_the_cache_are_read_and_the_new_one_wins() {
    let page = |name: &str, value: f64| format!("vllm:num_requests_waiting 0\nvllm:{name} {value}\n");
    let (old, new) = ("gpu_cache_usage_perc", "kv_cache_usage_perc");
    let full = ModelServer::start(MetricsPage::Text(page(old, 0.95)));
    let empty = ModelServer::start(MetricsPage::Text(page(new, 0.05)));
    let both = ModelServer::start(MetricsPage::Text(page(new, 0.5) + &page(old, 0.01)));
    let gateway = Gateway::start(&config(&[&full, &empty, &both]));
    reads(&gateway, "kv_cache", 0.95);
    soon("the others are read", || signal(&gateway, "m1-2", "kv_cache") == Some(0.5));
    let source = |endpoint: &str| gateway.admin.endpoint("m1", endpoint)["signals"]["kv_cache"]["source"].clone();
    assert_eq!(source("m1-0"), "vllm:gpu_cache_usage_perc");
    assert_eq!(source("m1-1"), "vllm:kv_cache_usage_perc");
    assert_eq!(shares(&gateway, &[&full, &empty, &both], 50), [0, 50, 0]);
}

#[test]
fn engine_type_auto_knows_each_engine_by_its_page() {
    let trtllm = "trtllm_num_requests_waiting 3\ntrtllm_num_requests_running 1\ntrtllm_kv_cache_utilization 0.25\n";
    let triton = "nv_trt_llm_request_metrics{model=\"m1\",request_type=\"waiting\",version=\"1\"} 3\n\
                  nv_trt_llm_request_metrics{model=\"m1\",request_type=\"scheduled\",version=\"1\"} 1\n\
                  nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m1\"} 0.25\n";
    let pages = [
        (
            "vllm:num_requests_waiting",
            "vllm:num_requests_waiting 3\nvllm:num_requests_running 1\nvllm:kv_cache_usage_perc 0.25\n",
        ),
        ("sglang:num_queue_reqs", "sglang:num_queue_reqs 3\nsglang:num_running_reqs 1\nsglang:token_usage 0.25\n"),
        (
            "tgi_queue_size",
            "tgi_queue_size 3\ntgi_batch_current_size 1\ntgi_batch_current_max_tokens 25\ntgi_batch_max_total_tokens 100\n",
        ),
        ("trtllm_num_requests_waiting", trtllm),
        ("nv_trt_llm_request_metrics", triton),
        (
            "llamacpp:requests_deferred",
            "llamacpp:requests_deferred 3\nllamacpp:requests_processing 1\nllamacpp:kv_cache_usage_ratio 0.25\n",
        ),
    ];
    let server = ModelServer::start(MetricsPage::Text(String::new()));
    let scheduler = Scheduler::new("m1", [server.address()]).line("engineType: auto");
    let gateway = Gateway::start(&Config::new([scheduler]).line(SIGNALS));
    for (source, page) in pages {
        server.show(MetricsPage::Text(page.into()));
        soon(&format!("{source} is found"), || {
            gateway.admin.endpoint("m1", "m1-0")["signals"]["waiting"]["source"] == source
        });
        for (name, value) in [("waiting", 3.0), ("running", 1.0), ("kv_cache", 0.25)] {
            assert_eq!(signal(&gateway, "m1-0", name), Some(value), "{source} {name}");
        }
    }
}

#[test]
fn d05_labels_are_read_by_the_rules_of_the_text_format() {
    let odd = "vllm:num_requests_waiting{model_name=\"a{b},c=\\\"d\\\" e\\\\\",engine=\"0\"} 3\r\n\
               vllm:num_requests_running { engine = \"0\" , } \t1e0\r\n\
               vllm:kv_cache_usage_perc{engine=\"0\"} 0x1p3\nvllm:gpu_cache_usage_perc{engine=\"0\",}\t0.125\n";
    let [odd, plain] = [MetricsPage::Text(odd.into()), MetricsPage::vllm(1, 1, 0.125)].map(ModelServer::start);
    let gateway = Gateway::start(&config(&[&odd, &plain]));
    reads(&gateway, "waiting", 3.0);
    reads(&gateway, "running", 1.0);
    reads(&gateway, "kv_cache", 0.125);
    assert_eq!(shares(&gateway, &[&odd, &plain], 20), [0, 20]);
}

#[test]
fn d06_d07_d08_what_is_wrong_elsewhere_on_a_page_costs_nothing_and_is_counted() {
    let broken = "x_bucket{le=\"1\"} 2\nx_bucket{le=\"0.1\"} 5\nx_bucket{le=\"+Inf\"} 2\nx_count 1\nx_sum NaN\n\
                  # TYPE y summary\ny{quantile=\"0.5\"} 0\ny 1\n# TYPE vllm:num_requests_waiting gauge\n\
                  # TYPE vllm:num_requests_waiting counter\nvllm:num_requests_waiting{engine=\"0\"} 2\n\
                  vllm:num_requests_running{engine=\"0\"} four\n";
    let stamped =
        |stamp: &str| MetricsPage::Text(format!("{broken}vllm:num_requests_running{{engine=\"1\"}} 4 {stamp}"));
    let server = ModelServer::start(stamped("-1"));
    let gateway = Gateway::start(&config(&[&server]));
    reads(&gateway, "running", 4.0);
    reads(&gateway, "waiting", 2.0);
    for stamp in ["1750000000000\n", "1750000000.5\n# EOF\n", "-1"] {
        server.show(MetricsPage::Text(String::new()));
        soon("the empty page is no page", || {
            gateway.admin.metric("inference_gateway_scrape_failures_total", &[]) > Some(0.0)
        });
        server.show(stamped(stamp));
        soon("it is read again", || {
            let running = gateway.admin.endpoint("m1", "m1-0")["signals"]["running"].clone();
            running["value"] == 4.0 && running["age_ms"].as_u64() < Some(300)
        });
    }
    let looks = server.looks();
    soon("a hundred looks", || server.looks() >= looks + 50);
    let skipped = || gateway.admin.metric("inference_gateway_scrape_samples_skipped_total", &[r#"endpoint="m1-0""#]);
    assert!(skipped() > Some(50.0), "{:?}", skipped());
}

#[test]
fn pages_that_are_none_are_told_apart_and_leave_the_endpoint_in_use() {
    let server = ModelServer::start(MetricsPage::vllm(0, 1, 0.1));
    let gateway = Gateway::start(&config(&[&server]));
    reads(&gateway, "running", 1.0);
    let head = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}\r\n").into_bytes();
    let pages: Vec<(&str, MetricsPage)> = vec![
        ("redirect", MetricsPage::Raw(b"HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n".into())),
        ("no_known_family", MetricsPage::Text("<html><body>Welcome</body></html>".into())),
        ("too_large", MetricsPage::Raw([head("connection: close\r\n"), vec![b'#'; 5 << 20]].concat())),
        ("too_large", MetricsPage::Raw(head("content-length: 99999999999\r\n"))),
        (
            "encoding",
            MetricsPage::Raw([head("content-encoding: br\r\ncontent-length: 4\r\n"), b"abcd".into()].concat()),
        ),
        (
            "encoding",
            MetricsPage::Raw([head("content-encoding: gzip\r\ncontent-length: 4\r\n"), b"abcd".into()].concat()),
        ),
        ("protocol", MetricsPage::Raw([head("content-length: 100\r\n"), b"vllm:num".into()].concat())),
        ("protocol", MetricsPage::Raw(b"this is no HTTP\r\n\r\n".into())),
        ("status", MetricsPage::status("404 Not Found")),
        ("timeout", MetricsPage::Hang),
    ];
    for (cause, page) in pages {
        let failures =
            || gateway.admin.metric("inference_gateway_scrape_failures_total", &[&format!("cause=\"{cause}\"")]);
        let before = failures().unwrap_or(0.0);
        server.show(page.clone());
        soon(&format!("{cause} is counted"), || failures() > Some(before));
        assert_eq!(shares(&gateway, &[&server], 2), [2], "{cause}");
        server.show(MetricsPage::vllm(0, 9, 0.1));
        soon("it is read again", || {
            gateway.admin.endpoint("m1", "m1-0")["signals"]["running"]["age_ms"].as_u64() < Some(400)
        });
    }
    assert!(!server.peer.seen().iter().any(|seen| seen.line.contains("/other")), "a redirection was followed");
    // A page in a coding that we never asked for is read all the same.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(b"vllm:num_requests_running 6\nvllm:num_requests_waiting 2\n").unwrap();
    let packed = gzip.finish().unwrap();
    let answer = head(&format!("content-encoding: gzip\r\ncontent-length: {}\r\n", packed.len()));
    server.show(MetricsPage::Raw([answer, packed].concat()));
    reads(&gateway, "running", 6.0);
    reads(&gateway, "waiting", 2.0);
}

#[test]
fn the_admin_page_shows_value_age_and_source_of_each_signal() {
    let server = ModelServer::start(MetricsPage::vllm(2, 3, 0.5));
    let gateway = Gateway::start(&config(&[&server]));
    reads(&gateway, "waiting", 2.0);
    let endpoint = gateway.admin.endpoint("m1", "m1-0");
    for (name, value, source) in [
        ("waiting", 2.0, "vllm:num_requests_waiting"),
        ("running", 3.0, "vllm:num_requests_running"),
        ("kv_cache", 0.5, "vllm:kv_cache_usage_perc"),
    ] {
        let shown = &endpoint["signals"][name];
        assert_eq!((&shown["value"], &shown["source"]), (&value.into(), &source.into()), "{endpoint}");
        assert!(shown["age_ms"].as_u64() < Some(1000), "{endpoint}");
    }
    server.show(MetricsPage::Hang);
    soon("ages grow while nothing is read", || {
        gateway.admin.endpoint("m1", "m1-0")["signals"]["waiting"]["age_ms"].as_u64() > Some(1500)
    });
    let age = gateway.admin.metric("inference_gateway_endpoint_signal_age_seconds", &[r#"endpoint="m1-0""#]);
    assert!(age >= Some(1.5), "{age:?}");
    let _: SocketAddr = endpoint["address"].as_str().unwrap().parse().unwrap();
}
