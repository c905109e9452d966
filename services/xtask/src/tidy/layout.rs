//! What may lie at the root, how files may be called, and how a module opens.

use super::Breach;
use super::sources::Source;

/// Everything that may lie at the root; dotfiles hold tool settings and may come and go.
const ROOT: [&str; 12] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "addon-manifest",
    "cdk",
    "crds",
    "dashboards",
    "docs",
    "services",
    "target",
    "tests",
];
/// Names that say nothing about what is inside, so that everything ends up there.
const BANNED: [&str; 5] = ["utils", "common", "helpers", "types", "misc"];

/// Root entries, file names, and the opening comment of each Rust file.
pub(crate) fn check(files: &[Source], root: &[String]) -> Vec<Breach> {
    let strangers = root.iter().filter(|name| !name.starts_with('.') && !ROOT.contains(&name.as_str()));
    let mut breaches: Vec<Breach> =
        strangers.map(|name| Breach::of(name, "does not belong at the root; services/, tests/ or docs/?")).collect();
    for file in files.iter().filter(|file| file.is_rust()) {
        breaches.extend(bad_name(&file.path));
        breaches.extend(no_opening(file));
    }
    breaches
}

fn bad_name(path: &str) -> Option<Breach> {
    if path.ends_with("/mod.rs") {
        return Some(Breach::of(path, "is a `mod.rs`: use `foo.rs` beside `foo/`"));
    }
    let banned = path.trim_end_matches(".rs").split('/').find(|part| BANNED.contains(part))?;
    Some(Breach::of(path, format!("`{banned}` says nothing: name the idea that the file holds")))
}

/// A module tells what it is for before anything else. A `tests.rs` beside its subject has said it with its name.
fn no_opening(file: &Source) -> Option<Breach> {
    if file.path.ends_with("/tests.rs") {
        return None;
    }
    let first = file.text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!"));
    let opens = first.is_some_and(|line| line.starts_with("//!"));
    (!opens).then(|| Breach::at(&file.path, 1, "must open with `//!`: what it is for, why this shape, what it refuses"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sources::source;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&[source(path, text)], &[]).into_iter().map(|breach| breach.message).collect()
    }

    #[test]
    fn a_stranger_at_the_root_is_found() {
        let root = ["Cargo.toml", ".ci", "notes.md"].map(str::to_owned);
        let found = check(&[], &root);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "notes.md");
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        assert!(messages("services/x/src/a/mod.rs", "//! a")[0].contains("mod.rs"));
        assert!(messages("services/x/src/utils.rs", "//! a")[0].contains("`utils`"));
        assert!(messages("services/x/src/common/a.rs", "//! a")[0].contains("`common`"));
        assert!(messages("services/x/src/commons.rs", "//! a").is_empty());
    }

    #[test]
    fn a_module_without_an_opening_is_found() {
        assert_eq!(messages("services/x/src/a.rs", "use std::fmt;\n").len(), 1);
        assert_eq!(messages("services/x/src/a.rs", "").len(), 1);
        assert!(messages("services/x/src/a.rs", "\n//! Holds a.\n").is_empty());
        assert!(messages("services/x/src/a/tests.rs", "use super::*;\n").is_empty());
    }
}
