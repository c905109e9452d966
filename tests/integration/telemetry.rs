//! What the gateway says of itself stays true, small and readable, whatever clients and endpoints do.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use harness::{Answer, Config, Connection, Gateway, MetricsPage, ModelServer, Next, Peer, Scheduler, post, soon};
use serde_json::Value;

use crate::rig::{AT_ONCE, CHAT, CHATS, STREAM, begin, count, count_all, ended, gateway, number, peer, request_bytes};

/// Requests on their way on one connection.
const PIPELINED: usize = 50;

/// Sends these one behind the other on one connection; gives the answers in their order.
pub(crate) fn pipelined(to: SocketAddr, requests: &[Vec<u8>]) -> Vec<Answer> {
    let mut connection = Connection::open(to);
    let mut answers = Vec::with_capacity(requests.len());
    for batch in requests.chunks(PIPELINED) {
        connection.send(batch.concat()).expect("requests can be sent");
        for _ in batch {
            answers.push(connection.answer().expect("each is answered"));
        }
    }
    answers
}

/// A metrics page, read by its own rules: each sample's name and labels, and its value. Fails when it breaks them.
pub(crate) fn samples(gateway: &Gateway) -> BTreeMap<String, f64> {
    let page = gateway.admin.get("/metrics").text();
    let mut all = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        let name_end = series.find('{').unwrap_or(series.len());
        let name = &series[..name_end];
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'), "{line}");
        assert_eq!(name_end == series.len(), !series.ends_with('}'), "{line}");
        assert!(all.insert(series.to_owned(), value).is_none(), "twice: {line}");
    }
    all
}

/// The names of series, without those of the process, whose number does not depend on clients.
fn series(gateway: &Gateway) -> BTreeSet<String> {
    samples(gateway).into_keys().filter(|name| !name.starts_with("process_")).collect()
}

/// Words of clients in each of the tests below; with more nothing else would be shown.
const WORDS: usize = 8_000;

/// Resident memory that may come with them: queues, decisions and lines of the log are held up to their bounds.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

