use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::json::tests::any_document;

fn read(chunks: &[&[u8]]) -> Option<Usage> {
    let mut reader = Reader::new();
    for chunk in chunks {
        reader.feed(chunk);
    }
    reader.finish()
}

fn check_every_split(answer: &[u8]) -> Option<Usage> {
    let whole = read(&[answer]);
    for split in 0..=answer.len() {
        let (left, right) = answer.split_at(split);
        assert_eq!(read(&[left, right]), whole, "cut at {split}");
    }
    whole
}

fn usage(prompt_tokens: u64, cached_tokens: u64, completion_tokens: u64) -> Option<Usage> {
    Some(Usage { prompt_tokens, cached_tokens, completion_tokens })
}

#[test]
fn every_engine_and_api() {
    for (answer, want) in [
        (
            json!({"id": "chatcmpl-1", "choices": [{"message": {"content": "hi", "usage": {"prompt_tokens": 99}}}],
                "usage": {"prompt_tokens": 9, "total_tokens": 11, "completion_tokens": 2,
                          "prompt_tokens_details": {"cached_tokens": 8},
                          "completion_tokens_details": {"cached_tokens": 77, "reasoning_tokens": 1}}}),
            usage(9, 8, 2),
        ),
        (json!({"usage": {"prompt_tokens": 5, "total_tokens": 5, "prompt_tokens_details": null}}), usage(5, 0, 0)),
        (
            json!({"object": "response", "output": [], "usage": {"input_tokens": 30, "output_tokens": 7,
                "input_tokens_details": {"cached_tokens": 20}}}),
            usage(30, 20, 7),
        ),
        (
            json!({"type": "message", "usage": {"input_tokens": 10, "cache_read_input_tokens": 20,
                "cache_creation_input_tokens": 5, "output_tokens": 7}}),
            usage(35, 20, 7),
        ),
        (
            json!({"text": "x", "meta_info": {"prompt_tokens": 4, "completion_tokens": 3, "cached_tokens": 1}}),
            usage(4, 1, 3),
        ),
        (
            json!([{"meta_info": {"prompt_tokens": 4, "completion_tokens": 3, "cached_tokens": 1}},
                   {"meta_info": {"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 0}}]),
            usage(9, 1, 5),
        ),
        (json!({"generated_text": "x", "details": {"generated_tokens": 6, "input_length": 12}}), usage(12, 0, 6)),
        // Half of it would be a guess.
        (json!({"generated_text": "x", "details": {"generated_tokens": 6}}), None),
        (json!({"usage": {"completion_tokens": 2}}), None),
        (json!({"usage": {"type": "duration", "seconds": 3}}), None),
        (json!({"usage": null}), None),
        (json!({"usage": [{"prompt_tokens": 9}]}), None),
        (json!({"usage": {"prompt_tokens": "9"}}), None),
        (json!({"a": {"usage": {"prompt_tokens": 9}}}), None),
        (json!([]), None),
        (json!("usage"), None),
        (json!({"error": {"message": "no", "code": 400}}), None),
        // Nothing sensible can have more cached than there is.
        (json!({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 50}}}), usage(5, 5, 0)),
    ] {
        assert_eq!(check_every_split(answer.to_string().as_bytes()), want, "{answer}");
        assert_eq!(check_every_split(serde_json::to_string_pretty(&answer).unwrap().as_bytes()), want, "{answer}");
    }
}

#[test]
fn what_is_no_json_has_no_usage() {
    for answer in
        [&b""[..], b"not json", br#"{"usage":{"prompt_tokens":9}"#, br#"{"usage":{"prompt_tokens":9}}}"#, b"\xff"]
    {
        assert_eq!(check_every_split(answer), None);
    }
    let deep = format!(r#"{{"usage":{{"prompt_tokens":9}},"x":{}{}}}"#, "[".repeat(1000), "]".repeat(1000));
    assert_eq!(read(&[deep.as_bytes()]), None);
}

#[test]
fn a_large_answer_is_read_to_its_end() {
    let mut answer = json!({"data": [{"embedding": vec![0.123_456; 20_000]}]}).to_string();
    answer.pop();
    answer.push_str(r#","usage":{"prompt_tokens":5,"total_tokens":5}}"#);
    let chunks: Vec<&[u8]> = answer.as_bytes().chunks(1000).collect();
    assert_eq!(read(&chunks), usage(5, 0, 0));
}

proptest! {
    #[test]
    fn any_bytes_are_read_the_same_however_they_are_cut(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(check_every_split(&bytes), None);
    }

    #[test]
    fn usage_is_found_among_anything(before in any_document(), after in any_document(), prompt in any::<u32>()) {
        let answer = format!(r#"{{"x":{before},"usage":{{"prompt_tokens":{prompt},"y":{after}}},"z":{after}}}"#);
        prop_assert_eq!(check_every_split(answer.as_bytes()), usage(u64::from(prompt), 0, 0));
    }
}

#[test]
fn numbers_that_no_request_could_take_are_no_usage() {
    let answer = |prompt: f64, completion: f64| {
        json!({"usage": {"prompt_tokens": prompt, "completion_tokens": completion}}).to_string()
    };
    for (prompt, completion) in [(1e30, 1.0), (1.0, 1e30), (f64::from(u32::MAX) * 2.0, 1.0)] {
        assert_eq!(read(&[answer(prompt, completion).as_bytes()]), None, "{prompt} {completion}");
    }
    let largest = json!({"usage": {"prompt_tokens": TOKENS_MAX, "completion_tokens": TOKENS_MAX}}).to_string();
    assert_eq!(read(&[largest.as_bytes()]), usage(TOKENS_MAX, 0, TOKENS_MAX));
}
