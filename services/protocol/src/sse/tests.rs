use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Steps and end of a stream that is cut into these chunks.
fn read(api: Api, chunks: &[&[u8]]) -> (Vec<Step>, End) {
    let mut reader = Reader::new(api);
    let steps = chunks.iter().map(|chunk| reader.feed(chunk)).collect();
    (steps, reader.finish())
}

fn end(api: Api, stream: &[u8]) -> End {
    read(api, &[stream]).1
}

/// Checks that no cut changes anything, and gives what the stream is.
fn check_every_split(api: Api, stream: &[u8]) -> End {
    let whole = end(api, stream);
    let check = |chunks: &[&[u8]]| {
        let (steps, got) = read(api, chunks);
        assert_eq!(got, whole);
        let in_steps: u64 = steps.iter().map(|step| u64::from(step.content_events)).sum();
        // An event that lacks its blank line is found at the end alone.
        assert!(in_steps == whole.content_events || (!whole.at_event_boundary && in_steps + 1 == whole.content_events));
        let firsts: Vec<_> = steps.iter().filter(|step| step.first).collect();
        assert_eq!(firsts.len(), usize::from(in_steps > 0));
        assert!(firsts.iter().all(|step| step.content_events > 0));
    };
    for split in 0..=stream.len() {
        let (left, right) = stream.split_at(split);
        check(&[left, right]);
        check(&[left, b"", right]);
    }
    check(&stream.chunks(1).collect::<Vec<_>>());
    check(&stream.chunks(7).collect::<Vec<_>>());
    whole
}

fn events(data: &[Value]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

fn named(data: &[Value]) -> String {
    data.iter().map(|data| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())).collect()
}

fn delta(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}], "usage": null})
}

fn usage_event(prompt: u64, completion: u64) -> Value {
    json!({"id": "c", "choices": [], "usage": {"prompt_tokens": prompt, "total_tokens": prompt + completion,
        "completion_tokens": completion}})
}

fn usage(prompt_tokens: u64, cached_tokens: u64, completion_tokens: u64) -> Option<Usage> {
    Some(Usage { prompt_tokens, cached_tokens, completion_tokens })
}

#[test]
fn b01_usage_is_found_wherever_its_event_is_cut() {
    let mut stream = events(&[delta(json!({"role": "assistant", "content": ""})), delta(json!({"content": "Hi"}))]);
    stream.push_str("data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7}}\n\n");
    stream.push_str("data: [DONE]\n\n");
    let end = check_every_split(Api::ChatCompletions, stream.as_bytes());
    assert_eq!(
        end,
        End {
            usage: usage(11, 0, 7),
            error: None,
            finished: Finished::Done,
            at_event_boundary: true,
            content_events: 1,
            broke_off_in_usage: false,
        }
    );
}

