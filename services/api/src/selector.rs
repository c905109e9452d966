//! Kubernetes label selectors: which endpoints belong to a scheduler.
//!
//! The meaning is Kubernetes' own, so that a selector that works in a cluster works in a file: all parts must hold, an
//! empty selector takes everything, and `NotIn` also takes what lacks the label.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::{ExpressionOperator, LabelSelector};

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

impl From<LabelSelector> for Selector {
    fn from(spec: LabelSelector) -> Self {
        let requirements = spec.match_expressions.into_iter().map(|expression| {
            let values = expression.values.into_iter().collect();
            let operator = match expression.operator {
                ExpressionOperator::In => Operator::In(values),
                ExpressionOperator::NotIn => Operator::NotIn(values),
                ExpressionOperator::Exists => Operator::Exists,
                ExpressionOperator::DoesNotExist => Operator::DoesNotExist,
            };
            Requirement { key: expression.key, operator }
        });
        Self { match_labels: spec.match_labels, requirements: requirements.collect() }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn selectors_mean_what_they_mean_to_kubernetes() {
        let values = || BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        // For each operator: whether it takes the value `a`, the value `c`, and no label at all.
        for (operator, expected) in [
            (Operator::In(values()), [true, false, false]),
            (Operator::NotIn(values()), [false, true, true]),
            (Operator::Exists, [true, true, false]),
            (Operator::DoesNotExist, [false, false, true]),
        ] {
            let selector = Selector {
                match_labels: BTreeMap::new(),
                requirements: vec![Requirement { key: "k".into(), operator: operator.clone() }],
            };
            let found =
                [&labels(&[("k", "a")]), &labels(&[("k", "c")]), &labels(&[("x", "a")])].map(|l| selector.matches(l));
            assert_eq!(found, expected, "{operator:?}");
        }
    }

    #[test]
    fn every_part_must_hold_and_no_part_takes_everything() {
        let both = Selector {
            match_labels: labels(&[("app", "llama"), ("tier", "prod")]),
            requirements: vec![Requirement { key: "old".into(), operator: Operator::DoesNotExist }],
        };
        assert!(both.matches(&labels(&[("app", "llama"), ("tier", "prod"), ("more", "x")])));
        assert!(!both.matches(&labels(&[("app", "llama")])));
        assert!(!both.matches(&labels(&[("app", "llama"), ("tier", "test")])));
        assert!(!both.matches(&labels(&[("app", "llama"), ("tier", "prod"), ("old", "")])));
        assert!(Selector::default().matches(&BTreeMap::new()));
    }
}
