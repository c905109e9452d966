use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::json::tests::any_document;

fn read_as(api: Api, chunks: &[&[u8]]) -> Result<Head, HeadError> {
    let mut reader = Reader::new(api);
    for chunk in chunks {
        reader.feed(chunk)?;
    }
    reader.finish()
}

fn chat(body: &str) -> Result<Head, HeadError> {
    read_as(Api::ChatCompletions, &[body.as_bytes()])
}

fn chain(head: &Head, model: &str) -> Vec<u64> {
    let mut out = vec![7];
    head.prompt.chain(Seed { model }, &mut out);
    out
}

/// Everything a head says, to be compared.
fn facts(head: Head) -> (Model, [bool; 2], Option<u32>, u64, u64, u32, Vec<u64>) {
    let chain = chain(&head, "seed");
    let flags = [head.stream, head.include_usage];
    (head.model, flags, head.max_output_tokens, head.bytes, head.prompt.bytes(), head.prompt.images(), chain)
}

fn check_every_split(api: Api, body: &[u8]) {
    let whole = read_as(api, &[body]).map(facts);
    for split in 0..=body.len() {
        let (left, right) = body.split_at(split);
        assert_eq!(read_as(api, &[left, right]).map(facts), whole, "cut at {split}");
    }
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(read_as(api, &bytes).map(facts), whole, "byte by byte");
}

fn named(name: &str) -> Model {
    Model::Named(name.to_owned())
}

