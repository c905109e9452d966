//! A test that `docs/robustness.md` names must exist, so that the page cannot promise more than is tested.

use std::collections::BTreeSet;

use super::Breach;
use super::sources::Source;

const PAGE: &str = "docs/robustness.md";

/// Every `` `x00_name` `` of the page against the functions of the tree.
pub(crate) fn check(files: &[Source]) -> Vec<Breach> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let functions: BTreeSet<&str> =
        files.iter().filter(|file| file.is_rust()).flat_map(|file| tests(&file.text)).collect();
    let mut breaches = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2).filter(|word| is_named_by_entry(word)) {
            if !functions.contains(name) {
                breaches.push(Breach::at(PAGE, index + 1, format!("no test is called `{name}`")));
            }
        }
    }
    breaches
}

fn tests(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("fn ").map(|(at, word)| {
        let rest = &text[at + word.len()..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// A letter, two digits and an underscore.
fn is_named_by_entry(word: &str) -> bool {
    matches!(word.as_bytes(), [theme, ten, one, b'_', ..]
        if theme.is_ascii_lowercase() && ten.is_ascii_digit() && one.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sources::source;

    #[test]
    fn a_test_that_is_gone_is_found() {
        let files = [
            source(PAGE, "| A01 | x | `a01_is_there`, `a02_is_gone` |\n"),
            source("tests/integration/bodies.rs", "#[test]\nfn a01_is_there() {}\n"),
        ];
        let found = check(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("a02_is_gone"), "{}", found[0]);
    }

    #[test]
    fn other_words_in_code_marks_are_no_tests() {
        assert!(check(&[source(PAGE, "`cargo test d02` and `tests/sdk`\n")]).is_empty());
    }
}
