//! From what a status says to what it should say; nothing where that is the same.
//!
//! Lists that several controllers write to are changed in place: entries of others stay where and as they are, so that two
//! controllers that order them differently do not write against each other for ever.

use routing::Verdict;
use serde_json::{Map, Value, json};

use super::{
    Address,
    say::{Entry, FEATURES, Listener, Say, is_by},
};

/// Most entries that a list of parents may have.
pub const PARENTS_MAX: usize = 32;
/// Longest message of a condition, in bytes. The API allows 32 KiB; nobody reads so much.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The members of a status that should change, whole; `None` if it says already what it should.
#[must_use]
pub fn merged(status: &Value, say: &Say, generation: i64, now: &str) -> Option<Value> {
    let at = Moment { generation, now };
    let wanted = match say {
        Say::Class { conditions } => {
            let features: Vec<Value> = FEATURES.iter().map(|it| json!({ "name": it })).collect();
            members([
                ("conditions", at.kept_conditions(status, conditions)),
                ("supportedFeatures", Value::Array(features)),
            ])
        }
        Say::Gateway { conditions, addresses, listeners } => members([
            ("addresses", addresses.iter().map(address).collect()),
            ("conditions", at.kept_conditions(status, conditions)),
            ("listeners", at.listeners(list(status, "listeners"), listeners)),
        ]),
        Say::Parents { controller, entries } => {
            members([("parents", at.parents(list(status, "parents"), controller, entries))])
        }
    };
    let same = wanted.iter().all(|(name, value)| *list(status, name) == *list_of(value));
    (!same).then_some(Value::Object(wanted))
}

fn members<const N: usize>(all: [(&str, Value); N]) -> Map<String, Value> {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A list in a status; one that is missing is empty.
fn list<'s>(status: &'s Value, name: &str) -> &'s [Value] {
    status.get(name).map(list_of).unwrap_or_default()
}

fn list_of(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn address(address: &Address) -> Value {
    match address {
        Address::Ip(value) => json!({ "type": "IPAddress", "value": value }),
        Address::Hostname(value) => json!({ "type": "Hostname", "value": value }),
    }
}

/// What a new condition is stamped with.
#[derive(Clone, Copy)]
struct Moment<'n> {
    generation: i64,
    now: &'n str,
}

impl Moment<'_> {
    /// Our conditions, and those of types that are not ours.
    fn kept_conditions(self, status: &Value, verdicts: &[Verdict]) -> Value {
        let known = list(status, "conditions");
        let foreign =
            |it: &&Value| verdicts.iter().all(|verdict| it.get("type").and_then(Value::as_str) != Some(verdict.kind));
        let mut conditions = self.conditions(known, verdicts);
        conditions.extend(known.iter().filter(foreign).cloned());
        Value::Array(conditions)
    }

    /// Exactly our conditions; the time of each stays while its status does.
    fn conditions(self, known: &[Value], verdicts: &[Verdict]) -> Vec<Value> {
        let one = |verdict: &Verdict| {
            let text = |it: &Value, name: &str| it.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let before = known.iter().find(|it| text(it, "type") == verdict.kind);
            let since = before
                .filter(|it| text(it, "status") == verdict.truth.as_str())
                .map(|it| text(it, "lastTransitionTime"));
            json!({
                "type": verdict.kind,
                "status": verdict.truth.as_str(),
                "reason": verdict.reason,
                "message": cut(&verdict.message),
                "observedGeneration": self.generation,
                "lastTransitionTime": since.unwrap_or_else(|| self.now.to_owned()),
            })
        };
        verdicts.iter().map(one).collect()
    }

    fn listeners(self, known: &[Value], listeners: &[Listener]) -> Value {
        let one = |it: &Listener| {
            let before = known.iter().find(|known| known.get("name").and_then(Value::as_str) == Some(it.name.as_str()));
            let kinds = if it.takes_routes {
                json!([{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute" }])
            } else {
                json!([])
            };
            let conditions = before.map(|it| list(it, "conditions")).unwrap_or_default();
            json!({
                "name": it.name,
                "supportedKinds": kinds,
                "attachedRoutes": it.attached_routes,
                "conditions": self.conditions(conditions, &it.conditions),
            })
        };
        listeners.iter().map(one).collect()
    }

    fn parents(self, known: &[Value], controller: &str, entries: &[Entry]) -> Value {
        let is_of = |it: &Value, entry: &Entry| is_by(it, controller) && it.get("parentRef") == Some(&entry.parent);
        let written = |entry: &Entry, before: Option<&Value>| {
            let conditions = before.map(|it| list(it, "conditions")).unwrap_or_default();
            json!({
                "parentRef": entry.parent,
                "controllerName": controller,
                "conditions": self.conditions(conditions, &entry.conditions),
            })
        };
        let mut due: Vec<&Entry> = entries.iter().collect();
        let mut parents = Vec::with_capacity(known.len() + entries.len());
        for it in known {
            if !is_by(it, controller) {
                parents.push(it.clone());
            } else if let Some(at) = due.iter().position(|entry| is_of(it, entry)) {
                parents.push(written(due.remove(at), Some(it)));
            }
        }
        let room = PARENTS_MAX.saturating_sub(parents.len());
        parents.extend(due.into_iter().take(room).map(|entry| written(entry, None)));
        Value::Array(parents)
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
