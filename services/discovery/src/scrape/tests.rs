//! The scraper against raw servers that behave as badly as real ones were seen to.

pub(crate) mod rig;

use std::time::Duration;

use pool::{NoPage, Observation};
use tokio::time::Instant;

use super::*;
use crate::{
    Engine,
    page::Dialect,
    resolve::{MetricsAt, TlsTo, Trust},
};
use rig::{Capture, Event, Reply, Rig, Server, page, serving, want};

const IDLE: &str = "vllm:num_requests_waiting{engine=\"0\"} 0\nvllm:num_requests_running{engine=\"0\"} 0\n";
const BUSY: &str = "vllm:num_requests_waiting{engine=\"0\"} 9\nvllm:num_requests_running{engine=\"0\"} 2\n";

fn waiting(observation: &Observation) -> Option<f64> {
    match observation {
        Observation::Page { load, .. } => load.waiting.map(|signal| signal.value),
        Observation::NoPage { .. } | Observation::Healthy { .. } => None,
    }
}

#[tokio::test]
async fn a_page_becomes_a_load_over_one_kept_connection() {
    let mut server = Server::start(|_| page(BUSY)).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    for _ in 0..20 {
        let Observation::Page { began, load } = rig.observed(1).await else { panic!("a page") };
        let signal = load.waiting.unwrap();
        assert_eq!((signal.value, signal.source, signal.at), (9.0, "vllm:num_requests_waiting", began));
        assert_eq!((load.ranks, load.running.unwrap().value, load.kv_cache), (1, 2.0, None));
    }
    assert_eq!(server.connections(), 1);
    let head = server.next_head().await;
    assert!(head.starts_with("GET /metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {}\r\n", server.address)), "{head}");
    assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
    assert!(!head.contains("authorization"), "{head}");
}

#[tokio::test]
async fn d01_a_family_that_goes_missing_keeps_its_value_and_grows_old() {
    let server =
        Server::start(|n| if n == 0 { page(BUSY) } else { page("vllm:num_requests_running{engine=\"0\"} 1\n") }).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    let Observation::Page { began: first, .. } = rig.observed(1).await else { panic!("a page") };
    for _ in 0..3 {
        let Observation::Page { began, load } = rig.observed(1).await else { panic!("a page") };
        assert_eq!((load.waiting.unwrap().value, load.waiting.unwrap().at), (9.0, first));
        assert_eq!((load.running.unwrap().value, load.running.unwrap().at), (1.0, began));
        assert!(began > first);
    }
}

#[tokio::test]
async fn d01_what_is_found_and_missing_is_told_once() {
    let server = Server::start(|_| page(BUSY)).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    for _ in 0..50 {
        rig.observed(1).await;
    }
    let told = rig.seen.iter().filter_map(|event| match event {
        Event::Families(families) => Some(*families),
        Event::Observed(..) | Event::Failed(..) | Event::Skipped(_) => None,
    });
    let told: Vec<Families> = told.collect();
    assert_eq!(told.len(), 1);
    let found: Vec<_> = told[0].found().collect();
    assert_eq!(found, ["vllm:num_requests_waiting", "vllm:num_requests_running"]);
    let missing: Vec<_> = told[0].missing().collect();
    assert_eq!(missing, ["vllm:kv_cache_usage_perc", "vllm:cache_config_info", "vllm:lora_requests_info"]);
}

#[tokio::test]
async fn d06_junk_does_not_end_the_scraping() {
    let junk = "x_bucket{le=\"1\"} 2\nx_bucket{le=\"0.1\"} 5\nx_bucket{le=\"+Inf\"} 2\nx_count 1\nx_sum NaN\n";
    let server = Server::start(move |_| page(&format!("{junk}{BUSY}"))).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    for _ in 0..100 {
        assert_eq!(waiting(&rig.observed(1).await), Some(9.0));
    }
}

