//! A crate's own `.clippy.toml` replaces the root's; it is not merged with it.
//!
//! The pure crates have one of their own, for the ban of clocks, so each must repeat what the root bans or lose it
//! silently. Read line by line: the files are ours and keep one entry to a line.

use super::Breach;
use super::sources::Source;

const ROOT: &str = ".clippy.toml";
/// The crates that get time as an argument.
const PURE: [&str; 6] = ["api", "dispatch", "engine", "pool", "protocol", "scheduling"];
const CLOCKS: [&str; 2] = ["std::time::Instant::now", "std::time::SystemTime::now"];

/// Compares each pure crate's lint settings with the root's.
pub(crate) fn check(files: &[Source]) -> Vec<Breach> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let Some(root) = text_of(ROOT) else { return vec![Breach::of(ROOT, "is missing")] };
    let mut breaches = Vec::new();
    for name in PURE {
        let path = format!("services/{name}/.clippy.toml");
        let Some(own) = text_of(&path) else {
            breaches.push(Breach::of(path, "is missing: it bans clocks in a pure crate"));
            continue;
        };
        let wanted = settings(root).chain(CLOCKS);
        let missing = wanted.filter(|setting| !settings(own).any(|present| present == *setting));
        breaches.extend(missing.map(|setting| Breach::of(&path, format!("must repeat `{setting}`"))));
    }
    breaches
}

/// The banned paths, and the settings that stand on a line of their own.
fn settings(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let banned = line.split_once("path = \"").and_then(|(_, rest)| rest.split_once('"')).map(|(path, _)| path);
        let plain = line.contains(" = ") && !line.ends_with('[') && !line.starts_with('#');
        banned.or(plain.then_some(line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sources::source;

    const BANS: &str = "allow-unwrap-in-tests = true\ndisallowed-macros = [\n  { path = \"metrics::counter\" },\n]\n";
    const CLOCK_BANS: &str = "disallowed-methods = [\n  { path = \"std::time::Instant::now\", reason = \"x\" },\n  \
                              { path = \"std::time::SystemTime::now\" },\n]\n";

    fn files(own: &str) -> Vec<Source> {
        let mut files = vec![source(ROOT, BANS)];
        files.extend(PURE.map(|name| source(&format!("services/{name}/.clippy.toml"), own)));
        files
    }

    #[test]
    fn a_ban_that_was_not_repeated_is_found() {
        assert_eq!(check(&files(&format!("{BANS}{CLOCK_BANS}"))), Vec::new());
        assert_eq!(check(&files(BANS)).len(), 2 * PURE.len());
        let found = check(&files(CLOCK_BANS));
        assert_eq!(found.len(), 2 * PURE.len());
        assert!(found[0].message.contains("allow-unwrap-in-tests"), "{}", found[0]);
    }

    #[test]
    fn a_missing_file_is_found() {
        assert_eq!(check(&files(&format!("{BANS}{CLOCK_BANS}"))[..3]).len(), PURE.len() - 2);
        assert_eq!(check(&[]).len(), 1);
    }
}