#[test]
fn j12_the_event_of_usage_alone_is_told_from_all_others_wherever_it_is_cut() {
    let finish = r#"{"id":"c","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let error = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1},"error":{"message":"m"}}"#;
    let table = [
        (usage_event(11, 7).to_string(), Bearing::UsageAlone),
        (delta(json!({"content": "Hi"})).to_string(), Bearing::Other),
        (finish.to_owned(), Bearing::Other),
        (error.to_owned(), Bearing::Other),
        (r#"{"choices":[],"usage":null}"#.to_owned(), Bearing::Other),
        (r#"{"choices":[]}"#.to_owned(), Bearing::Other),
        (r#"{"usage":{"prompt_tokens":3,"completion_tokens":1}}"#.to_owned(), Bearing::Other),
        ("[DONE]".to_owned(), Bearing::Other),
    ];
    for line_end in ["\n", "\r\n", "\r"] {
        for (data, bearing) in &table {
            let event = format!("data: {data}{line_end}{line_end}");
            for split in 0..event.len() {
                let mut reader = Reader::new(Api::ChatCompletions);
                let mut found = Vec::new();
                let (left, right) = event.as_bytes().split_at(split);
                reader.feed_each(left, |_, bearing| found.push(bearing));
                reader.feed_each(right, |_, bearing| found.push(bearing));
                assert_eq!(found, [*bearing], "{data} cut at {split}");
            }
            let mut reader = Reader::new(Api::ChatCompletions);
            reader.feed(format!("data: {data}{line_end}").as_bytes());
            assert_eq!(reader.finish().broke_off_in_usage, *bearing == Bearing::UsageAlone, "{data}");
        }
    }
}

#[test]
fn b02_letters_are_cut_without_harm() {
    let stream =
        events(&vec![delta(json!({"content": "你好😀é"})); 4]) + &events(&[usage_event(1, 4)]) + "data: [DONE]\n\n";
    let end = check_every_split(Api::ChatCompletions, stream.as_bytes());
    assert_eq!((end.content_events, end.usage, end.finished), (4, usage(1, 0, 4), Finished::Done));
}

#[test]
fn b08_an_error_in_a_stream_is_an_error_and_says_whose() {
    let error = |data: Value| {
        let stream = events(&[data]) + "data: [DONE]\n\n";
        let end = check_every_split(Api::ChatCompletions, stream.as_bytes());
        assert_eq!((end.content_events, end.usage), (0, None));
        end.error
    };
    let is = |code, client_fault| Some(StreamError { code, client_fault });
    for (data, want) in [
        (json!({"error": {"message": "too long", "type": "BadRequestError", "code": 400}}), is(Some(400), true)),
        (
            json!({"error": {"message": "x", "type": "InternalServerError", "param": null, "code": 500}}),
            is(Some(500), false),
        ),
        (
            json!({"error": {"object": "error", "message": "x", "type": "x", "param": null, "code": 503}}),
            is(Some(503), false),
        ),
        (json!({"error": {"message": "x", "code": "503"}}), is(Some(503), false)),
        (json!({"error": {"message": "x", "type": "BadRequestError"}}), is(Some(400), true)),
        (json!({"error": {"message": "x", "type": "rate_limit_error", "code": "x"}}), is(Some(429), false)),
        (json!({"error": {"message": "x", "http_status_code": 422}}), is(Some(422), true)),
        (json!({"error": {"message": "x", "code": 424}}), is(Some(424), false)),
        (json!({"error": {"message": "x", "code": 17}}), is(None, false)),
        (json!({"error": {}}), is(None, false)),
        (json!({"error": "Unauthorized"}), is(None, false)),
        // Older vLLM: flat.
        (
            json!({"object": "error", "message": "x", "type": "BadRequestError", "param": null, "code": 400}),
            is(Some(400), true),
        ),
        (json!({"error": null}), None),
        (json!({"code": 400, "message": "x"}), None),
        (json!({"choices": [{"delta": {}, "error": {"code": 400}}]}), None),
    ] {
        assert_eq!(error(data.clone()), want, "{data}");
    }
    // The first error counts.
    let two = events(&[json!({"error": {"code": 400}}), json!({"error": {"code": 500}})]);
    assert_eq!(end(Api::ChatCompletions, two.as_bytes()).error, is(Some(400), true));
    // TGI's one status for everything is no client's fault once the request was being answered.
    let late = events(&[delta(json!({"content": "a"})), json!({"error": {"message": "x", "http_status_code": 422}})]);
    assert_eq!(end(Api::ChatCompletions, late.as_bytes()).error, is(Some(422), false));
}

#[test]
fn b09_comments_are_no_events() {
    let looks_like_data = format!(": {}\n\n", delta(json!({"content": "a"})));
    assert_eq!(check_every_split(Api::ChatCompletions, looks_like_data.as_bytes()).content_events, 0);
    let stream = format!(": keep-alive\n\n:\n\n{}: keep-alive\n\n", events(&[delta(json!({"content": "a"}))]));
    let (steps, end) = read(Api::ChatCompletions, &[b": keep-alive\n\n", stream.as_bytes()]);
    assert_eq!(steps[0], Step::default());
    assert_eq!(steps[1], Step { content_events: 1, first: true });
    assert!(end.at_event_boundary);
    check_every_split(Api::ChatCompletions, stream.as_bytes());
}

#[test]
fn b14_a_json_answer_read_as_a_stream_is_harmless() {
    let end = check_every_split(Api::ChatCompletions, br#"{"choices":[],"usage":{"prompt_tokens":1}}"#);
    assert_eq!((end.usage, end.error, end.finished), (None, None, Finished::Open));
    assert!(!end.at_event_boundary);
}

#[test]
fn j03_usage_counts_wherever_it_stands() {
    let (content, used, done) =
        (events(&[delta(json!({"content": "a"}))]), events(&[usage_event(11, 7)]), "data: [DONE]\n\n");
    for (chunks, finished) in [
        (vec![format!("{content}{used}{done}")], Finished::Done),
        (vec![content.clone(), format!("{used}{done}")], Finished::Done),
        (vec![content.clone(), used.clone(), done.to_owned()], Finished::Done),
        (vec![content.clone(), used.clone()], Finished::Open),
        (vec![used.clone(), content.clone(), done.to_owned()], Finished::Done),
        (vec![content.clone(), done.to_owned(), used], Finished::Done),
    ] {
        let chunks: Vec<&[u8]> = chunks.iter().map(String::as_bytes).collect();
        let end = read(Api::ChatCompletions, &chunks).1;
        assert_eq!((end.usage, end.finished), (usage(11, 0, 7), finished));
    }
}

#[test]
fn j04_the_last_complete_usage_counts_once() {
    let with = |usage: Value| json!({"choices": [{"delta": {"content": "a"}}], "usage": usage});
    let stream = events(&[
        with(json!({"prompt_tokens": 0, "completion_tokens": 0})),
        with(json!({"prompt_tokens": 11, "completion_tokens": 3})),
        with(json!({"prompt_tokens_details": {"cached_tokens": 4}})),
        with(json!(null)),
        with(json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18})),
    ]);
    let end = check_every_split(Api::ChatCompletions, stream.as_bytes());
    assert_eq!((end.usage, end.content_events), (usage(11, 4, 7), 5));
}

#[test]
fn what_is_content_and_what_is_not() {
    let count = |api: Api, data: Value| end(api, events(&[data]).as_bytes()).content_events;
    let chat = Api::ChatCompletions;
    for data in [
        delta(json!({"content": "a"})),
        delta(json!({"reasoning": "a", "content": null})),
        delta(json!({"reasoning_content": "a"})),
        delta(json!({"refusal": "no"})),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": ""}}]})),
        delta(json!({"function_call": {"arguments": "{"}})),
        delta(json!({"content": [{"type": "text", "text": "a"}]})),
        json!({"choices": [{"index": 0, "text": "a", "finish_reason": null}]}),
        json!({"choices": [{"index": 0, "token_ids": [5]}]}),
        json!({"choices": [{"delta": {"content": ""}}, {"delta": {"content": "a"}}]}),
    ] {
        assert_eq!(count(chat, data.clone()), 1, "{data}");
    }
    for data in [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": null, "role": "assistant", "content": ""})),
        delta(json!({"tool_calls": [], "content": null})),
        delta(json!({})),
        delta(json!(null)),
        usage_event(1, 2),
        json!({"choices": [{"index": 0, "text": "", "token_ids": []}]}),
        json!({"choices": null, "content": "a"}),
        json!({"x": {"choices": [{"delta": {"content": "a"}}]}}),
        json!([]),
        json!("a"),
        json!(7),
    ] {
        assert_eq!(count(chat, data.clone()), 0, "{data}");
    }
    // With the spaces that Python's json module writes.
    let spaced = b"data: {\"choices\": [{\"delta\": {\"content\": \"Hi\"}}], \"usage\": {\"prompt_tokens\": 2}}\n\n";
    let end = end(chat, spaced);
    assert_eq!((end.content_events, end.usage), (1, usage(2, 0, 0)));
}

#[test]
fn anthropics_events() {
    let stream = named(&[
        json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [],
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}),
        json!({"type": "message_stop"}),
    ]);
    let end = check_every_split(Api::Messages, stream.as_bytes());
    assert_eq!((end.usage, end.content_events, end.finished), (usage(35, 20, 15), 3, Finished::Done));

    for (kind, code, client_fault) in [
        ("overloaded_error", Some(503), false),
        ("invalid_request_error", Some(400), true),
        ("api_error", Some(500), false),
        ("strange_error", None, false),
    ] {
        let stream = named(&[json!({"type": "error", "error": {"type": kind, "message": "x"}})]);
        let end = check_every_split(Api::Messages, stream.as_bytes());
        assert_eq!(end.error, Some(StreamError { code, client_fault }));
        assert_eq!(end.finished, Finished::Open);
    }
    // In a chat completion this would be somebody's text, and no end.
    assert_eq!(
        super::tests::end(Api::ChatCompletions, b"data: {\"type\":\"message_stop\"}\n\n").finished,
        Finished::Open
    );
}