#[tokio::test]
async fn d09_a_page_that_hangs_delays_nobody_and_is_known_to_accept() {
    let hanging = Server::start(|n| if n < 2 { page(IDLE) } else { Reply::hang() }).await;
    let good = Server::start(|_| page(BUSY)).await;
    // One permit: the hanging one must not keep it from the healthy once it is known to hang.
    let settings = Settings { concurrency_max: 1, timeout: Duration::from_secs(1), ..rig::QUICK };
    let mut rig = Rig::start_with(settings, [serving(1, hanging.address), serving(2, good.address)]);
    assert_eq!(rig.failed(1).await, Cause::Timeout);
    let mut seen = rig.observed(1).await;
    while let Observation::Page { .. } = seen {
        seen = rig.observed(1).await;
    }
    assert!(matches!(seen, Observation::NoPage { why: NoPage::Accepting, .. }));
    let from = rig.seen.len();
    assert_eq!(rig.failed(1).await, Cause::Timeout);
    let looks: Vec<Moment> = rig.seen[from..]
        .iter()
        .filter_map(|event| match event {
            Event::Observed(2, Observation::Page { began, .. }) => Some(*began),
            Event::Observed(..) | Event::Failed(..) | Event::Families(_) | Event::Skipped(_) => None,
        })
        .collect();
    assert!(looks.len() > 20, "{}", looks.len());
    assert!(looks.windows(2).all(|pair| pair[1].since(pair[0]) < Duration::from_millis(500)), "{looks:?}");
}

#[tokio::test]
async fn d10_a_fresh_endpoint_is_not_idle_before_it_says_so() {
    let server = Server::start(|n| match n {
        0 | 1 => Reply::status("404 Not Found"),
        2 | 3 => page(""),
        _ => page(BUSY),
    })
    .await;
    let mut rig = Rig::start([serving(1, server.address)]);
    for cause in [Cause::Status, Cause::Status, Cause::NoKnownFamily, Cause::NoKnownFamily] {
        assert_eq!(rig.failed(1).await, cause);
        assert!(matches!(rig.observed(1).await, Observation::NoPage { why: NoPage::Accepting, .. }));
    }
    assert_eq!(waiting(&rig.observed(1).await), Some(9.0));
}

#[tokio::test]
async fn d11_ipv6_endpoints_are_addressed_in_brackets() {
    let mut server = Server::bind("[::1]:0", |_| page(BUSY)).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    assert_eq!(waiting(&rig.observed(1).await), Some(9.0));
    assert!(server.next_head().await.contains(&format!("host: [::1]:{}\r\n", server.address.port())));
}

#[tokio::test]
async fn d12_a_closed_metrics_port_is_said_once_and_counted_each_time() {
    let log = Capture::start();
    let serving_port = Server::start(|_| Reply::hang()).await;
    let closed = rig::closed_port().await;
    let want = crate::resolve::Want {
        metrics: MetricsAt { port: closed, path: "/metrics".into() },
        ..want(serving_port.address)
    };
    let mut rig = Rig::start([rig::found(1, serving_port.address, want)]);
    for _ in 0..6 {
        assert_eq!(rig.failed(1).await, Cause::Connect);
        assert!(matches!(rig.observed(1).await, Observation::NoPage { why: NoPage::Accepting, .. }));
    }
    assert_eq!(log.lines(), 1);
}

#[tokio::test]
async fn a_closed_serving_port_is_unreachable() {
    let address = ([127, 0, 0, 1], rig::closed_port().await).into();
    let mut rig = Rig::start([serving(1, address)]);
    for _ in 0..2 {
        assert_eq!(rig.failed(1).await, Cause::Connect);
        assert!(matches!(rig.observed(1).await, Observation::NoPage { why: NoPage::Unreachable, .. }));
    }
}

#[tokio::test]
async fn every_way_of_sending_a_page_is_read() {
    let plain = BUSY.as_bytes();
    let length = |codings: &str, body: Vec<u8>| {
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{codings}content-length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend(body);
        Reply::raw(bytes)
    };
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, plain).unwrap();
    let (head, tail) = BUSY.split_at(7);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{head}\r\n{:x};ext=1\r\n{tail}\r\n0\r\nx-trailer: 1\r\n\r\n",
        head.len(),
        tail.len()
    );
    let replies = [
        length("", plain.to_vec()),
        length("content-encoding: gzip\r\n", gzip.finish().unwrap()),
        length("content-type: application/openmetrics-text\r\n", [plain, b"# EOF\n"].concat()),
        Reply::raw(chunked),
        Reply::raw(format!("HTTP/1.0 200 OK\r\n\r\n{BUSY}")).then_close(),
        Reply::raw(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{BUSY}")).then_close(),
        Reply::raw(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BUSY}", BUSY.len())).byte_by_byte(),
    ];
    for reply in replies {
        let sent = reply.clone();
        let server = Server::start(move |_| sent.clone()).await;
        let mut rig = Rig::start([serving(1, server.address)]);
        for _ in 0..3 {
            assert_eq!(waiting(&rig.observed(1).await), Some(9.0), "{reply:?}");
        }
        assert!(!rig.seen.iter().any(|event| matches!(event, Event::Failed(..))), "{reply:?}");
    }
}

