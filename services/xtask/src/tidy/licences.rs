//! Every crate that is built in has a licence that we may ship under Apache-2.0.
//!
//! The plain half of what cargo-deny does (`.deny.toml` holds the whole), so that the build needs no other tool.

use cargo_metadata::Metadata;

use super::Breach;

/// Permissive licences, by their SPDX names.
const ALLOWED: [&str; 15] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

/// A crate of others and what its manifest says.
#[derive(Debug)]
pub(crate) struct Package {
    pub name: String,
    pub licence: Option<String>,
}

/// Everything in the lock file that is built on this platform, ours apart.
pub(crate) fn packages(metadata: &Metadata) -> Vec<Package> {
    let built = metadata.resolve.iter().flat_map(|resolve| resolve.nodes.iter().map(|node| &node.id));
    let external = built.filter(|id| !metadata.workspace_members.contains(id)).map(|id| {
        let package = &metadata[id];
        Package { name: format!("{} {}", package.name, package.version), licence: package.license.clone() }
    });
    external.collect()
}

/// A breach for each package without a licence that we may choose.
pub(crate) fn check(packages: &[Package]) -> Vec<Breach> {
    let breaches = packages.iter().filter_map(|package| match &package.licence {
        Some(licence) if allows(licence) => None,
        Some(licence) => {
            Some(Breach::of(&package.name, format!("has the licence `{licence}`, which is not in our list")))
        }
        None => Some(Breach::of(&package.name, "names no licence in its manifest")),
    });
    breaches.collect()
}

/// Whether an SPDX expression can be met. `/` is the old way to write `OR`.
fn allows(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) && rest.is_empty()
}

/// `a OR b`: both sides are read, so that `rest` always ends behind them.
fn any_of(rest: &mut &[&str]) -> bool {
    let mut met = all_of(rest);
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        met |= all_of(rest);
    }
    met
}

fn all_of(rest: &mut &[&str]) -> bool {
    let mut met = one(rest);
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        met &= one(rest);
    }
    met
}

fn one(rest: &mut &[&str]) -> bool {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let met = any_of(rest);
            let [")", tail @ ..] = *rest else { return false };
            *rest = tail;
            met
        }
        [name, "WITH", exception, tail @ ..] => {
            *rest = tail;
            ALLOWED.contains(&format!("{name} WITH {exception}").as_str())
        }
        [name, tail @ ..] => {
            *rest = tail;
            ALLOWED.contains(name)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        for good in ["MIT", "MIT OR Apache-2.0", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0"]
        {
            assert!(allows(good), "{good}");
        }
        for good in ["Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", "(GPL-2.0) OR ((ISC))"] {
            assert!(allows(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "GPL-2.0 WITH Classpath-exception-2.0", "", "(MIT", "MIT)", "MIT ISC"]
        {
            assert!(!allows(bad), "{bad}");
        }
    }

    #[test]
    fn cargo_deny_is_told_the_same_list() {
        let settings = include_str!("../../../../.deny.toml");
        let (_, list) = settings.split_once("\nallow = [").unwrap();
        let (list, _) = list.split_once(']').unwrap();
        let allowed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(allowed, ALLOWED);
    }

    #[test]
    fn a_package_that_may_not_be_shipped_is_found() {
        let package = |licence: Option<&str>| Package { name: "x 1.0.0".into(), licence: licence.map(str::to_owned) };
        let found = check(&[package(Some("MIT")), package(Some("AGPL-3.0")), package(None)]);
        assert_eq!(found.len(), 2);
        assert!(found[0].message.contains("AGPL-3.0"));
    }
}
