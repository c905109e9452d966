//! What users of gateways like this one complain of most, where one test says that it is not so here.

use std::{
    net::SocketAddr,
    sync::{Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use harness::{
    Config, Connection, Gateway, MetricsPage, ModelServer, Next, Peer, Scheduler, chat_body, post, request, soon,
};

use crate::{
    picking::{SIGNALS, scheduler, servers, start, text},
    rig::{AT_ONCE, CHAT, CHATS, begin, peer, request_bytes},
};

/// Where work may be asked for, each by another name of the same thing.
const PATHS: [&str; 8] = [
    CHATS,
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/responses",
    "/generate",
    "/inference/v1/generate",
    "/invocations",
];

#[test]
fn work_is_counted_whatever_path_it_comes_by() {
    let peers = [(); 2].map(|()| {
        peer(|exchange| {
            exchange.wait_for_close(AT_ONCE * 20);
            Next::Close
        })
    });
    let gateway = Gateway::start(&Config::plain("m1", peers.each_ref().map(|peer| peer.address)));
    let mut open = Vec::new();
    for path in PATHS {
        let mut connection = Connection::open(gateway.data);
        connection.send(request_bytes(path, path, &[], CHAT)).unwrap();
        open.push(connection);
        soon("it counts", || gateway.admin.in_flight("m1") == open.len() as u64);
    }
    soon("each went where less was on its way", || peers.iter().all(|peer| peer.seen().len() == PATHS.len() / 2));
    drop(open);
    soon("none is left", || gateway.admin.in_flight("m1") == 0);
}

/// Shows a page and waits until it was read.
fn shows(gateway: &Gateway, servers: &[ModelServer], index: usize, waiting: u32) {
    servers[index].show(MetricsPage::vllm(waiting, 1, 0.1));
    let seen = || gateway.admin.endpoint("m1", &format!("m1-{index}"))["signals"]["waiting"]["value"].as_f64();
    soon("its page is read", || seen() == Some(f64::from(waiting)));
}

#[test]
fn a_prompt_that_nobody_has_goes_where_least_waits_and_not_where_least_is_remembered() {
    const CALLS: usize = 20;
    let servers = servers(2, &MetricsPage::vllm(0, 1, 0.1));
    let gateway = start(&Config::new([scheduler(&servers)]).line(SIGNALS));
    // One remembers much, the other nothing, and then it is the other that has work.
    shows(&gateway, &servers, 1, 4);
    for n in 0..CALLS {
        assert_eq!(post(gateway.data, CHATS, chat_body("m1", &text(n, 1_024))).status, 200);
    }
    assert_eq!((servers[0].served(), servers[1].served()), (CALLS, 0));
    for n in CALLS..2 * CALLS {
        assert_eq!(post(gateway.data, CHATS, chat_body("m1", &text(n, 1_024))).status, 200);
    }
    assert_eq!((servers[0].served(), servers[1].served()), (2 * CALLS, 0), "memory is no load");
}

#[test]
fn one_hot_endpoint_does_not_end_affinity_for_the_others() {
    const CALLS: usize = 20;
    let servers = servers(3, &MetricsPage::vllm(0, 1, 0.1));
    let gateway = start(&Config::new([scheduler(&servers)]).line(SIGNALS));
    let shared = text(7, 2_048);
    let turn = |n: usize| chat_body("m1", &format!("{shared} {n}"));
    assert_eq!(post(gateway.data, CHATS, turn(0)).status, 200);
    let home = servers.iter().position(|server| server.served() == 1).expect("it went to one of them");
    // Another one has more to do than it can take.
    shows(&gateway, &servers, (home + 1) % 3, 40);
    // And its home a little more than the third: less than the prompt is worth.
    shows(&gateway, &servers, home, 1);
    for n in 1..=CALLS {
        assert_eq!(post(gateway.data, CHATS, turn(n)).status, 200);
    }
    assert_eq!(servers[home].served(), 1 + CALLS, "a conversation stays where its prompt is");
}

/// Requests open at a time while health is asked for.
const OPEN: usize = 1_000;

#[test]
fn health_is_answered_under_a_thousand_open_requests_and_traffic() {
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let peer = peer(move |exchange| {
        if exchange.request.header("x-hold").is_some() {
            // All wait for their turn to wait: nothing is sent, and the end of it ends them all.
            let _ = ends.lock().map(|ends| ends.recv());
        }
        exchange.answer_plainly()
    });
    let gateway = Gateway::start(&Config::plain("m1", [peer.address]));
    let open: Vec<_> = (0..OPEN)
        .map(|n| {
            let mut connection = Connection::open(gateway.data);
            connection.send(request_bytes(CHATS, &format!("open-{n}"), &[("x-hold", "1")], CHAT)).unwrap();
            connection
        })
        .collect();
    soon("all are on their way", || gateway.admin.in_flight("m1") == OPEN as u64);
    let asked = |at: SocketAddr, path: &str| {
        let started = Instant::now();
        assert_eq!(request(at, "GET", path, &[], "").status, 200, "{path}");
        started.elapsed()
    };
    let mut slowest = Duration::ZERO;
    thread::scope(|scope| {
        for worker in 0..4 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut connection = Connection::open(gateway.data);
                for n in 0..200 {
                    let id = format!("traffic-{worker}-{n}");
                    connection.send(request_bytes(CHATS, &id, &[], CHAT)).expect("a request can be sent");
                    assert_eq!(connection.answer().expect("an answer").status, 200);
                }
            });
        }
        for _ in 0..20 {
            for path in ["/healthz", "/readyz"] {
                slowest = slowest.max(asked(gateway.admin.address, path)).max(asked(gateway.data, path));
            }
        }
    });
    // A probe's usual limit.
    assert!(slowest < AT_ONCE, "{slowest:?}");
    drop(open);
    soon("none is left", || gateway.admin.in_flight("m1") == 0);
    drop(end);
}

#[test]
fn after_a_spike_everybody_is_served_again() {
    const SPIKE: usize = 200;
    let peers = [(); 2].map(|()| Peer::plain());
    let no_queue = "{critical: {maxWait: 0s}, standard: {maxWait: 0s}, sheddable: {maxWait: 0s}}";
    let scheduler = Scheduler::new("m1", peers.each_ref().map(|peer| peer.address)).line("engineType: none");
    let config =
        Config::new([scheduler]).line(&format!("flowControl: {{maxInFlightPerEndpoint: 1, bands: {no_queue}}}"));
    let gateway = Gateway::start(&config);
    for _ in 0..3 {
        let spike: Vec<_> = (0..SPIKE).map(|n| begin(&gateway, &format!("spike-{n}"), CHAT)).collect();
        let statuses: Vec<_> = spike.into_iter().map(|mut one| one.answer().expect("an answer").status).collect();
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
        soon("nothing is in flight", || gateway.admin.in_flight("m1") == 0);
        for n in 0..20 {
            let answer = post(gateway.data, CHATS, chat_body("m1", &format!("after {n}")));
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
}
