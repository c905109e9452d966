//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! Each rule is a pure function from what was read (files, cargo's metadata) to breaches, so that each has a test
//! with a breach that must be found. All breaches of all rules are shown at once, each with its place.

mod arrows;
mod layout;
mod lengths;
mod licences;
mod lints;
mod metric_names;
mod named_tests;
mod sources;
mod text;

use std::fmt;

use crate::workspace::Workspace;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    /// A path from the root, or a crate's name.
    pub place: String,
    /// Counted from 1; `None` when the whole place is meant.
    pub line: Option<usize>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Breach {
    fn of(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), line: None, message: message.into() }
    }

    fn at(place: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { place: place.into(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.message),
            None => write!(f, "{}: {}", self.place, self.message),
        }
    }
}

/// Checks every rule and prints one line for each; fails with all breaches shown.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<()> {
    let files = sources::read(&workspace.root)?;
    let metadata = arrows::metadata(workspace)?;
    let crates = arrows::crates(&metadata);
    let checks = [
        ("arrows between our crates, external crates by rank", arrows::check(&crates)),
        ("licences of everything that is built in", licences::check(&licences::packages(&metadata))),
        ("the root, file names, opening comments", layout::check(&files, &sources::root_entries(&workspace.root)?)),
        ("lengths of files and functions", lengths::check(&files)),
        ("loose ends and paths of a machine", text::check(&files)),
        ("lints of the decision crates", lints::check(&files)),
        ("metric names in documents and dashboards", metric_names::check(&files)),
        ("tests named in documents", named_tests::check(&files)),
    ];
    let mut breaches = Vec::new();
    for (rule, found) in checks {
        println!("  {} {rule}", if found.is_empty() { "ok    " } else { "BROKEN" });
        breaches.extend(found);
    }
    breaches.sort();
    breaches.iter().for_each(|breach| println!("{breach}"));
    anyhow::ensure!(breaches.is_empty(), "{} breach(es) of the house rules in {} files", breaches.len(), files.len());
    println!("tidy: {} files and {} crates keep the rules", files.len(), crates.len());
    Ok(())
}
