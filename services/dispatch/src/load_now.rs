//! The load of an endpoint at this moment: what it reported, as far as that is fresh, joined with own work.

use pool::{Load, Signal};

use crate::{
    horizon::Horizon,
    work::{OwnWork, Stage},
};

/// The reported numbers that may be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Fresh {
    pub(crate) waiting: Option<f64>,
    pub(crate) running: Option<f64>,
    pub(crate) kv_cache: Option<f64>,
}

impl Fresh {
    pub(crate) fn of(load: &Load, horizon: &Horizon) -> Self {
        let fresh = |signal: Option<Signal>| {
            let signal = signal.filter(|s| s.at >= horizon.reports)?;
            (signal.value.is_finite() && signal.value >= 0.0).then_some(signal.value)
        };
        Self { waiting: fresh(load.waiting), running: fresh(load.running), kv_cache: fresh(load.kv_cache) }
    }
}

/// The mean of each number over the endpoints that report it: what one that does not is taken to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    waiting: Mean,
    running: Mean,
    kv_cache: Mean,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1;
        }
    }

    fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

impl Means {
    pub(crate) fn add(&mut self, fresh: &Fresh) {
        self.waiting.add(fresh.waiting);
        self.running.add(fresh.running);
        self.kv_cache.add(fresh.kv_cache);
    }

    /// Whether anything was reported by anyone.
    pub(crate) fn any(&self) -> bool {
        self.waiting.count + self.running.count + self.kv_cache.count > 0
    }

    /// `fresh`, with what is missing filled in.
    pub(crate) fn fill(&self, fresh: Fresh) -> Fresh {
        Fresh {
            waiting: fresh.waiting.or_else(|| self.waiting.get()),
            running: fresh.running.or_else(|| self.running.get()),
            kv_cache: fresh.kv_cache.or_else(|| self.kv_cache.get()),
        }
    }
}

/// Requests waiting: the larger of what was reported and what of our own must be waiting (dispatched before the report,
/// unanswered, and not among those running), plus what was dispatched since and is unanswered. So an engine that hangs
/// does not look empty, and nothing is counted twice. Where nobody reports, every own request counts.
pub(crate) fn waiting(own: &OwnWork, filled: &Fresh) -> f64 {
    let Some(reported) = filled.waiting else { return f64::from(own.total().requests) };
    let before = own.at(Stage::Before).unanswered + own.at(Stage::Settling).unanswered;
    let unaccounted = f64::from(before) - filled.running.unwrap_or(0.0);
    reported.max(unaccounted) + f64::from(own.at(Stage::Since).unanswered)
}

/// Requests running, with own ones that no report can have shown.
pub(crate) fn running(own: &OwnWork, filled: &Fresh) -> f64 {
    match filled.running {
        Some(reported) => reported + f64::from(own.at(Stage::Since).requests),
        None => f64::from(own.total().requests),
    }
}

/// Share of the KV cache in use, 0–1, with what own requests since the report will take. 0 where nobody reports: then
/// all are equal.
pub(crate) fn kv_cache(own: &OwnWork, filled: &Fresh, load: &Load) -> f64 {
    let Some(reported) = filled.kv_cache else { return 0.0 };
    let new_tokens = own.at(Stage::Since).new_tokens as f64;
    let taken = load.cache.map_or(0.0, |cache| new_tokens / (cache.tokens().max(1)) as f64);
    (reported + taken).min(1.0)
}
