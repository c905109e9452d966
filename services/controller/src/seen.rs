//! One of our objects, as it was last seen.
//!
//! There are thousands of them, and a tree of values takes several times the memory of its text. So what every look asks
//! is read once, and the rest stays text. Where nobody reads the status, even that goes as soon as the object is found to
//! be as it should: another wish has another seal, which says enough.

use api::{cluster::ObjectKey, names};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{
    difference::{APPLIED, Wish, is_met},
    kind::Kind,
    picture::{label, text, trimmed},
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
    /// The hash of the wish that it was written for.
    seal: Option<u64>,
    rest: Mutex<Rest>,
    keeps_text: bool,
}

/// What changes without a change of the object.
#[derive(Debug)]
struct Rest {
    /// All of it, for as long as somebody may read that.
    text: Option<Box<str>>,
    /// It was found to be as the wish of its seal says.
    is_met: bool,
}

impl Seen {
    /// As the API server gave it.
    #[must_use]
    pub fn new(kind: Kind, object: Value) -> Self {
        let object = trimmed(kind, object);
        let annotations = object.pointer("/metadata/annotations");
        let seal = annotations.and_then(|annotations| annotations.get(APPLIED)).and_then(Value::as_str);
        Self {
            subject: subject_of(&object),
            uid: text(&object, "/metadata/uid").into(),
            version: text(&object, "/metadata/resourceVersion").parse().unwrap_or(0),
            is_going: object.pointer("/metadata/deletionTimestamp").is_some(),
            has_owner: object.pointer("/metadata/ownerReferences/0").is_some(),
            seal: seal.and_then(|seal| u64::from_str_radix(seal, 16).ok()),
            rest: Mutex::new(Rest { text: Some(object.to_string().into()), is_met: false }),
            keeps_text: kind.has_telling_status(),
        }
    }

    /// All of it, if its kind has a status that somebody reads, or nobody has found yet that it is as it should be.
    #[must_use]
    pub fn object(&self) -> Option<Value> {
        let rest = self.rest.lock();
        Some(serde_json::from_str(rest.text.as_deref()?).expect("it was a value before it was text"))
    }

    /// Whether it is as `wish` says. `settled`: its print right after the last write.
    #[must_use]
    pub fn meets(&self, wish: &Wish, settled: Option<u64>) -> bool {
        if self.seal != Some(wish.hash) {
            return false;
        }
        if !self.rest.lock().is_met {
            let Some(object) = self.object().filter(|object| is_met(&wish.object, object, settled)) else {
                return false;
            };
            drop(object);
            let mut rest = self.rest.lock();
            rest.is_met = true;
            rest.text.take_if(|_| !self.keeps_text);
        }
        true
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
    use crate::difference::{print, sealed};

    #[test]
    fn a_state_that_was_found_to_meet_a_wish_meets_no_other() {
        let wish = |port: u32| sealed(json!({"metadata": {"name": "x"}, "spec": {"port": port}}));
        let seen = Seen::new(Kind::InferencePool, wish(80).object);
        assert!(!seen.meets(&wish(81), None));
        assert!(seen.object().is_some());
        assert!(seen.meets(&wish(80), None));
        assert!(seen.object().is_none(), "nobody will read it again");
        assert!(seen.meets(&wish(80), None));
        assert!(!seen.meets(&wish(81), None));
        assert!(seen.meets(&wish(80), None));
    }

    #[test]
    fn what_was_changed_by_others_meets_the_wish_only_once_that_is_settled() {
        let wish = sealed(json!({"metadata": {"name": "x"}, "spec": {"cpu": "1000m"}}));
        let mut object = wish.object.clone();
        object["spec"]["cpu"] = json!("1");
        let settled = print(&wish.object, &object);
        let seen = Seen::new(Kind::Deployment, object.clone());
        assert!(!seen.meets(&wish, None));
        assert!(seen.meets(&wish, Some(settled)));
        assert_eq!(seen.object(), Some(object), "somebody reads its status");
    }
}
