use std::convert::Infallible;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// Writes down what it is told, so that two readings can be compared.
#[derive(Default)]
struct Scribe(String);

impl Visitor for Scribe {
    type Stop = Infallible;

    fn open(&mut self, kind: Kind, depth: u32) -> Result<(), Infallible> {
        write!(self.0, "{kind:?}@{depth} ").unwrap();
        Ok(())
    }

    fn close(&mut self, depth: u32, _: &[u8], _: usize) {
        write!(self.0, "/{depth} ").unwrap();
    }

    fn key(&mut self, name: Text<'_>, depth: u32, _: usize) -> Result<(), Infallible> {
        write!(self.0, "{:?}@{depth}: ", name.decode()).unwrap();
        Ok(())
    }

    fn scalar(&mut self, value: Scalar<'_>, depth: u32, _: &[u8], _: usize) -> Result<(), Infallible> {
        match value {
            Scalar::String(text) => write!(self.0, "{:?}/{}@{depth} ", text.decode(), text.raw_len).unwrap(),
            Scalar::Number(text) => write!(self.0, "{:?}@{depth} ", text.decode()).unwrap(),
            other @ (Scalar::True | Scalar::False | Scalar::Null) => write!(self.0, "{other:?}@{depth} ").unwrap(),
        }
        Ok(())
    }
}

fn read(chunks: &[&[u8]]) -> Result<String, Halt<Infallible>> {
    let (mut machine, mut scribe) = (Machine::new(), Scribe::default());
    for chunk in chunks {
        machine.feed(chunk, &mut scribe)?;
    }
    machine.finish(&mut scribe)?;
    Ok(scribe.0)
}

