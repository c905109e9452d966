//! Texts to a configuration, step by step; each step goes on where it can, so that all that is wrong is found at once.

pub use cluster::load_from_cluster;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use crate::{
    Loaded, Source, Violations,
    document::Kind,
    effect,
    place::{Findings, Path, Place, quoted},
    resolve, rules,
    schema::{Shape, check::check, hint::nearest},
    yaml::{self, Budget, Cursor, Document, Value},
};

/// The namespace of a configuration that names none, as in a cluster.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Kubernetes' wrapper of several objects, as `kubectl get -o yaml` writes it.
const LIST: (&str, &str) = ("v1", "List");

/// A document of a known kind.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    pub(crate) kind: Kind,
    pub(crate) at: Cursor<'a>,
    /// What serde makes the struct from.
    pub(crate) json: Json,
}

impl<'a> Item<'a> {
    pub(crate) fn name(&self) -> Option<&'a str> {
        self.at.find(&["metadata", "name"]).and_then(|name| name.text())
    }
}

/// Where documents come from, since that decides what else must be among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// All there is stands in the documents, endpoints too.
    Files,
    /// Pods, Services and Secrets come and go beside the configuration, and other people's objects stand next to it: they
    /// are left out when they are wrong, and never stop it.
    Cluster,
}

/// Reads documents into a configuration.
///
/// # Errors
/// Every violation at once, in the order of sources and lines.
pub fn load(sources: &[Source]) -> Result<Loaded, Violations> {
    load_in(World::Files, sources)
}

/// Reads objects of a cluster, as documents, into a configuration: endpoints are the caller's to find, a default backend is
/// a Service, and no notice is given of what only shapes pods.
///
/// # Errors
/// Every violation of the `InferenceGatewayConfig` at once. What is wrong with objects that hang on it is in
/// [`Loaded::left_out`], and with its Secrets in [`Loaded::notices`].
pub fn load_in_cluster(sources: &[Source]) -> Result<Loaded, Violations> {
    load_in(World::Cluster, sources)
}

fn load_in(world: World, sources: &[Source]) -> Result<Loaded, Violations> {
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let (mut findings, mut beside, mut notices) = (Findings::default(), Findings::default(), Findings::default());
    let documents = read(sources, &mut findings);
    let unreadable = !findings.is_empty();
    let mut known = Vec::new();
    for document in &documents {
        classify(&Cursor::root(document), &mut known, &mut findings);
    }
    let unknown_kinds = !findings.is_empty();
    let known = of_one_namespace(known, &mut notices);
    let kinds: BTreeSet<Kind> = known.iter().map(|(kind, _)| *kind).collect();
    let shapes: BTreeMap<Kind, Shape> = kinds.into_iter().map(|kind| (kind, kind.shape())).collect();
    let mut items = Vec::with_capacity(known.len());
    for (kind, at) in known {
        let mut wrong = Findings::default();
        let json = check(&shapes[&kind], &at, &mut wrong);
        if world == World::Cluster && kind != Kind::InferenceGatewayConfig && !wrong.is_empty() {
            beside.extend(wrong);
            continue;
        }
        findings.extend(wrong);
        items.push(Item { kind, json, at });
    }

    let config = only_config(&items, unreadable || unknown_kinds, &mut findings);
    unique_names(&items, &names, &mut findings);
    if let Some(config) = config {
        let pods_only = match world {
            World::Files => Some(&mut notices),
            World::Cluster => None,
        };
        effect::check(&config.at, &shapes[&Kind::InferenceGatewayConfig], &mut findings, pods_only);
    }
    let mut told_of = rules::Told { findings: &mut findings, beside: &mut beside, notices: &mut notices };
    let adapters = rules::check(config.map(|config| &config.at), &items, world, &mut told_of);
    if world == World::Files {
        findings.extend(std::mem::take(&mut beside));
    }

    let resolved = match config {
        Some(config) if findings.is_empty() => {
            resolve::config(config, &items, adapters, world, &mut findings, &mut notices)
        }
        Some(_) | None => None,
    };
    match (findings.into_violations(&names), resolved) {
        (None, Some(config)) => {
            let left_out = beside.into_violations(&names).map_or_else(Vec::new, |violations| violations.0);
            Ok(Loaded { config, notices: told(notices, &names), left_out })
        }
        (Some(violations), _) => Err(violations),
        (None, None) => unreachable!("without a violation there is one configuration, and it resolves or says why not"),
    }
}

fn read(sources: &[Source], findings: &mut Findings) -> Vec<Document> {
    let mut budget = Budget::default();
    let mut documents = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        documents.extend(yaml::documents(index, &source.text, &mut budget, findings));
    }
    documents
}

