use proptest::prelude::*;

use super::*;

fn passed(mut renamer: Renamer, chunks: &[&[u8]]) -> String {
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend_from_slice(&renamer.pass(&Bytes::copy_from_slice(chunk)));
    }
    out.extend_from_slice(&renamer.rest());
    String::from_utf8(out).unwrap()
}

/// However it is cut: whole, in two at every place, and byte by byte.
fn renamed(make: fn(&str, &str) -> Renamer, text: &str, wanted: &str) {
    for split in 0..=text.len() {
        let (left, right) = text.as_bytes().split_at(split);
        assert_eq!(passed(make("target", "asked \"x\""), &[left, b"", right]), wanted, "{text:?} cut at {split}");
    }
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    assert_eq!(passed(make("target", "asked \"x\""), &bytes), wanted, "{text:?} byte by byte");
}

const ASKED: &str = r#"asked \"x\""#;

#[test]
fn the_model_of_a_document_is_turned_back_and_nothing_else() {
    for text in [
        r#"{"id":"c","model":"MODEL","choices":[{"message":{"content":"\"model\":\"target\"","model":"target"}}]}"#,
        r#"{ "choices" : [ { "model" : "target" } ] , "model" : "MODEL" }"#,
        r#"{"message":{"id":"m","model":"MODEL","content":[{"model":"target"}],"usage":{"model":"target"}},"model":"MODEL"}"#,
        r#"{"response":{"model":"MODEL"},"other":{"model":"target"},"message":"target"}"#,
        r#"{"model":"targets","models":"target","Model":"target","x":"model","y":"target"}"#,
        r#"{"model":"targe","model":null,"model":{"model":"target"},"model":["target"],"model":"MODEL"}"#,
        r#"["target",{"model":"target"}]"#,
        r#"{"usage":{"response":{"model":"target"}}}"#,
    ] {
        renamed(Renamer::of_json, &text.replace("MODEL", "target"), &text.replace("MODEL", ASKED));
    }
    // Written otherwise, it is the same name.
    renamed(Renamer::of_json, r#"{"m\u006fdel":"t\u0061rget"}"#, &format!(r#"{{"m\u006fdel":"{ASKED}"}}"#));
}

#[test]
fn what_is_no_json_passes_as_it_came() {
    for text in [
        "",
        "target",
        r#"{"model":"target"#,
        r#"{"model":"tar"#,
        "{\"model\":\"tar\nget\"}",
        r#"{"model":"\x"}"#,
        "\u{feff}{\"model\":\"target\"}",
    ] {
        renamed(Renamer::of_json, text, text);
    }
}

#[test]
fn every_event_of_a_stream_is_turned_back() {
    for end in ["\n", "\r\n", "\r"] {
        let stream = [
            r#"data: {"model":"MODEL","choices":[{"delta":{"content":"target"}}]}"#,
            "",
            r"event: message_start",
            r#"data:{"type":"message_start","message":{"model":"MODEL"}}"#,
            "",
            r#": "model":"target""#,
            r#"date: {"model":"target"}"#,
            r#"data: {"model":"#,
            r#"data: "MODEL"}"#,
            "",
            r#"data: {"model":"tar"#,
            "",
            "data",
            "data: [DONE]",
            "",
            r#"data: {"model":"MODEL"}"#,
            "",
        ]
        .join(end);
        renamed(Renamer::of_events, &stream.replace("MODEL", "target"), &stream.replace("MODEL", ASKED));
    }
}

#[test]
fn what_needs_no_change_is_not_copied_and_long_names_do_not_wait() {
    let mut renamer = Renamer::of_json("target", "asked");
    let chunk = Bytes::from_static(br#"{"model":"other","a":1}"#);
    assert_eq!(renamer.pass(&chunk).as_ptr(), chunk.as_ptr());
    let long = format!("{{\"model\":\"{}", "x".repeat(2 * value::HELD_BYTES_MAX));
    let mut renamer = Renamer::of_json("target", "asked");
    assert_eq!(renamer.pass(&Bytes::from(long.clone())).len(), long.len());
    assert_eq!(renamer.pass(&Bytes::from_static(b"target\"}")), "target\"}");
    assert!(renamer.rest().is_empty());
}

proptest! {
    /// Between two names that are not there, every byte passes; and there and back again is where one began.
    #[test]
    fn any_bytes_pass_and_come_back(
        bytes in prop::collection::vec(prop::sample::select(b"{}[]:,\"\\ \n\rdatmoelb1".to_vec()), 0..80),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        in_events in any::<bool>(),
    ) {
        let make = if in_events { Renamer::of_events } else { Renamer::of_json };
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let chunks: Vec<&[u8]> = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        let text = String::from_utf8(bytes.clone()).unwrap();
        prop_assert_eq!(passed(make("no such name", "x"), &chunks), text.clone());
        prop_assert_eq!(passed(make("lab", "lab"), &chunks), text);
    }
}
