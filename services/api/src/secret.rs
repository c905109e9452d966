//! What a `Secret` document holds, decoded.
//!
//! Messages name entries and never repeat a value: what is wrong with a secret must not end up in a log.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    config::Hidden,
    place::Findings,
    yaml::{Cursor, Value},
};

/// The entries of `data`, and over them those of `stringData`. What is no text, or no base64, is reported.
pub(crate) fn entries(secret: &Cursor<'_>, findings: &mut Findings) -> BTreeMap<String, Hidden> {
    let mut found = BTreeMap::new();
    for (key, entry) in texts(secret, "data", findings) {
        // As `kubectl` and editors leave it: in several lines.
        let compact: String = entry.text().unwrap_or_default().split_ascii_whitespace().collect();
        match STANDARD.decode(compact) {
            Ok(bytes) => drop(found.insert(key.to_owned(), Hidden(bytes))),
            Err(_) => findings.report(entry.place(), "must be base64; what is not belongs into `stringData`"),
        }
    }
    for (key, entry) in texts(secret, "stringData", findings) {
        found.insert(key.to_owned(), Hidden(entry.text().unwrap_or_default().into()));
    }
    found
}

fn texts<'a>(secret: &Cursor<'a>, field: &str, findings: &mut Findings) -> Vec<(&'a str, Cursor<'a>)> {
    let Some(map) = secret.get(field) else { return Vec::new() };
    if !matches!(map.node.value, Value::Map(_)) {
        findings.report(map.place(), format!("must be a map, not {}", map.node.kind()));
    }
    let mut found = Vec::new();
    for (key, entry) in map.entries() {
        if entry.text().is_some() {
            found.push((key, entry));
        } else {
            findings.report(entry.place(), format!("must be a text, not {}; put it in quotes", entry.node.kind()));
        }
    }
    found
}
