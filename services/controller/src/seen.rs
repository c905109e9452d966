//! One of our objects, as it was last seen.
//!
//! There are thousands of them, and a tree of values takes several times the memory of its text. So what every look asks
//! is read once and the rest stays text, which is read again only for an object that may have to be written.

use std::sync::atomic::{AtomicU64, Ordering};

use api::{cluster::ObjectKey, names};
use serde_json::Value;

use crate::{
    difference::{Wish, is_met},
    picture::{label, text},
    plan::Subject,
};

/// See the module's text.
#[derive(Debug)]
pub struct Seen {
    /// On behalf of whom it was made.
    pub subject: Subject,
    /// Its uid; empty when it has none.
    pub uid: Box<str>,
    /// Of two states of one object the later has the greater one, on every API server there is.
    pub version: u64,
    /// It was deleted, and something still holds it.
    pub is_going: bool,
    /// Kubernetes removes it with its owner.
    pub has_owner: bool,
    text: Box<str>,
    /// The wish that this state was last found to meet; 0: none. It saves reading the text.
    met: AtomicU64,
}

impl Seen {
    /// As the API server gave it.
    #[must_use]
    pub fn new(object: &Value) -> Self {
        Self {
            subject: subject_of(object),
            uid: text(object, "/metadata/uid").into(),
            version: text(object, "/metadata/resourceVersion").parse().unwrap_or(0),
            is_going: object.pointer("/metadata/deletionTimestamp").is_some(),
            has_owner: object.pointer("/metadata/ownerReferences/0").is_some(),
            text: object.to_string().into(),
            met: AtomicU64::new(0),
        }
    }

    /// All of it.
    #[must_use]
    pub fn object(&self) -> Value {
        serde_json::from_str(&self.text).expect("it was a value before it was text")
    }

    /// Whether it is as `wish` says. `settled`: its print right after the last write.
    #[must_use]
    pub fn meets(&self, wish: &Wish, settled: Option<u64>) -> bool {
        if self.met.load(Ordering::Relaxed) == wish.hash {
            return true;
        }
        let met = is_met(&wish.object, &self.object(), settled);
        if met {
            self.met.store(wish.hash, Ordering::Relaxed);
        }
        met
    }
}

fn subject_of(object: &Value) -> Subject {
    let named = |name, namespace| ObjectKey::new(label(object, namespace), label(object, name));
    let config = named(names::CONFIG_NAME_LABEL, names::CONFIG_NAMESPACE_LABEL);
    if config.name.is_empty() {
        return Subject::Gateway(named(names::GATEWAY_NAME_LABEL, names::GATEWAY_NAMESPACE_LABEL));
    }
    Subject::Config(config)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::difference::sealed;

    #[test]
    fn a_state_that_was_found_to_meet_a_wish_meets_no_other() {
        let wish = |port: u32| sealed(json!({"metadata": {"name": "x"}, "spec": {"port": port}}));
        let seen = Seen::new(&wish(80).object);
        assert!(seen.meets(&wish(80), None));
        assert!(seen.meets(&wish(80), None));
        assert!(!seen.meets(&wish(81), None));
        assert!(seen.meets(&wish(80), None));
    }
}