#[tokio::test]
async fn every_bad_answer_has_its_cause() {
    let huge = rig::QUICK.page_bytes_max + 1;
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "#\n".repeat(huge));
    let cases = [
        (Reply::status("503 Service Unavailable"), Cause::Status),
        (Reply::raw("HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n"), Cause::Redirect),
        (Reply::raw(format!("HTTP/1.1 200 OK\r\ncontent-length: {huge}\r\n\r\n")), Cause::TooLarge),
        (Reply::raw(endless), Cause::TooLarge),
        (Reply::raw("HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx"), Cause::Encoding),
        (Reply::raw("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx"), Cause::Encoding),
        (
            Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\nvllm:num_requests_waiting 3\n").then_close(),
            Cause::Protocol,
        ),
        (Reply::raw("SSH-2.0-OpenSSH_9.6\r\n"), Cause::Protocol),
        (Reply::raw("").then_close(), Cause::Protocol),
        (Reply::raw(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20))), Cause::Protocol),
        (page("<html>vllm</html>"), Cause::NoKnownFamily),
        (Reply::raw("HTTP/1.1 500 Oh\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx"), Cause::Status),
        (Reply::hang(), Cause::Timeout),
        (Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nvllm:"), Cause::Timeout),
    ];
    for (reply, cause) in cases {
        let sent = reply.clone();
        let server = Server::start(move |_| sent.clone()).await;
        let mut rig = Rig::start([serving(1, server.address)]);
        assert_eq!(rig.failed(1).await, cause, "{reply:?}");
        assert!(matches!(rig.observed(1).await, Observation::NoPage { why: NoPage::Accepting, .. }), "{reply:?}");
    }
}

