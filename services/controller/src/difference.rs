//! Whether an object is as it should be.
//!
//! The API server fills in defaults and writes quantities in its own form, so an object never equals what was asked for.
//! What was asked for last is remembered in an annotation, as a hash: another hash means another wish, also when
//! something was taken out of it. With the same hash the object must still hold everything that was asked for; if it
//! did not even right after the write ([`print()`]), only a change since then counts: otherwise `1000m`, read back as `1`,
//! would be written for ever.

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

/// Annotation with the hash of the wish.
pub const APPLIED: &str = "inference.sagemaker.aws.amazon.com/applied";

/// An object that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// It, with its own hash in an annotation.
    pub object: Value,
    /// That hash.
    pub hash: u64,
}

/// The wish with its own hash in it.
#[must_use]
pub fn sealed(mut wanted: Value) -> Wish {
    let hash = hash(&wanted);
    let seal = Value::String(format!("{hash:016x}"));
    let metadata = wanted.as_object_mut().and_then(|it| it.get_mut("metadata")).and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(APPLIED.to_owned(), seal);
        }
    }
    Wish { object: wanted, hash }
}

/// How an object looks where the wish says something.
#[must_use]
pub fn print(wanted: &Value, observed: &Value) -> u64 {
    hash(&projected(observed, wanted))
}

fn projected(observed: &Value, wanted: &Value) -> Value {
    match (observed, wanted) {
        (Value::Object(observed), Value::Object(wanted)) => {
            let common =
                wanted.iter().filter_map(|(key, wish)| Some((key.clone(), projected(observed.get(key)?, wish))));
            Value::Object(common.collect())
        }
        (Value::Array(observed), Value::Array(wanted)) if observed.len() == wanted.len() => {
            observed.iter().zip(wanted).map(|(found, wish)| projected(found, wish)).collect()
        }
        (observed, _) => observed.clone(),
    }
}

/// Whether `observed` is as `wanted` (sealed) says. `settled`: its print right after the last write.
#[must_use]
pub fn is_met(wanted: &Value, observed: &Value, settled: Option<u64>) -> bool {
    let seal = |object: &Value| object.pointer("/metadata/annotations").and_then(|it| it.get(APPLIED)).cloned();
    seal(wanted) == seal(observed) && (holds(observed, wanted) || settled == Some(print(wanted, observed)))
}

/// Whether everything in `wanted` is in `observed`.
fn holds(observed: &Value, wanted: &Value) -> bool {
    match (observed, wanted) {
        (Value::Object(observed), Value::Object(wanted)) => wanted.iter().all(|(key, value)| match observed.get(key) {
            Some(found) => holds(found, value),
            None => is_nothing(value),
        }),
        (Value::Array(observed), Value::Array(wanted)) => {
            wanted.iter().all(|value| observed.iter().any(|found| holds(found, value)))
        }
        (Value::Number(observed), Value::Number(wanted)) => observed.as_f64() == wanted.as_f64(),
        (observed, wanted) => observed == wanted,
    }
}

/// The API server keeps no empty lists and maps where it may leave them out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// `serde_json` keeps maps sorted, so equal values have equal texts.
fn hash(value: &Value) -> u64 {
    xxh3_64(value.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wish() -> Value {
        sealed(json!({"metadata": {"name": "x"}, "spec": {"cpu": "1000m", "ports": [{"port": 80}], "none": []}})).object
    }

    #[test]
    fn what_the_server_adds_is_no_difference() {
        let mut observed = wish();
        observed["metadata"]["uid"] = json!("1");
        observed["spec"]["ports"][0]["protocol"] = json!("TCP");
        observed["spec"].as_object_mut().unwrap().remove("none");
        assert!(is_met(&wish(), &observed, None));
    }

    #[test]
    fn what_others_change_is_one_and_so_is_a_new_wish() {
        let mut observed = wish();
        observed["spec"]["ports"][0]["port"] = json!(81);
        assert!(!is_met(&wish(), &observed, None));
        // A field less in the wish: everything that is left of it is there, and still the object must be written.
        let less = sealed(json!({"metadata": {"name": "x"}, "spec": {"cpu": "1000m"}})).object;
        assert!(!is_met(&less, &wish(), None));
    }

    #[test]
    fn h04_a_quantity_that_is_read_back_in_another_form_is_written_once() {
        let mut observed = wish();
        observed["spec"]["cpu"] = json!("1");
        let settled = Some(print(&wish(), &observed));
        assert!(!is_met(&wish(), &observed, None));
        assert!(is_met(&wish(), &observed, settled));
        observed["metadata"]["resourceVersion"] = json!("77");
        observed["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("1");
        assert!(is_met(&wish(), &observed, settled));
        observed["spec"]["cpu"] = json!("3");
        assert!(!is_met(&wish(), &observed, settled));
    }
}
