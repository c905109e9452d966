use std::fmt::Write as _;

use crate::{
    place::Findings,
    yaml::{Budget, DEPTH_MAX, DOCUMENTS_MAX, Document, SOURCE_BYTES_MAX, VALUES_MAX, Value, documents},
};

fn compose(text: &str) -> (Vec<Document>, Vec<String>) {
    let mut findings = Findings::default();
    let found = documents(0, text, &mut Budget::default(), &mut findings);
    let violations = findings.into_violations(&["f"]).map(|violations| violations.0).unwrap_or_default();
    (found, violations.iter().map(ToString::to_string).collect())
}

fn violations(text: &str) -> Vec<String> {
    compose(text).1
}

/// A tree as one line, with lines after `@`.
fn shown(text: &str) -> String {
    fn show(node: &crate::yaml::Node) -> String {
        let value = match &node.value {
            Value::Null => "null".into(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(text) => format!("{:?}", text.text),
            Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
            Value::Map(entries) => {
                format!(
                    "{{{}}}",
                    entries.iter().map(|(key, node)| format!("{key}:{}", show(node))).collect::<Vec<_>>().join(" ")
                )
            }
        };
        format!("{value}@{}", node.line)
    }
    let (documents, violations) = compose(text);
    assert!(violations.is_empty(), "{violations:?}");
    documents.iter().map(|document| show(&document.root)).collect::<Vec<_>>().join(" --- ")
}

#[test]
fn values_carry_the_line_of_their_key() {
    assert_eq!(shown("a:\n  b: 1\n  c:\n  - x\n  - {d: 2}\n"), r#"{a:{b:1@2 c:["x"@4 {d:2@5}@5]@3}@1}@1"#);
    assert_eq!(shown("a:\n\n  folded\n  text\n"), r#"{a:"folded text"@1}@1"#);
}

#[test]
fn documents_are_split_and_empty_ones_left_out() {
    assert_eq!(shown("---\n---\na: 1\n...\n---\n# nothing\n---\nb: 2\n"), "{a:1@3}@3 --- {b:2@8}@8");
    assert_eq!(shown(""), "");
    assert_eq!(shown("\u{feff}a: 1\r\nb: 2\r\n"), "{a:1@1 b:2@2}@1");
    assert_eq!(shown("{\"a\":\n\t[1, \"x\"]}"), r#"{a:[1@2 "x"@2]@1}@1"#);
}

#[test]
fn quotes_and_tags_make_texts() {
    assert_eq!(shown("[1, '1', \"1\", !!str 1, ! 1, !!int 1, yes]"), r#"[1@1 "1"@1 "1"@1 "1"@1 "1"@1 1@1 "yes"@1]@1"#);
    assert_eq!(violations("a: !secret x"), ["f:1: tag `!secret` is not supported"]);
    assert_eq!(violations("a: !!set {x: null}"), ["f:1: tag `tag:yaml.org,2002:!set` is not supported"]);
}

#[test]
fn every_duplicate_key_is_found() {
    let wrong = violations("a: 1\nb:\n- c: 1\n  c: 2\n  \"x y\": 1\n  'x y': 1\na: 2\n");
    assert_eq!(
        wrong,
        [
            "f:4: b[0].c: duplicate key, first in line 3",
            "f:6: b[0][\"x y\"]: duplicate key, first in line 5",
            "f:7: a: duplicate key, first in line 1"
        ]
    );
}

#[test]
fn documents_that_nothing_parts_are_told_what_parts_them() {
    assert_eq!(
        violations("apiVersion: v1\nkind: A\nspec: {kind: b, kind: c}\napiVersion: v1\nkind: B\n"),
        [
            "f:3: spec.kind: duplicate key, first in line 3",
            "f:4: apiVersion: duplicate key, first in line 1; if another document begins here, put `---` on a line before it",
            "f:5: kind: duplicate key, first in line 2",
        ]
    );
}

#[test]
fn keys_are_texts() {
    for text in ["{[a]: 1}", "? {a: 1}\n: 2\n"] {
        assert_eq!(violations(text), ["f:1: a key must be a text, not a list or map"]);
    }
    assert_eq!(violations("- &a x\n- *a : 1\n"), ["f:2: an alias cannot be a key"]);
}

#[test]
fn aliases_repeat_and_merge() {
    assert_eq!(shown("a: &x {b: 1}\nc: *x\n"), "{a:{b:1@1}@1 c:{b:1@1}@2}@1");
    assert_eq!(
        shown("- &x {a: 1, b: 2}\n- {<<: *x, a: 3}\n- <<: [{a: 4}, *x]\n"),
        "[{a:1@1 b:2@1}@1 {a:3@2 b:2@2}@2 {a:4@3 b:2@3}@3]@1"
    );
    assert_eq!(violations("a: {<<: 1}"), ["f:1: a[\"<<\"]: `<<` merges maps, and this is none"]);
    assert_eq!(violations("&a [*a]"), ["f:1: this alias names a key, or what it stands in itself"]);
}

#[test]
fn a_syntax_error_has_its_line_and_spares_the_documents_before() {
    let (documents, violations) = compose("a: 1\n---\nb: [1, 2\nc: 3\n");
    assert_eq!(documents.len(), 1);
    assert_eq!(violations.len(), 1);
    assert!(violations[0].starts_with("f:4: not valid YAML: "), "{violations:?}");
}

#[test]
fn alias_bombs_are_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(text, "a{level}: &a{level} [{items}]").unwrap();
    }
    let wrong = violations(&text);
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].contains("may repeat 16777216 bytes in all"), "{wrong:?}");

    let long = format!("- &a {}\n{}", "x".repeat(1 << 20), "- *a\n".repeat(100));
    assert!(violations(&long)[0].contains("may repeat"));
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(violations(&nested(DEPTH_MAX)).is_empty());
    assert_eq!(violations(&nested(DEPTH_MAX + 1)), [format!("f:1: nested more than {DEPTH_MAX} deep")]);
    assert_eq!(violations(&nested(100_000)).len(), 1);
    assert_eq!(violations(&"- ".repeat(100_000)).len(), 1);
    let by_alias = format!("- &a {}\n- {}*a{}\n", nested(40), "[".repeat(40), "]".repeat(40));
    assert_eq!(violations(&by_alias), [format!("f:2: nested more than {DEPTH_MAX} deep")]);
}

#[test]
fn size_is_bounded() {
    assert!(violations(&"x".repeat(SOURCE_BYTES_MAX + 1))[0].contains("too long"));
    assert!(violations(&"- a\n".repeat(VALUES_MAX))[0].contains("more than 500000 values"));
    assert_eq!(
        violations(&format!("[{}]", "a,".repeat(VALUES_MAX + 1))),
        ["f: too many commas: all files together may have 500000 values"]
    );
    let wrong = violations(&"--- a\n".repeat(DOCUMENTS_MAX + 1));
    assert_eq!(wrong, [format!("f:{}: more than {DOCUMENTS_MAX} documents", DOCUMENTS_MAX + 1)]);
}
