use proptest::prelude::*;

use super::*;

const TYPE: &str = "multipart/form-data; boundary=XyZ";

fn read(content_type: &str, chunks: &[&[u8]]) -> Result<(Model, bool, bool, u64), MultipartError> {
    let mut reader = Reader::new(content_type)?;
    for chunk in chunks {
        reader.feed(chunk)?;
    }
    reader.finish().map(|head| (head.model, head.stream, head.include_usage, head.bytes))
}

fn check_every_split(body: &[u8]) -> Result<Model, MultipartError> {
    let whole = read(TYPE, &[body]);
    for split in 0..=body.len() {
        let (left, right) = body.split_at(split);
        assert_eq!(read(TYPE, &[left, right]), whole, "cut at {split}");
    }
    for size in [1, 3, 11] {
        assert_eq!(read(TYPE, &body.chunks(size).collect::<Vec<_>>()), whole, "chunks of {size}");
    }
    whole.map(|(model, _, _, bytes)| {
        assert_eq!(bytes, body.len() as u64);
        model
    })
}

/// A form of parts (headers after the disposition, name, content).
fn form(parts: &[(&str, &[u8])], line_end: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        let file = if *name == "file" { "; filename=\"a;b\\\"c.mp3\"" } else { "" };
        body.extend(format!("--XyZ{line_end}Content-Disposition: form-data; name=\"{name}\"{file}{line_end}").bytes());
        if *name == "file" {
            body.extend(format!("Content-Type: audio/mpeg{line_end}").bytes());
        }
        body.extend_from_slice(&[line_end.as_bytes(), content, line_end.as_bytes()].concat());
    }
    body.extend(format!("--XyZ--{line_end}").bytes());
    body
}

fn named(name: &str) -> Result<Model, MultipartError> {
    Ok(Model::Named(name.to_owned()))
}

#[test]
fn a13_the_model_is_found_wherever_it_stands() {
    // A file that holds whatever could be taken for a delimiter.
    let file = b"\r\n--Xy\n--XyZ-\r\r\n-\r\n--\0\xff\r\n--XYZ\r\n\r\n--XyY--\r\n";
    for line_end in ["\r\n", "\n"] {
        // In the other style the same bytes would be a delimiter.
        let file: &[u8] = if line_end == "\n" { b"\r\n--Xy\r--XyZ\xff" } else { file };
        let parts: [(&str, &[u8]); 4] =
            [("response_format", b"json"), ("model", b"org/name:7b"), ("prompt", b"hi\r\nthere"), ("file", file)];
        let orders: [[usize; 4]; 3] = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 3, 1, 2]];
        for order in orders {
            let body = form(&order.map(|index| parts[index]), line_end);
            assert_eq!(check_every_split(&body), named("org/name:7b"), "{order:?} {line_end:?}");
        }
        assert_eq!(check_every_split(&form(&parts[2..], line_end)), Ok(Model::Missing));
    }
}

