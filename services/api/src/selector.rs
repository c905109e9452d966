//! Kubernetes label selectors: which endpoints belong to a scheduler.
//!
//! The meaning is Kubernetes' own, so that a selector that works in a cluster works in a file: all parts must hold, an
//! empty selector takes everything, and `NotIn` also takes what lacks the label.

use std::collections::{BTreeMap, BTreeSet};

/// `matchLabels` and `matchExpressions`, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Labels that must be there with exactly this value.
    pub match_labels: BTreeMap<String, String>,
    /// Further demands.
    pub requirements: Vec<Requirement>,
}

/// One entry of `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label it looks at.
    pub key: String,
    /// What it demands, with the values where there are any.
    pub operator: Operator,
}

/// What is demanded of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Its value is one of these.
    In(BTreeSet<String>),
    /// Its value is none of these, or it is not there.
    NotIn(BTreeSet<String>),
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

impl Selector {
    /// Whether something with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}
