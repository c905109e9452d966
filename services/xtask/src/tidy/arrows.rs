//! Who may import whom: the arrows between our crates, and which crates of others each rank may use.
//!
//! The table is the architecture. A new row or arrow is a decision to be written down in `docs/adr/`. Cargo already
//! refuses cycles; what it cannot know is that a decision must not reach for a socket.

use cargo_metadata::{DependencyKind, Metadata};

use super::Breach;
use crate::workspace::Workspace;

/// How far up a crate stands; imports point down only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Facts,
    Decisions,
    Machinery,
    Programs,
    Checks,
}

/// One crate of ours in the table.
struct Row {
    name: &'static str,
    rank: Rank,
    /// The crates of ours that it may use.
    ours: &'static [&'static str],
    externals: Externals,
}

enum Externals {
    /// Only these: no IO, no runtime, no clock, no locks, no logging, no global random.
    Only(&'static [&'static str]),
    /// Any, as far as `HOMES` allows.
    Homes,
    /// Any at all: nothing of it is shipped.
    Any,
}

const FACTS: Externals = Externals::Only(&[
    "base64",
    "bytes",
    "http",
    "memchr",
    "saphyr-parser",
    "schemars",
    "serde",
    "serde_json",
    "serde_yaml_ng",
    "simdutf8",
    "smallvec",
    "strsim",
    "thiserror",
    "xxhash-rust",
]);
/// `fastrand` for seeded generators that are handed in; its global ones are banned by lint.
const DECISIONS: Externals = Externals::Only(&["base64", "fastrand", "regex", "smallvec", "thiserror", "xxhash-rust"]);

const ROWS: [Row; 17] = [
    Row { name: "api", rank: Rank::Facts, ours: &[], externals: FACTS },
    Row { name: "pool", rank: Rank::Facts, ours: &[], externals: FACTS },
    Row { name: "protocol", rank: Rank::Facts, ours: &[], externals: FACTS },
    Row { name: "telemetry", rank: Rank::Facts, ours: &[], externals: Externals::Homes },
    Row { name: "flow-control", rank: Rank::Decisions, ours: &["api", "pool"], externals: DECISIONS },
    Row { name: "scheduling", rank: Rank::Decisions, ours: &["api", "pool"], externals: DECISIONS },
    Row {
        name: "dispatch",
        rank: Rank::Decisions,
        ours: &["api", "flow-control", "pool", "scheduling"],
        externals: DECISIONS,
    },
    Row { name: "engine", rank: Rank::Decisions, ours: &["pool"], externals: DECISIONS },
    Row { name: "routing", rank: Rank::Decisions, ours: &["api"], externals: DECISIONS },
    Row { name: "discovery", rank: Rank::Machinery, ours: &["api", "pool", "telemetry"], externals: Externals::Homes },
    Row { name: "proxy", rank: Rank::Machinery, ours: &["protocol", "telemetry"], externals: Externals::Homes },
    Row {
        name: "gateway",
        rank: Rank::Programs,
        ours: &[
            "api",
            "pool",
            "protocol",
            "telemetry",
            "flow-control",
            "scheduling",
            "dispatch",
            "routing",
            "discovery",
            "proxy",
        ],
        externals: Externals::Homes,
    },
    Row {
        name: "controller",
        rank: Rank::Programs,
        ours: &["api", "discovery", "routing", "telemetry"],
        externals: Externals::Homes,
    },
    Row { name: "model-sim", rank: Rank::Programs, ours: &["engine", "pool", "protocol"], externals: Externals::Homes },
    Row {
        name: "bench",
        rank: Rank::Programs,
        ours: &["dispatch", "engine", "flow-control", "pool", "protocol", "scheduling"],
        externals: Externals::Homes,
    },
    Row {
        name: "xtask",
        rank: Rank::Checks,
        ours: &["api", "gateway", "protocol", "telemetry"],
        externals: Externals::Any,
    },
    Row {
        name: "tests",
        rank: Rank::Checks,
        ours: &[
            "api",
            "bench",
            "discovery",
            "dispatch",
            "engine",
            "flow-control",
            "gateway",
            "model-sim",
            "pool",
            "protocol",
            "proxy",
            "routing",
            "scheduling",
            "telemetry",
        ],
        externals: Externals::Any,
    },
];

/// Crates of others that have a home: a prefix, who may use it, and why nobody else.
const HOMES: [(&str, &[&str], &str); 9] = [
    ("aws-", &["addon", "cloudwatch-publisher", "controller"], "AWS calls stay out of the request path"),
    ("kube", &["controller", "discovery"], "everything else works from snapshots"),
    ("k8s-openapi", &["controller", "discovery"], "everything else works from snapshots"),
    ("metrics", &["telemetry"], "metrics are named in its catalogue"),
    ("utoipa", &["gateway"], "the API is described where it is served"),
    ("axum", &["addon", "controller", "gateway", "global-router", "model-sim", "proxy"], "the rest serves nothing"),
    ("anyhow", &["addon", "bench", "controller", "gateway", "global-router", "model-sim"], "libraries name errors"),
    ("clap", &["addon", "bench", "controller", "gateway", "global-router", "model-sim"], "only programs have flags"),
    ("reqwest", &[], "hyper is in the tree already, and it follows no environment's proxy"),
];

/// A package of the workspace, reduced to what the rules look at.
#[derive(Debug)]
pub(crate) struct Crate {
    pub name: String,
    pub uses: Vec<Use>,
}

/// One line under `[dependencies]` and its kin.
#[derive(Debug)]
pub(crate) struct Use {
    pub name: String,
    pub place: Place,
}

/// Where a dependency is used. Tests may use any crate of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Product,
    Tests,
}