/// The documented judge: UTF-8, and JSON to serde_json, which looks at neither surrogates nor sizes of what it ignores.
fn judge(document: &[u8]) -> bool {
    std::str::from_utf8(document).is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

fn check_every_split(document: &[u8]) {
    let whole = read(&[document]);
    assert_eq!(whole.is_ok(), judge(document), "{whole:?} {:?}", String::from_utf8_lossy(document));
    for split in 0..=document.len() {
        let (left, right) = document.split_at(split);
        assert_eq!(read(&[left, right]), whole, "cut at {split}");
    }
    let bytes: Vec<&[u8]> = document.chunks(1).collect();
    assert_eq!(read(&bytes), whole, "byte by byte");
}

#[test]
fn documents_of_every_kind_at_every_split() {
    for document in [
        r#"{"a":1,"b":[true,false,null,{}],"c":{"d":"e"},"":""}"#,
        "[]",
        " \t\r\n[ 1 , -0 , 0.5 , 1e5 , -1.25E-10 , 1E+2 ]\n ",
        "0",
        "-12",
        "1.5e3",
        "true",
        r#""plain""#,
        r#""\"\\\/\b\f\n\r\t\u0041\u4f60\ud83d\ude00""#,
        r#"{"你好":"😀é\u00e9"}"#,
        "[[[[[[[[]]]]]]]]",
        r#"{"a":{"a":{"a":[[{"a":[]}]]}}}"#,
        r#"["\ud800"]"#,
        r#"[18446744073709551617,1e400,-1e-400,123456789012345678901234567890123456789012345678901234567890]"#,
    ] {
        assert!(judge(document.as_bytes()), "{document}");
        check_every_split(document.as_bytes());
    }
}

#[test]
fn broken_documents_at_every_split() {
    for document in [
        &b""[..],
        b" ",
        b"{",
        b"[",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{,}",
        b"{'a':1}",
        b"{a:1}",
        b"{\"a\":1]",
        b"[1}",
        b"{\"a\" 1}",
        b"{\"a\":1 \"b\":2}",
        b"{1:2}",
        b"[1 2]",
        b"{} {}",
        b"{}x",
        b"]",
        b"}",
        b":",
        b",",
        b"01",
        b"-",
        b"-a",
        b"+1",
        b".5",
        b"1.",
        b"1.e5",
        b"1e",
        b"1e+",
        b"0x10",
        b"1a",
        b"tru",
        b"truE",
        b"trueX",
        b"nul",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"\"",
        b"\"\\\"",
        b"\"\\x\"",
        b"\"\\u12\"",
        b"\"\\u12g4\"",
        b"\"a\nb\"",
        b"\"a\tb\"",
        b"\"\0\"",
        b"\"\x1f\"",
        b"\"\xff\"",
        b"\"\xe4\xbd\"",
        b"\"\xe4\xbd\\n\"",
        b"\"\xc0\x80\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\x80\"",
        b"\xef\xbb\xbf{}",
        b"{}\xef\xbb\xbf",
        b"{\"a\":1} // c",
        b"/* c */ {}",
        b"\xff\xfe{\0}\0",
    ] {
        assert!(!judge(document), "{document:?}");
        check_every_split(document);
    }
}

#[test]
fn a_fault_says_where_and_what() {
    let fault = |document: &str| match read(&[document.as_bytes()]) {
        Err(Halt::Fault(fault, at)) => (fault, at),
        other => panic!("{other:?}"),
    };
    assert_eq!(fault(r#"{"a":1,}"#), (Fault::NameExpected, 7));
    assert_eq!(fault(r#"{"a":1"#), (Fault::CutShort, 6));
    assert_eq!(fault("[1 2]"), (Fault::ArrayContinues, 3));
    assert_eq!(fault(r#"{"a":1]"#), (Fault::ObjectContinues, 6));
    assert_eq!(fault(r#"{"a" 1}"#), (Fault::ColonExpected, 5));
    assert_eq!(fault("{} x"), (Fault::Trailing, 3));
    assert_eq!(fault("\u{feff}{}"), (Fault::ByteOrderMark, 0));
    assert_eq!(fault("\"a\nb\""), (Fault::ControlCharacter, 2));
    assert_eq!(fault(r#""\x""#), (Fault::BadEscape, 2));
    assert_eq!(fault("[1.]"), (Fault::BadNumber, 3));
    assert_eq!(fault("nope"), (Fault::ValueExpected, 1));
}

#[test]
fn nesting_is_counted_not_recursed_into() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert!(read(&[&nested(DEPTH_MAX as usize)]).is_ok());
    assert_eq!(read(&[&nested(DEPTH_MAX as usize + 1)]), Err(Halt::TooDeep));
    assert_eq!(read(&[&vec![b'['; 100_000]]), Err(Halt::TooDeep));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(DEPTH_MAX as usize), "}".repeat(DEPTH_MAX as usize));
    assert!(read(&[objects.as_bytes()]).is_ok());
}

#[test]
fn a_long_text_is_kept_in_part_the_same_wherever_it_is_cut() {
    for len in [0, 1, 31, 32, 33, 63, TEXT_BYTES_KEPT - 1, TEXT_BYTES_KEPT, TEXT_BYTES_KEPT + 1, 1000] {
        let document = format!(r#"{{"{0}":"{0}"}}"#, "k".repeat(len));
        check_every_split(document.as_bytes());
    }
}

#[test]
fn the_end_of_a_run_is_found_at_every_place_for_every_byte() {
    for len in 0..80 {
        for stop in 0..len {
            for byte in [0, 0x1f, b'"', b'\\', 0x20, b'!', b'#', b'[', b']', 0x7f, 0x80, 0xff] {
                let mut chunk = vec![b'a'; len];
                chunk[stop] = byte;
                let run = text::run(&chunk, 0);
                let is_stop = byte < 0x20 || byte == b'"' || byte == b'\\';
                assert_eq!(run.end, if is_stop { stop } else { len }, "{byte:#x} at {stop} of {len}");
                assert_eq!(run.is_ascii, byte < 0x80, "{byte:#x} at {stop} of {len}");
            }
        }
    }
}

#[test]
fn texts_decode() {
    let text = |raw: &'static str, has_escapes| Text { raw: raw.as_bytes(), raw_len: raw.len() as u64, has_escapes };
    assert_eq!(text(r"mod\u0065l", true).decode().unwrap(), "model");
    assert_eq!(text(r"\ud83d\ude00", true).decode().unwrap(), "😀");
    for lone in [r"\ud800", r"\ude00", r"\ud83dx", r"\ud83d\u0041", r"\ud83d\n"] {
        assert_eq!(text(lone, true).decode(), Err(Undecodable::LoneSurrogate), "{lone}");
    }
    assert_eq!(Text { raw: b"abc", raw_len: 4, has_escapes: false }.decode(), Err(Undecodable::Cut));
    for (raw, whole) in [
        ("0", Some(0)),
        ("16", Some(16)),
        ("16.0", Some(16)),
        ("1e3", Some(1000)),
        ("1.5", None),
        ("-1", None),
        ("18446744073709551616", Some(u64::MAX)),
        ("1e400", Some(u64::MAX)),
    ] {
        assert_eq!(text(raw, false).as_whole(), whole, "{raw}");
    }
}

/// JSON texts with odd spacing, escapes and numbers, from their grammar.
pub(crate) fn any_document() -> impl Strategy<Value = String> {
    let space = prop::sample::select(vec!["", "", "", " ", "\n\t", "\r\n  "]);
    let text = prop::collection::vec(
        prop_oneof![
            4 => "[ -!#-\\[\\]-~]{0,12}",
            1 => prop::sample::select(vec![
                "\\n", "\\\"", "\\\\", "\\/", "\\u0041", "\\u4f60", "\\ud83d\\ude00", "\\ud800", "你", "😀", "é", "\u{7f}",
            ]).prop_map(str::to_owned),
        ],
        0..5,
    )
    .prop_map(|parts| format!("\"{}\"", parts.concat()));
    let number =
        prop::sample::select(vec!["0", "-0", "7", "-12", "3.25", "1e5", "1E-3", "18446744073709551617", "1e400"]);
    let leaf = prop_oneof![
        text.clone(),
        number.prop_map(str::to_owned),
        prop::sample::select(vec!["true", "false", "null"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let list = prop::collection::vec((inner.clone(), space.clone()), 0..6);
        let array = list.prop_map(|items| {
            let items: Vec<_> = items.into_iter().map(|(item, space)| format!("{space}{item}{space}")).collect();
            format!("[{}]", items.join(","))
        });
        let members = prop::collection::vec((text.clone(), inner, space.clone()), 0..6);
        let object = members.prop_map(|items| {
            let items: Vec<_> =
                items.into_iter().map(|(key, value, space)| format!("{space}{key}{space}:{space}{value}")).collect();
            format!("{{{}}}", items.join(","))
        });
        prop_oneof![array, object]
    })
}

proptest! {
    #[test]
    fn agrees_with_a_full_parser_on_good_documents(document in any_document()) {
        prop_assert!(judge(document.as_bytes()));
        check_every_split(document.as_bytes());
    }

    #[test]
    fn agrees_with_a_full_parser_on_spoiled_documents(
        document in any_document(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..4),
    ) {
        let mut bytes = document.into_bytes();
        for (index, byte, edit) in edits {
            let at = index.index(bytes.len() + 1);
            match edit {
                0 => bytes.insert(at, byte),
                1 => bytes.truncate(at),
                2 if at < bytes.len() => bytes[at] = byte,
                _ => bytes.insert(at, b"{}[]\",:\\ue0"[usize::from(byte) % 11]),
            }
        }
        check_every_split(&bytes);
    }

    #[test]
    fn any_bytes_are_read_the_same_however_they_are_cut(
        bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\ue0-1. tfn".to_vec())], 0..60),
    ) {
        check_every_split(&bytes);
    }
}
