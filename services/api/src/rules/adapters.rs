//! Which adapter belongs to which base model, merged from schedulers and from `ConfigMap`s.
//!
//! A request names an adapter as its model, so each name must lead to one base: an adapter that two bases claim, or
//! that is called like a model, has no meaning and is refused. The same adapter told twice for the same base is fine.

use std::collections::{BTreeMap, BTreeSet};

use super::Told;
use crate::{
    document::Kind,
    format::Format,
    load::{Item, World},
    place::{Findings, Place, quoted},
    schema::hint::nearest,
    yaml::{self, Budget, Cursor, Text, Value},
};

/// The label that makes a `ConfigMap` a list of adapters, and its value.
const MANAGED_LABEL: (&str, &str) = (crate::names::ADAPTERS_LABEL, "true");

/// Most adapters of one gateway, schedulers and `ConfigMap`s together.
const ADAPTERS_MAX: usize = 10_000;
const _: () = assert!(ADAPTERS_MAX == 10_000, "`RULES` says this number to operators");

pub(super) fn check(
    spec: &Cursor<'_>,
    items: &[Item<'_>],
    world: World,
    told: &mut Told<'_>,
) -> BTreeMap<String, String> {
    let Told { findings, beside, notices } = told;
    let schedulers: Vec<Cursor<'_>> = spec.get("schedulers").iter().flat_map(Cursor::items).collect();
    let models: BTreeSet<&str> = schedulers.iter().filter_map(|scheduler| scheduler.get("modelName")?.text()).collect();
    let referred: BTreeSet<&str> =
        schedulers.iter().filter_map(|scheduler| scheduler.find(&["configMapRef", "name"])?.text()).collect();
    let mut bases = Bases { models, of: BTreeMap::new() };
    for scheduler in &schedulers {
        let Some(base) = scheduler.get("modelName").and_then(|model| model.text()) else { continue };
        for adapter in scheduler.get("loraAdapters").iter().flat_map(Cursor::items) {
            if let Some(name) = adapter.text() {
                bases.claim(name, base, adapter.place(), findings);
            }
        }
    }
    for item in items.iter().filter(|item| item.kind == Kind::ConfigMap) {
        let managed = item.at.find(&["metadata", "labels", MANAGED_LABEL.0]).and_then(|label| label.text());
        match (managed == Some(MANAGED_LABEL.1), world) {
            (true, World::Files) => config_map(&item.at, &mut bases, beside, None),
            (true, World::Cluster) => config_map(&item.at, &mut bases, beside, Some(&mut *notices)),
            (false, World::Files) if !item.name().is_some_and(|name| referred.contains(name)) => {
                let message =
                    format!("ConfigMap is not used: it lacks the label `{}: \"{}\"`", MANAGED_LABEL.0, MANAGED_LABEL.1);
                notices.report(item.at.place(), message);
            }
            (false, World::Files | World::Cluster) => {}
        }
    }
    if bases.of.len() > ADAPTERS_MAX {
        findings.report(spec.place(), format!("must have at most {ADAPTERS_MAX} adapters, has {}", bases.of.len()));
    }
    bases.of.into_iter().map(|(adapter, base)| (adapter, base.to_owned())).collect()
}

struct Bases<'a> {
    models: BTreeSet<&'a str>,
    of: BTreeMap<String, &'a str>,
}

impl<'a> Bases<'a> {
    fn claim(&mut self, adapter: &str, base: &'a str, place: Place, findings: &mut Findings) {
        if self.models.contains(adapter) {
            return findings.report(place, format!("adapter {} is called like a model", quoted(adapter)));
        }
        match self.of.get(adapter) {
            Some(other) if *other != base => {
                let (adapter, other) = (quoted(adapter), quoted(other));
                findings.report(place, format!("adapter {adapter} belongs to base model {other} already"));
            }
            Some(_) => {}
            None => {
                self.of.insert(adapter.to_owned(), base);
            }
        }
    }
}

/// `elsewhere` takes note of a base model that is not served here, where it may be another gateway's.
fn config_map<'a>(at: &Cursor<'a>, bases: &mut Bases<'a>, findings: &mut Findings, elsewhere: Option<&mut Findings>) {
    let Some(base_at) = at.find(&["data", "baseModel"]) else {
        let path = at.path.field("data").field("baseModel");
        return findings.report(Place { path, ..at.place() }, "required field is missing in a ConfigMap of adapters");
    };
    let Some(base) = base_at.text() else { return };
    if !bases.models.contains(base) {
        let hint = nearest(base, bases.models.iter().copied()).map(|name| format!("; did you mean `{name}`?"));
        let message = format!("no scheduler has the modelName {}{}", quoted(base), hint.unwrap_or_default());
        return elsewhere.unwrap_or(findings).report(base_at.place(), message);
    }
    if let Some(list) = at.find(&["data", "adapters"]) {
        for (name, place) in adapter_list(&list, findings) {
            bases.claim(&name, base, place, findings);
        }
    }
}

/// The adapters in a text that holds a YAML list.
fn adapter_list(list: &Cursor<'_>, findings: &mut Findings) -> Vec<(String, Place)> {
    let Some(text) = list.text() else { return Vec::new() };
    let mut inner = Findings::default();
    let documents = yaml::documents(list.source, text, &mut Budget::default(), &mut inner);
    if let Some(wrong) = inner.into_violations(&[]) {
        let why = wrong.0.first().map(|violation| violation.message.clone()).unwrap_or_default();
        findings.report(list.place(), format!("must be a YAML list in a text: {why}"));
        return Vec::new();
    }
    let mut names = Vec::new();
    for document in &documents {
        let Value::List(nodes) = &document.root.value else {
            findings.report(list.place(), format!("must be a YAML list in a text, not {}", document.root.kind()));
            continue;
        };
        for (index, node) in nodes.iter().enumerate() {
            let place = Place { path: list.path.item(index), ..list.place() };
            if let Value::Text(Text { text, .. }) = &node.value
                && is_name(text)
            {
                names.push((text.clone(), place));
            } else {
                findings.report(place, format!("must be an adapter's name: {}", Format::HeaderText.phrase()));
            }
        }
    }
    names
}

fn is_name(text: &str) -> bool {
    Format::HeaderText.holds(text) && text.chars().count() as u64 <= Format::HeaderText.chars().1
}
