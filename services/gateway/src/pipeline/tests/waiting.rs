//! Requests that wait for room, on a stopped clock.

use std::{num::NonZeroU32, time::Duration};

use dispatch::Settings;
use http::header::RETRY_AFTER;

use super::{Open, endpoint::Manner, poll_at_most, site::Site};

/// One request at a time at the one endpoint of each model.
fn site(max_wait: Duration) -> Site {
    let mut flow = flow_control::Settings::default();
    for band in &mut flow.bands {
        band.max_wait = max_wait;
    }
    let cap = NonZeroU32::new(1);
    Site::with(1, &Settings { max_in_flight_per_endpoint: cap, flow, ..Settings::default() })
}

/// Takes the one place and keeps it until it is dropped.
async fn occupy(site: &Site) -> Open {
    let mut open = Open::Asked(site.ask("first", Manner::Whole));
    assert!(!poll_at_most(&mut open, 1).await);
    assert_eq!(site.in_flight(), 1);
    open
}

fn outcomes(site: Site) -> Vec<(String, String)> {
    let text = |line: &serde_json::Value, key: &str| line[key].as_str().unwrap().to_owned();
    let mut lines: Vec<_> =
        site.finish().iter().map(|line| (text(line, "x-request-id"), text(line, "outcome"))).collect();
    lines.sort();
    lines
}

fn pair(id: &str, outcome: &str) -> (String, String) {
    (id.to_owned(), outcome.to_owned())
}

#[test]
fn a_wait_that_is_over_is_refused_exactly_then() {
    let site = site(Duration::from_secs(7));
    site.run(async {
        tokio::time::pause();
        let first = occupy(&site).await;
        let began = tokio::time::Instant::now();
        let response = site.ask("second", Manner::Whole).await;
        let waited = began.elapsed();
        assert!((Duration::from_secs(7)..Duration::from_millis(7_010)).contains(&waited), "{waited:?}");
        assert_eq!((response.status(), site.waiting()), (http::StatusCode::TOO_MANY_REQUESTS, 0));
        let after: u32 = response.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&after), "{after}");
        drop(first);
        assert_eq!((site.in_flight(), site.body_bytes()), (0, 0));
    });
    assert_eq!(outcomes(site), [pair("first", "client_gone"), pair("second", "expired_in_queue")]);
}

#[test]
fn the_place_of_whoever_leaves_goes_to_whoever_waits() {
    let site = site(Duration::from_secs(7));
    site.run(async {
        let first = occupy(&site).await;
        let mut second = Open::Asked(site.ask("second", Manner::Whole));
        assert!(!poll_at_most(&mut second, 1).await);
        assert_eq!((site.waiting(), site.in_flight()), (1, 1));
        drop(first);
        assert_eq!((site.waiting(), site.in_flight()), (0, 1), "it has the place before it knows");
        assert!(poll_at_most(&mut second, super::POLLS_MAX).await);
        drop(second);
        assert_eq!((site.in_flight(), site.body_bytes()), (0, 0));
    });
    assert_eq!(outcomes(site), [pair("first", "client_gone"), pair("second", "ok")]);
}

#[test]
fn whoever_leaves_the_queue_at_whatever_moment_leaves_nothing_behind() {
    let site = site(Duration::from_secs(7));
    site.run(async {
        let first = occupy(&site).await;
        let mut gone_before = Open::Asked(site.ask("gone-before", Manner::Whole));
        assert!(!poll_at_most(&mut gone_before, 1).await);
        let mut gone_with_place = Open::Asked(site.ask("gone-with-place", Manner::Whole));
        assert!(!poll_at_most(&mut gone_with_place, 1).await);
        assert_eq!(site.waiting(), 2);
        drop(gone_before);
        assert_eq!((site.waiting(), site.in_flight()), (1, 1));
        drop(first);
        assert_eq!((site.waiting(), site.in_flight()), (0, 1));
        // It was given the place and never woke to see it.
        drop(gone_with_place);
        assert_eq!((site.waiting(), site.in_flight(), site.body_bytes()), (0, 0, 0));
    });
    assert!(outcomes(site).iter().all(|(_, outcome)| outcome == "client_gone"));
}

#[test]
fn a_closed_pool_tells_all_who_wait_and_lets_nobody_wait_any_more() {
    let site = site(Duration::from_secs(7));
    site.run(async {
        let first = occupy(&site).await;
        let mut second = Open::Asked(site.ask("second", Manner::Whole));
        assert!(!poll_at_most(&mut second, 1).await);
        let pools = crate::pools::LivePools::default();
        pools.note(site.pool());
        pools.close();
        assert!(poll_at_most(&mut second, 5).await);
        let third = site.ask("third", Manner::Whole).await;
        assert_eq!((third.status(), site.waiting()), (http::StatusCode::SERVICE_UNAVAILABLE, 0));
        drop((first, second, third));
        assert_eq!((site.in_flight(), site.body_bytes()), (0, 0));
    });
    assert_eq!(outcomes(site), [pair("first", "client_gone"), pair("second", "draining"), pair("third", "draining")]);
}

#[test]
fn where_nobody_waits_a_full_pool_refuses_at_once() {
    let site = site(Duration::ZERO);
    site.run(async {
        tokio::time::pause();
        let first = occupy(&site).await;
        let began = tokio::time::Instant::now();
        let response = site.ask("second", Manner::Whole).await;
        assert_eq!((response.status(), began.elapsed()), (http::StatusCode::TOO_MANY_REQUESTS, Duration::ZERO));
        drop(first);
    });
    assert_eq!(outcomes(site), [pair("first", "client_gone"), pair("second", "queue_full")]);
}
