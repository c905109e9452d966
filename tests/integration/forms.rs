//! Multipart forms: the model may stand anywhere in them, and everything goes on as it came.

use std::time::{Duration, Instant};

use harness::{Answer, request, request_in_chunks};

use crate::two_models::TwoModels;

const PATH: &str = "/v1/audio/transcriptions";
const BOUNDARY: &str = "----WebKitFormBoundary7MA4YWxkTrZu0gW";

/// A part of a form.
enum Part<'a> {
    Field(&'a str, &'a str),
    File(&'a [u8]),
}

fn form(line_end: &str, parts: &[Part<'_>]) -> Vec<u8> {
    let mut form = Vec::new();
    let line = |text: &str, form: &mut Vec<u8>| {
        form.extend(text.as_bytes());
        form.extend(line_end.as_bytes());
    };
    for part in parts {
        line(&format!("--{BOUNDARY}"), &mut form);
        match part {
            Part::Field(name, value) => {
                line(&format!("content-disposition: form-data; name=\"{name}\""), &mut form);
                line("", &mut form);
                line(value, &mut form);
            }
            Part::File(bytes) => {
                line("Content-Disposition: form-data; name=\"file\"; filename=\"a b.wav\"", &mut form);
                line("Content-Type: audio/wav", &mut form);
                line("", &mut form);
                form.extend(*bytes);
                line("", &mut form);
            }
        }
    }
    line(&format!("--{BOUNDARY}--"), &mut form);
    form
}

/// Bytes that look random, with line ends and beginnings of the delimiter among them.
fn sound(bytes: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut sound: Vec<u8> = (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from(state >> 24).expect("eight bits are left")
        })
        .collect();
    let near = format!("\r\n--{}\n--{}", &BOUNDARY[..30], &BOUNDARY[..10]);
    for at in (1000..bytes - 1000).step_by(60_000) {
        sound[at..at + near.len()].copy_from_slice(near.as_bytes());
    }
    sound
}

fn send(scene: &TwoModels, path: &str, body: &[u8]) -> Answer {
    let label = format!("multipart/form-data; boundary={BOUNDARY}");
    request(scene.gateway.data, "POST", path, &[("content-type", &label)], body)
}

#[test]
fn a13_the_model_is_found_before_and_after_the_file_and_the_form_goes_on_unchanged() {
    let scene = TwoModels::start();
    let file = sound(780_000);
    let first = [
        Part::Field("response_format", "json"),
        Part::Field("model", "m1"),
        Part::Field("prompt", "p"),
        Part::File(&file),
    ];
    let last = [Part::File(&file), Part::Field("temperature", "0"), Part::Field("model", "m1")];
    let quoted = format!("Multipart/Form-Data; charset=utf-8; BOUNDARY=\"{BOUNDARY}\"");
    let plain = format!("multipart/form-data; boundary={BOUNDARY}");
    for path in [PATH, "/v1/audio/translations"] {
        for (label, line_end, parts) in [
            (&plain, "\r\n", &first[..]),
            (&plain, "\r\n", &last[..]),
            (&quoted, "\r\n", &last[..]),
            (&plain, "\n", &first[..]),
            (&quoted, "\n", &last[..]),
        ] {
            scene.m1.forget();
            let body = form(line_end, parts);
            let started = Instant::now();
            let answer = request(scene.gateway.data, "POST", path, &[("content-type", label)], &body);
            assert_eq!(answer.status, 200, "{label} {line_end:?}: {}", answer.text());
            assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
            let [seen] = &scene.m1.seen()[..] else { panic!("{label}") };
            assert!(seen.body == body, "the form came as other bytes");
            assert_eq!(seen.header("content-type"), Some(label.as_str()), "with the same boundary");
            assert_eq!(seen.header("x-gateway-model-name"), Some("m1"));
        }
    }
    assert!(scene.m2.seen().is_empty());
}

#[test]
fn a13_a_file_of_30_mb_passes_in_both_orders_with_a_length_and_in_chunks() {
    let scene = TwoModels::start();
    let file = sound(30_000_000);
    let label = format!("multipart/form-data; boundary={BOUNDARY}");
    for parts in [[Part::Field("model", "m1"), Part::File(&file)], [Part::File(&file), Part::Field("model", "m1")]] {
        let body = form("\r\n", &parts);
        let headers = [("content-type", label.as_str())];
        for in_chunks in [false, true] {
            let answer = match in_chunks {
                false => send(&scene, PATH, &body),
                true => request_in_chunks(scene.gateway.data, PATH, &headers, &body, 60_001),
            };
            assert_eq!(answer.status, 200, "{}", answer.text());
            let [seen] = &scene.m1.seen()[..] else { panic!("in chunks: {in_chunks}") };
            assert!(seen.body == body, "the form came as other bytes: {} of {}", seen.body.len(), body.len());
            scene.m1.forget();
        }
    }
}