#[test]
fn j01_words_of_clients_are_no_labels() {
    let peer = peer(|exchange| exchange.answer_plainly());
    let gateway = gateway([&peer]);
    let mut random = fastrand::Rng::with_seed(0x0101);
    let mut word = || (0..12).map(|_| random.alphanumeric()).collect::<String>();
    // Each kind once, so that what may be counted of it is there.
    let huge = "x".repeat(10_000);
    let odd = ["\\\"} 1\\nforged 2", "a\\\\b", "line\\nbreak", "\\u0000", "{}"];
    let of_model = |model: &str| request_bytes(CHATS, "j01", &[], &CHAT.replace("m1", model));
    let with = |name: &str, value: &str| request_bytes(CHATS, "j01", &[(name, value)], CHAT);
    let headers = ["x-gateway-inference-fairness-id", "x-gateway-inference-objective", "x-llm-d-inference-objective"];
    let mut first = vec![of_model("first"), of_model(&huge), of_model("m1")];
    first.extend(headers.map(|name| with(name, "first")));
    let statuses: Vec<_> = pipelined(gateway.data, &first).iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [404, 400, 200, 200, 200, 200]);
    soon("all are counted", || count_all(&gateway) == first.len() as u64);
    let before = series(&gateway);

    let mut requests: Vec<_> = odd.into_iter().map(of_model).collect();
    requests.extend((0..WORDS).map(|_| of_model(&word())));
    let models = requests.len();
    for (index, name) in headers.into_iter().enumerate() {
        requests.extend((0..WORDS / 4).map(|n| with(name, &format!("{}{index}{n}\"", word()))));
        requests.push(with(name, &huge));
    }
    let half = models / 2;
    let mut answers = pipelined(gateway.data, &requests[..half]);
    let memory = gateway.memory_bytes();
    answers.extend(pipelined(gateway.data, &requests[half..]));
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.status, if n < models { 404 } else { 200 }, "{n}: {}", answer.text());
    }
    let total = (first.len() + requests.len()) as u64;
    soon("all are counted", || count_all(&gateway) == total);
    assert_eq!(series(&gateway), before, "no label came from a client");
    let unknown = number(&gateway, "inference_gateway_requests_total", &[r#"model="other""#, r#"pool="""#]);
    assert_eq!(unknown, models as u64 + 2, "they fold into one");
    assert_eq!(number(&gateway, "inference_gateway_unknown_objectives_total", &[]), 2 * (WORDS as u64 / 4 + 2));
    assert_eq!(number(&gateway, "inference_gateway_in_flight_requests", &[]), 0);
    let grown = gateway.memory_bytes().saturating_sub(memory);
    assert!(grown < GROWTH_BYTES_MAX, "{} MiB", grown >> 20);
}

#[test]
fn j02_paths_and_methods_of_clients_are_no_labels() {
    let peer = peer(|exchange| exchange.answer_plainly());
    let gateway = gateway([&peer]);
    let ask = |method: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nhost: g\r\n\r\n").into_bytes();
    let mut random = fastrand::Rng::with_seed(0x0202);
    let mut uuid = || format!("{:032x}", random.u128(..));
    let first = [ask("GET", "/v1/models/first"), ask("GET", "/first"), ask("FOO", "/first"), ask("FOO", CHATS)];
    for answer in pipelined(gateway.data, &first) {
        assert!((400..500).contains(&answer.status), "{}", answer.status);
    }
    soon("all are counted", || count_all(&gateway) == first.len() as u64);
    let before = series(&gateway);
    let requests: Vec<_> = (0..WORDS)
        .map(|n| match n % 4 {
            0 => ask("GET", &format!("/v1/models/{}", uuid())),
            1 => ask("GET", &format!("/{}?a={}", uuid(), uuid())),
            2 => ask(["FOO", "BREW", "PROPFIND"][n % 3], &format!("/{}", uuid())),
            _ => ask("FOO", CHATS),
        })
        .collect();
    for answer in pipelined(gateway.data, &requests) {
        assert!((400..500).contains(&answer.status), "{}", answer.status);
    }
    soon("all are counted", || count_all(&gateway) == (first.len() + WORDS) as u64);
    assert_eq!(series(&gateway), before);
    assert!(peer.seen().is_empty());
}

/// A chunk with content and one with usage, as engines write them.
const CONTENT: &str = r#"{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}"#;
const USAGE_11_7: &str = r#"{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#;

fn event(data: &str) -> String {
    format!("data: {data}\n\n")
}

/// Answers with the pieces of its script that `x-case` names, each a chunk of its own; `.` stands for a wait.
fn telling(cases: Vec<Vec<String>>) -> Peer {
    peer(move |exchange| {
        let case: usize = exchange.request.header("x-case").expect("a case").parse().expect("a number");
        exchange.begin_stream();
        for piece in &cases[case] {
            if piece == "." {
                // The distance is the input: a second in the report, long enough here to be read apart.
                std::thread::sleep(Duration::from_millis(100));
            } else {
                exchange.chunk(piece);
            }
        }
        exchange.end_chunks()
    })
}

/// Tokens counted so far, of prompts and answers.
fn tokens(gateway: &Gateway) -> [u64; 2] {
    ["prompt", "completion"]
        .map(|kind| number(gateway, "inference_gateway_tokens_total", &[&format!("kind=\"{kind}\"")]))
}

fn tell(gateway: &Gateway, case: usize, path: &str) -> Answer {
    let mut connection = Connection::open(gateway.data);
    let headers = [("x-case", case.to_string())];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    connection.send(request_bytes(path, &format!("case-{case}"), &headers, STREAM)).expect("a request can be sent");
    connection.answer().expect("an answer")
}

#[test]
fn j03_usage_counts_wherever_it_stands_in_a_stream() {
    let (content, usage, done) = (event(CONTENT), event(USAGE_11_7), event("[DONE]"));
    let cases = vec![
        vec![content.clone(), format!("{usage}{done}")],
        vec![content.clone(), usage.clone(), done.clone()],
        vec![content.clone(), usage.clone(), ".".into(), done.clone()],
        vec![format!("{content}{usage}"), done.clone()],
        // Without a terminator, and with an event behind the usage.
        vec![content.clone(), usage.clone()],
        vec![content.clone(), usage, event(r#"{"object":"chat.completion.chunk","choices":[]}"#), done],
    ];
    let count = cases.len();
    let peer = telling(cases);
    let gateway = gateway([&peer]);
    for case in 0..count {
        let answer = tell(&gateway, case, CHATS);
        assert_eq!(answer.status, 200, "{case}");
        let line = gateway.request(&format!("case-{case}"));
        assert_eq!((line["prompt_tokens"].as_u64(), line["completion_tokens"].as_u64()), (Some(11), Some(7)), "{line}");
    }
    assert_eq!(tokens(&gateway), [66, 42]);
    assert_eq!(number(&gateway, "inference_gateway_usage_missing_total", &[]), 0);
}

#[test]
fn j04_of_usage_in_every_piece_the_last_counts_once() {
    let with = |usage: &str| {
        event(&format!(
            r#"{{"object":"chat.completion.chunk","choices":[{{"delta":{{"content":"a"}}}}],"usage":{usage}}}"#
        ))
    };
    let openai = vec![
        with(r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#),
        with(r#"{"prompt_tokens":11,"completion_tokens":3,"total_tokens":14}"#),
        with(r#"{"prompt_tokens_details":{"cached_tokens":4}}"#),
        with("null"),
        event(
            r#"{"object":"chat.completion.chunk","choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}"#,
        ),
        event("[DONE]"),
    ];
    let named = |name: &str, data: &str| format!("event: {name}\ndata: {data}\n\n");
    let anthropic = vec![
        named(
            "message_start",
            r#"{"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":11,"output_tokens":1}}}"#,
        ),
        named(
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
        ),
        named(
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
        ),
        named("message_stop", r#"{"type":"message_stop"}"#),
    ];
    let peer = telling(vec![openai, anthropic]);
    let gateway = gateway([&peer]);
    for (case, path) in [CHATS, "/v1/messages"].into_iter().enumerate() {
        assert_eq!(tell(&gateway, case, path).status, 200, "{path}");
        ended(&gateway, &format!("case-{case}"), "ok");
        let sofar = case as u64 + 1;
        assert_eq!(tokens(&gateway), [11 * sofar, 7 * sofar], "{path}");
    }
}

#[test]
fn j05_clients_that_leave_and_clients_that_stay_are_all_recorded() {
    const EACH: usize = 100;
    const EVENTS: usize = 100;
    const READ: usize = 20;
    let peer = peer(|exchange| {
        let leaves = exchange.request.header("x-leaves").is_some();
        exchange.begin_stream();
        for n in 0..EVENTS {
            exchange.token(&format!("t{n}."));
            // One that leaves does so before the rest.
            if leaves && n == READ {
                exchange.wait_for_close(AT_ONCE * 20);
                return Next::Close;
            }
        }
        exchange.event(USAGE_11_7);
        exchange.event("[DONE]");
        exchange.end_chunks()
    });
    let gateway = gateway([&peer]);
    std::thread::scope(|scope| {
        for worker in 0..10 {
            let gateway = &gateway;
            scope.spawn(move || {
                for n in (worker..EACH).step_by(10) {
                    let mut gone = Connection::open(gateway.data);
                    let bytes = request_bytes(CHATS, &format!("gone-{n}"), &[("x-leaves", "1")], STREAM);
                    gone.send(bytes).expect("a request can be sent");
                    let wanted = format!("t{READ}.");
                    let has = |bytes: &[u8]| bytes.windows(wanted.len()).any(|at| at == wanted.as_bytes());
                    gone.read_until(has).expect("the stream comes so far");
                    drop(gone);
                    let answer = begin(gateway, &format!("full-{n}"), STREAM).answer().expect("an answer");
                    assert!(answer.text().ends_with("data: [DONE]\n\n"));
                }
            });
        }
    });
    soon("all are counted", || count_all(&gateway) == 2 * EACH as u64);
    assert_eq!((count(&gateway, "ok"), count(&gateway, "client_gone")), (EACH as u64, EACH as u64));
    soon("nothing is in flight", || gateway.admin.in_flight("m1") == 0);
    assert_eq!(number(&gateway, "inference_gateway_in_flight_requests", &[]), 0);
    soon("each has its line", || gateway.requests().len() == 2 * EACH);
    for line in gateway.requests() {
        let is_gone = line["x-request-id"].as_str().unwrap().starts_with("gone");
        let (outcome, tokens) = if is_gone { ("client_gone", Value::Null) } else { ("ok", Value::from(7)) };
        // Unknown is said as such: what the client saw of a stream is no usage.
        assert_eq!((&line["outcome"], &line["completion_tokens"]), (&Value::from(outcome), &tokens), "{line}");
        assert!(line["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{line}");
    }
    assert_eq!(tokens(&gateway), [11 * EACH as u64, 7 * EACH as u64]);
}

#[test]
fn j06_streams_without_usage_are_no_errors_and_have_no_time_between_one_token() {
    const STREAMS: usize = 1_000;
    let peer = peer(|exchange| {
        exchange.begin_stream();
        exchange.chunk(format!("{}{}", event(CONTENT), event("[DONE]")));
        exchange.end_chunks()
    });
    let gateway = gateway([&peer]);
    let before = gateway.log().lines().count();
    let requests: Vec<_> = (0..STREAMS).map(|n| request_bytes(CHATS, &format!("s-{n}"), &[], STREAM)).collect();
    for answer in pipelined(gateway.data, &requests) {
        assert_eq!(answer.status, 200);
    }
    soon("each has its line", || gateway.requests().len() == STREAMS);
    assert_eq!(number(&gateway, "inference_gateway_usage_missing_total", &[]), STREAMS as u64);
    assert_eq!((tokens(&gateway), count(&gateway, "ok")), ([0, 0], STREAMS as u64));
    let observed = |metric: &str| number(&gateway, metric, &[]);
    assert_eq!(observed("inference_gateway_time_to_first_token_seconds_count"), STREAMS as u64);
    assert_eq!(observed("inference_gateway_inter_token_seconds_count"), 0, "one token has no distance to another");
    let log = gateway.log();
    let others: Vec<_> = log.lines().skip(before).filter(|line| !line.contains(r#""message":"request""#)).collect();
    assert!(others.is_empty(), "{others:?}");
}

/// A vLLM page.
fn page(waiting: u32) -> MetricsPage {
    MetricsPage::vllm(waiting, 1, 0.1)
}

/// Pages are read and grow stale fast.
const FAST_SIGNALS: &str = "signals: {scrapeInterval: 50ms, staleAfter: 400ms}";

#[test]
fn j07_a_pool_that_nothing_is_known_of_does_not_look_idle() {
    let servers = [(); 2].map(|()| ModelServer::start(page(0)));
    let at = servers.each_ref().map(ModelServer::address);
    let gateway = Gateway::start(&Config::new([Scheduler::new("m1", at)]).line(FAST_SIGNALS));
    let state =
        |state: &str| gateway.admin.metric("inference_gateway_endpoint_state", &[&format!("state=\"{state}\"")]);
    let age = || gateway.admin.metric("inference_gateway_endpoint_signal_age_seconds", &[]).unwrap_or_default();
    soon("both are ready", || state("ready") == Some(2.0));
    assert!(gateway.admin.metric("inference_gateway_saturation", &[]).is_some_and(|share| share < 1.0));
    // All go on serving, and none tells of itself any more.
    servers.iter().for_each(|server| server.show(MetricsPage::Hang));
    soon("none is fresh", || (state("ready"), state("stale")) == (Some(0.0), Some(2.0)));
    assert_eq!(gateway.admin.metric("inference_gateway_own_signals_only", &[]), Some(1.0), "an alarm can be set on it");
    let seen = age();
    soon("their numbers grow old", || age() > seen + 1.0);
    assert_eq!(post(gateway.data, CHATS, CHAT).status, 200, "they serve on");
    servers.iter().for_each(|server| server.show(page(0)));
    soon("both are ready", || state("ready") == Some(2.0));
    // All are gone.
    gateway.apply(&Config::new([Scheduler::new("m1", [])]).line(FAST_SIGNALS));
    soon("nobody is left", || gateway.admin.pool("m1")["endpoints"].as_array().is_some_and(Vec::is_empty));
    assert_eq!(post(gateway.data, CHATS, CHAT).status, 503);
    assert_eq!(gateway.admin.metric("inference_gateway_saturation", &[]), Some(1.0), "no room is full, not idle");
    soon("the series of who left are gone, so that no mean is made of them", || {
        let gone = |name: &str| gateway.admin.metric(name, &[]).is_none();
        gone("inference_gateway_endpoint_waiting") && gone("inference_gateway_endpoint_kv_cache_ratio")
    });
}