/// Everything cargo knows, for the machine we are on.
pub(crate) fn metadata(workspace: &Workspace) -> anyhow::Result<Metadata> {
    let target = build_target(workspace)?;
    let mut command = cargo_metadata::MetadataCommand::new();
    command.manifest_path(workspace.root.join("Cargo.toml"));
    Ok(command.other_options(vec!["--locked".into(), "--filter-platform".into(), target]).exec()?)
}

/// Without a platform, cargo would fetch crates that are never built here.
fn build_target(workspace: &Workspace) -> anyhow::Result<String> {
    let output = std::process::Command::new("rustc").arg("-vV").current_dir(&workspace.root).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("`rustc -vV` names no host"))
}

/// The packages of the workspace and what they declare.
pub(crate) fn crates(metadata: &Metadata) -> Vec<Crate> {
    let reduced = metadata.workspace_packages().into_iter().map(|package| {
        let uses = package.dependencies.iter().map(|dependency| Use {
            name: dependency.name.clone(),
            place: if dependency.kind == DependencyKind::Development { Place::Tests } else { Place::Product },
        });
        Crate { name: package.name.to_string(), uses: uses.collect() }
    });
    reduced.collect()
}

/// Arrows that only tests may use: predictions are judged on simulated engines (ADR 0014).
const IN_TESTS: &[(&str, &str)] = &[("dispatch", "engine")];

/// Every arrow and every external crate against the table.
pub(crate) fn check(crates: &[Crate]) -> Vec<Breach> {
    let mut breaches = rank_breaches();
    for ours in crates {
        match row(&ours.name) {
            Some(row) => breaches.extend(ours.uses.iter().filter_map(|used| check_use(row, used, crates))),
            None => breaches.push(Breach::of(
                &ours.name,
                "is not in the table of services/xtask/src/tidy/arrows.rs: add it with its rank and an ADR",
            )),
        }
    }
    breaches
}

fn check_use(row: &Row, used: &Use, crates: &[Crate]) -> Option<Breach> {
    if crates.iter().any(|ours| ours.name == used.name) {
        let in_tests = used.place == Place::Tests && IN_TESTS.contains(&(row.name, used.name.as_str()));
        let allowed = in_tests || row.ours.contains(&used.name.as_str());
        return (!allowed)
            .then(|| Breach::of(row.name, format!("must not use our crate `{}`: a new arrow is an ADR", used.name)));
    }
    if used.place == Place::Tests {
        return None;
    }
    let reason = match &row.externals {
        Externals::Only(list) if list.contains(&used.name.as_str()) => return None,
        Externals::Only(_) => "its rank is pure: no IO, clock, locks, logging or global random",
        Externals::Homes => not_at_home(row.name, &used.name)?,
        Externals::Any => return None,
    };
    Some(Breach::of(row.name, format!("must not use `{}`: {reason}", used.name)))
}

fn not_at_home(ours: &str, external: &str) -> Option<&'static str> {
    let home = HOMES.iter().find(|(prefix, _, _)| external.starts_with(prefix))?;
    (!home.1.contains(&ours)).then_some(home.2)
}

/// The table itself must point downwards, or sideways only from `dispatch` to the decisions that it joins.
fn rank_breaches() -> Vec<Breach> {
    let mut breaches = Vec::new();
    for from in &ROWS {
        for to in from.ours.iter().filter_map(|name| row(name)) {
            if to.rank > from.rank || (to.rank == from.rank && from.name != "dispatch" && from.rank != Rank::Checks) {
                breaches.push(Breach::of(
                    from.name,
                    format!("the table lets it import upwards or sideways: `{}`", to.name),
                ));
            }
        }
    }
    breaches
}

fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(name: &str, place: Place) -> Use {
        Use { name: name.to_owned(), place }
    }

    fn breaches_of(name: &str, used: &str, place: Place) -> usize {
        let names = ROWS.iter().filter(|row| row.name != name);
        let mut crates: Vec<Crate> = names.map(|row| Crate { name: row.name.to_owned(), uses: Vec::new() }).collect();
        crates.push(Crate { name: name.to_owned(), uses: vec![uses(used, place)] });
        check(&crates).len()
    }

    #[test]
    fn a_fact_that_imports_a_fact_is_found() {
        assert_eq!(breaches_of("pool", "api", Place::Product), 1);
        assert_eq!(breaches_of("discovery", "pool", Place::Product), 0);
    }

    #[test]
    fn an_upward_arrow_is_found_even_in_tests() {
        assert_eq!(breaches_of("scheduling", "dispatch", Place::Product), 1);
        assert_eq!(breaches_of("proxy", "model-sim", Place::Tests), 1);
    }

    #[test]
    fn a_decision_that_reaches_for_a_runtime_is_found() {
        for external in ["tokio", "hyper", "kube", "parking_lot", "tracing", "metrics", "rand"] {
            assert_eq!(breaches_of("dispatch", external, Place::Product), 1, "{external}");
        }
        assert_eq!(breaches_of("dispatch", "proptest", Place::Tests), 0);
    }

    #[test]
    fn a_crate_away_from_home_is_found() {
        assert_eq!(breaches_of("gateway", "aws-sdk-eks", Place::Product), 1);
        assert_eq!(breaches_of("gateway", "metrics", Place::Product), 1);
        assert_eq!(breaches_of("discovery", "anyhow", Place::Product), 1);
        assert_eq!(breaches_of("telemetry", "metrics-exporter-prometheus", Place::Product), 0);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        let unknown = Crate { name: "shiny".to_owned(), uses: Vec::new() };
        let found = check(&[unknown]);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("is not in the table"));
    }

    #[test]
    fn the_table_points_downwards() {
        assert_eq!(rank_breaches(), Vec::new());
    }
}
