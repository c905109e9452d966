//! What the tests of streaming and HTTP share: requests with ids of their own, and how each must have ended.

use std::{
    sync::{Mutex, mpsc},
    time::Duration,
};

use harness::{Answer, Config, Connection, Exchange, Gateway, Next, Peer, Scheduler, soon};
use serde_json::Value;

/// A chat that wants one answer.
pub(crate) const CHAT: &str = r#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#;

/// A chat that wants a stream.
pub(crate) const STREAM: &str = r#"{"model":"m1","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// Where chats go.
pub(crate) const CHATS: &str = "/v1/chat/completions";

/// How long a cancellation may take on a loaded machine; ten times what is aimed at.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(1);

/// The end of a stream as engines write it, with the tokens it took.
pub(crate) const USAGE: &str = r#"{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;

/// A peer that follows `script` but for the gateway's own looks.
pub(crate) fn peer(script: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Peer {
    Peer::start(move |exchange| if exchange.is_look() { exchange.answer_plainly() } else { script(exchange) })
}

/// A peer whose streams stay open after their first event until told to end.
pub(crate) fn held() -> (Peer, mpsc::Sender<()>) {
    let (end, ends) = mpsc::channel::<()>();
    let ends = Mutex::new(ends);
    let peer = peer(move |exchange| {
        if exchange.request.body != STREAM.as_bytes() {
            return exchange.answer_plainly();
        }
        exchange.begin_stream();
        exchange.token("first");
        let _ = ends.lock().expect("no script panics").recv();
        exchange.token("last");
        exchange.event(USAGE);
        exchange.event("[DONE]");
        exchange.end_chunks()
    });
    (peer, end)
}

/// A gateway for `m1` on these peers.
pub(crate) fn gateway<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> Gateway {
    Gateway::start(&Config::plain("m1", peers.into_iter().map(|peer| peer.address)))
}

/// A scheduler of `m1` whose endpoints have no metrics page.
pub(crate) fn scheduler<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> Scheduler {
    Scheduler::new("m1", peers.into_iter().map(|peer| peer.address)).line("engineType: none")
}

/// The bytes of a POST with an id.
pub(crate) fn request_bytes(path: &str, id: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!(
        "POST {path} HTTP/1.1\r\nhost: gateway\r\nx-request-id: {id}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// Sends a POST with an id and reads nothing.
pub(crate) fn begin(gateway: &Gateway, id: &str, body: &str) -> Connection {
    let mut connection = Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, id, &[], body)).expect("a request can be sent");
    connection
}

/// Sends a chat with an id and reads its answer.
pub(crate) fn ask(gateway: &Gateway, id: &str, body: &str) -> Answer {
    begin(gateway, id, body).answer().unwrap_or_else(|error| panic!("no answer to {id}: {error}"))
}

/// Checks that a request ended so: by its one line, and with nothing left in flight. Gives the line.
pub(crate) fn ended(gateway: &Gateway, id: &str, outcome: &str) -> Value {
    let line = gateway.request(id);
    assert_eq!(line["outcome"], outcome, "{line}");
    soon("nothing is in flight", || gateway.admin.in_flight("m1") == 0);
    line
}

/// Requests of `m1` counted with this outcome.
pub(crate) fn count(gateway: &Gateway, outcome: &str) -> u64 {
    let outcome = format!("outcome=\"{outcome}\"");
    number(gateway, "inference_gateway_requests_total", &[r#"model="m1""#, &outcome])
}

/// All requests that were counted.
pub(crate) fn count_all(gateway: &Gateway) -> u64 {
    number(gateway, "inference_gateway_requests_total", &[])
}

/// The sum of a metric's series with these labels; 0 without any.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small whole numbers")]
pub(crate) fn number(gateway: &Gateway, metric: &str, labels: &[&str]) -> u64 {
    gateway.admin.metric(metric, labels).unwrap_or(0.0) as u64
}

/// The error event that ends what came, if it does: its `code`.
pub(crate) fn closing_error(body: &str) -> Option<String> {
    let last = body.trim_end().rsplit("\n\n").next()?;
    let data = last.lines().find_map(|line| line.strip_prefix("data: "))?;
    let event: Value = serde_json::from_str(data).ok()?;
    event["error"]["code"].as_str().map(str::to_owned)
}