#[test]
fn the_responses_apis_events() {
    let stream = |last: Value| {
        named(&[
            json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "error": null, "usage": null}}),
            json!({"type": "response.output_text.delta", "delta": "Hi", "sequence_number": 4}),
            json!({"type": "response.function_call_arguments.delta", "delta": "{"}),
            json!({"type": "response.output_text.done", "text": "Hi"}),
            last,
        ])
    };
    let completed = stream(json!({"type": "response.completed", "response": {"error": null, "usage": {
        "input_tokens": 30, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 7}}}));
    let end = check_every_split(Api::Responses, completed.as_bytes());
    assert_eq!((end.usage, end.error), (usage(30, 20, 7), None));
    assert_eq!((end.content_events, end.finished), (2, Finished::Done));

    let failed =
        stream(json!({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}));
    let end = check_every_split(Api::Responses, failed.as_bytes());
    assert_eq!(end.error, Some(StreamError { code: Some(500), client_fault: false }));

    let error = stream(json!({"type": "error", "code": "context_length_exceeded", "message": "x", "param": null}));
    let end = check_every_split(Api::Responses, error.as_bytes());
    assert_eq!(end.error, Some(StreamError { code: Some(400), client_fault: true }));
    assert_eq!(end.finished, Finished::Open);
}

