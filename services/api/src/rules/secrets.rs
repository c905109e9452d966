//! Rules of `Secret` documents and of the fields that refer to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::Hidden,
    document::Kind,
    load::{Item, World},
    place::{Findings, quoted},
    schema::hint::nearest,
    secret,
    yaml::Cursor,
};

/// The entries of a `kubernetes.io/tls` Secret: certificate and key.
pub(crate) const TLS_ENTRIES: [&str; 2] = ["tls.crt", "tls.key"];
const TLS_TYPE: &str = "kubernetes.io/tls";

/// Most clients with a key.
const CLIENTS_MAX: usize = 10_000;
/// Fewest bytes of a key. Shorter ones are guessed, or are a mistake.
const KEY_BYTES_MIN: usize = 8;
/// Most bytes of a key, as of any other that a request may carry.
const KEY_BYTES_MAX: usize = 4_096;

/// Tries them. In a cluster a Secret comes and goes by itself: what is wrong with one is told, and the configuration stands.
pub(super) fn check(
    spec: &Cursor<'_>,
    items: &[Item<'_>],
    world: World,
    findings: &mut Findings,
    notices: &mut Findings,
) {
    let found = match world {
        World::Files => findings,
        World::Cluster => &mut *notices,
    };
    let mut referred = BTreeSet::new();
    for (path, rules) in REFERENCES {
        let Some(at) = spec.find(path) else { continue };
        let Some(name) = at.text() else { continue };
        referred.insert(name);
        let secrets = || items.iter().filter(|item| item.kind == Kind::Secret);
        match secrets().find(|item| item.name() == Some(name)) {
            Some(item) => rules(&item.at, &secret::entries(&item.at, found), found),
            None => {
                let hint = nearest(name, secrets().filter_map(Item::name));
                let hint = hint.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
                found.report(at.place(), format!("no Secret is called {}{hint}", quoted(name)));
            }
        }
    }
    for secret in items.iter().filter(|item| item.kind == Kind::Secret) {
        if !secret.name().is_some_and(|name| referred.contains(name)) {
            notices.report(secret.at.place(), "Secret is not used: no field refers to it");
        }
    }
}

pub(crate) type Rules = fn(&Cursor<'_>, &BTreeMap<String, Hidden>, &mut Findings);

/// The fields that name a Secret, and what must hold for it.
pub(crate) const REFERENCES: [(&[&str], Rules); 2] =
    [(&["tls", "secretRef", "name"], certificate), (&["auth", "apiKeys", "secretRef", "name"], keys)];

fn certificate(secret: &Cursor<'_>, entries: &BTreeMap<String, Hidden>, findings: &mut Findings) {
    if let Some(kind) = secret.get("type").filter(|kind| kind.text() != Some(TLS_TYPE)) {
        findings.report(kind.place(), format!("must be `{TLS_TYPE}` for `spec.tls.secretRef`"));
    }
    for entry in TLS_ENTRIES {
        if entries.get(entry).is_none_or(|value| value.0.is_empty()) {
            findings.report(secret.place(), format!("must have the entry `{entry}` for `spec.tls.secretRef`"));
        }
    }
}

fn keys(secret: &Cursor<'_>, entries: &BTreeMap<String, Hidden>, findings: &mut Findings) {
    let place = || secret.place();
    if !(1..=CLIENTS_MAX).contains(&entries.len()) {
        findings.report(place(), format!("must have 1 … {CLIENTS_MAX} entries, one per client, has {}", entries.len()));
    }
    let mut of: BTreeMap<&[u8], &str> = BTreeMap::new();
    for (client, value) in entries {
        let client_shown = quoted(client);
        match key(value) {
            None => {
                let bounds = format!("{KEY_BYTES_MIN} … {KEY_BYTES_MAX} printable ASCII characters, without spaces");
                findings.report(place(), format!("the key of {client_shown} must have {bounds}"));
            }
            Some(key) => {
                if let Some(other) = of.insert(key, client) {
                    let other = quoted(other);
                    findings.report(place(), format!("clients {other} and {client_shown} have the same key"));
                }
            }
        }
    }
}

/// A client's key as requests carry it: without the white space around it that files end with. `None`: it is none.
pub(crate) fn key(value: &Hidden) -> Option<&[u8]> {
    let key = value.0.trim_ascii();
    let sized = (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len());
    (sized && key.iter().all(u8::is_ascii_graphic)).then_some(key)
}
