//! Request bodies as bytes: codings, sizes, framing, memory. What they say is in `json_bodies` and `forms`.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use harness::{Answer, Config, Connection, Gateway, Peer, post, request, request_in_chunks, soon};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::two_models::{CHAT, TwoModels};

const PATH: &str = "/v1/chat/completions";
/// The limit of most tests here, in bytes.
const LIMIT: usize = 65_536;
const MIB: u64 = 1 << 20;

/// A chat of exactly `bytes` bytes.
fn chat_of(bytes: usize) -> String {
    let (start, end) = (r#"{"model":"m1","messages":[{"role":"user","content":""#, r#""}]}"#);
    format!("{start}{}{end}", "x".repeat(bytes - start.len() - end.len()))
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn raw_deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(data).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

fn zstd(data: &[u8]) -> Vec<u8> {
    compress_to_vec(data, CompressionLevel::Fastest)
}

/// [`CHAT`] by the reference encoder, brotli 1.2.
const BROTLI_CHAT: [u8; 53] = [
    27, 57, 0, 112, 28, 7, 185, 41, 243, 38, 154, 226, 218, 126, 212, 34, 123, 109, 91, 155, 69, 167, 171, 79, 197,
    164, 129, 67, 14, 156, 14, 148, 181, 5, 114, 129, 122, 5, 38, 167, 78, 66, 71, 7, 161, 92, 210, 146, 27, 0, 231,
    187, 221,
];

/// `{"model":"m1","messages":"` and 64 MiB of spaces, by the same encoder.
const BROTLI_BOMB: [u8; 136] = [
    203, 255, 255, 63, 0, 4, 106, 114, 164, 191, 227, 36, 205, 184, 172, 95, 243, 50, 16, 135, 30, 203, 193, 217, 234,
    241, 245, 44, 133, 147, 224, 144, 63, 239, 255, 20, 255, 255, 255, 0, 144, 0, 136, 195, 2, 208, 189, 255, 227, 255,
    255, 31, 0, 18, 0, 113, 88, 0, 186, 247, 127, 252, 255, 255, 3, 64, 2, 32, 14, 11, 64, 247, 254, 143, 255, 255,
    127, 0, 72, 0, 196, 97, 1, 232, 222, 255, 241, 255, 255, 15, 0, 9, 128, 56, 44, 0, 221, 251, 63, 254, 255, 255, 1,
    32, 1, 16, 135, 5, 160, 123, 255, 199, 255, 255, 63, 0, 36, 0, 226, 176, 0, 116, 239, 255, 98, 3, 0, 128, 148, 72,
    95, 17, 33, 73, 0, 88,
];

fn post_coded(gateway: &Gateway, coding: &str, body: &[u8]) -> Answer {
    let headers = [("content-type", "application/json"), ("content-encoding", coding)];
    request(gateway.data, "POST", PATH, &headers, body)
}

fn limited() -> TwoModels {
    TwoModels::with(|config| config.bbr(&format!("{{enabled: true, maxRequestBodyBytes: {LIMIT}}}")))
}

#[test]
fn a01_a_compressed_body_reaches_the_endpoint_as_what_the_client_meant() {
    let scene = TwoModels::start();
    let table = [
        ("gzip", gzip(CHAT.as_bytes())),
        ("X-GZip", gzip(CHAT.as_bytes())),
        ("gzip", [gzip(&CHAT.as_bytes()[..9]), gzip(&CHAT.as_bytes()[9..])].concat()),
        ("deflate", zlib(CHAT.as_bytes())),
        ("deflate", raw_deflate(CHAT.as_bytes())),
        ("br", BROTLI_CHAT.to_vec()),
        ("zstd", zstd(CHAT.as_bytes())),
        ("identity", CHAT.into()),
        ("identity, zstd", zstd(CHAT.as_bytes())),
    ];
    for (coding, body) in table {
        scene.m1.forget();
        let answer = post_coded(&scene.gateway, coding, &body);
        assert_eq!(answer.status, 200, "{coding}: {}", answer.text());
        let [seen] = &scene.m1.seen()[..] else { panic!("{coding}: {:?}", scene.m1.seen()) };
        assert_eq!(seen.body, CHAT.as_bytes(), "{coding}");
        assert_eq!(seen.header("content-length"), Some("58"), "{coding}");
        let label = seen.header("content-encoding");
        assert!(label.is_none_or(|label| label == "identity"), "{coding}: header and body match, not {label:?}");
        let line = scene.gateway.request(answer.header("x-request-id").unwrap());
        assert_eq!(line["bytes_in"].as_u64(), Some(body.len() as u64), "bytes are counted as sent: {line}");
    }
}

#[test]
fn a01_a_model_is_refused_in_a_compressed_body_as_in_any_other() {
    let scene = TwoModels::start();
    let twice = gzip(br#"{"model":"m1","messages":[],"model":"m2"}"#);
    scene.refused(&post_coded(&scene.gateway, "gzip", &twice), 400, "invalid_request", None);
    let unknown = zstd(br#"{"model":"bogus","messages":[]}"#);
    scene.refused(&post_coded(&scene.gateway, "zstd", &unknown), 404, "model_not_found", Some("model"));
}

#[test]
fn a01_a_coding_that_is_not_read_is_415_and_the_answer_names_those_that_are() {
    let scene = TwoModels::start();
    for coding in ["compress", "snappy", "gzip, gzip", "gzip, br", "aws-chunked", "gzip;q=1"] {
        let answer = post_coded(&scene.gateway, coding, CHAT.as_bytes());
        scene.refused(&answer, 415, "unsupported_encoding", None);
        assert!(answer.text().contains("gzip, deflate, br, zstd"), "{}", answer.text());
    }
}

#[test]
fn a01_a_body_that_is_not_of_its_coding_or_cut_is_400() {
    let scene = TwoModels::start();
    let (cut_gzip, cut_zstd) = (gzip(CHAT.as_bytes()), zstd(CHAT.as_bytes()));
    let table: [(&str, &[u8]); 8] = [
        ("gzip", CHAT.as_bytes()),
        ("deflate", &[0xff; 40]),
        ("br", &[0xff; 40]),
        ("zstd", CHAT.as_bytes()),
        ("gzip", &cut_gzip[..cut_gzip.len() - 3]),
        ("zstd", &cut_zstd[..cut_zstd.len() - 3]),
        ("br", &BROTLI_CHAT[..40]),
        ("gzip", b""),
    ];
    for (coding, body) in table {
        let answer = post_coded(&scene.gateway, coding, body);
        scene.refused(&answer, 400, "invalid_request", None);
    }
}

#[test]
fn a01_bombs_are_413_and_cost_no_memory() {
    let scene = TwoModels::with(|config| config.bbr("{enabled: true, maxRequestBodyBytes: 1048576}"));
    assert_eq!(post(scene.gateway.data, PATH, CHAT).status, 200);
    scene.m1.forget();
    let before = scene.gateway.peak_memory_bytes();
    // Spaces are JSON up to the limit. One GiB of them in as many parts as each coding allows.
    let spaces = vec![b' '; 64 << 20];
    let bombs = [
        ("gzip", gzip(&spaces).repeat(14)),
        ("deflate", zlib(&spaces)),
        ("zstd", zstd(&spaces).repeat(16)),
        ("br", BROTLI_BOMB.to_vec()),
    ];
    for (coding, bomb) in bombs {
        assert!(bomb.len() < 1 << 20, "{coding}: {} bytes are more than a limit on what is sent", bomb.len());
        let answer = post_coded(&scene.gateway, coding, &bomb);
        scene.refused(&answer, 413, "body_too_large", None);
        assert!(answer.text().contains("1048576"), "{}", answer.text());
    }
    // What is no JSON ends even earlier.
    let zeros = gzip(&vec![0; 64 << 20]).repeat(14);
    scene.refused(&post_coded(&scene.gateway, "gzip", &zeros), 400, "invalid_request", None);
    let grown = scene.gateway.peak_memory_bytes() - before;
    // A limit's worth each, windows of up to 16 MiB; never the 64 MiB and more that they unfold to.
    assert!(grown < 48 * MIB, "{} MiB", grown / MIB);
}

#[test]
fn a01_a_brotli_window_beyond_the_standard_is_refused_before_memory_is_set_aside() {
    let scene = TwoModels::start();
    // The mark of the non-standard large windows, 30 bits, and a last, empty block.
    let large = [0x11, 0x1e | 0b11 << 6];
    let answer = post_coded(&scene.gateway, "br", &large);
    scene.refused(&answer, 400, "invalid_request", None);
    assert!(answer.text().contains("window"), "{}", answer.text());
}

#[test]
fn a02_a_body_of_exactly_the_limit_passes_and_one_byte_more_is_413() {
    let scene = limited();
    let json = [("content-type", "application/json")];
    let exact = chat_of(LIMIT);
    for answer in [
        post(scene.gateway.data, PATH, &exact),
        request_in_chunks(scene.gateway.data, PATH, &json, &exact, 1000),
        post_coded(&scene.gateway, "gzip", &gzip(exact.as_bytes())),
    ] {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let seen = scene.m1.seen();
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.body == exact.as_bytes()), "each arrived whole");
    assert!(seen.iter().all(|seen| seen.header("content-length") == Some("65536")), "a known length is said");
    scene.m1.forget();
    let over = chat_of(LIMIT + 1);
    for answer in [
        post(scene.gateway.data, PATH, &over),
        request_in_chunks(scene.gateway.data, PATH, &json, &over, 1000),
        post_coded(&scene.gateway, "gzip", &gzip(over.as_bytes())),
    ] {
        scene.refused(&answer, 413, "body_too_large", None);
        assert!(answer.text().contains("65536"), "the limit is named: {}", answer.text());
        assert_eq!(answer.header("connection"), Some("close"));
    }
    assert_eq!(scene.counted("body_too_large"), 3.0);
}

#[test]
fn a03_a_client_that_writes_all_before_it_reads_gets_a_whole_413_every_time() {
    let scene = limited();
    // The larger one fits into no socket's buffers: only a gateway that goes on reading lets it be written whole.
    let bodies = [chat_of(LIMIT + (1 << 20)), chat_of(LIMIT + (16 << 20))];
    for round in 0..50 {
        let body = &bodies[usize::from(round % 5 == 0)];
        let answer = if round % 2 == 0 {
            post(scene.gateway.data, PATH, body)
        } else {
            request_in_chunks(scene.gateway.data, PATH, &[("content-type", "application/json")], body, 16_384)
        };
        assert!(answer.complete, "round {round}: {}", answer.text());
        assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"), "round {round}");
    }
    assert!(scene.untouched());
    assert_eq!(scene.counted("body_too_large"), 50.0);
}

#[test]
fn a03_a_declared_length_over_the_limit_is_refused_before_the_body_is_there() {
    let scene = limited();
    let mut connection = Connection::open(scene.gateway.data);
    connection.send(format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n", LIMIT + 1)).unwrap();
    let answer = connection.answer().unwrap();
    scene.refused(&answer, 413, "body_too_large", None);
}

#[test]
fn c04_a_refusal_is_not_preceded_by_a_100_and_a_good_request_gets_one() {
    let scene = limited();
    let ask = |length: usize| {
        let mut connection = Connection::open(scene.gateway.data);
        let head =
            format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n");
        connection.send(head).unwrap();
        connection
    };
    let started = Instant::now();
    let (status, headers) = ask(2_000_000).head().unwrap();
    assert_eq!(status, 413, "no 100 first");
    assert!(headers.contains(&("connection".into(), "close".into())), "{headers:?}");
    // 50 ms is the aim; this machine may be busy.
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    let mut good = ask(CHAT.len());
    assert_eq!(good.head().unwrap().0, 100);
    assert!(scene.untouched());
    good.send(CHAT).unwrap();
    assert_eq!(good.answer().unwrap().status, 200);
    assert_eq!(scene.m1.seen()[0].header("expect"), None, "an expectation is between client and gateway");
}

#[test]
fn c04_a_path_that_is_not_served_is_refused_without_a_100() {
    let scene = TwoModels::start();
    let mut connection = Connection::open(scene.gateway.data);
    connection.send("POST /sleep HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n").unwrap();
    assert_eq!(connection.head().unwrap().0, 404);
}

#[test]
fn a_chunked_body_with_trailers_and_extensions_goes_on_with_a_length() {
    let scene = TwoModels::start();
    let mut connection = Connection::open(scene.gateway.data);
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n");
    let (first, second) = CHAT.split_at(20);
    let body = format!("14;a=b\r\n{first}\r\n{:X}\r\n{second}\r\n0\r\nx-sum: 1\r\n\r\n", second.len());
    connection.send(head + &body).unwrap();
    assert_eq!(connection.answer().unwrap().status, 200);
    let [seen] = &scene.m1.seen()[..] else { panic!() };
    assert_eq!((seen.header("content-length"), seen.header("transfer-encoding")), (Some("58"), None));
    assert_eq!(seen.body, CHAT.as_bytes());
    // The connection is good for another.
    connection.send(format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: 58\r\n\r\n{CHAT}")).unwrap();
    assert_eq!(connection.answer().unwrap().status, 200);
}

#[test]
fn a_body_that_stops_half_way_is_a_client_that_left_and_touches_nobody() {
    let scene = TwoModels::start();
    let mut connection = Connection::open(scene.gateway.data);
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: g\r\nx-request-id: half\r\ncontent-length: 58\r\n\r\n");
    connection.send(head + &CHAT[..30]).unwrap();
    drop(connection);
    let line = scene.gateway.request("half");
    assert_eq!((line["outcome"].as_str(), line["status"].as_u64()), (Some("client_gone"), Some(499)), "{line}");
    assert!(scene.untouched());
    assert_eq!(scene.counted("client_gone"), 1.0);
}

#[test]
fn bodies_beyond_the_memory_for_bodies_are_503_until_there_is_room() {
    let peer = Peer::plain();
    let gateway = Gateway::start_with(&Config::plain("m1", [peer.address]), &["--body-memory", "1Mi"]);
    let held = |bytes: f64| gateway.admin.metric("inference_gateway_body_memory_bytes", &[]) == Some(bytes);
    let (large, small) = (chat_of(900_000), chat_of(300_000));
    let mut slow = Connection::open(gateway.data);
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: {}\r\n\r\n", large.len());
    slow.send(head + &large[..800_000]).unwrap();
    soon("the slow body is held", || held(800_000.0));
    let refused = post(gateway.data, PATH, &small);
    assert_eq!((refused.status, refused.code().as_str()), (503, "body_memory"), "{}", refused.text());
    assert!(refused.header("retry-after").is_some_and(|after| after.parse::<u32>().unwrap() >= 1));
    assert_eq!(post(gateway.data, PATH, CHAT).status, 200, "what there is room for is served");
    slow.send(&large[800_000..]).unwrap();
    assert_eq!(slow.answer().unwrap().status, 200);
    soon("everything was given back", || held(0.0));
    assert_eq!(post(gateway.data, PATH, &small).status, 200);
    assert_eq!(peer.seen().len(), 3);
}

/// The limit is fixed, so this one test takes its 30 seconds.
#[test]
fn c11_a_body_that_pauses_for_30_s_is_408_and_the_connection_ends() {
    let scene = TwoModels::start();
    let mut connection = Connection::open(scene.gateway.data);
    connection.patience(Duration::from_secs(60));
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: g\r\ncontent-length: 58\r\n\r\n");
    connection.send(head + &CHAT[..30]).unwrap();
    let started = Instant::now();
    let answer = connection.answer().unwrap();
    let waited = started.elapsed();
    assert!(waited > Duration::from_secs(29) && waited < Duration::from_secs(45), "{waited:?}");
    scene.refused(&answer, 408, "request_timeout", None);
    assert_eq!(answer.header("connection"), Some("close"));
}
