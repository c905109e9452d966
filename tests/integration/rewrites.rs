//! Rewrites of models: what the endpoint is asked for, what the client is told, and who is counted.

use harness::{Answer, Config, Connection, Exchange, Gateway, Next, Peer, Scheduler, request, soon};
use serde_json::{Value, json};

use crate::rig::{CHATS, number, peer, request_bytes};

const REWRITES: &str = "inference_gateway_model_rewrites_total";

fn rewrite(name: &str, pool: &str, rules: &str) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceModelRewrite\nmetadata: {{name: {name}}}\n\
         spec: {{poolRef: {{name: {pool}}}, rules: [{rules}]}}"
    )
}

/// An engine that says which model it was asked for, where answers say that and where they do not.
fn engine() -> Peer {
    peer(|exchange| {
        let body: Value = serde_json::from_slice(&exchange.request.body).unwrap_or_default();
        let model = body["model"].as_str().unwrap_or("none").to_owned();
        if body["stream"] == true {
            return stream(exchange, &model);
        }
        let said = json!({"id": "c", "object": "chat.completion", "model": model, "choices": [{"index": 0,
            "message": {"role": "assistant", "content": format!("\"model\":\"{model}\"")}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}});
        exchange.answer("200 OK", &[("content-type", "application/json")], said.to_string())
    })
}

/// A stream whose chunks end in the middle of the name.
fn stream(exchange: &mut Exchange, model: &str) -> Next {
    exchange.begin_stream();
    let event = |content: &str| {
        let choice = json!({"index": 0, "delta": {"content": content}, "finish_reason": null});
        format!("data: {}\n\n", json!({"id": "c", "model": model, "choices": [choice]}))
    };
    for content in ["first", model] {
        let event = event(content);
        let (begin, rest) = event.split_at(event.rfind(model).expect("the event names the model") + 2);
        exchange.chunk(begin);
        exchange.chunk(rest);
    }
    exchange.event("[DONE]");
    exchange.end_chunks()
}

fn config(peer: &Peer, rules: &str) -> Config {
    Config::plain("m1", [peer.address]).document(&rewrite("canary", "m1", rules))
}

fn chat(model: &str, more: &str) -> String {
    format!(r#"{{ "model" : "{model}" ,{more} "messages":[{{"role":"user","content":"say {model}"}}]}}"#)
}

fn ask(gateway: &Gateway, id: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut connection = Connection::open(gateway.data);
    connection.send(request_bytes(CHATS, id, headers, body)).expect("a request can be sent");
    connection.answer().unwrap_or_else(|error| panic!("no answer to {id}: {error}"))
}

/// What the peer was asked for, its own looks apart.
fn asked(peer: &Peer) -> Vec<String> {
    let bodies = peer.seen().into_iter().filter(|seen| seen.line.starts_with("POST")).map(|seen| seen.body);
    bodies.map(|body| String::from_utf8(body).expect("bodies are texts")).collect()
}

#[test]
fn an_endpoint_is_asked_for_the_target_and_the_client_told_what_it_asked_for() {
    let peer = engine();
    let rules = "{matches: [{model: {value: m1}}], targets: [{modelRewrite: 'tuned \"2\"'}]}";
    let gateway = Gateway::start(&config(&peer, rules));
    let client = [
        ("x-llm-d-model-name-rewrite", "mine"),
        ("x-gateway-model-name-rewrite", "mine"),
        ("accept-encoding", "gzip"),
        ("x-gateway-model-name", "mine"),
    ];
    let body = chat("m1", "");
    let answer = ask(&gateway, "a", &client, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    // One place of the body has changed, and its length was said.
    assert_eq!(asked(&peer), [body.replacen("\"m1\"", r#""tuned \"2\"""#, 1)]);
    let seen = peer.seen().into_iter().find(|seen| seen.line.starts_with("POST")).unwrap();
    assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string().as_str()));
    assert_eq!(seen.header("x-gateway-model-name"), Some("tuned \"2\""));
    assert_eq!(seen.header("x-gateway-base-model-name"), Some("m1"));
    for control in ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite", "accept-encoding"] {
        assert_eq!(seen.header(control), None);
    }
    // The answer's own member is turned back, and what the model says stays.
    assert_eq!(answer.json()["model"], "m1");
    assert_eq!(answer.json()["choices"][0]["message"]["content"], r#""model":"tuned "2"""#);
    let line = gateway.request("a");
    assert_eq!((&line["modelName"], &line["outcome"], &line["prompt_tokens"]), (&json!("m1"), &json!("ok"), &json!(9)));
    assert_eq!(number(&gateway, REWRITES, &[r#"pool="m1""#]), 1);
}

#[test]
fn a_stream_says_what_was_asked_for_however_its_chunks_are_cut() {
    let peer = engine();
    let gateway = Gateway::start(&config(&peer, "{targets: [{modelRewrite: m1-tuned}]}"));
    let answer = ask(&gateway, "a", &[], &chat("m1", r#""stream":true,"#));
    let events: Vec<Value> = answer
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("data: ").filter(|data| *data != "[DONE]"))
        .map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
        .collect();
    let of = |event: &Value| (event["model"].clone(), event["choices"][0]["delta"]["content"].clone());
    assert_eq!(
        events.iter().map(of).collect::<Vec<_>>(),
        [(json!("m1"), json!("first")), (json!("m1"), json!("m1-tuned"))],
        "{}",
        answer.text()
    );
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(gateway.request("a")["outcome"], "ok");
}

#[test]
fn targets_get_their_shares_and_every_draw_is_counted() {
    let peer = engine();
    let rules =
        "{matches: [{model: {value: m1}}], targets: [{weight: 3, modelRewrite: m1}, {weight: 1, modelRewrite: new}]}";
    let gateway = Gateway::start(&config(&peer, rules));
    let body = chat("m1", "");
    let mut connection = Connection::open(gateway.data);
    for call in 0..200 {
        connection.send(request_bytes(CHATS, &format!("call-{call}"), &[], &body)).unwrap();
        let answer = connection.answer().unwrap();
        assert_eq!((answer.status, &answer.json()["model"]), (200, &json!("m1")));
    }
    let (new, old): (Vec<String>, Vec<String>) = asked(&peer).into_iter().partition(|body| body.contains("\"new\""));
    // 50 of 200 are due; five standard deviations are 31.
    assert!((19..=81).contains(&new.len()), "{}", new.len());
    assert!(old.iter().all(|kept| *kept == body), "what keeps its name is not touched");
    let counted = |target: &str| number(&gateway, REWRITES, &[&format!("target=\"{target}\"")]);
    assert_eq!((counted("new"), counted("m1")), (new.len() as u64, old.len() as u64));
    let of_model = |model: &str| {
        let labels = [format!("model=\"{model}\""), r#"outcome="ok""#.to_owned()];
        number(&gateway, "inference_gateway_requests_total", &[&labels[0], &labels[1]])
    };
    assert_eq!((of_model("new"), of_model("m1")), (new.len() as u64, old.len() as u64));
}

#[test]
fn a_rule_for_the_model_counts_before_one_for_all_and_each_pool_has_its_own() {
    let (first, second) = (engine(), engine());
    let scheduler = |model: &str, peer: &Peer| Scheduler::new(model, [peer.address]).line("engineType: none");
    let config = Config::new([scheduler("m1", &first), scheduler("m2", &second).line("loraAdapters: [sql]")])
        .document(&rewrite("a", "m2", "{targets: [{modelRewrite: sql}]}"))
        .document(&rewrite(
            "b",
            "m2",
            "{matches: [{model: {value: alias}}, {model: {value: m1}}], targets: [{modelRewrite: m2}]}",
        ));
    let gateway = Gateway::start(&config);
    for (model, told) in [("m1", "m1"), ("m2", "m2"), ("alias", "alias"), ("sql", "sql")] {
        assert_eq!(ask(&gateway, model, &[], &chat(model, "")).json()["model"], told);
    }
    assert_eq!(ask(&gateway, "x", &[], &chat("nobody", "")).status, 404);
    assert_eq!(asked(&first), [chat("m1", "")], "a rewrite is for the requests of its pool");
    let targets: Vec<bool> = asked(&second).iter().map(|body| body.contains("\"sql\" ,")).collect();
    assert_eq!(targets, [true, false, true]);
    assert_eq!(gateway.request("alias")["pool"], "m2");
}

#[test]
fn a_forms_model_is_rewritten_too() {
    let peer = engine();
    let gateway = Gateway::start(&config(&peer, "{targets: [{modelRewrite: whisper-large}]}"));
    let form = "--XyZ\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm1\r\n--XyZ\r\nContent-Disposition: form-data; \
                name=\"file\"; filename=\"a.mp3\"\r\n\r\nm1\r\n--XyZ--\r\n";
    let headers = [("content-type", "multipart/form-data; boundary=XyZ")];
    let answer = request(gateway.data, "POST", "/v1/audio/transcriptions", &headers, form);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(asked(&peer), [form.replacen("m1", "whisper-large", 1)]);
}

#[test]
fn limits_see_the_target_and_a_change_counts_at_once() {
    let peer = engine();
    let limit = "limits: [{name: new, key: {header: x-team}, models: [new], requestsPerMinute: 1}]";
    let scheduler = Scheduler::new("m1", [peer.address]).line("engineType: none").line("loraAdapters: [new]");
    let plain = Config::new([scheduler]).line(limit);
    let gateway = Gateway::start(&plain.clone().document(&rewrite("a", "m1", "{targets: [{modelRewrite: new}]}")));
    let status = |id: &str| ask(&gateway, id, &[("x-team", "blue")], &chat("m1", "")).status;
    assert_eq!((status("a"), status("b")), (200, 429));
    gateway.apply(&plain);
    soon("the rewrite is gone", || status("c") == 200);
    assert!(asked(&peer).last().is_some_and(|body| body.contains("\"m1\" ,")));
}