#[test]
fn the_engines_own_apis() {
    let tgi = events(&[
        json!({"index": 1, "token": {"id": 5, "text": "Hi", "special": false}, "generated_text": null, "details": null}),
        json!({"index": 2, "token": {"id": 2, "text": "", "special": true}, "generated_text": "Hi",
            "details": {"finish_reason": "eos_token", "generated_tokens": 2, "input_length": 9}}),
    ])
    .replace("data: ", "data:");
    let end = check_every_split(Api::GenerateStream, tgi.as_bytes());
    assert_eq!((end.usage, end.content_events, end.finished), (usage(9, 0, 2), 1, Finished::Done));

    let meta = |completion: u64| json!({"prompt_tokens": 4, "completion_tokens": completion, "cached_tokens": 3});
    let sglang = events(&[
        json!({"text": "H", "meta_info": meta(1)}),
        json!({"text": "Hi", "output_ids": [1, 2], "meta_info": meta(2)}),
    ]) + "data: [DONE]\n\n";
    let end = check_every_split(Api::Generate, sglang.as_bytes());
    assert_eq!((end.usage, end.content_events, end.finished), (usage(4, 3, 2), 2, Finished::Done));
}

#[test]
fn every_line_end_and_field_that_the_standard_has() {
    let data = delta(json!({"content": "a"})).to_string();
    for line_end in ["\n", "\r\n", "\r"] {
        let stream = [
            "\u{feff}event: message",
            &format!("data: {data}"),
            "id: 7",
            "retry: 10",
            "",
            &format!("data:{data}"),
            "",
            "data",
            "",
            "",
            "event",
            "",
            "datax: [DONE]",
            "dat: [DONE]",
            " data: [DONE]",
            "",
            ": data: [DONE]",
            "",
            "event: errors",
            "data: {}",
            "",
            "data: {\"choices\":",
            "data: [{\"text\":",
            "data: \"b\"}",
            "data: ]}",
            "",
            "data: [DONE]",
            "",
            "",
        ]
        .join(line_end);
        let end = check_every_split(Api::ChatCompletions, stream.as_bytes());
        assert_eq!((end.content_events, end.error, end.finished), (3, None, Finished::Done), "{line_end:?}");
        assert!(end.at_event_boundary);
    }
    let end = check_every_split(Api::ChatCompletions, b"event: error\ndata: what\n\n");
    assert_eq!(end.error, Some(StreamError { code: None, client_fault: false }));
    let done_alone = check_every_split(Api::ChatCompletions, b"\xef\xbb\xbfdata:[DONE]\n\n");
    assert_eq!(done_alone.finished, Finished::Done);
    for not_done in [
        "data: [DON]\n\n",
        "data: [done]\n\n",
        "data: x[DONE]\n\n",
        "data: {\"a\":\"[DONE]\"}\n\n",
        "data: [D\ndata: ONE]\n\n",
    ] {
        assert_eq!(check_every_split(Api::ChatCompletions, not_done.as_bytes()).finished, Finished::Open, "{not_done}");
    }
}

#[test]
fn the_end_says_whether_an_event_is_open() {
    for (stream, at_event_boundary) in [
        ("", true),
        ("data: {}\n\n", true),
        ("data: {}\r\n\r\n", true),
        (": c\n\n", true),
        ("data: {}\n", false),
        ("data: {\"choi", false),
        ("data: {}\n\nd", false),
        ("event: x\n", false),
        ("data: {}\n\nevent: x\n", false),
        (": c", false),
    ] {
        let end = check_every_split(Api::ChatCompletions, stream.as_bytes());
        assert_eq!(end.at_event_boundary, at_event_boundary, "{stream:?}");
    }
    // A stream that lacks nothing but its last blank line says all that it has to say.
    let end = check_every_split(Api::ChatCompletions, b"data: {\"usage\":{\"prompt_tokens\":3}}\n\ndata: [DONE]");
    assert_eq!((end.usage, end.finished), (usage(3, 0, 0), Finished::Done));
    // But half an event is none.
    let end = check_every_split(Api::ChatCompletions, b"data: {\"usage\":{\"prompt_tokens\":3}");
    assert_eq!(end.usage, None);
}

