//! The limits of a configuration: those that were there before go on with what their callers have used.

use std::{collections::BTreeSet, sync::Arc};

use api::{Config, Scheduler};
use telemetry::{Metrics, catalog::LIMIT_REJECTIONS};

use crate::{
    limits::{Condition, Identity, Matching, Rule, rates},
    routes::OTHER_MODEL,
    world::World,
};

/// Every limit of one configuration, in its order: those of all pools first.
pub(super) struct Rules(Vec<(Arc<Rule>, api::Limit)>);

impl Rules {
    /// Takes over rules in force, by name and key. Changes nothing about them.
    pub(super) fn new(config: &Config, world: &World) -> Self {
        let known = &world.routes.load().limits;
        let rule = |pool: Option<&str>, limit: &api::Limit| {
            let identity = Identity::new(pool, limit);
            let rule = known.iter().find(|rule| *rule.identity() == identity).cloned();
            (rule.unwrap_or_else(|| Rule::new(identity, &world.metrics)), limit.clone())
        };
        let of_all = config.limits.iter().map(|limit| rule(None, limit));
        let of_pools = config
            .schedulers
            .iter()
            .flat_map(|scheduler| scheduler.limits.iter().map(move |limit| rule(Some(&scheduler.name), limit)));
        Self(of_all.chain(of_pools).collect())
    }

    /// Puts their numbers in force.
    pub(super) fn configure(&self, world: &World) {
        for (rule, limit) in &self.0 {
            rule.configure(rates(limit), self.0.len(), world.clock.now());
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<Rule>> {
        self.0.iter().map(|(rule, _)| Arc::clone(rule)).collect()
    }

    /// Those that may count for requests of `model` in the pool of `scheduler`, or in that of the default backend. A base
    /// model's name stands for its adapters, which take the same GPUs, and for all that its pool serves without asking
    /// for the model's name.
    pub(super) fn matching(&self, scheduler: Option<&Scheduler>, model: &str) -> Matching {
        let pool = scheduler.map(|scheduler| scheduler.name.as_str());
        let is_named = |name: &String| *name == *model || scheduler.is_some_and(|own| own.model_name == *name);
        let counting = self.0.iter().filter_map(|(rule, limit)| {
            if rule.identity().pool.is_some() && rule.identity().pool.as_deref() != pool {
                return None;
            }
            let condition = match &limit.models {
                None => Condition::Always,
                Some(models) if models.iter().any(is_named) => Condition::Always,
                Some(models) if model == OTHER_MODEL => Condition::AskedFor(models.clone().into()),
                Some(_) => return None,
            };
            Some((Arc::clone(rule), condition))
        });
        Matching::new(counting)
    }
}

/// Takes series of limits off the page that are no longer there.
pub(super) fn forget_gone(before: &[Arc<Rule>], now: &[Arc<Rule>], metrics: &Metrics) {
    let now: BTreeSet<&str> = now.iter().map(|rule| rule.name()).collect();
    let label = LIMIT_REJECTIONS.labels[0].name;
    for rule in before.iter().filter(|rule| !now.contains(rule.name())) {
        metrics.forget(&[(label, rule.name())]);
    }
}
