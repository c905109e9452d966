//! Rewrites of models: whom their targets are served by.

use std::sync::Arc;

use api::{Config, Rewrite, Scheduler};

use super::{About, Plan, Unusable, objectives, served};
use crate::{
    rewrites,
    routes::{RewritesOfPools, Served},
    world::World,
};

impl Plan {
    /// Adds every rewrite to its pool. A name that a rule has and no model is then one of its pool's.
    pub(super) fn rewrite(&mut self, config: &Config, world: &World) -> Result<(), Unusable> {
        let mut all = RewritesOfPools::new();
        for rewrite in &config.rewrites {
            let scheduler = config.schedulers.iter().find(|scheduler| scheduler.name == rewrite.pool);
            let scheduler =
                scheduler.expect("rewrites of pools that no scheduler has are left out when they are loaded");
            let mut targets = Vec::with_capacity(rewrite.targets.len());
            for target in &rewrite.targets {
                targets.push((self.target(&target.model, scheduler, config, world)?, target.weight));
            }
            let targets = rewrites::targets(targets, &world.metrics);
            all.entry(rewrite.pool.as_str().into()).or_default().add(&rewrite.models, &targets);
            self.add_aliases(rewrite, scheduler);
        }
        self.routes.rewrites = Arc::new(all);
        Ok(())
    }

    /// A model of the pool, or one that only its engines know: an adapter that nobody has listed.
    fn target(
        &self,
        model: &str,
        scheduler: &Scheduler,
        config: &Config,
        world: &World,
    ) -> Result<Arc<Served>, Unusable> {
        let known = self.routes.models.get(model).filter(|served| *served.pool.name == *scheduler.name);
        if let Some(known) = known {
            return Ok(Arc::clone(known));
        }
        let about = About::of(scheduler, objectives(scheduler, config));
        let base: Arc<str> = scheduler.model_name.as_str().into();
        served(&self.pools[&scheduler.name], &base, Some(&model.into()), &about, &self.rules, world)
    }

    fn add_aliases(&mut self, rewrite: &Rewrite, scheduler: &Scheduler) {
        let own = Arc::clone(&self.routes.models[scheduler.model_name.as_str()]);
        for model in rewrite.models.iter().filter(|model| !self.routes.models.contains_key(model.as_str())) {
            self.routes.aliases.entry(model.as_str().into()).or_insert_with(|| Arc::clone(&own));
        }
    }
}
