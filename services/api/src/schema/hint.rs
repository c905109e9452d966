//! What an operator probably meant by a name that is not there: one that is spelt nearly so, or the same name further in.
//!
//! A guess that is wrong costs more than none: so only near names count, and a field that lives in many places says nothing.

use super::{Field, Shape};

/// Names further away than this (Jaro-Winkler, 1 is equal) are not what the operator meant.
const SIMILARITY_MIN: f64 = 0.75;

/// Longest text that is compared with names, in characters: no name of ours comes near, and comparing is quadratic.
const COMPARED_CHARS_MAX: usize = 100;

/// How far below the place where it was written a field's right place is looked for: a `maxWait` of `spec` is three levels
/// too far out.
const DEPTH_MAX: usize = 3;

/// Most places that are named: the bands are three.
const HOMES_MAX: usize = 3;

/// The nearest of some names, if one is near enough to have been meant.
pub(crate) fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if written.chars().nth(COMPARED_CHARS_MAX).is_some() {
        return None;
    }
    let written = written.to_ascii_lowercase();
    let score = |name: &str| strsim::jaro_winkler(&written, &name.to_ascii_lowercase());
    names
        .map(|name| (score(name), name))
        .filter(|(score, _)| *score >= SIMILARITY_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// Where a field of this name lives, for one that was written too far out: in the nearest level that has it.
pub(super) fn home(key: &str, fields: &[Field]) -> Option<String> {
    let mut level: Vec<(String, &[Field])> = vec![(String::new(), fields)];
    for _ in 0..DEPTH_MAX {
        level = level.iter().flat_map(|(path, fields)| further_in(path, fields)).collect();
        let homes: Vec<(&str, &str)> = level.iter().filter_map(|(path, fields)| lives(key, fields, path)).collect();
        if let Some((&(name, last), others)) = homes.split_last() {
            let others = others.iter().map(|(_, path)| format!("`{path}`")).collect::<Vec<_>>().join(", ");
            let before = if others.is_empty() { others } else { format!("{others} or ") };
            return (homes.len() <= HOMES_MAX).then(|| format!("; `{name}` belongs in {before}`{last}`"));
        }
    }
    None
}

/// The objects in these fields, with their paths; of a list its items.
fn further_in<'a>(path: &str, fields: &'a [Field]) -> Vec<(String, &'a [Field])> {
    let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
    let inner = |field: &'a Field| {
        if let Shape::List { items, .. } = &field.shape {
            (format!("{prefix}{}[]", field.name), items.fields())
        } else {
            (format!("{prefix}{}", field.name), field.shape.fields())
        }
    };
    fields.iter().map(inner).filter(|(_, fields)| !fields.is_empty()).collect()
}

/// The name as it is spelt there, and the path.
fn lives<'a>(key: &str, fields: &'a [Field], path: &'a str) -> Option<(&'a str, &'a str)> {
    fields.iter().find(|field| field.name.eq_ignore_ascii_case(key)).map(|field| (field.name.as_str(), path))
}
