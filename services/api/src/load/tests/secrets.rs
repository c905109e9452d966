//! Secrets and who refers to them. What is not built refuses the fields too, so these look at what else is said.

use super::*;
use crate::config::Hidden;

const TLS: &str = "tls: {secretRef: {name: front}}";
const KEYS: &str = "auth: {apiKeys: {secretRef: {name: clients}}}";

fn secret(name: &str, rest: &str) -> String {
    format!("---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n{rest}\n")
}

/// What is wrong besides that the field's effect may not be built.
fn wrong(text: &str) -> Vec<String> {
    let Err(violations) = load_texts(&[text]) else { return Vec::new() };
    let told = violations.0.iter().map(ToString::to_string);
    told.filter(|violation| !violation.contains("not enforced yet")).collect()
}

#[test]
fn a_secret_that_is_named_must_be_there_and_hold_what_it_is_for() {
    let good_pair = "type: kubernetes.io/tls\ndata: {tls.crt: aGVsbG8=, tls.key: aGVsbG8=}";
    let text = |spec: &str, name: &str, rest: &str| format!("{}{}", with_spec(spec), secret(name, rest));
    assert_eq!(wrong(&text(TLS, "front", good_pair)), Vec::<String>::new());
    assert_eq!(wrong(&text(KEYS, "clients", "stringData: {batch: sk-0123456789}")), Vec::<String>::new());
    for (spec, name, rest, expected) in [
        (
            TLS,
            "frond",
            good_pair,
            "0.yaml:10: spec.tls.secretRef.name: no Secret is called \"front\"; did you mean `frond`?",
        ),
        (
            TLS,
            "front",
            "type: Opaque\ndata: {tls.crt: aGVsbG8=, tls.key: aGVsbG8=}",
            "0.yaml:15: type: must be `kubernetes.io/tls` for `spec.tls.secretRef`",
        ),
        (
            TLS,
            "front",
            "data: {tls.crt: aGVsbG8=}",
            "0.yaml:12: must have the entry `tls.key` for `spec.tls.secretRef`",
        ),
        (
            TLS,
            "front",
            "data: {tls.crt: aGVsbG8=, tls.key: ''}",
            "0.yaml:12: must have the entry `tls.key` for `spec.tls.secretRef`",
        ),
        (KEYS, "clients", "data: {}", "0.yaml:12: must have 1 … 10000 entries, one per client, has 0"),
        (
            KEYS,
            "clients",
            "stringData: {a: short}",
            "0.yaml:12: the key of \"a\" must have 8 … 4096 printable ASCII characters, without spaces",
        ),
        (
            KEYS,
            "clients",
            "stringData: {a: 'two words'}",
            "0.yaml:12: the key of \"a\" must have 8 … 4096 printable ASCII characters, without spaces",
        ),
        (
            KEYS,
            "clients",
            "stringData: {a: sk-0123456789, b: sk-0123456789}",
            "0.yaml:12: clients \"a\" and \"b\" have the same key",
        ),
        (
            KEYS,
            "clients",
            "data: {a: sk-0123456789}",
            "0.yaml:15: data.a: must be base64; what is not belongs into `stringData`",
        ),
        (
            KEYS,
            "clients",
            "stringData: {a: 123456789}",
            "0.yaml:15: stringData.a: must be a text, not an integer; put it in quotes",
        ),
        (KEYS, "clients", "stringData: [sk-0123456789]", "0.yaml:15: stringData: must be a map, not a list"),
    ] {
        let found = wrong(&text(spec, name, rest));
        assert!(found.contains(&expected.to_owned()), "{rest}: {found:#?}");
    }
}

#[test]
fn no_message_repeats_what_is_secret() {
    let secret_text = "sk-do-not-show-me sk";
    for rest in [
        format!("stringData: {{a: {secret_text:?}}}"),
        format!("data: {{a: {secret_text:?}}}"),
        format!("data: {secret_text:?}"),
        format!("stringData: [{secret_text:?}]"),
        format!("stringData: {{a: [{secret_text:?}]}}"),
    ] {
        let found = wrong(&format!("{}{}", with_spec(KEYS), secret("clients", &rest)));
        assert!(!found.is_empty(), "{rest}");
        assert!(!found.iter().any(|violation| violation.contains("show-me")), "{found:?}");
    }
    assert_eq!(format!("{:?}", Hidden(secret_text.into())), "Hidden(20 bytes)");
}

#[test]
fn in_files_nobody_issues_certificates() {
    let expected = "0.yaml:10: spec.tls: issuing a certificate, and using one of ACM, needs a cluster: in files, name a \
                    Secret in `secretRef`";
    for tls in ["tls: {}", "tls: {acmArn: ''}", "tls: {acmArn: 'arn:aws:acm:a'}"] {
        assert_eq!(wrong(&with_spec(tls)), [expected], "{tls}");
    }
}
