//! Rewrites of models, in the order in which they count.

use std::collections::BTreeMap;

use super::typed;
use crate::{
    Scheduler,
    config::{Rewrite, RewriteTarget},
    document::{InferenceModelRewrite, Kind, PoolRef, RewriteRule},
    load::Item,
    place::Findings,
};

/// Rules of pools that there are: exact ones before those for every model, of the oldest object first, in its order.
pub(super) fn rewrites(items: &[Item<'_>], schedulers: &[Scheduler], findings: &mut Findings) -> Option<Vec<Rewrite>> {
    let mut objects = BTreeMap::new();
    // Where both API groups have one of this name, the one of the group to write first counts.
    for version in Kind::InferenceModelRewrite.api_versions().iter().rev() {
        let rewrites = items.iter().filter(|item| item.kind == Kind::InferenceModelRewrite);
        for (place, item) in rewrites.enumerate() {
            let document: InferenceModelRewrite = typed(item, findings)?;
            if document.api_version == *version {
                objects.insert(document.metadata.name.clone(), (created(item), place, document));
            }
        }
    }
    let mut objects: Vec<_> = objects.into_values().collect();
    // In files nothing says when: there, it is the order of the documents.
    objects.sort_by(|(a_created, a_place, _), (b_created, b_place, _)| (a_created, a_place).cmp(&(b_created, b_place)));
    let mut rules = Vec::new();
    for (_, _, document) in objects {
        let PoolRef { group, kind, name: pool } = document.spec.pool_ref;
        let is_ours = PoolRef::is_inference_pool(Some(&group), Some(&kind))
            && schedulers.iter().any(|scheduler| scheduler.name == pool);
        if is_ours {
            rules.extend(document.spec.rules.into_iter().map(|rule| rewrite(&pool, rule)));
        }
    }
    rules.sort_by_key(|rule: &Rewrite| rule.models.is_empty());
    Some(rules)
}

fn created<'a>(item: &Item<'a>) -> Option<&'a str> {
    item.at.find(&["metadata", "creationTimestamp"]).and_then(|at| at.text())
}

fn rewrite(pool: &str, rule: RewriteRule) -> Rewrite {
    // Where some have a weight, the others get nothing: files are refused for that, and clusters admit it.
    let without = if rule.targets.iter().any(|target| target.weight.is_some()) { 0 } else { 1 };
    let target = |target: crate::document::RewriteTarget| RewriteTarget {
        model: target.model_rewrite,
        weight: target.weight.unwrap_or(without),
    };
    Rewrite {
        pool: pool.to_owned(),
        models: rule.matches.into_iter().map(|one| one.model.value).collect(),
        targets: rule.targets.into_iter().map(target).filter(|target| target.weight > 0).collect(),
    }
}