/// Finds out which kind a document is of; unpacks a `List`.
fn classify<'a>(at: &Cursor<'a>, known: &mut Vec<(Kind, Cursor<'a>)>, findings: &mut Findings) {
    if !matches!(at.node.value, Value::Map(_)) {
        return findings.report(
            at.place(),
            format!("a document must be a map with `apiVersion` and `kind`, not {}", at.node.kind()),
        );
    }
    let text = |key: &str| at.get(key).and_then(|value| value.text());
    match (text("apiVersion"), text("kind")) {
        (Some(api_version), Some(kind)) if (api_version, kind) == LIST && at.path == Path::root() => {
            for item in at.get("items").iter().flat_map(Cursor::items) {
                classify(&item, known, findings);
            }
        }
        (Some(api_version), Some(kind)) => match kind_of(api_version, kind) {
            Ok(kind) => known.push((kind, at.clone())),
            Err((field, message)) => findings.report(at.get(field).unwrap_or_else(|| at.clone()).place(), message),
        },
        (api_version, kind) => {
            for (key, value) in [("apiVersion", api_version), ("kind", kind)] {
                if value.is_none() {
                    let place = Place { path: at.path.field(key), ..at.place() };
                    findings.report(place, "required field is missing, or no text");
                }
            }
        }
    }
}

/// The kind of that name and version, or which field is wrong and why.
fn kind_of(api_version: &str, kind: &str) -> Result<Kind, (&'static str, String)> {
    let Some(known) = Kind::ALL.into_iter().find(|known| known.name() == kind) else {
        let names = || Kind::ALL.into_iter().map(Kind::name);
        let hint = nearest(kind, names()).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        let names = names().collect::<Vec<_>>().join(", ");
        return Err(("kind", format!("unknown kind {}: known are {names}{hint}", quoted(kind))));
    };
    if known.api_versions().contains(&api_version) {
        return Ok(known);
    }
    let versions = known.api_versions().iter().map(|version| format!("`{version}`")).collect::<Vec<_>>().join(" or ");
    Err(("apiVersion", format!("must be {versions} for kind {kind}, not {}", quoted(api_version))))
}

/// Leaves out documents of another namespace than the configuration's, as a cluster would.
fn of_one_namespace<'a>(known: Vec<(Kind, Cursor<'a>)>, notices: &mut Findings) -> Vec<(Kind, Cursor<'a>)> {
    let namespace_of = |at: &Cursor<'a>| at.find(&["metadata", "namespace"]).and_then(|namespace| namespace.text());
    let config = known.iter().find(|(kind, _)| *kind == Kind::InferenceGatewayConfig);
    let own = config.and_then(|(_, at)| namespace_of(at)).unwrap_or(DEFAULT_NAMESPACE);
    let belongs = |(kind, at): &(Kind, Cursor<'a>)| {
        *kind == Kind::InferenceGatewayConfig || namespace_of(at).is_none_or(|namespace| namespace == own)
    };
    let (inside, outside): (Vec<_>, Vec<_>) = known.into_iter().partition(belongs);
    for (kind, at) in outside {
        let message = format!("{} is left out: its namespace is not the configuration's, {own:?}", kind.name());
        notices.report(at.find(&["metadata", "namespace"]).unwrap_or(at).place(), message);
    }
    inside
}

/// The one `InferenceGatewayConfig`. `excused`: something could not be read, and may have been it.
fn only_config<'i, 'a>(items: &'i [Item<'a>], excused: bool, findings: &mut Findings) -> Option<&'i Item<'a>> {
    let mut configs = items.iter().filter(|item| item.kind == Kind::InferenceGatewayConfig);
    let first = configs.next();
    if first.is_none() && !excused {
        let place = Place { source: None, line: None, path: Path::root() };
        findings.report(place, "no InferenceGatewayConfig: exactly one document of this kind is needed");
    }
    for further in configs {
        findings.report(further.at.place(), "a second InferenceGatewayConfig: exactly one is allowed");
    }
    first
}

fn unique_names(items: &[Item<'_>], source_names: &[&str], findings: &mut Findings) {
    // A cluster keeps the same kind of two API groups apart, so an object may be in both while it moves.
    let mut first: BTreeMap<(Kind, Option<&str>, &str), &Cursor<'_>> = BTreeMap::new();
    // A second configuration is refused as such.
    for item in items.iter().filter(|item| item.kind != Kind::InferenceGatewayConfig) {
        let Some(name) = item.name() else { continue };
        let key = (item.kind, item.at.get("apiVersion").and_then(|version| version.text()), name);
        if let Some(other) = first.get(&key) {
            let (source, line) = (source_names[other.source], other.node.line);
            let place = item.at.find(&["metadata", "name"]).unwrap_or_else(|| item.at.clone()).place();
            findings.report(place, format!("another {} has this name, in {source}:{line}", item.kind.name()));
        } else {
            first.insert(key, &item.at);
        }
    }
}

fn told(notices: Findings, source_names: &[&str]) -> Vec<String> {
    let told = notices.into_violations(source_names);
    told.into_iter().flat_map(|told| told.0).map(|notice| notice.to_string()).collect()
}

mod cluster;

#[cfg(test)]
mod tests;