#[test]
fn a13_a_form_without_a_model_or_with_two_is_400_and_an_unknown_one_404() {
    let scene = TwoModels::start();
    let file = sound(5_000);
    let table = [
        (vec![Part::File(&file)], 400, "model_required", Some("model")),
        (vec![Part::Field("model", ""), Part::File(&file)], 400, "model_required", Some("model")),
        (vec![Part::Field("model", "m1"), Part::File(&file), Part::Field("model", "m2")], 400, "invalid_request", None),
        (vec![Part::Field("model", "bogus"), Part::File(&file)], 404, "model_not_found", Some("model")),
    ];
    for (parts, status, code, param) in table {
        scene.refused(&send(&scene, PATH, &form("\r\n", &parts)), status, code, param);
    }
}

#[test]
fn a14_broken_forms_are_400_and_touch_nobody() {
    let scene = TwoModels::start();
    let whole = form("\r\n", &[Part::Field("model", "m1"), Part::File(&sound(5_000))]);
    let good = format!("multipart/form-data; boundary={BOUNDARY}");
    let cut = &whole[..whole.len() - BOUNDARY.len() - 8];
    let table: [(&str, &[u8]); 7] = [
        ("multipart/form-data; boundary=nope", b"not-multipart"),
        ("multipart/form-data", &whole),
        ("multipart/form-data; boundary=", &whole),
        (&good, cut),
        (&good, &whole[..whole.len() - 5]),
        (&good, b""),
        ("application/json", br#"{"model":"m1"}"#),
    ];
    for (label, body) in table {
        let answer = request(scene.gateway.data, "POST", PATH, &[("content-type", label)], body);
        scene.refused(&answer, 400, "invalid_request", None);
    }
    assert_eq!(scene.counted("invalid_request"), 7.0);
}

#[test]
fn images_edits_take_a_form_or_json_by_the_content_type() {
    let scene = TwoModels::start();
    let body = form("\r\n", &[Part::File(&sound(5_000)), Part::Field("model", "m1")]);
    assert_eq!(send(&scene, "/v1/images/edits", &body).status, 200);
    let json = [("content-type", "application/json")];
    let answer = request(scene.gateway.data, "POST", "/v1/images/edits", &json, r#"{"model":"m2","prompt":"x"}"#);
    assert_eq!(answer.status, 200);
    assert_eq!((scene.m1.seen().len(), scene.m2.seen().len()), (1, 1));
}

#[test]
fn a15_headers_and_lengths_are_the_same_on_every_path() {
    let scene = TwoModels::with(|config| config.line("dataPlane: {extraPaths: [/custom/run]}"));
    let zipped = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    scene.m1.follow(move |exchange| {
        if exchange.is_look() {
            return exchange.answer_plainly();
        }
        if exchange.request.header("authorization") != Some("Bearer k1") {
            return exchange.answer("401 Unauthorized", &[("www-authenticate", "Bearer")], "");
        }
        exchange.answer("200 OK", &[("content-encoding", "gzip"), ("content-type", "application/json")], zipped)
    });
    let multipart = form("\r\n", &[Part::File(&sound(5_000)), Part::Field("model", "m1")]);
    let chat = br#"{"model":"m1","messages":[]}"#;
    let label = format!("multipart/form-data; boundary={BOUNDARY}");
    let mut sets = Vec::new();
    for (path, label, body) in [
        ("/v1/chat/completions", "application/json", &chat[..]),
        ("/v1/embeddings", "application/json", chat),
        ("/v1/images/generations", "application/json", chat),
        ("/custom/run", "application/json", chat),
        (PATH, label.as_str(), &multipart),
        ("/v1/images/edits", label.as_str(), &multipart),
    ] {
        scene.m1.forget();
        let headers =
            [("content-type", label), ("authorization", "Bearer k1"), ("x-custom", "1"), ("accept-encoding", "gzip")];
        let answer = request(scene.gateway.data, "POST", path, &headers, body);
        assert_eq!((answer.status, &answer.body[..]), (200, &zipped[..]), "{path}");
        assert_eq!(
            (answer.header("content-encoding"), answer.header("content-length")),
            (Some("gzip"), Some("20")),
            "{path}"
        );
        let [seen] = &scene.m1.seen()[..] else { panic!("{path}") };
        assert_eq!(seen.header("content-length"), Some(body.len().to_string().as_str()), "{path}");
        let mut names: Vec<_> = seen.headers.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        sets.push(names);
        let anonymous = request(scene.gateway.data, "POST", path, &[("content-type", label)], body);
        assert_eq!((anonymous.status, anonymous.header("www-authenticate")), (401, Some("Bearer")), "{path}");
    }
    assert!(sets.iter().all(|names| *names == sets[0]), "{sets:#?}");
}
