//! Quotas of callers at work: which limits count for a request, what it holds of them, and what its client is told.
//!
//! The accounts are `flow_control::quota`'s; here they get their locks, their keys and their clock. A limit is one
//! [`Rule`] for as long as its name and key stay in the configuration, so that a reload forgives nobody. Which rules
//! count for a model is found when the configuration is put in force: a request that no rule counts for costs one look
//! at an empty list.
//!
//! It refuses to know keys: what tells callers apart is hashed with a secret of the process before anything else sees it,
//! and never gets into a log, a metric or an answer.

mod charge;
mod rule;
mod show;
mod verdict;

use std::sync::Arc;

use flow_control::quota::{Hold, Key, Refusal, Tokens};
use http::HeaderMap;
use pool::Moment;
use smallvec::SmallVec;

use crate::auth::Identity as Caller;

pub use self::{
    charge::Charge,
    rule::{Identity, Rule, rates},
    show::{REQUESTS, RateLimits, TOKENS, refuse},
    verdict::{Seen, estimate},
};

/// Rules that usually count for one request.
const USUAL: usize = 2;

/// The rules that may count for requests of one model. They stand in the order of their addresses, which is the same in
/// every list, also across reloads: so two requests never wait for each other's locks.
#[derive(Clone, Default)]
pub struct Matching(Box<[(Arc<Rule>, Condition)]>);

/// When a rule of the list counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// For every request of the model.
    Always,
    /// When the client named one of these: for what takes any model.
    AskedFor(Box<[String]>),
}

impl Condition {
    fn holds(&self, asked: Option<&str>) -> bool {
        match self {
            Self::Always => true,
            Self::AskedFor(models) => asked.is_some_and(|asked| models.iter().any(|model| model == asked)),
        }
    }
}

impl Matching {
    /// These rules.
    pub fn new(rules: impl IntoIterator<Item = (Arc<Rule>, Condition)>) -> Self {
        let mut rules: Vec<_> = rules.into_iter().collect();
        rules.sort_by_key(|(rule, _)| Arc::as_ptr(rule));
        Self(rules.into())
    }

    /// The accounts that a request with these headers, of this caller if that is known, is charged to. Empty, and nothing
    /// done, without rules.
    pub fn standing(&self, headers: &HeaderMap, caller: Option<&Caller>, asked_model: Option<&str>) -> Standing {
        let counting = self.0.iter().filter(|(_, condition)| condition.holds(asked_model));
        Standing(counting.map(|(rule, _)| (Arc::clone(rule), rule.key_of(headers, caller))).collect())
    }
}

/// One caller's accounts under every rule that counts for a request.
#[derive(Clone)]
pub struct Standing(SmallVec<[(Arc<Rule>, Key); USUAL]>);

impl Standing {
    /// Whether no rule counts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Charges a request for which this is estimated, under every rule or none.
    ///
    /// # Errors
    /// With the rule that keeps it out longest. It is counted as a rejection.
    pub fn reserve(&self, estimate: Tokens, now: Moment) -> Result<Charge, (Arc<Rule>, Refusal)> {
        let mut tables: SmallVec<[_; USUAL]> = self.0.iter().map(|(rule, key)| rule.lock(*key)).collect();
        let verdicts = tables.iter_mut().zip(&self.0);
        let refused = verdicts.filter_map(|(table, (rule, key))| Some((rule, table.check(*key, estimate, now).err()?)));
        if let Some((rule, refusal)) = refused.max_by_key(|(_, refusal)| refusal.until) {
            let rule = Arc::clone(rule);
            drop(tables);
            rule.count_rejection(refusal.unit);
            return Err((rule, refusal));
        }
        let holds: SmallVec<[Hold; USUAL]> =
            tables.iter_mut().zip(&self.0).map(|(table, (_, key))| table.take(*key, estimate, now)).collect();
        drop(tables);
        for (hold, (rule, _)) in holds.iter().zip(&self.0) {
            if hold.is_shared() {
                rule.count_shared();
            }
        }
        Ok(Charge::new(self.clone(), holds, estimate, now))
    }

    /// What the caller has left, of the rules together.
    pub fn left(&self, now: Moment) -> RateLimits {
        let mut tightest = RateLimits::default();
        for (rule, key) in &self.0 {
            tightest.narrow(&rule.lock(*key), *key, now);
        }
        tightest
    }
}

#[cfg(test)]
mod tests;