#[test]
fn a02_a_body_is_whole_or_it_is_cut_short() {
    let size = 65_536;
    let body = format!(r#"{{"model":"m1","prompt":"{}"}}"#, "p".repeat(size - 26));
    assert_eq!(body.len(), size);
    let head = chat(&body).unwrap();
    assert_eq!((head.model, head.bytes), (named("m1"), size as u64));
    let cut = chat(&body[..size - 1]).map(facts);
    assert_eq!(cut, Err(HeadError::Json { position: size as u64 - 1, what: JsonFault::CutShort }));
}

#[test]
fn a08_every_shape_of_prompt_passes() {
    let long = "x".repeat(600);
    for (api, member, value) in [
        (Api::ChatCompletions, "messages", json!([{"role": "user", "content": long}])),
        (
            Api::ChatCompletions,
            "messages",
            json!([{"role": "user", "content": [
            {"type": "text", "text": long}, {"type": "image_url", "image_url": {"url": "https://h/i.png"}}]}]),
        ),
        (Api::ChatCompletions, "messages", Value::Null),
        (Api::ChatCompletions, "messages", json!(7)),
        (Api::ChatCompletions, "messages", json!([{}])),
        (Api::Completions, "prompt", json!(long)),
        (Api::Completions, "prompt", json!([long, "b"])),
        (Api::Completions, "prompt", json!((0..200).collect::<Vec<_>>())),
        (Api::Completions, "prompt", json!([[1, 2], [3]])),
        (Api::Responses, "input", json!(long)),
        (Api::Responses, "input", json!([{"role": "user", "content": [{"type": "input_text", "text": long}]}])),
        (Api::Embeddings, "input", json!([long])),
        (Api::Rerank, "documents", json!([long, {"text": "b"}])),
        (Api::Score, "text_1", json!(long)),
        (Api::Tokenize, "prompt", json!(long)),
        (Api::Generate, "input_ids", json!((0..200).collect::<Vec<_>>())),
        (Api::Generate, "inputs", json!(long)),
    ] {
        let body = json!({"model": "m1", member: value}).to_string();
        let head = read_as(api, &[body.as_bytes()]).unwrap();
        assert_eq!(head.model, named("m1"));
        let is_long = value.to_string().len() > 300;
        assert_eq!(!chain(&head, "m1").is_empty(), is_long, "{body}");
        check_every_split(api, body.as_bytes());
    }
}

#[test]
fn a07_no_prompt_is_no_error() {
    for api in [Api::CountTokens, Api::Embeddings, Api::Tokenize, Api::Rerank, Api::Responses, Api::Extra] {
        let head = read_as(api, &[br#"{"model":"m1"}"#]).unwrap();
        assert_eq!((head.model.clone(), head.prompt.bytes()), (named("m1"), 0));
        assert!(chain(&head, "m1").is_empty());
    }
    let body = br#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(read_as(Api::CountTokens, &[body]).unwrap().model, named("m1"));
}

#[test]
fn a09_what_is_not_ours_passes() {
    let tools: Vec<_> = (0..47).map(|i| json!({"type": "function", "function": {"name": format!("f{i}")}})).collect();
    let head = chat(&json!({"model": "m1", "tools": tools, "unknown": {"a": [1]}}).to_string()).unwrap();
    assert_eq!(head.model, named("m1"));
    let head = chat(r#"{"n":18446744073709551617,"x":1e400,"stream":"yes","max_tokens":"many","model":"m1"}"#).unwrap();
    assert_eq!((head.model, head.stream, head.max_output_tokens), (named("m1"), false, None));
}

#[test]
fn a10_a_second_model_is_refused_wherever_it_stands() {
    let padding = "p".repeat(70_000);
    for body in [
        r#"{"model":"m1","model":"m2","stream":true}"#.to_owned(),
        r#"{"model":"m1","model":"m1"}"#.to_owned(),
        r#"{"model":"m1","mod\u0065l":"m2"}"#.to_owned(),
        r#"{"\u006d\u006f\u0064\u0065\u006c":"m1","model":"m2"}"#.to_owned(),
        format!(r#"{{"model":"m1","x":"{padding}","model":"m2"}}"#),
        r#"{"model":null,"model":"m2"}"#.to_owned(),
        r#"{"model":{"model":"m1"},"model":"m2"}"#.to_owned(),
        r#"{"model":["m1"],"model":"m2"}"#.to_owned(),
        // The engine would not read this one at all; the first thing wrong with it is said.
        r#"{"model":"m1","model":"#.to_owned(),
    ] {
        assert_eq!(chat(&body).map(facts), Err(HeadError::DuplicateModel), "{body:.80}");
    }
    for body in [
        r#"{"model":"m1","a":{"model":"m2","model":"m3"}}"#,
        r#"{"a":[{"model":"m2"}],"model":"m1","messages":[{"model":"m3"}]}"#,
        r#"{"model":"m1","x":1,"x":2,"stream":true,"stream":false}"#,
        r#"{"model":"m1","Model":"m2","model ":"m3"}"#,
    ] {
        assert_eq!(chat(body).unwrap().model, named("m1"), "{body}");
    }
}

#[test]
fn a16_broken_bodies_are_refused_with_a_position() {
    let position = |body: &[u8]| match read_as(Api::ChatCompletions, &[body]) {
        Err(HeadError::Json { position, .. }) => position,
        other => panic!("{:?}", other.map(facts)),
    };
    assert_eq!(read_as(Api::ChatCompletions, &[]).map(facts), Err(HeadError::Empty));
    assert_eq!(chat(" \n").map(facts), Err(HeadError::Empty));
    assert_eq!(position(b"{"), 1);
    assert_eq!(position(b"{'model':'m1'}"), 1);
    assert_eq!(position(br#"{"model":"m1",}"#), 14);
    assert_eq!(position(b"{\"model\":\"m1\" // c\n}"), 14);
    assert_eq!(position(b"\xef\xbb\xbf{\"model\":\"m1\"}"), 0);
    assert_eq!(position(b"{\"model\":\"m1\xff\"}"), 12);
    assert_eq!(position(br#"{"model":"m1"}{}"#), 14);
    assert_eq!(position(br#"{"model":"m1"} x"#), 15);
    for body in ["[]", r#""m1""#, "7", "null", "true"] {
        assert_eq!(chat(body).map(facts), Err(HeadError::NotAnObject), "{body}");
    }
    assert_eq!(chat(&"[".repeat(100_000)).map(facts), Err(HeadError::NotAnObject));
    let deep = format!(r#"{{"a":{}"#, "[".repeat(100_000));
    assert_eq!(chat(&deep).map(facts), Err(HeadError::TooDeep { max: 128 }));
    assert_eq!(chat(r#"{"model":7}"#).unwrap().model, Model::NotAString);

    let message = chat(r#"{"model":"m1",}"#).map(facts).unwrap_err().to_string();
    assert_eq!(
        message,
        "the body is not valid JSON: at byte 14, a member name in double quotes was expected; send one JSON object in UTF-8"
    );
}

#[test]
fn a17_the_model_is_read_alike_for_every_api() {
    for api in [Api::ChatCompletions, Api::Completions, Api::Messages, Api::Responses, Api::Embeddings] {
        let model = |body: &str| read_as(api, &[body.as_bytes()]).unwrap().model;
        assert_eq!(model(r#"{"model":"bogus"}"#), named("bogus"));
        assert_eq!(model(r#"{"input":"x","messages":[],"prompt":"x","model":"m2"}"#), named("m2"));
        assert_eq!(model(r#"{"model":""}"#), Model::Empty);
        assert_eq!(model("{}"), Model::Missing);
        for other in ["null", "7", "true", "[\"m1\"]", "{\"a\":\"m1\"}", "[]"] {
            assert_eq!(model(&format!(r#"{{"model":{other}}}"#)), Model::NotAString, "{other}");
        }
    }
}

#[test]
fn a_models_name_is_decoded_bounded_and_unicode() {
    for (body, name) in [
        (r#"{"model":"org\/name:7b"}"#, "org/name:7b"),
        (r#"{"model":"\u4f60\ud83d\ude00"}"#, "你😀"),
        (r#"{"model":"/mnt/models/x"}"#, "/mnt/models/x"),
        (r#"{ "model" : " m " }"#, " m "),
    ] {
        assert_eq!(chat(body).unwrap().model, named(name), "{body}");
        check_every_split(Api::ChatCompletions, body.as_bytes());
    }
    assert_eq!(chat(r#"{"model":"\ud800"}"#).map(facts), Err(HeadError::ModelNotUnicode));
    assert_eq!(chat(r#"{"model":"m","x":"\ud800"}"#).unwrap().model, named("m"));

    let of = |name: String| chat(&format!(r#"{{"model":"{name}"}}"#)).map(|head| head.model);
    let longest = "n".repeat(MODEL_BYTES_MAX);
    assert_eq!(of(longest.clone()), Ok(named(&longest)));
    assert_eq!(of(r"\u006e".repeat(MODEL_BYTES_MAX)), Ok(named(&longest)));
    let too_long = Err(HeadError::ModelTooLong { max: 1024 });
    assert_eq!(of("n".repeat(MODEL_BYTES_MAX + 1)), too_long);
    assert_eq!(of(r"\u006e".repeat(MODEL_BYTES_MAX + 1)), too_long);
    assert_eq!(of("n".repeat(1 << 20)), too_long);
    let escaped = format!(r#"{{"model":"{}"}}"#, r"\u006e".repeat(MODEL_BYTES_MAX));
    for size in [1, 7, 1000, 6143] {
        let chunks: Vec<&[u8]> = escaped.as_bytes().chunks(size).collect();
        assert_eq!(read_as(Api::ChatCompletions, &chunks).unwrap().model, named(&longest), "chunks of {size}");
    }
}

#[test]
fn an_error_stays() {
    let mut reader = Reader::new(Api::ChatCompletions);
    let first = reader.feed(b"{\"a\":tru,").unwrap_err();
    assert_eq!(reader.feed(br#""model":"m1"}"#), Err(first));
    assert_eq!(reader.finish().map(facts), Err(first));
}

#[test]
fn stream_and_usage_are_read() {
    let flags = |body: &str| chat(body).map(|head| (head.stream, head.include_usage)).unwrap();
    assert_eq!(flags(r#"{"stream":true}"#), (true, false));
    assert_eq!(flags(r#"{"stream":true,"stream_options":{"include_usage":true}}"#), (true, true));
    assert_eq!(
        flags(r#"{"stream_options":{"include_usage":true,"continuous_usage_stats":false},"stream":true}"#),
        (true, true)
    );
    for options in ["null", "{}", r#"{"include_usage":false}"#, r#""x""#, "[true]", r#"{"a":{"include_usage":true}}"#] {
        assert_eq!(flags(&format!(r#"{{"stream":true,"stream_options":{options}}}"#)), (true, false), "{options}");
    }
    assert_eq!(flags(r#"{"a":{"stream":true},"include_usage":true}"#), (false, false));
    // Of repeated members the last counts.
    assert_eq!(flags(r#"{"stream":true,"stream":null}"#), (false, false));
    assert_eq!(flags(r#"{"stream_options":{"include_usage":true},"stream_options":{}}"#), (false, false));
    assert!(read_as(Api::GenerateStream, &[br#"{"inputs":"x","stream":false}"#]).unwrap().stream);
}

#[test]
fn the_limit_of_tokens_has_many_names() {
    let limit = |body: &str| chat(body).unwrap().max_output_tokens;
    for (body, tokens) in [
        (r#"{"max_tokens":16}"#, Some(16)),
        (r#"{"max_tokens":16.0}"#, Some(16)),
        (r#"{"max_tokens":99999999999}"#, Some(u32::MAX)),
        (r#"{"max_tokens":-1}"#, None),
        (r#"{"max_tokens":1.5}"#, None),
        (r#"{"max_tokens":null}"#, None),
        (r#"{"max_tokens":16,"max_completion_tokens":32}"#, Some(32)),
        (r#"{"max_completion_tokens":32,"max_tokens":16}"#, Some(32)),
        (r#"{"max_completion_tokens":null,"max_tokens":16}"#, Some(16)),
        (r#"{"max_output_tokens":8}"#, Some(8)),
        (r#"{"parameters":{"max_new_tokens":20,"top_p":0.9}}"#, Some(20)),
        (r#"{"sampling_params":{"temperature":0,"max_new_tokens":20}}"#, Some(20)),
        (r#"{"sampling_params":{"max_tokens":21}}"#, Some(21)),
        (r#"{"sampling_params":{"a":{"max_tokens":21}}}"#, None),
        (r#"{"other":{"max_tokens":21}}"#, None),
    ] {
        assert_eq!(limit(body), tokens, "{body}");
    }
}

mod prefix {
    use super::*;

    fn of(body: &Value) -> Vec<u64> {
        chain(&chat(&body.to_string()).unwrap(), "m")
    }

    fn text(len: usize) -> String {
        let words = (0..len).map(|i| format!("word{i} ")).collect::<String>();
        words[..len].to_owned()
    }

    fn shared(left: &[u64], right: &[u64]) -> usize {
        left.iter().zip(right).take_while(|(left, right)| left == right).count()
    }

    #[test]
    fn a_longer_conversation_begins_with_the_shorter_ones_blocks() {
        let turn = |role: &str, len: usize| json!({"role": role, "content": text(len)});
        let first = of(&json!({"messages": [turn("system", 1000), turn("user", 500)]}));
        let second = of(&json!({"messages": [turn("system", 1000), turn("user", 500), turn("assistant", 700)]}));
        assert_eq!(first.len(), (1500 + 2 * 27 + 8) / BLOCK_BYTES);
        assert!(second.len() > first.len());
        assert!(shared(&first, &second) >= first.len() - 1);
    }

    #[test]
    fn the_order_of_members_and_white_space_do_not_matter() {
        let (messages, tools, system) = (text(900), text(300), text(100));
        let parts = [
            format!(r#""messages":[{{"role":"user","content":"{messages}"}}]"#),
            format!(r#""tools":[{{"name":"{tools}"}}]"#),
            format!(r#""system":"{system}""#),
            r#""model":"m""#.to_owned(),
        ];
        let reference = chain(&chat(&format!("{{{}}}", parts.join(","))).unwrap(), "m");
        assert!(reference.len() >= 4);
        for order in [[3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let body = order.map(|i| parts[i].clone()).join(",");
            assert_eq!(chain(&chat(&format!("{{{body}}}")).unwrap(), "m"), reference);
        }
        let spaced = format!(
            "{{ \"tools\" : [ {{ \"name\"\n:\t\"{tools}\" }} ],\r\n \"messages\":[{{\"role\": \"user\", \"content\" :\"{messages}\"}} ] , \"system\":\n\"{system}\"}}"
        );
        assert_eq!(chain(&chat(&spaced).unwrap(), "m"), reference);
    }

    #[test]
    fn a_difference_shows_from_its_block_on() {
        let base = text(2000);
        let reference = of(&json!({"prompt": base}));
        for at in [0, 300, 1000, 1700] {
            let mut other = base.clone();
            other.replace_range(at..=at, "#");
            let other = of(&json!({"prompt": other}));
            assert_eq!(shared(&reference, &other), (at + 2) / BLOCK_BYTES, "difference at {at}");
            assert!(!other[(at + 2) / BLOCK_BYTES..].iter().any(|hash| reference.contains(hash)));
        }
    }

    #[test]
    fn what_fills_no_block_still_tells_prompts_apart() {
        let messages = json!([{"role": "user", "content": text(600)}]);
        let with = |system: &str| of(&json!({"system": system, "messages": messages}));
        assert_eq!(with("be brief"), with("be brief"));
        assert_eq!(shared(&with("be brief"), &with("be kind")), 0);
        assert_eq!(shared(&with("be brief"), &of(&json!({"messages": messages}))), 0);
        assert_eq!(of(&json!({"messages": messages, "tools": []})).len(), of(&json!({"messages": messages})).len());
    }

    #[test]
    fn everything_that_makes_a_cache_entry_differ_makes_the_chain_differ() {
        let prompt = text(600);
        let plain = of(&json!({"prompt": prompt}));
        assert_eq!(plain.len(), 2);
        let bodies = [
            json!({"prompt": prompt, "cache_salt": "a"}),
            json!({"prompt": prompt, "cache_salt": "b"}),
            json!({"prompt": prompt, "lora_path": "a"}),
            json!({"prompt": prompt, "extra_key": "a"}),
            json!({"prompt": prompt, "chat_template": "a"}),
            json!({"prompt": prompt, "parameters": {"adapter_id": "a"}}),
            json!({"prompt": prompt, "cache_salt": text(700)}),
        ];
        let mut chains: Vec<_> = bodies.iter().map(of).collect();
        chains.push(plain.clone());
        chains.push(chain(&chat(&json!({"prompt": prompt}).to_string()).unwrap(), "adapter"));
        for (index, left) in chains.iter().enumerate() {
            // A salt has no blocks of its own: it is no prompt.
            assert_eq!(left.len(), plain.len());
            for right in &chains[..index] {
                assert_eq!(shared(left, right), 0);
            }
        }
        // Sampling does not matter to the cache.
        assert_eq!(of(&json!({"prompt": prompt, "temperature": 0.5, "parameters": {"top_p": 1}, "user": "u"})), plain);
    }

    #[test]
    fn files_count_as_what_they_are_and_not_as_their_bytes() {
        let with = |url: &str| {
            json!({"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text(600)}]}]})
        };
        let large = format!("data:image/png;base64,{}", "A".repeat(1 << 20));
        let (one, two) = (with(&large), with(&large.replace("AAAA", "BBBB")));
        let head = chat(&one.to_string()).unwrap();
        assert_eq!(head.prompt.images(), 1);
        assert!((600..800).contains(&head.prompt.bytes()), "{}", head.prompt.bytes());
        assert_eq!(of(&one).len(), of(&with("http://h/i.png")).len());
        assert_eq!(of(&one), of(&one));
        assert_eq!(shared(&of(&one), &of(&two)), 0);

        let anthropic = json!({"messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A".repeat(5000)}},
            {"type": "image", "source": {"type": "url", "url": "https://h/i"}}]}]});
        let responses = json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": large}]}]});
        let sglang = json!({"text": "describe", "image_data": ["A".repeat(5000), "B".repeat(5000)]});
        for (api, body, images) in
            [(Api::Messages, anthropic, 2), (Api::Responses, responses, 1), (Api::Generate, sglang, 0)]
        {
            let body = body.to_string();
            let head = read_as(api, &[body.as_bytes()]).unwrap();
            assert_eq!(head.prompt.images(), images, "{body:.60}");
            assert!(head.prompt.bytes() < 400, "{body:.60}");
            for size in [1, 100, 4096] {
                let chunks: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
                assert_eq!(facts(read_as(api, &chunks).unwrap()), facts(head.clone()));
            }
        }
    }

    #[test]
    fn token_ids_count_four_bytes_each() {
        for ids in [json!(vec![7; 1000]), json!(vec![123_456; 1000]), json!([vec![1; 500], vec![2; 500]])] {
            let head = chat(&json!({"prompt": ids}).to_string()).unwrap();
            assert!((3990..4020).contains(&head.prompt.bytes()), "{}", head.prompt.bytes());
        }
        assert_eq!(chat(r#"{"prompt":[]}"#).unwrap().prompt.bytes(), 3);
    }

    #[test]
    fn of_repeated_prompts_the_last_counts() {
        let (old, new) = (text(900), text(700).to_uppercase());
        let twice = format!(r#"{{"prompt":"{old}","prompt":"{new}"}}"#);
        let once = format!(r#"{{"prompt":"{new}"}}"#);
        let facts = |body: &str| (chain(&chat(body).unwrap(), "m"), chat(body).unwrap().prompt.bytes());
        assert_eq!(facts(&twice), facts(&once));
    }

    #[test]
    fn blocks_are_bounded() {
        let head = chat(&json!({"prompt": "y".repeat(3 << 20), "tools": "x".repeat(1 << 20)}).to_string()).unwrap();
        assert_eq!(chain(&head, "m").len(), BLOCKS_MAX);
        assert_eq!(head.prompt.bytes(), (4 << 20) + 6);
        let many: String = (0..5000).map(|_| format!(r#""prompt":"{}","#, "x".repeat(300))).collect();
        let head = chat(&format!(r#"{{{many}"model":"m"}}"#)).unwrap();
        assert_eq!(chain(&head, "m").len(), 1);
    }

    #[test]
    fn the_format_of_an_answer_is_no_prompt() {
        let body = json!({"text": {"format": {"type": "json_schema", "schema": text(600)}}}).to_string();
        assert!(chain(&read_as(Api::Responses, &[body.as_bytes()]).unwrap(), "m").is_empty());
        assert!(!chain(&read_as(Api::Generate, &[body.as_bytes()]).unwrap(), "m").is_empty());
    }
}

/// What a full parser makes of a body, by the rules written in the module's documentation.
fn oracle(body: &[u8]) -> Option<(Model, bool, bool)> {
    struct Members(Vec<(String, Box<serde_json::value::RawValue>)>);
    impl<'de> serde::Deserialize<'de> for Members {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visit;
            impl<'de> serde::de::Visitor<'de> for Visit {
                type Value = Members;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                    let mut members = Vec::new();
                    while let Some(entry) = map.next_entry::<String, Box<serde_json::value::RawValue>>()? {
                        members.push(entry);
                    }
                    Ok(Members(members))
                }
            }
            deserializer.deserialize_map(Visit)
        }
    }
    // Names with half a surrogate pair have no form in serde_json. The escape is six characters either way.
    let text = std::str::from_utf8(body).ok()?.replace("\\ud800", "\\u0041");
    let members = serde_json::from_str::<Members>(&text).ok()?.0;
    let last = |name: &str| members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.get());
    if members.iter().filter(|(key, _)| key == "model").count() > 1 {
        return None;
    }
    let model = match last("model").map(serde_json::from_str::<String>) {
        None => Model::Missing,
        Some(Ok(name)) if name.is_empty() => Model::Empty,
        Some(Ok(name)) => Model::Named(name),
        Some(Err(_)) => Model::NotAString,
    };
    let options = last("stream_options").and_then(|value| serde_json::from_str::<Members>(value).ok());
    let include_usage = options.is_some_and(|options| {
        options.0.iter().rev().find(|(key, _)| key == "include_usage").is_some_and(|(_, value)| value.get() == "true")
    });
    Some((model, last("stream") == Some("true"), include_usage))
}

/// Bodies that have our members, anywhere, repeated, spelled with escapes and with values of any kind.
fn any_body() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "model",
        "mod\\u0065l",
        "stream",
        "str\\u0065am",
        "stream_options",
        "messages",
        "prompt",
        "tools",
        "system",
        "max_tokens",
        "parameters",
        "cache_salt",
        "input",
        "x",
        "y",
        "",
    ]);
    let value = prop_oneof![
        3 => any_document(),
        2 => prop::sample::select(vec![
            "\"m1\"", "\"org\\/m:7b\"", "\"\\u4f60\"", "true", "{\"include_usage\":true}",
            "{\"include_usage\" : true, \"include_usage\":false}", "{\"max_new_tokens\":5,\"adapter_id\":\"a\"}",
            "[{\"role\":\"user\",\"content\":\"hi\"}]", "16",
        ]).prop_map(str::to_owned),
    ];
    let space = prop::sample::select(vec!["", " ", "\n"]);
    prop::collection::vec((name, value, space), 0..7).prop_map(|members| {
        let members: Vec<_> = members
            .iter()
            .map(|(name, value, space)| format!("{space}\"{name}\"{space}:{space}{value}{space}"))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

/// A body with its wish.
fn wished(body: &[u8], splice: Splice) -> Vec<u8> {
    let (at, removed) = (usize::try_from(splice.at).unwrap(), usize::try_from(splice.removed_bytes).unwrap());
    [&body[..at], splice.inserted.as_bytes(), &body[at + removed..]].concat()
}

#[test]
fn j12_usage_is_wished_for_where_it_is_missing_and_nothing_else_changes() {
    let stream = |options: &str| format!(r#" {{"model":"m","stream":true{options}, "x" : [1, 2] }}"#);
    let table = [
        ("", Some("at the end")),
        (r#", "stream_options": null"#, Some(r#", "stream_options": {"include_usage":true}"#)),
        (r#","stream_options":{}"#, Some(r#","stream_options":{"include_usage":true}"#)),
        (r#","stream_options":{ }"#, Some(r#","stream_options":{ "include_usage":true}"#)),
        (r#","stream_options":{"include_usage":false }"#, Some(r#","stream_options":{"include_usage":true }"#)),
        (r#","stream_options":{"include_usage": null}"#, Some(r#","stream_options":{"include_usage": true}"#)),
        (r#","stream_options":{"a":{"b":1}}"#, Some(r#","stream_options":{"a":{"b":1},"include_usage":true}"#)),
        (
            r#","stream_options":"x","stream_options":null"#,
            Some(r#","stream_options":"x","stream_options":{"include_usage":true}"#),
        ),
        (r#","stream_options":{"include_usage":true}"#, None),
        (r#","stream_options":{"include_usage":"x"}"#, None),
        (r#","stream_options":{"include_usage":{}}"#, None),
        (r#","stream_options":"x""#, None),
        (r#","stream_options":[]"#, None),
        (r#","stream_options":1"#, None),
        (r#","stream_options":null,"stream_options":"x""#, None),
    ];
    for (options, wanted) in table {
        let body = stream(options);
        let wanted = wanted.map(|wanted| match options {
            "" => body.replace(r#", "x" : [1, 2] }"#, r#", "x" : [1, 2] ,"stream_options":{"include_usage":true}}"#),
            _ => body.replace(options, wanted),
        });
        for split in 0..body.len() {
            let (left, right) = body.as_bytes().split_at(split);
            let head = read_as(Api::ChatCompletions, &[left, right]).unwrap();
            let got = head.usage_wish.map(|splice| wished(body.as_bytes(), splice));
            assert_eq!(got.as_deref(), wanted.as_ref().map(String::as_bytes), "{body} cut at {split}");
        }
    }
    for (api, body) in [
        (Api::ChatCompletions, r#"{"model":"m","stream":false,"stream_options":{"include_usage":false}}"#),
        (Api::ChatCompletions, r#"{"model":"m"}"#),
        (Api::Messages, r#"{"model":"m","stream":true}"#),
        (Api::Responses, r#"{"model":"m","stream":true}"#),
    ] {
        assert_eq!(read_as(api, &[body.as_bytes()]).unwrap().usage_wish, None, "{body}");
    }
    assert!(read_as(Api::Completions, &[br#"{"model":"m","stream":true}"#]).unwrap().usage_wish.is_some());
}

#[test]
fn a_body_that_ends_in_a_number_of_its_prompt_is_cut_short() {
    for body in [&b"{\"messages\":0"[..], b"{\"messages\":[1,23", b"{\"prompt\":-1.5e3", b"{\"input\": 7"] {
        for api in [Api::ChatCompletions, Api::Completions, Api::Responses] {
            let mut reader = Reader::new(api);
            reader.feed(body).unwrap();
            let error = reader.finish().unwrap_err();
            assert_eq!(error, HeadError::Json { position: body.len() as u64, what: JsonFault::CutShort });
        }
    }
}

proptest! {
    #[test]
    fn a_wish_is_read_as_one_and_leaves_the_rest(body in any_body()) {
        let Ok(head) = read_as(Api::ChatCompletions, &[body.as_bytes()]) else { return Ok(()) };
        let Some(splice) = head.usage_wish else { return Ok(()) };
        let wished = wished(body.as_bytes(), splice);
        let again = read_as(Api::ChatCompletions, &[&wished]).unwrap();
        prop_assert!(again.include_usage && again.stream && again.usage_wish.is_none(), "{}", body);
        prop_assert_eq!(again.model, head.model);
    }

    #[test]
    fn agrees_with_a_full_parser_at_every_cut(body in any_body()) {
        let got = read_as(Api::ChatCompletions, &[body.as_bytes()]);
        if got.as_ref().err() != Some(&HeadError::ModelNotUnicode) {
            let got = got.ok().map(|head| (head.model, head.stream, head.include_usage));
            prop_assert_eq!(got, oracle(body.as_bytes()), "{}", body);
        }
        check_every_split(Api::ChatCompletions, body.as_bytes());
    }

    #[test]
    fn agrees_with_a_full_parser_on_spoiled_bodies(
        body in any_body(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
    ) {
        let mut bytes = body.into_bytes();
        for (index, byte) in edits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let got = read_as(Api::ChatCompletions, &[&bytes]);
        if got.as_ref().err() != Some(&HeadError::ModelNotUnicode) {
            let got = got.ok().map(|head| (head.model, head.stream, head.include_usage));
            prop_assert_eq!(got, oracle(&bytes));
        }
        check_every_split(Api::ChatCompletions, &bytes);
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), prefix in any::<bool>()) {
        let mut body = if prefix { b"{\"messages\":".to_vec() } else { Vec::new() };
        body.extend(bytes);
        check_every_split(Api::ChatCompletions, &body);
    }
}

#[test]
fn another_name_can_be_put_where_the_model_stands() {
    for body in [
        r#"{"model":"llama","messages":[{"role":"user","content":"llama"}]}"#,
        r#" { "stream" : true , "model" : "ll\u0061m\"a" , "x" : { "model" : "y" } } "#,
        r#"{"model":"模型"}"#,
    ] {
        for split in 0..=body.len() {
            let (left, right) = body.as_bytes().split_at(split);
            let head = read_as(Api::ChatCompletions, &[left, right]).unwrap();
            let NameAt { at, bytes, form } = head.model_at.unwrap();
            let (from, to) = (usize::try_from(at).unwrap(), usize::try_from(at + bytes).unwrap());
            let put = [&body.as_bytes()[..from], form.written("a\"b\\").as_bytes(), &body.as_bytes()[to..]].concat();
            let again = read_as(Api::ChatCompletions, &[&put]).unwrap();
            assert_eq!(again.model, Model::Named("a\"b\\".into()), "{body} cut at {split}");
            assert_eq!(put.len() + usize::try_from(bytes).unwrap(), body.len() + r#"a\"b\\"#.len());
        }
    }
    for body in [r#"{"prompt":"a"}"#, r#"{"model":7}"#, r#"{"model":null}"#] {
        assert_eq!(chat(body).unwrap().model_at, None, "{body}");
    }
}
