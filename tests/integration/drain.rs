//! SIGTERM: what runs goes on, what is new goes elsewhere, and nothing of it is lost from the log.

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use harness::{Config, Connection, Gateway, Http2, Peer, eventually, request, soon};

use crate::rig::{AT_ONCE, CHAT, CHATS, STREAM, begin, held, peer, request_bytes};

fn start(peer: &Peer, options: &[&str]) -> Gateway {
    Gateway::start_with(&Config::plain("m1", [peer.address]), options)
}

fn streaming(gateway: &Gateway, id: &str) -> Connection {
    let mut connection = begin(gateway, id, STREAM);
    connection.read_until(|bytes| bytes.windows(5).any(|at| at == b"first")).expect("the stream begins");
    connection
}

/// A connection that has had an answer and stays open.
fn kept_alive(gateway: &Gateway, id: &str) -> Connection {
    let mut connection = begin(gateway, id, CHAT);
    assert_eq!(connection.answer().expect("an answer").status, 200);
    connection
}

fn exit_code(gateway: &mut Gateway) -> Option<i32> {
    eventually("the process ends", Duration::from_secs(10), || gateway.process.ended())
}

fn refuses_connections(gateway: &Gateway) -> bool {
    TcpStream::connect(gateway.data).is_err()
}

/// Whether the process has a handler of its own for SIGTERM, as the kernel says.
fn handles_sigterm(gateway: &Gateway) -> bool {
    const SIGTERM: u32 = 15;
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process.id())).expect("the process runs");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a process has handlers");
    u64::from_str_radix(caught.trim(), 16).expect("a mask") & 1 << (SIGTERM - 1) != 0
}

#[test]
fn who_may_be_served_already_is_not_cut_off_by_sigterm() {
    let peer = Peer::plain();
    let yaml = Config::plain("m1", [peer.address]).yaml();
    for _ in 0..5 {
        let mut gateway = Gateway::launch(&yaml, &[]);
        assert!(handles_sigterm(&gateway), "it said where it listens, and SIGTERM would kill it");
        gateway.process.signal("TERM");
        assert_eq!(exit_code(&mut gateway), Some(0));
    }
}

#[test]
fn sighup_ends_nothing() {
    let (peer, end) = held();
    let mut gateway = start(&peer, &[]);
    let mut stream = streaming(&gateway, "stream");
    gateway.process.signal("HUP");
    soon("it is said", || gateway.log().contains("SIGHUP"));
    end.send(()).expect("the peer waits");
    let answer = stream.answer().expect("the whole stream");
    assert!(answer.text().contains("last"), "{}", answer.text());
    assert_eq!(gateway.process.ended(), None);
}