#[test]
fn broken_data_spoils_its_own_event_only() {
    for broken in ["nonsense", "{\"choices\":[", "{\"a\":1}}", "\u{1}", "{'a':1}"] {
        let stream = format!("data: {broken}\n\n{}", events(&[delta(json!({"content": "a"})), usage_event(2, 1)]));
        let end = check_every_split(Api::ChatCompletions, stream.as_bytes());
        assert_eq!((end.content_events, end.usage), (1, usage(2, 0, 1)), "{broken}");
    }
}

#[test]
fn no_line_is_too_long() {
    let long = "z".repeat(3 << 20);
    let stream = events(&[json!({"choices": [{"delta": {"content": long}}], "usage": {"prompt_tokens": 4}})]);
    let chunks: Vec<&[u8]> = stream.as_bytes().chunks(16_384).collect();
    let end = read(Api::ChatCompletions, &chunks).1;
    assert_eq!((end.content_events, end.usage), (1, usage(4, 0, 0)));
    let comment = format!(":{long}\n{}", events(&[usage_event(2, 1)]));
    assert_eq!(end_of(&comment), usage(2, 0, 1));
    let field = format!("{long}: x\n{}", events(&[usage_event(2, 1)]));
    assert_eq!(end_of(&field), usage(2, 0, 1));
}

fn end_of(stream: &str) -> Option<Usage> {
    end(Api::ChatCompletions, stream.as_bytes()).usage
}

/// A slow reading of the whole stream: lines by the standard, data by serde_json. Content events and done.
fn reference(stream: &[u8]) -> (u64, Finished, Option<u64>) {
    let text = String::from_utf8_lossy(stream).into_owned();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).replace("\r\n", "\n").replace('\r', "\n");
    let (mut content, mut finished, mut prompt) = (0, Finished::Open, None);
    let mut data: Vec<&str> = Vec::new();
    for line in text.split('\n').chain(["", ""]) {
        if !line.is_empty() {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            if name == "data" {
                data.push(value.strip_prefix(' ').unwrap_or(value));
            }
            continue;
        }
        let joined = std::mem::take(&mut data).join("\n");
        if joined.starts_with("[DONE]") {
            finished = Finished::Done;
        } else if let Ok(value) = serde_json::from_str::<Value>(&joined) {
            let pieces = value["choices"].as_array().cloned().unwrap_or_default();
            let has_text = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
            content += u64::from(pieces.iter().any(|c| has_text(&c["delta"]["content"]) || has_text(&c["text"])));
            prompt = value["usage"]["prompt_tokens"].as_u64().or(prompt);
        }
    }
    (content, finished, prompt)
}

/// Streams of lines that are fields of all kinds, with line ends of all kinds.
fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        "[a-z 你é\\\\\"]{0,6}".prop_map(|text| json!({"choices": [{"delta": {"content": text}}]}).to_string()),
        "[a-z]{0,2}".prop_map(|text| json!({"choices": [{"text": text}]}).to_string()),
        (1..99_u64).prop_map(|tokens| json!({"choices": [], "usage": {"prompt_tokens": tokens}}).to_string()),
        Just("[DONE]".to_owned()),
        "[ -~]{0,8}",
    ];
    let line = prop_oneof![
        6 => data.prop_map(|data| format!("data: {data}")),
        1 => "[ -~]{0,9}",
        1 => Just("data:".to_owned()),
        1 => "event: [a-z]{0,3}",
        1 => Just(": comment".to_owned()),
        5 => Just(String::new()),
    ];
    let end = prop::sample::select(vec!["\n", "\n", "\r\n", "\r"]);
    prop::collection::vec((line, end), 0..16)
        .prop_map(|lines| lines.into_iter().flat_map(|(line, end)| (line + end).into_bytes()).collect())
}

proptest! {
    #[test]
    fn agrees_with_a_slow_reading_at_every_cut(stream in any_stream()) {
        let end = check_every_split(Api::ChatCompletions, &stream);
        let prompt = end.usage.map(|usage| usage.prompt_tokens);
        prop_assert_eq!((end.content_events, end.finished, prompt), reference(&stream));
    }

    #[test]
    fn any_bytes_are_read_the_same_however_they_are_cut(
        stream in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"data: {}\n\r[]\"".to_vec())], 0..60),
    ) {
        check_every_split(Api::ChatCompletions, &stream);
    }
}
