use proptest::prelude::*;

use super::*;

fn holds(format: Format, right: &[&str], wrong: &[&str]) {
    for text in right {
        assert!(format.holds(text), "{format:?} should take {text:?}");
    }
    for text in wrong {
        assert!(!format.holds(text), "{format:?} should refuse {text:?}");
    }
}

#[test]
fn names_of_objects() {
    holds(Format::DnsLabel, &["a", "llama-0", "0"], &["", "-a", "a-", "A", "a.b", "a_b", "é"]);
    holds(Format::DnsSubdomain, &["a", "a.b", "llama-0.ml"], &["", ".", "a.", ".a", "a..b", "A.b"]);
}

#[test]
fn labels_of_kubernetes() {
    holds(
        Format::LabelKey,
        &["app", "example.com/app", "a_b.c-D"],
        &["", "/app", "example.com/", "a/b/c", "-a", "a b"],
    );
    holds(Format::LabelValue, &["", "a", "A.b_c-d", "1"], &["-a", "a-", "a b", "a/b"]);
}

#[test]
fn what_can_stand_in_a_header() {
    holds(Format::HeaderText, &["llama", "meta-llama/Llama 3", "模型"], &["", " a", "a ", "a\nb", "a\tb", "a\u{7f}"]);
    holds(Format::HeaderName, &["x-team", "X_Team"], &["", "x team", "x:team", "é"]);
}

#[test]
fn hosts_without_port_and_scheme() {
    let right = ["10.0.0.7", "fd00::1", "[fd00::1]", "llama.example", "llama_0.svc.", "localhost", "LLAMA"];
    let wrong = [
        "",
        ".",
        "10.0.0.7:8000",
        "http://a",
        "a/b",
        "a b",
        "10.0.0.256",
        "10.0.0",
        "010.0.0.7",
        "[10.0.0.7]",
        "a..b",
        "fe80::1%eth0",
    ];
    holds(Format::Host, &right, &wrong);
}

#[test]
fn paths_match_whole() {
    let wrong = ["", "v1", "/v1?x", "/v1#x", "/v1/*", "/v1/../x", "/./x", "/a b", "/a\\b", "/é"];
    holds(Format::UrlPath, &["/", "/v1/mine", "/a%20b", "/a//b", "/..a"], &wrong);
}

#[test]
fn urls_are_https() {
    let right = ["https://a.example", "https://a.example:8443/keys?x=1"];
    holds(
        Format::HttpsUrl,
        &right,
        &["", "http://a", "https://", "https:///x", "HTTPS://a", "https://a b", "https://u:p@a"],
    );
}

#[test]
fn names_of_variables_and_files() {
    holds(Format::EnvName, &["A", "_a1"], &["", "1A", "A-B", "A=B", "é"]);
    holds(Format::FilePath, &["ca.pem", "/run/key", "a b"], &["", "a\0b"]);
}

#[test]
fn every_format_has_a_name_of_its_own_and_a_phrase() {
    for (index, format) in Format::ALL.into_iter().enumerate() {
        assert!(Format::ALL[..index].iter().all(|other| other.name() != format.name()));
        assert!(!format.phrase().is_empty() && format.chars().0 <= format.chars().1);
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        for format in Format::ALL {
            let _ = format.holds(&text);
        }
    }
}

/// What a cluster refuses by pattern is what a file is refused for. `UrlPath` has a rule for climbing paths besides, and
/// hosts stand in files only.
#[test]
fn patterns_say_what_the_checks_do() {
    let samples = [
        "",
        "a",
        "-a",
        "a-",
        "A",
        "a.b",
        "a..b",
        "a_b",
        "é",
        "a.b-c.d",
        "x.",
        ".x",
        "app",
        "example.com/app",
        "a/b/c",
        "/app",
        "a b",
        " a",
        "a ",
        "a\nb",
        "a\u{7f}",
        "a\u{a0}",
        "\u{3000}a",
        "模型",
        "meta-llama/Llama 3",
        "x-team",
        "x:team",
        "/",
        "/v1/mine",
        "/a%20b",
        "/a//b",
        "/v1?x",
        "/v1#x",
        "/v1/*",
        "/a\\b",
        "/a\"",
        "/a<b",
        "/[x]",
        "/~a",
        "https://a",
        "https://",
        "https:///x",
        "https://u:p@a",
        "https://a/b@c",
        "https://a:1/?x#y",
        "https://a b",
        "http://a",
        "30s",
        "1h30m",
        "0s",
        "1.5s",
        "100000s",
        "1s1s1s1s1s",
        "64Mi",
        "1000",
        ".5Ki",
        "1..2",
        "1e3",
        "100m",
        "Mi",
        ".",
        "1.",
        "A_B",
        "1A",
        "a\0b",
        "a\n",
        "\n",
    ];
    for format in Format::ALL.into_iter().filter(|format| *format != Format::Host) {
        let pattern = regex::Regex::new(format.pattern()).unwrap();
        for sample in samples {
            // Go's `$` is the very end of a text, as is that of this crate.
            let by_pattern = pattern.is_match(sample) && sample.chars().count() as u64 >= format.chars().0;
            assert_eq!(by_pattern, format.holds(sample), "{format:?} {sample:?}");
        }
    }
}

proptest! {
    #[test]
    fn patterns_say_what_the_checks_do_for_any_text(text in "[-a-zA-Z0-9./:_ %?#@é\\u{a0}\n]{0,20}") {
        for format in Format::ALL.into_iter().filter(|format| !matches!(format, Format::Host | Format::UrlPath)) {
            let pattern = regex::Regex::new(format.pattern()).unwrap();
            let by_pattern = pattern.is_match(&text) && text.chars().count() as u64 >= format.chars().0;
            prop_assert_eq!(by_pattern, format.holds(&text), "{:?} {:?}", format, text);
        }
    }
}