#[tokio::test]
async fn a_redirect_leads_nowhere() {
    let target = Server::start(|_| page(IDLE)).await;
    let location = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{}/metrics\r\ncontent-length: 0\r\n\r\n",
        target.address
    );
    let server = Server::start(move |_| Reply::raw(location.clone())).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    for _ in 0..3 {
        assert_eq!(rig.failed(1).await, Cause::Redirect);
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn a_kept_connection_that_the_engine_closed_is_made_anew_without_a_failure() {
    for server in [
        Server::start(|_| page(BUSY).then_close()).await,
        // Closed just as the next request was on its way.
        Server::start(|n| if n % 2 == 0 { page(BUSY) } else { Reply::hang().then_close() }).await,
    ] {
        let mut rig = Rig::start([serving(1, server.address)]);
        for _ in 0..10 {
            assert_eq!(waiting(&rig.observed(1).await), Some(9.0));
        }
        assert!(!rig.seen.iter().any(|event| matches!(event, Event::Failed(..))));
        assert!(server.connections() >= 5);
    }
}

#[tokio::test]
async fn a_recovered_endpoint_is_back_within_about_a_second() {
    let server = Server::start(|n| if n < 8 { Reply::status("503 Service Unavailable") } else { page(BUSY) }).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    let mut last_failure = Instant::now();
    for _ in 0..8 {
        rig.failed(1).await;
        last_failure = Instant::now();
    }
    while waiting(&rig.observed(1).await).is_none() {}
    assert!(last_failure.elapsed() < Duration::from_millis(1500), "{:?}", last_failure.elapsed());
}

#[tokio::test]
async fn a_removed_endpoint_is_left_at_once_even_while_it_hangs() {
    let mut hanging = Server::start(|_| Reply::hang()).await;
    let settings = Settings { timeout: Duration::from_secs(600), ..rig::QUICK };
    let mut rig = Rig::start_with(settings, [serving(1, hanging.address)]);
    hanging.next_head().await;
    rig.set([]);
    hanging.closed_by_peer().await;
    rig.set([serving(2, hanging.address)]);
    hanging.next_head().await;
    assert!(rig.seen.is_empty() && rig.drain().is_empty());
}

#[tokio::test]
async fn an_endpoint_whose_want_changed_is_visited_anew() {
    let mut server = Server::start(|_| page(BUSY)).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    rig.observed(1).await;
    let path = MetricsAt { port: server.address.port(), path: "/other?x=1".into() };
    rig.set([rig::found(1, server.address, crate::resolve::Want { metrics: path, ..want(server.address) })]);
    while !server.next_head().await.starts_with("GET /other?x=1 HTTP/1.1\r\n") {}
    let connections = server.connections();
    rig.set([rig::found(
        1,
        server.address,
        crate::resolve::Want {
            identity: 1,
            metrics: MetricsAt { port: server.address.port(), path: "/other?x=1".into() },
            ..want(server.address)
        },
    )]);
    for _ in 0..20 {
        rig.observed(1).await;
    }
    assert_eq!(server.connections(), connections, "the same want is not visited anew");
}

#[tokio::test]
async fn changed_settings_hold_from_the_next_look_on() {
    let server = Server::start(|_| page(BUSY)).await;
    let mut rig =
        Rig::start_with(Settings { interval: Duration::from_millis(50), ..rig::QUICK }, [serving(1, server.address)]);
    rig.observed(1).await;
    rig.settings.send_modify(|settings| settings.page_bytes_max = 10);
    assert_eq!(rig.failed(1).await, Cause::TooLarge);
}

#[tokio::test]
async fn a_bug_in_one_visit_does_not_end_it_for_good() {
    let server = Server::start(|_| page(BUSY)).await;
    let mut rig = Rig::start([serving(rig::PANICS_ONCE, server.address)]);
    assert_eq!(waiting(&rig.observed(rig::PANICS_ONCE).await), Some(9.0));
    assert!(server.connections() >= 2);
}

#[tokio::test]
async fn auto_finds_the_page_that_is_elsewhere() {
    let server = Server::by_head(|head| {
        if head.starts_with("GET /prometheus/metrics ") { page("trtllm_num_requests_waiting 4\n") } else { page("[]") }
    })
    .await;
    let auto = crate::resolve::Want { engine: Engine::Auto, ..want(server.address) };
    let mut rig = Rig::start([rig::found(1, server.address, auto)]);
    assert_eq!(rig.failed(1).await, Cause::NoKnownFamily);
    while waiting(&rig.observed(1).await) != Some(4.0) {}
    assert_eq!(waiting(&rig.observed(1).await), Some(4.0));
}

#[tokio::test]
async fn another_engine_at_the_same_place_starts_from_nothing() {
    let server = Server::start(|n| if n == 0 { page(BUSY) } else { page("sglang:num_running_reqs 1\n") }).await;
    let auto = crate::resolve::Want { engine: Engine::Auto, ..want(server.address) };
    let mut rig = Rig::start([rig::found(1, server.address, auto)]);
    assert_eq!(waiting(&rig.observed(1).await), Some(9.0));
    let Observation::Page { load, .. } = rig.observed(1).await else { panic!("a page") };
    assert_eq!((load.waiting, load.running.unwrap().value), (None, 1.0));
    let dialects: Vec<Dialect> = rig
        .seen
        .iter()
        .filter_map(|event| match event {
            Event::Families(families) => Some(families.dialect()),
            Event::Observed(..) | Event::Failed(..) | Event::Skipped(_) => None,
        })
        .collect();
    assert_eq!(dialects, [Dialect::Vllm], "the second is told when some time has passed");
}

fn unpaged(address: std::net::SocketAddr) -> Found {
    let authorization = http::HeaderValue::from_static("Bearer key");
    rig::found(
        1,
        address,
        crate::resolve::Want { engine: Engine::None, authorization: Some(authorization), ..want(address) },
    )
}

#[tokio::test]
async fn an_engine_without_a_page_is_asked_for_its_health() {
    let mut server = Server::start(|_| Reply::status("401 Unauthorized")).await;
    let mut rig = Rig::start([unpaged(server.address)]);
    assert!(matches!(rig.observed(1).await, Observation::Healthy { .. }));
    let head = server.next_head().await;
    assert!(head.starts_with("GET /health HTTP/1.1\r\n") && head.contains("authorization: Bearer key\r\n"), "{head}");
}

#[tokio::test]
async fn a_server_without_a_health_path_is_asked_for_its_models() {
    let mut server = Server::by_head(|head| {
        if head.starts_with("GET /v1/models ") { page("{\"data\":[]}") } else { Reply::status("404 Not Found") }
    })
    .await;
    let mut rig = Rig::start([unpaged(server.address)]);
    for _ in 0..2 {
        assert!(matches!(rig.observed(1).await, Observation::Healthy { .. }));
    }
    let paths = [server.next_head().await, server.next_head().await, server.next_head().await];
    let paths = paths.map(|head| head.split(' ').nth(1).unwrap().to_owned());
    assert_eq!(paths, ["/health", "/v1/models", "/v1/models"]);
}

#[tokio::test]
async fn a_healthy_answer_need_not_be_readable() {
    let huge = "HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 99999999\r\n\r\n";
    let server = Server::start(move |_| Reply::raw(huge)).await;
    let mut rig = Rig::start([unpaged(server.address)]);
    assert!(matches!(rig.observed(1).await, Observation::Healthy { .. }));
}

#[tokio::test]
async fn d08_samples_that_cannot_be_used_are_counted() {
    let server =
        Server::start(|_| page(&format!("vllm:kv_cache_usage_perc NaN\n{BUSY}vllm:num_requests_running x\n"))).await;
    let mut rig = Rig::start([serving(1, server.address)]);
    assert_eq!(waiting(&rig.observed(1).await), Some(9.0));
    assert!(rig.seen.iter().any(|event| matches!(event, Event::Skipped(2))), "{:?}", rig.seen);
}

#[tokio::test]
async fn a_server_that_answers_5xx_or_nothing_is_unhealthy() {
    let loading = Server::start(|_| Reply::status("503 Service Unavailable")).await;
    for (address, cause) in
        [(loading.address, Cause::Status), (([127, 0, 0, 1], rig::closed_port().await).into(), Cause::Connect)]
    {
        let mut rig = Rig::start([unpaged(address)]);
        assert_eq!(rig.failed(1).await, cause);
        assert!(matches!(rig.observed(1).await, Observation::NoPage { why: NoPage::Unreachable, .. }));
    }
}

fn over_tls(address: std::net::SocketAddr, server_name: Option<&str>, trust: Trust) -> Found {
    let tls = TlsTo { server_name: server_name.map(Into::into), trust };
    rig::found(1, address, crate::resolve::Want { tls: Some(tls), ..want(address) })
}

#[tokio::test]
async fn tls_believes_whom_it_is_told_to() {
    let server = Server::tls(|_| page(BUSY)).await;
    let ca_file = || Trust::CaFile(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tls/ca.pem").into());
    for (server_name, trust) in [(None, ca_file()), (Some("engine.test"), ca_file()), (Some("whoever"), Trust::Anyone)]
    {
        let mut rig = Rig::start([over_tls(server.address, server_name, trust.clone())]);
        for _ in 0..3 {
            assert_eq!(waiting(&rig.observed(1).await), Some(9.0), "{server_name:?} {trust:?}");
        }
    }
    let missing = Trust::CaFile("/nonexistent/ca.pem".into());
    let wrong = Trust::CaFile(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tls/README.md").into());
    for (server_name, trust) in [
        (Some("other.test"), ca_file()),
        (Some("not a name"), ca_file()),
        (None, Trust::System),
        (None, missing),
        (None, wrong),
    ] {
        let mut rig = Rig::start([over_tls(server.address, server_name, trust.clone())]);
        assert_eq!(rig.failed(1).await, Cause::Connect, "{server_name:?} {trust:?}");
        assert!(matches!(rig.observed(1).await, Observation::NoPage { why: NoPage::Unreachable, .. }));
    }
}

#[tokio::test]
async fn a_metrics_port_of_its_own_is_spoken_to_in_plain_text_and_without_the_key() {
    let (mut metrics, serving_port) = (Server::start(|_| page(BUSY)).await, Server::start(|_| Reply::hang()).await);
    let mut found = over_tls(serving_port.address, None, Trust::System);
    let mut want = (*found.want).clone();
    want.metrics.port = metrics.address.port();
    want.authorization = Some(http::HeaderValue::from_static("Bearer key"));
    found.want = want.into();
    let mut rig = Rig::start([found]);
    assert_eq!(waiting(&rig.observed(1).await), Some(9.0));
    assert!(!metrics.next_head().await.contains("authorization"));
}
