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
