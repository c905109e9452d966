//! Rules that span fields or documents, where a schema has no words.
//!
//! They walk over trees, not structs, so that they hold on what is well-formed even when something else is not: an
//! operator sees a duplicate name and a mistyped number in one go. Each rule looks only at values of the right type;
//! the others were reported already.

mod adapters;
mod flow_control;
mod gateway;
mod scheduler;
pub(crate) mod secrets;
pub(crate) mod texts;

use std::collections::BTreeMap;

use crate::{
    document::Kind,
    load::{Item, World},
    place::{Findings, quoted},
    yaml::{Cursor, Value},
};

/// What the rules say, for `docs/config.md`.
pub(crate) const RULES: [&str; 19] = [
    "Exactly one `InferenceGatewayConfig`. No two documents of a kind have the same name. Documents of another namespace \
     than the configuration's are left out.",
    "`spec.bbr.enabled` must be true when more than one scheduler is defined.",
    "`spec.bbr.defaultBackend.name` names an `Endpoint`.",
    "`name` and `modelName` are unique among schedulers.",
    "`weights` and `configMapRef` exclude each other.",
    "`weights.lru` only with `scheduler: llm-d`.",
    "In a selector, `In` and `NotIn` have values, `Exists` and `DoesNotExist` none.",
    "An adapter belongs to one base model and is not called like a model; a `ConfigMap` of adapters names the \
     `modelName` of a scheduler. There are at most 10000 adapters.",
    "An `Endpoint` may be in several pools: a server may answer to several names. Each pool then counts only its own \
     requests there.",
    "`apiKey` has exactly one of `env` and `file`; `caFile` and `insecureSkipVerify: true` exclude each other.",
    "`signals.staleAfter` is longer than `signals.scrapeInterval`.",
    "`tls.acmArn` and `tls.secretRef` exclude each other. Without a cluster, `tls` has `secretRef`, and a pair that cannot \
     be used, or has expired while the one in force has not, is refused.",
    "`auth` has at least one of `jwt` and `apiKeys`, `auth.jwt.provider` at least one of `audiences` and \
     `requiredClaims`.",
    "`tls.secretRef` names a Secret of type `kubernetes.io/tls` with the entries `tls.crt` and `tls.key`; \
     `auth.apiKeys.secretRef` one with 1 … 10000 entries, each a key of 8 … 4096 printable ASCII characters, no two the \
     same.",
    "A limit has at least one number and exactly one key; names are unique in their list.",
    "`maxSaturation` never grows from `critical` to `standard` to `sheddable`, once a scheduler's `flowControl` is merged \
     with that of `spec`.",
    "An `InferenceObjective` or `InferenceModelRewrite` of a pool that no scheduler has is left out; of two with one name \
     (objectives: and pool), the one of `llm-d.ai` counts.",
    "In a rule of an `InferenceModelRewrite`, all targets have a `weight`, or none. Of several rules that fit, one that \
     names the model counts before one for every model, then that of the oldest object (in files: the first), then the \
     first.",
    "`bandClaim`, and a limit by `claim`, need `auth`.",
];

/// What is found, by what follows from it.
pub(crate) struct Told<'a> {
    /// The configuration is refused.
    pub(crate) findings: &'a mut Findings,
    /// In files, likewise. In a cluster, where an object beside the configuration may be another team's, that one is left out.
    pub(crate) beside: &'a mut Findings,
    /// It is said.
    pub(crate) notices: &'a mut Findings,
}

/// Tries every rule. Returns adapter to base model, complete when nothing was reported.
pub(crate) fn check(
    config: Option<&Cursor<'_>>,
    items: &[Item<'_>],
    world: World,
    told: &mut Told<'_>,
) -> BTreeMap<String, String> {
    let Told { findings, notices, .. } = told;
    for endpoint in items.iter().filter(|item| item.kind == Kind::Endpoint) {
        check_endpoint(&endpoint.at, findings);
    }
    let Some(config) = config else { return BTreeMap::new() };
    if let (Some(status), World::Files) = (config.get("status"), world) {
        notices.report(status.place(), "ignored: written by a controller, not read from a file");
    }
    let Some(spec) = config.get("spec") else { return BTreeMap::new() };
    gateway::check(&spec, items, world, findings);
    secrets::check(&spec, items, world, findings, notices);
    scheduler::check(&spec, findings);
    flow_control::check(&spec, items, told);
    adapters::check(&spec, items, world, told)
}

fn check_endpoint(endpoint: &Cursor<'_>, findings: &mut Findings) {
    if let Some(key) = endpoint.find(&["spec", "apiKey"]) {
        exactly_one(&key, &["env", "file"], findings);
    }
    if let Some(tls) = endpoint.find(&["spec", "tls"])
        && tls.get("insecureSkipVerify").and_then(|skip| skip.bool()) == Some(true)
        && let Some(ca_file) = tls.get("caFile")
    {
        findings.report(ca_file.place(), "has no effect with `insecureSkipVerify: true`; remove one of them");
    }
}

/// Exactly one of some fields of a map must be there.
fn exactly_one(at: &Cursor<'_>, fields: &[&str], findings: &mut Findings) {
    let there = fields.iter().filter(|field| at.get(field).is_some()).count();
    if matches!(at.node.value, Value::Map(_)) && there != 1 {
        let fields = fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
        findings.report(at.place(), format!("must have exactly one of {fields}, has {there}"));
    }
}

/// No two items of a list may have the same text in a field.
fn unique(list: &Cursor<'_>, field: &str, findings: &mut Findings) {
    let mut first: BTreeMap<&str, String> = BTreeMap::new();
    for item in list.items() {
        let Some(value) = item.get(field) else { continue };
        let Some(text) = value.text() else { continue };
        if let Some(other) = first.get(text) {
            findings.report(value.place(), format!("{field} must be unique: {other} has {} too", quoted(text)));
        } else {
            first.insert(text, item.path.as_str().to_owned());
        }
    }
}
