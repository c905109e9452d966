//! What JSON bodies say, and what the gateway must not mind: it reads what it routes on and passes the bytes.

use harness::{post, request};

use crate::two_models::{CHAT, TwoModels};

const PATH: &str = "/v1/chat/completions";

#[test]
fn a08_a_shape_that_only_the_engine_can_judge_reaches_the_engine() {
    let scene = TwoModels::start();
    let table = [
        (PATH, r#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#),
        ("/v1/completions", r#"{"model":"m1","prompt":"one"}"#),
        ("/v1/completions", r#"{"model":"m1","prompt":["one","two"]}"#),
        ("/v1/completions", r#"{"model":"m1","prompt":[1,2,3]}"#),
        ("/v1/completions", r#"{"model":"m1","prompt":[[1,2],[3]]}"#),
        ("/v1/responses", r#"{"model":"m1","input":"one"}"#),
        ("/v1/responses", r#"{"model":"m1","input":[{"role":"user","content":"hi"}]}"#),
        (
            PATH,
            r#"{"model":"m1","messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}"#,
        ),
        (PATH, r#"{"model":"m1","messages":null}"#),
        (PATH, r#"{"model":"m1","messages":7}"#),
        (PATH, r#"{"model":"m1","messages":[{}]}"#),
        (PATH, r#"{"model":"m1"}"#),
    ];
    for (path, body) in table {
        let answer = post(scene.gateway.data, path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
    }
    let seen: Vec<_> = scene.m1.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(seen, table.map(|(_, body)| body.as_bytes().to_vec()));
    assert_eq!(scene.counted("ok"), 12.0);
}

#[test]
fn a08_the_engines_own_refusal_passes_unchanged() {
    let scene = TwoModels::start();
    let said = r#"{"object":"error","message":"messages must be a list","code":400}"#;
    scene.m1.follow(move |exchange| {
        exchange.answer("400 Bad Request", &[("content-type", "application/json"), ("x-engine", "e")], said)
    });
    let answer = post(scene.gateway.data, PATH, r#"{"model":"m1","messages":7}"#);
    assert_eq!((answer.status, answer.text().as_str(), answer.header("x-engine")), (400, said, Some("e")));
    let line = scene.gateway.request(answer.header("x-request-id").unwrap());
    assert_eq!(line["outcome"], "upstream_4xx", "{line}");
}

#[test]
fn a09_unknown_odd_and_huge_members_pass_byte_for_byte() {
    let scene = TwoModels::start();
    let tool = |index: usize| {
        format!(r#"{{"type":"function","function":{{"name":"f{index}","description":"{}"}}}}"#, "d".repeat(2400))
    };
    let tools: Vec<_> = (0..47).map(tool).collect();
    let bodies = [
        format!(r#"{{"tools":[{}],"messages":[{{"role":"user","content":"hi"}}],"model":"m1"}}"#, tools.join(",")),
        r#"{"model":"m1","tools":[{"type":"function","function":{"name":"f"}}],"x_new":{"a":[null,true]}}"#.into(),
        r#"{"seed":18446744073709551617,"temperature":1e400,"top_p":-0.0E-0,"model":"m1","n":0.10}"#.into(),
        "\t{ \"messages\" : [ ] ,\r\n \"model\"\n:\n\"m1\" } \n".into(),
        r#"{"model":"m1","messages":[{"role":"user","content":"\ud83d\ude00 \u00e9 \u0000 \/ é 😀 \ud800"}]}"#.into(),
        r#"{"a":1,"a":2,"model":"m1","stop":["\n"],"a":3}"#.into(),
        r#"{"model":"\u006d1","messages":[]}"#.into(),
    ];
    for body in &bodies {
        let answer = post(scene.gateway.data, PATH, body);
        assert_eq!(answer.status, 200, "{}: {}", &body[..60], answer.text());
    }
    assert!(bodies[0].len() > 115_000, "{}", bodies[0].len());
    let seen = scene.m1.seen();
    assert_eq!(seen.len(), bodies.len());
    for (seen, body) in seen.iter().zip(&bodies) {
        assert!(seen.body == body.as_bytes(), "other bytes came: {} of {}", seen.body.len(), body.len());
    }
}

#[test]
fn a10_two_models_are_refused_wherever_the_second_stands_and_however_it_is_spelt() {
    let scene = TwoModels::start();
    let far =
        format!(r#"{{"model":"m1","messages":[{{"role":"user","content":"{}"}}],"model":"m2"}}"#, "x".repeat(70_000));
    for body in [
        r#"{"model":"m1","model":"m2","stream":true}"#,
        r#"{"model":"m1","mod\u0065l":"m2"}"#,
        r#"{"mod\u0065l":"m2","model":"m1"}"#,
        r#"{"model":"m1","model":"m1"}"#,
        r#"{"model":null,"model":"m1"}"#,
        r#"{"model":"m1","model":null}"#,
        &far,
    ] {
        let answer = post(scene.gateway.data, PATH, body);
        scene.refused(&answer, 400, "invalid_request", None);
        assert!(answer.text().contains("twice"), "{}", answer.text());
    }
    let nested = r#"{"model":"m1","metadata":{"model":"m2","model":"m3"},"messages":[{"model":"m2"}]}"#;
    assert_eq!(post(scene.gateway.data, PATH, nested).status, 200, "what is nested names no model");
    assert_eq!((scene.m1.seen().len(), scene.m2.seen().len()), (1, 0));
}

#[test]
fn a11_the_rule_is_the_same_whatever_the_content_type_says() {
    let scene = TwoModels::start();
    let (bogus, m2) = (CHAT.replace("m1", "bogus"), CHAT.replace("m1", "m2"));
    for label in [
        "text/plain",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let of = |body: &str| request(scene.gateway.data, "POST", PATH, &[("content-type", label)], body);
        scene.refused(&of(&bogus), 404, "model_not_found", Some("model"));
        assert_eq!(of(&m2).status, 200, "{label}");
        let [seen] = &scene.m2.seen()[..] else { panic!("{label}") };
        assert_eq!(seen.header("content-type"), Some(label), "the label passes as it is");
        assert!(scene.m1.seen().is_empty(), "{label}");
        scene.m2.forget();
    }
    scene.refused(&request(scene.gateway.data, "POST", PATH, &[], &bogus), 404, "model_not_found", Some("model"));
    for label in
        ["application/json; charset=utf-16", "application/json;charset=\"UTF-16LE\"", "text/plain; x=1; Charset=utf-7"]
    {
        let answer = request(scene.gateway.data, "POST", PATH, &[("content-type", label)], CHAT);
        scene.refused(&answer, 415, "unsupported_encoding", None);
    }
    for label in ["application/json; charset=utf-8", "application/json; charset=\"UTF-8\"", "application/json"] {
        assert_eq!(request(scene.gateway.data, "POST", PATH, &[("content-type", label)], CHAT).status, 200, "{label}");
    }
}

#[test]
fn a11_two_content_types_are_refused_since_servers_differ_in_which_one_they_take() {
    let scene = TwoModels::start();
    let types = [("content-type", "application/json"), ("content-type", "application/json; charset=utf-16")];
    scene.refused(&request(scene.gateway.data, "POST", PATH, &types, CHAT), 400, "invalid_request", None);
}

#[test]
fn a16_malformed_bodies_are_400_that_say_where_and_the_gateway_lives() {
    let scene = TwoModels::start();
    let deep = "[".repeat(100_000);
    let deep_inside = format!(r#"{{"model":"m1","messages":{}"#, "[".repeat(100_000));
    let with = |extra: &[u8], at: usize| [&CHAT.as_bytes()[..at], extra, &CHAT.as_bytes()[at..]].concat();
    let quote = CHAT.find("hi").unwrap();
    let table: Vec<Vec<u8>> = vec![
        b"".into(),
        b"{".into(),
        b"{'model':'m1'}".into(),
        br#"{"model":"m1",}"#.into(),
        with(b" // c\n", CHAT.len() - 1),
        // The rule for a byte order mark: it is not JSON (RFC 8259 lets a receiver say so), and engines differ.
        with(b"\xef\xbb\xbf", 0),
        with(b"\xff", quote),
        b"[]".into(),
        br#""m1""#.into(),
        deep.into(),
        deep_inside.into(),
        with(b"{}", CHAT.len()),
        with(b"\0", CHAT.len()),
        with(b"\n", quote),
        br#"{"model":"m1","n":01}"#.into(),
        br#"{"model":"m1","n":NaN}"#.into(),
        CHAT.encode_utf16().flat_map(u16::to_le_bytes).collect(),
    ];
    let count = table.len();
    for body in table {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let answer = post(scene.gateway.data, PATH, &body);
        assert_eq!(answer.status, 400, "{shown:?}: {}", answer.text());
        scene.refused(&answer, 400, "invalid_request", None);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        let says_where = message.contains("byte ")
            || message.contains("empty")
            || message.contains("object")
            || message.contains("deep");
        assert!(says_where, "{shown:?}: {message}");
    }
    assert_eq!(scene.counted("invalid_request"), f64::from(u32::try_from(count).unwrap()));
    let half = post(scene.gateway.data, PATH, r#"{"model":"\ud800"}"#);
    scene.refused(&half, 400, "invalid_request", None);
    assert!(half.text().contains("surrogate"), "a name is Unicode: {}", half.text());
    scene.refused(&post(scene.gateway.data, PATH, r#"{"model":7}"#), 400, "model_required", Some("model"));
    assert_eq!(post(scene.gateway.data, PATH, CHAT).status, 200);
}

#[test]
fn stream_options_are_the_clients_own() {
    let scene = TwoModels::start();
    for body in [
        r#"{"model":"m1","stream":true,"messages":[]}"#,
        r#"{"model":"m1","stream":true,"stream_options":{"include_usage":false,"x":1},"messages":[]}"#,
    ] {
        scene.m1.forget();
        post(scene.gateway.data, PATH, body);
        assert_eq!(scene.m1.seen()[0].body, body.as_bytes(), "usage is never asked for behind the client's back");
    }
}
