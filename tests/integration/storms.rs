//! What stands around the gateway fails, as a whole: the process goes on, and what it says of itself stays true.

use std::time::Duration;

use harness::{Config, Connection, Gateway, Peer, Scheduler, eventually, post, soon};

use crate::rig::{CHAT, CHATS, request_bytes};

/// Requests whose log lines are more than a pipe holds (64 KiB), and more than one write of the log's.
const MORE_THAN_A_PIPE: usize = 400;

/// Configurations that are refused one after the other, each with an event in the log.
const REFUSED: usize = 3;

#[test]
fn a_log_that_nobody_reads_stops_neither_requests_nor_changes_nor_the_end() {
    let peer = Peer::plain();
    let good = Config::plain("m1", [peer.address]);
    let mut gateway = Gateway::launch_unread(&good.yaml(), &[]);
    gateway.ready();
    for _ in 0..MORE_THAN_A_PIPE {
        assert_eq!(post(gateway.data, "/v1/nothing-here", CHAT).status, 404);
    }
    for bad in 0..REFUSED {
        gateway.write(&format!("apiVersion: v1\nkind: Nothing{bad}\nmetadata: {{name: n}}\n"));
        soon("the refusal is told", || {
            let status = gateway.admin.json("/api/v1/config");
            status["error"]["message"].as_str().is_some_and(|message| message.contains(&format!("Nothing{bad}")))
        });
    }
    assert_eq!(post(gateway.data, CHATS, CHAT).status, 200, "and connections are still accepted");
    gateway.apply(&good.line("timeouts: {firstByte: 9s}"));
    assert_eq!(post(gateway.data, CHATS, CHAT).status, 200);
    gateway.process.signal("TERM");
    let code = eventually("the process ends", Duration::from_secs(10), || gateway.process.ended());
    assert_eq!(code, Some(0));
}

/// File descriptors of a process that may not have many.
const FEW_DESCRIPTORS: &str = "64";

/// More connections than that, of clients that say nothing.
const FLOOD: usize = 120;

#[test]
fn a_flood_of_connections_leaves_operators_and_endpoints_their_descriptors() {
    let peer = Peer::plain();
    let good = Config::plain("m1", [peer.address]);
    let gateway = Gateway::start_limited(&good, FEW_DESCRIPTORS);
    let flood: Vec<_> = (0..FLOOD).map(|_| Connection::open(gateway.data)).collect();
    soon("connections are refused", || {
        gateway.admin.metric("inference_gateway_connections_refused_total", &[r#"cause="limit""#]) > Some(0.0)
    });
    assert_eq!(gateway.admin.get("/readyz").status, 200);
    gateway.apply(&good.line("timeouts: {firstByte: 9s}"));
    assert!(!gateway.log().contains("cannot accept connections"), "{}", gateway.log());
    drop(flood);
    soon("requests are answered again", || {
        let mut connection = Connection::open(gateway.data);
        connection.send(request_bytes(CHATS, "after", &[], CHAT)).is_ok()
            && connection.answer().is_ok_and(|answer| answer.status == 200)
    });
}

/// Models of a gateway that serves many.
const MODELS: usize = 20;

/// Most resident memory of a model that nobody asked for yet.
const IDLE_MODEL_BYTES_MAX: u64 = 1 << 20;

#[test]
fn many_models_take_little_memory_while_nobody_asks_for_them() {
    let resident = |models: usize| {
        let schedulers = (0..models).map(|model| Scheduler::new(&format!("m{model}"), []));
        let gateway = Gateway::start(&Config::new(schedulers));
        gateway.memory_bytes()
    };
    let (one, many) = (resident(1), resident(MODELS));
    let each = many.saturating_sub(one) / (MODELS as u64 - 1);
    assert!(each < IDLE_MODEL_BYTES_MAX, "{each} bytes each: {one} bytes with one, {many} with {MODELS}");
}
