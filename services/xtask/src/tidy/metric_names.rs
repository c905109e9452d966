//! A metric that a document or a dashboard names must exist.
//!
//! The names come from `docs/metrics.md`, which `cargo xtask codegen --check` holds equal to telemetry's catalogue:
//! so this rule needs none of the product's crates.

use std::collections::BTreeSet;

use super::Breach;
use super::sources::Source;

const CATALOGUE: &str = "docs/metrics.md";
const PREFIX: &str = "inference_gateway_";
/// What Prometheus appends to a histogram's name.
const SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// Every name in `README.md`, `docs/` and `dashboards/` against the catalogue.
pub(crate) fn check(files: &[Source]) -> Vec<Breach> {
    let Some(catalogue) = files.iter().find(|file| file.path == CATALOGUE) else {
        return vec![Breach::of(CATALOGUE, "is missing: run `cargo xtask codegen`")];
    };
    let known: BTreeSet<&str> = names(&catalogue.text).map(|(_, name)| name).collect();
    let readers = files.iter().filter(|file| names_metrics(&file.path));
    let breaches = readers.flat_map(|file| {
        let unknown = names(&file.text).filter(|(_, name)| !exists(&known, name));
        unknown.map(|(line, name)| Breach::at(&file.path, line, format!("no metric is called `{name}`")))
    });
    breaches.collect()
}

fn names_metrics(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/") && path != CATALOGUE || path.starts_with("dashboards/")
}

/// A name that ends in `_` is a family (`inference_gateway_endpoint_*`).
fn exists(known: &BTreeSet<&str>, name: &str) -> bool {
    let bare = SUFFIXES.into_iter().find_map(|suffix| name.strip_suffix(suffix));
    let family = name.ends_with('_') && known.iter().any(|metric| metric.starts_with(name));
    family || known.contains(name) || bare.is_some_and(|bare| known.contains(bare))
}

/// Every word that looks like one of our metrics, with its line.
fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        line.match_indices(PREFIX).filter_map(move |(at, _)| {
            let rest = &line[at..];
            let end =
                rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')).unwrap_or(rest.len());
            (end > PREFIX.len()).then(|| (index + 1, &rest[..end]))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::sources::source;

    const KNOWN: &str = "| `inference_gateway_picks_total` |\n| `inference_gateway_request_duration_seconds` |\n";

    fn breaches(path: &str, text: &str) -> Vec<Breach> {
        check(&[source(CATALOGUE, KNOWN), source(path, text)])
    }

    #[test]
    fn a_metric_that_does_not_exist_is_found() {
        let found = breaches("dashboards/pool.json", "\"expr\": \"rate(inference_gateway_pick_total[5m])\"");
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("`inference_gateway_pick_total`"));
    }

    #[test]
    fn suffixes_and_families_are_understood() {
        assert!(breaches("README.md", "inference_gateway_picks_total{pool=\"a\"}").is_empty());
        assert!(breaches("docs/a.md", "inference_gateway_request_duration_seconds_bucket").is_empty());
        assert!(breaches("docs/a.md", "inference_gateway_request_*").is_empty());
        assert_eq!(breaches("docs/a.md", "inference_gateway_cluster_*").len(), 1);
        assert!(breaches("services/a.rs", "inference_gateway_anything").is_empty());
    }

    #[test]
    fn a_missing_catalogue_is_found() {
        assert_eq!(check(&[]).len(), 1);
    }
}