#[test]
fn a13_a_large_file_may_come_first() {
    let file = (0..50_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>().repeat(600);
    let body = form(&[("file", &file), ("model", b"m1")], "\r\n");
    let chunks: Vec<&[u8]> = body.chunks(65_536).collect();
    let (model, ..) = read(TYPE, &chunks).unwrap();
    assert_eq!(model, Model::Named("m1".to_owned()));
}

#[test]
fn a13_a_quoted_boundary_and_other_spellings_of_the_content_type() {
    let body = form(&[("model", b"m1")], "\r\n");
    for content_type in [
        "multipart/form-data; boundary=\"XyZ\"",
        "Multipart/Form-Data;boundary=XyZ",
        "multipart/form-data; charset=utf-8; Boundary=XyZ",
        "multipart/form-data; boundary=XyZ; charset=\"utf-8\"",
        "multipart/form-data ; boundary = XyZ",
    ] {
        assert!(read(content_type, &[&body]).is_ok(), "{content_type}");
    }
    let spaced = "--a b'(:?)\r\nContent-Disposition: form-data; name=model\r\n\r\nm1\r\n--a b'(:?)--";
    assert!(read("multipart/form-data; boundary=\"a b'(:?)\"", &[spaced.as_bytes()]).is_ok());
}

#[test]
fn a14_what_is_no_form_is_refused() {
    let refused = |content_type: &str| read(content_type, &[b""]).unwrap_err();
    let boundary = MultipartError::Boundary { max: BOUNDARY_BYTES_MAX };
    assert_eq!(read("multipart/form-data; boundary=nope", &[b"not-multipart"]), Err(MultipartError::NoDelimiter));
    assert_eq!(refused("multipart/form-data"), boundary);
    assert_eq!(refused("multipart/form-data; boundary="), boundary);
    assert_eq!(refused("multipart/form-data; boundary=\"\""), boundary);
    assert_eq!(refused("multipart/form-data; boundary=\"a"), boundary);
    assert_eq!(refused("multipart/form-data; boundary=a; boundary=b"), boundary);
    assert_eq!(refused("multipart/form-data; boundary*=utf-8''a"), boundary);
    assert_eq!(refused("multipart/form-data; boundary=\"a \""), boundary);
    assert_eq!(refused(&format!("multipart/form-data; boundary={}", "b".repeat(201))), boundary);
    for other in ["application/json", "", "multipart/mixed; boundary=a", "text/multipart/form-data; boundary=a"] {
        assert_eq!(refused(other), MultipartError::NotAForm, "{other}");
    }
    assert_eq!(refused(TYPE), MultipartError::NoDelimiter);

    let whole = form(&[("model", b"m1"), ("file", b"data")], "\r\n");
    let end = whole.len() - "\r\n".len();
    for cut in 0..end {
        let error = check_every_split(&whole[..cut]).unwrap_err();
        assert!(matches!(error, MultipartError::NoDelimiter | MultipartError::CutShort), "{error:?}");
    }
    assert!(check_every_split(&whole[..end]).is_ok());
}

#[test]
fn a10_two_models_are_refused() {
    for parts in [[("model", b"m1"), ("model", b"m2")], [("model", b"m1"), ("model", b"m1")]] {
        let parts = parts.map(|(name, content)| (name, &content[..]));
        let [first, second] = parts;
        let apart = form(&[first, ("file", b"data"), second], "\r\n");
        assert_eq!(check_every_split(&form(&parts, "\r\n")), Err(MultipartError::DuplicateModel));
        assert_eq!(check_every_split(&apart), Err(MultipartError::DuplicateModel));
    }
}

#[test]
fn names_that_parsers_read_differently_are_refused() {
    let with = |headers: &str| format!("--XyZ\r\n{headers}\r\n\r\nm1\r\n--XyZ--\r\n");
    for headers in [
        "Content-Disposition: form-data; name=model",
        "content-disposition:form-data;name=\"model\"",
        "CONTENT-DISPOSITION: Form-Data; NAME=\"model\"; filename=\"x\"",
        "Content-Type: text/plain\r\nContent-Disposition: form-data; name=\"model\"",
        "Content-Disposition: form-data; name=\"model\";",
        "Content-Disposition: form-data; filename=\"a; name=x\"; name=\"model\"",
        "Content-Transfer-Encoding: binary\r\nContent-Disposition: form-data; name=\"model\"",
    ] {
        assert_eq!(check_every_split(with(headers).as_bytes()), named("m1"), "{headers}");
    }
    for headers in [
        "Content-Disposition: form-data; name=\"mod\\el\"",
        "Content-Disposition: form-data; name=\"x\"; name=\"model\"",
        "Content-Disposition: form-data; name*=utf-8''model",
        "Content-Disposition: form-data; name=\"x\"; name*=utf-8''model",
        "Content-Disposition: form-data; name*0=\"model\"",
        "Content-Disposition: form-data; name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"",
        "Content-Disposition: form-data; name=\"model",
        "Content-Disposition: form-data; name=\"mo\"del",
        "Content-Disposition: form-data; name=mo\"del\"",
        "Content-Disposition: form-data",
        "Content-Disposition: attachment; name=\"model\"",
        "Content-Disposition: form-data;\r\n name=\"model\"",
        "Content-Disposition : form-data; name=\"model\"",
        "Content-Disposition: form-data; name=\"x\"\nContent-Disposition: form-data; name=\"model\"",
        "Content-Transfer-Encoding: base64\r\nContent-Disposition: form-data; name=\"model\"",
        "Content-Type: text/plain",
        "no colon",
        "",
    ] {
        let error = check_every_split(with(headers).as_bytes()).unwrap_err();
        assert!(matches!(error, MultipartError::BadPart { .. }), "{headers}: {error:?}");
    }
}

#[test]
fn a_delimiter_of_the_other_line_end_is_content_and_one_with_a_tail_is_refused() {
    let hidden = "--XyZ\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm1\n--XyZ--\n\r\n--XyZ--\r\n";
    assert_eq!(check_every_split(hidden.as_bytes()), named("m1\n--XyZ--\n"));
    for tail in ["a", "-a", "\n", " x", "\rx"] {
        let body =
            format!("--XyZ\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nm1\r\n--XyZ{tail}\r\n--XyZ--\r\n");
        let error = check_every_split(body.as_bytes()).unwrap_err();
        assert!(matches!(error, MultipartError::BadDelimiter { .. }), "{tail:?}: {error:?}");
    }
    let padded = "--XyZ \t\r\nContent-Disposition: form-data; name=model\r\n\r\nm1\r\n--XyZ--";
    assert_eq!(check_every_split(padded.as_bytes()), named("m1"));
}

#[test]
fn what_stands_before_and_after_the_form_does_not_matter() {
    let body = form(&[("model", b"m1")], "\r\n");
    let around = [b"This is a form.\r\n-- XyZ\r\n".as_slice(), &body, b"--XyZ\r\nrubbish \xff\r\n--XyZ"].concat();
    assert_eq!(check_every_split(&around), named("m1"));
    assert_eq!(check_every_split(&[b"\r\n".as_slice(), &body].concat()), named("m1"));
    assert_eq!(check_every_split(b"--XyZ--"), Ok(Model::Missing));
    let late = [vec![b'x'; PREAMBLE_BYTES_MAX], b"\r\n".to_vec(), body].concat();
    assert_eq!(read(TYPE, &[&late]), Err(MultipartError::NoDelimiter));
}

#[test]
fn values_are_read_and_bounded() {
    let one = |name: &str, value: &[u8]| read(TYPE, &[&form(&[(name, value)], "\r\n")]);
    assert_eq!(one("model", b"").unwrap().0, Model::Empty);
    assert_eq!(one("model", "你".as_bytes()).unwrap().0, Model::Named("你".to_owned()));
    assert_eq!(one("model", b"\xff"), Err(MultipartError::ModelNotUnicode));
    let longest = "n".repeat(MODEL_BYTES_MAX);
    assert_eq!(one("model", longest.as_bytes()).unwrap().0, Model::Named(longest));
    let too_long = Err(MultipartError::ModelTooLong { max: MODEL_BYTES_MAX });
    assert_eq!(one("model", &[b'n'; MODEL_BYTES_MAX + 1]), too_long);
    for (value, is_true) in [("true", true), ("True", true), ("1", true), ("false", false), ("", false), ("0", false)] {
        assert_eq!(one("stream", value.as_bytes()).unwrap().1, is_true, "{value}");
        assert_eq!(one("stream_include_usage", value.as_bytes()).unwrap().2, is_true, "{value}");
    }
    assert!(!one("stream", &vec![b't'; 1 << 20]).unwrap().1);
    let head = format!("--XyZ\r\nX: {}\r\n", "x".repeat(PART_HEAD_BYTES_MAX));
    assert_eq!(read(TYPE, &[head.as_bytes()]), Err(MultipartError::PartHeadTooLarge { max: PART_HEAD_BYTES_MAX }));
    let many = vec![("x", &b""[..]); PARTS_MAX as usize];
    assert_eq!(read(TYPE, &[&form(&many, "\r\n")]).unwrap().0, Model::Missing);
    let more = vec![("x", &b""[..]); PARTS_MAX as usize + 1];
    assert_eq!(read(TYPE, &[&form(&more, "\r\n")]), Err(MultipartError::TooManyParts { max: PARTS_MAX }));
}

#[test]
fn an_error_stays() {
    let mut reader = Reader::new(TYPE).unwrap();
    let first = reader.feed(b"--XyZx").unwrap_err();
    assert_eq!(reader.feed(&form(&[("model", b"m1")], "\r\n")), Err(first));
    assert_eq!(reader.finish().map(|head| head.model), Err(first));
}

/// Contents full of what could be taken for a delimiter, but without one.
fn any_content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..6),
        prop::sample::select(vec!["\r", "\n", "\r\n", "--", "\r\n--", "\r\n--Xy", "\n--Xy", "Z", "-", "X"])
            .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let contents = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    contents.prop_filter("a delimiter", |content| memchr::memmem::find(content, b"\n--XyZ").is_none())
}

