//! No loose ends without a number, and no path that exists on one machine only.

use super::Breach;
use super::sources::Source;

/// Written in two halves so that this file passes its own rule.
const LOOSE_END: &str = concat!("TO", "DO");
/// Folders of somebody's machine. A reader has none of them.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];

/// Every line of every text file.
pub(crate) fn check(files: &[Source]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            if has_loose_end(line) {
                let message = format!("`{LOOSE_END}` without a number: write `{LOOSE_END}(#123)` or do it");
                breaches.push(Breach::at(&file.path, index + 1, message));
            }
            if let Some(path) = MACHINE_PATHS.into_iter().find(|path| starts_a_path(line, path)) {
                breaches.push(Breach::at(&file.path, index + 1, format!("`{path}` is a path of one machine")));
            }
        }
    }
    breaches
}

fn has_loose_end(line: &str) -> bool {
    line.match_indices(LOOSE_END).any(|(at, found)| {
        let before = line[..at].chars().next_back();
        let behind = &line[at + found.len()..];
        let is_word = !before.is_some_and(is_part_of_word) && !behind.starts_with(is_part_of_word);
        let numbered = behind.strip_prefix("(#").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        is_word && !numbered
    })
}

fn is_part_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `folder` begins an absolute path in `line`. In the middle of a longer path or an address it does not.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| is_part_of_word(c) || ".-~}$*>".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sources::source;

    fn breaches(line: &str) -> usize {
        check(&[source("docs/a.md", line)]).len()
    }

    #[test]
    fn a_loose_end_is_found_unless_numbered() {
        assert_eq!(breaches(&format!("// {LOOSE_END}: later")), 1);
        assert_eq!(breaches(&format!("// {LOOSE_END}(someone): later")), 1);
        assert_eq!(breaches(&format!("// {LOOSE_END}(#12): later")), 0);
        assert_eq!(breaches(&format!("MAS{LOOSE_END}NT")), 0);
    }

    #[test]
    fn a_path_of_a_machine_is_found() {
        for folder in MACHINE_PATHS {
            assert_eq!(breaches(&format!("see `{folder}x`")), 1, "{folder}");
            assert_eq!(breaches(&format!("file://{folder}x")), 1, "{folder}");
            assert_eq!(breaches(&format!("https://example.com{folder}x")), 0, "{folder}");
            assert_eq!(breaches(&format!("src{folder}x")), 0, "{folder}");
        }
    }
}
