//! What stands around the gateway fails, as a whole: the process goes on, and what it says of itself stays true.

use std::time::Duration;

use harness::{Config, Gateway, Peer, eventually, post, soon};

use crate::rig::{CHAT, CHATS};

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
        gateway.write(&format!("kind: Nothing{bad}\n"));
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
