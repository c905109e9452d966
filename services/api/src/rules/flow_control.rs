//! Rules of flow control, and of the objects that stand beside a configuration and are each for one pool.

use std::collections::BTreeMap;

use super::{Told, texts::NEEDS_AUTH};
use crate::{
    document::{Bands, Kind, PoolRef},
    load::Item,
    place::{Findings, quoted},
    schema::hint::nearest,
    yaml::{Cursor, Value},
};

pub(super) fn check(spec: &Cursor<'_>, items: &[Item<'_>], told: &mut Told<'_>) {
    let Told { findings, beside, notices } = told;
    let schedulers: Vec<Cursor<'_>> = spec.get("schedulers").iter().flat_map(Cursor::items).collect();
    let shared = spec.get("flowControl");
    if let Some(shared) = &shared {
        band_claim_needs_auth(shared, spec, findings);
        higher_bands_are_served_longer(shared, None, findings);
    }
    for own in schedulers.iter().filter_map(|scheduler| scheduler.get("flowControl")) {
        band_claim_needs_auth(&own, spec, findings);
        higher_bands_are_served_longer(&own, shared.as_ref(), findings);
    }
    for rewrite in items.iter().filter(|item| item.kind == Kind::InferenceModelRewrite) {
        weights_of_all_or_none(rewrite, beside);
    }
    objects_of_pools(&schedulers, items, notices);
}

/// Objectives and rewrites: each is for a pool, and may be there twice, once in each API group.
fn objects_of_pools(schedulers: &[Cursor<'_>], items: &[Item<'_>], notices: &mut Findings) {
    let pools: Vec<&str> = schedulers.iter().filter_map(|scheduler| scheduler.get("name")?.text()).collect();
    let mut first: BTreeMap<(Kind, &str, &str), usize> = BTreeMap::new();
    for version in 0..Kind::InferenceObjective.api_versions().len() {
        let there = items.iter().filter(|item| version_of(item) == Some(version));
        for item in there {
            let Some(pool) = of_a_pool(item, &pools, notices) else { continue };
            let Some(name) = item.name() else { continue };
            // An objective is looked up among those of its pool; a rewrite is one object, whatever its pool.
            let within = if item.kind == Kind::InferenceObjective { pool } else { "" };
            if *first.entry((item.kind, within, name)).or_insert(version) < version {
                let and_pool = if within.is_empty() { "" } else { " and pool" };
                let kind = item.kind.name();
                let message = format!("not used: there is an {kind} of this name{and_pool} in the group llm-d.ai");
                notices.report(item.at.place(), message);
            }
        }
    }
}

fn weights_of_all_or_none(rewrite: &Item<'_>, findings: &mut Findings) {
    for rule in rewrite.at.find(&["spec", "rules"]).iter().flat_map(Cursor::items) {
        let Some(targets) = rule.get("targets") else { continue };
        let weighted = targets.items().filter(|target| target.get("weight").is_some()).count();
        if weighted != 0 && weighted != targets.items().count() {
            findings.report(targets.place(), "all of them have a `weight`, or none: one without would get no request");
        }
    }
}

/// Which of the kind's API versions an objective or rewrite is of, the one to write first being 0.
fn version_of(item: &Item<'_>) -> Option<usize> {
    if !matches!(item.kind, Kind::InferenceObjective | Kind::InferenceModelRewrite) {
        return None;
    }
    let version = item.at.get("apiVersion").and_then(|version| version.text())?;
    Kind::InferenceObjective.api_versions().iter().position(|known| *known == version)
}

/// A band that may use more of a pool than the one above it would be served while that one waits. Tried on what is
/// merged: each of two parts may be right alone.
fn higher_bands_are_served_longer(own: &Cursor<'_>, shared: Option<&Cursor<'_>>, findings: &mut Findings) {
    let defaults = Bands::default();
    let bands = [
        ("critical", defaults.critical.max_saturation),
        ("standard", defaults.standard.max_saturation),
        ("sheddable", defaults.sheddable.max_saturation),
    ];
    let [critical, standard, sheddable] = bands.map(|(name, default)| {
        let path = ["bands", name, "maxSaturation"];
        let own_at = own.find(&path);
        let at = own_at.clone().or_else(|| shared.and_then(|shared| shared.find(&path)));
        // What is no number was reported as that, and says nothing about the others.
        let value = at.as_ref().map_or(Some(default), number);
        (name, value, own_at)
    });
    for ((higher, most, higher_at), (lower, more, lower_at)) in [(&critical, &standard), (&standard, &sheddable)] {
        let (Some(most), Some(more), Some(at)) = (most, more, lower_at.as_ref().or(higher_at.as_ref())) else {
            continue;
        };
        if more > most {
            let message = format!(
                "maxSaturation of {lower} ({more}) must not be more than that of {higher} ({most}): the lower band would \
                 be served while the higher one waits"
            );
            findings.report(at.place(), message);
        }
    }
}

/// The pool of an objective or rewrite. As in a cluster, it may be for the pool of another gateway: that is said, and no mistake.
fn of_a_pool<'a>(item: &Item<'a>, pools: &[&str], notices: &mut Findings) -> Option<&'a str> {
    let pool_ref = item.at.find(&["spec", "poolRef"])?;
    let text = |field: &str| pool_ref.get(field).and_then(|at| at.text());
    if !PoolRef::is_inference_pool(text("group"), text("kind")) {
        notices.report(pool_ref.place(), "not used: it is for no InferencePool");
        return None;
    }
    let at = pool_ref.get("name")?;
    let name = at.text()?;
    if !pools.contains(&name) {
        let hint = nearest(name, pools.iter().copied()).map(|name| format!("; did you mean `{name}`?"));
        let message = format!("not used: no scheduler is called {}{}", quoted(name), hint.unwrap_or_default());
        notices.report(at.place(), message);
        return None;
    }
    Some(name)
}

fn band_claim_needs_auth(flow_control: &Cursor<'_>, spec: &Cursor<'_>, findings: &mut Findings) {
    if let Some(claim) = flow_control.get("bandClaim").filter(|_| spec.get("auth").is_none()) {
        findings.report(claim.place(), NEEDS_AUTH);
    }
}

#[expect(clippy::cast_precision_loss, reason = "compared with shares from 0 to 1")]
fn number(at: &Cursor<'_>) -> Option<f64> {
    match at.node.value {
        Value::Int(value) => Some(value as f64),
        Value::Float(value) => Some(value).filter(|value| !value.is_nan()),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
    }
}