#[test]
fn g07_streams_finish_and_new_work_goes_elsewhere() {
    let (peer, end) = held();
    let mut gateway = start(&peer, &[]);
    let mut stream = streaming(&gateway, "stream");
    let (mut asks, silent) = (kept_alive(&gateway, "kept"), kept_alive(&gateway, "silent"));
    let client = Http2::open(gateway.data);
    let mut open = client.start("POST", CHATS, &[("x-request-id", "stream2")], STREAM);
    client.read_until(&mut open, |bytes| bytes.windows(5).any(|at| at == b"first"));

    gateway.process.signal("TERM");
    soon("the listener is closed", || refuses_connections(&gateway));
    let ready = gateway.admin.get("/readyz");
    assert_eq!((ready.status, ready.text().contains("draining")), (503, true));
    assert_eq!(gateway.admin.get("/healthz").status, 200, "draining is not being ill");

    asks.send(request_bytes(CHATS, "late", &[], CHAT)).unwrap();
    let answer = asks.answer().unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (503, "draining"));
    assert_eq!((answer.header("connection"), answer.header("x-request-id")), (Some("close"), Some("late")));
    assert!(answer.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    asks.closed_within().unwrap();
    assert_eq!(gateway.request("late")["outcome"], "draining");
    assert_eq!(gateway.process.ended(), None, "streams run on");

    for _ in 0..2 {
        end.send(()).unwrap();
    }
    let answer = stream.answer().unwrap();
    assert!(answer.complete && answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    let answer = client.finish(open);
    assert!(answer.text().ends_with("data: [DONE]\n\n") && answer.reset.is_none(), "{}", answer.text());
    drop(silent);
    assert_eq!(exit_code(&mut gateway), Some(0));
    // Nothing is lost that was still in memory: one line for each.
    for (id, outcome) in [("stream", "ok"), ("stream2", "ok"), ("kept", "ok"), ("silent", "ok"), ("late", "draining")] {
        let line = gateway.request(id);
        assert_eq!(line["outcome"], outcome, "{line}");
    }
    assert_eq!(gateway.requests().len(), 5);
}

#[test]
fn g07_with_idle_connections_alone_the_end_comes_at_once() {
    let peer = Peer::plain();
    let mut gateway = start(&peer, &[]);
    let mut idle = kept_alive(&gateway, "idle");
    let client = Http2::open(gateway.data);
    assert_eq!(client.post(CHATS, &[], CHAT).status, 200);
    let mut silent = Connection::open(gateway.data);
    gateway.process.signal("TERM");
    assert_eq!(exit_code(&mut gateway), Some(0));
    idle.closed_within().unwrap();
    silent.closed_within().unwrap();
    assert_eq!(gateway.requests().len(), 2);
}

#[test]
fn g07_during_the_grace_new_connections_are_served_while_readiness_says_no() {
    let peer = Peer::plain();
    let mut gateway = start(&peer, &["--drain-grace", "2s"]);
    let told = Instant::now();
    gateway.process.signal("TERM");
    soon("readiness fails", || gateway.admin.get("/readyz").status == 503);
    assert_eq!(request(gateway.data, "GET", "/readyz", &[], "").status, 503);
    drop(kept_alive(&gateway, "in-grace"));
    assert!(told.elapsed() < Duration::from_secs(2), "the machine is too slow for this test's grace");
    soon("the listener is closed", || refuses_connections(&gateway));
    assert!(told.elapsed() >= Duration::from_secs(2), "{:?}", told.elapsed());
    assert_eq!(exit_code(&mut gateway), Some(0));
    assert_eq!(gateway.request("in-grace")["outcome"], "ok");
}

#[test]
fn g07_what_does_not_end_in_time_is_cut_and_said_so() {
    let (peer, _end) = held();
    let mut gateway = start(&peer, &["--drain-timeout", "500ms"]);
    let mut stream = streaming(&gateway, "endless");
    let told = Instant::now();
    gateway.process.signal("TERM");
    let answer = stream.answer().unwrap();
    assert!(!answer.complete, "a cut stream does not look whole");
    assert!(!answer.text().contains("[DONE]"));
    assert!(told.elapsed() >= Duration::from_millis(500) && told.elapsed() < AT_ONCE * 4, "{:?}", told.elapsed());
    assert_eq!(exit_code(&mut gateway), Some(0));
    let line = gateway.request("endless");
    assert_eq!(line["outcome"], "draining", "its client did not leave: {line}");
    assert_eq!(line["status"], 200, "{line}");
    assert!(gateway.log().contains("--drain-timeout"), "the operator is told");
}

#[test]
fn g07_the_log_is_whole_after_a_burst_at_the_end() {
    const REQUESTS: usize = 200;
    let peer = peer(|exchange| exchange.answer_plainly());
    let mut gateway = start(&peer, &[]);
    let mut connection = Connection::open(gateway.data);
    let bytes: Vec<u8> = (0..REQUESTS).flat_map(|n| request_bytes(CHATS, &format!("burst-{n}"), &[], CHAT)).collect();
    connection.send(bytes).unwrap();
    for _ in 0..REQUESTS {
        assert_eq!(connection.answer().unwrap().status, 200);
    }
    gateway.process.signal("TERM");
    assert_eq!(exit_code(&mut gateway), Some(0));
    assert_eq!(gateway.requests().len(), REQUESTS);
}

#[test]
fn g07_a_request_that_was_sent_before_the_end_is_served_or_refused_and_never_lost() {
    let peer = peer(|exchange| exchange.answer_plainly());
    let mut gateway = start(&peer, &[]);
    let mut connections: Vec<_> = (0..20).map(|n| kept_alive(&gateway, &format!("before-{n}"))).collect();
    for (n, connection) in connections.iter_mut().enumerate() {
        connection.send(request_bytes(CHATS, &format!("race-{n}"), &[], CHAT)).unwrap();
        if n == 10 {
            gateway.process.signal("TERM");
        }
    }
    let mut answered = 0;
    for mut connection in connections {
        match connection.answer() {
            Ok(answer) => {
                assert!([200, 503].contains(&answer.status), "{}", answer.status);
                answered += 1;
            }
            // Closed between two requests: the client knows that nothing was begun.
            Err(error) => assert!(
                error.kind() == std::io::ErrorKind::UnexpectedEof
                    || error.kind() == std::io::ErrorKind::ConnectionReset,
                "{error}"
            ),
        }
    }
    assert_eq!(exit_code(&mut gateway), Some(0));
    let lines =
        gateway.requests().into_iter().filter(|line| line["x-request-id"].as_str().unwrap().starts_with("race-"));
    assert_eq!(lines.count(), answered);
}

/// Clients that go on asking while the gateway stops.
const BUSY_CLIENTS: usize = 64;

/// What became of one client.
#[derive(Debug, Default)]
struct Fate {
    /// Requests that were sent.
    sent: usize,
    /// The last answer said that the connection ends.
    told: bool,
    /// The connection ended without an answer to what was sent.
    unanswered: Vec<String>,
}

/// Asks again and again, `pause` after each answer, until told that the connection ends or it is seen to be closed.
fn ask_until_told(mut connection: Connection, client: usize, pause: Duration) -> Fate {
    let mut fate = Fate::default();
    while !connection.is_closed() {
        let bytes = request_bytes(CHATS, &format!("busy-{client}-{}", fate.sent), &[], CHAT);
        let answer = connection.send(bytes).and_then(|()| connection.answer());
        fate.sent += 1;
        match answer {
            Ok(answer) => {
                let is_refusal = answer.status == 503 && answer.code() == "draining";
                assert!(answer.status == 200 || is_refusal, "{} {}", answer.status, answer.text());
                fate.told = answer.header("connection") == Some("close");
                assert!(fate.told || !is_refusal, "{:?}", answer.headers);
            }
            Err(error) => fate.unanswered.push(format!("{:?}", error.kind())),
        }
        if fate.told || !fate.unanswered.is_empty() {
            return fate;
        }
        std::thread::sleep(pause);
    }
    fate
}

#[test]
fn g08_clients_that_keep_asking_are_answered_until_they_are_told_to_go() {
    let peer = peer(|exchange| exchange.answer_plainly());
    let mut gateway = start(&peer, &["--drain-grace", "300ms"]);
    let connections: Vec<_> =
        (0..BUSY_CLIENTS).map(|client| kept_alive(&gateway, &format!("first-{client}"))).collect();
    let fates: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = connections
            .into_iter()
            .enumerate()
            // Each at a pace of its own, as clients have.
            .map(|(n, connection)| {
                scope.spawn(move || ask_until_told(connection, n, Duration::from_millis(10 + n as u64 % 40)))
            })
            .collect();
        soon("all are at work", || peer.seen().len() > 4 * BUSY_CLIENTS);
        gateway.process.signal("TERM");
        clients.into_iter().map(|client| client.join().expect("no client saw anything else")).collect()
    });
    let unanswered: Vec<_> = fates.iter().flat_map(|fate| &fate.unanswered).collect();
    assert!(unanswered.is_empty(), "{unanswered:?}");
    assert!(fates.iter().all(|fate| fate.told), "each was told: {fates:?}");
    assert_eq!(exit_code(&mut gateway), Some(0));
    let sent: usize = fates.iter().map(|fate| fate.sent).sum();
    assert_eq!(gateway.requests().len(), sent + BUSY_CLIENTS, "a line for each");
}

#[test]
fn g07_a_second_sigterm_ends_what_is_left_at_once() {
    let (peer, _end) = held();
    let mut gateway = start(&peer, &["--drain-grace", "60s"]);
    let mut stream = streaming(&gateway, "cut");
    gateway.process.signal("TERM");
    soon("it is draining", || gateway.admin.get("/readyz").status == 503);
    assert_eq!(gateway.process.ended(), None, "it has its time");
    let told = Instant::now();
    gateway.process.signal("TERM");
    let answer = stream.answer().unwrap();
    assert!(!answer.complete && !answer.text().contains("[DONE]"), "a cut stream does not look whole");
    assert_eq!(exit_code(&mut gateway), Some(0));
    assert!(told.elapsed() < AT_ONCE * 4, "{:?}", told.elapsed());
    assert_eq!(gateway.request("cut")["outcome"], "draining");
    assert!(gateway.log().contains("again"), "the operator is told: {}", gateway.log());
}
