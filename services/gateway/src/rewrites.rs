//! Rewrites of models as requests meet them: by pool and the name that was asked for, the targets and their shares.
//!
//! Each request is drawn for by itself: a conversation may change its model from one turn to the next, as with upstream
//! pickers. Which rule counts was decided when the configuration was loaded.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use telemetry::{Counter, Metrics, catalog::MODEL_REWRITES};

use crate::routes::Served;

/// The rewrites of one pool.
#[derive(Default)]
pub struct Rewrites {
    exact: HashMap<Box<str>, Arc<[Target]>>,
    every: Option<Arc<[Target]>>,
}

/// A model that requests are sent to.
pub struct Target {
    /// It.
    pub served: Arc<Served>,
    /// Its share and those of the targets before it.
    up_to: u64,
    metrics: Metrics,
    count: OnceLock<Counter>,
}

impl Target {
    /// One more request is sent to it.
    pub fn chosen(&self) {
        let labels = || [&*self.served.pool.name, &*self.served.model];
        self.count.get_or_init(|| self.metrics.counter(&MODEL_REWRITES, &labels())).increment(1);
    }
}

/// The targets of one rule, with their weights.
pub fn targets(targets: impl IntoIterator<Item = (Arc<Served>, u32)>, metrics: &Metrics) -> Arc<[Target]> {
    let mut up_to = 0;
    let target = |(served, weight): (Arc<Served>, u32)| {
        up_to += u64::from(weight);
        Target { served, up_to, metrics: metrics.clone(), count: OnceLock::new() }
    };
    targets.into_iter().map(target).collect()
}

impl Rewrites {
    /// Adds a rule, after those that count before it. Without models it is for every one.
    pub fn add(&mut self, models: &[String], targets: &Arc<[Target]>) {
        if models.is_empty() {
            self.every.get_or_insert_with(|| Arc::clone(targets));
        }
        for model in models {
            self.exact.entry(model.as_str().into()).or_insert_with(|| Arc::clone(targets));
        }
    }

    /// Whom a request for `model` is sent to, by a number that is any number. None: it stays as it is.
    pub fn draw(&self, model: &str, number: u64) -> Option<&Target> {
        let targets = self.exact.get(model).or(self.every.as_ref())?;
        let all = targets.last()?.up_to;
        targets.iter().find(|target| number % all < target.up_to)
    }
}