proptest! {
    #[test]
    fn the_model_is_found_among_any_contents(
        before in any_content(), after in any_content(), model in "[a-z/:]{1,9}", crlf in any::<bool>(),
    ) {
        let parts: [(&str, &[u8]); 3] = [("file", &before), ("model", model.as_bytes()), ("x", &after)];
        let body = form(&parts, if crlf { "\r\n" } else { "\n" });
        prop_assert_eq!(check_every_split(&body), named(&model));
    }

    #[test]
    fn any_bytes_are_read_the_same_however_they_are_cut(
        content in any_content(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut body = form(&[("model", b"m1"), ("file", &content)], "\r\n");
        for (index, byte) in edits {
            let at = index.index(body.len());
            body[at] = byte;
        }
        let _ = check_every_split(&body);
    }
}

#[test]
fn another_name_can_be_put_where_the_model_stands() {
    for line_end in ["\r\n", "\n"] {
        let body = form(&[("file", b"model"), ("model", b"whisper"), ("prompt", b"whisper")], line_end);
        for split in 0..=body.len() {
            let (left, right) = body.split_at(split);
            let mut reader = Reader::new(TYPE).unwrap();
            reader.feed(left).unwrap();
            reader.feed(right).unwrap();
            let place = reader.finish().unwrap().model_at.unwrap();
            let (from, to) = (usize::try_from(place.at).unwrap(), usize::try_from(place.at + place.bytes).unwrap());
            assert_eq!(&body[from..to], b"whisper", "cut at {split}");
            let put = [&body[..from], place.form.written("large v3").as_bytes(), &body[to..]].concat();
            assert_eq!(check_every_split(&put), named("large v3"));
        }
    }
}
