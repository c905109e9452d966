//! Which fields have no effect yet, and which have none here: the one table of both.
//!
//! An ignored `auth`, `tls` or limit would be an open gateway, so a field whose effect is not built makes the
//! configuration refused as soon as it says something else than its default. Whoever builds the effect deletes the row.
//! Fields that only shape pods are a cluster's business: in files they pass, with a notice.

use crate::{
    duration::GatewayDuration,
    format::Format,
    place::Findings,
    quantity::ByteQuantity,
    schema::{Field, Shape},
    yaml::{Cursor, Value},
};

/// Fields of `InferenceGatewayConfig` with less effect than their words say. `[]` stands for every item of a list.
const ROWS: [(&str, Effect); 6] = [
    ("spec.dataPlane.mode", Effect::OnlyDefaultBuilt),
    ("spec.schedulers[].configMapRef", Effect::NotBuilt),
    ("spec.bbr.replicas", Effect::PodsOnly),
    ("spec.podDefaults", Effect::PodsOnly),
    ("spec.schedulers[].replicas", Effect::PodsOnly),
    ("spec.schedulers[].env", Effect::PodsOnly),
];

/// A row of its own, since `env` and `envFrom` are one thing to operators.
const ENV_FROM: (&str, Effect) = ("spec.schedulers[].envFrom", Effect::PodsOnly);

/// How much of a field's meaning there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None: its presence is refused.
    NotBuilt,
    /// That of its default: everything else is refused, leaf by leaf.
    OnlyDefaultBuilt,
    /// On pods: none for a process that reads files.
    PodsOnly,
}

/// What is known of the field at a path like `spec.schedulers[].env`, or of one around it.
pub(crate) fn of_path(path: &str) -> Option<Effect> {
    rows()
        .find(|(row, _)| path.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])))
        .map(|(_, effect)| effect)
}

/// Refuses what is not built, and gives notice of what only shapes pods, where there are none.
pub(crate) fn check(config: &Cursor<'_>, shape: &Shape, findings: &mut Findings, mut pods_only: Option<&mut Findings>) {
    for (path, effect) in rows() {
        let steps: Vec<&str> = path.split('.').collect();
        visit(config, shape, None, &steps, &mut |at, shape, field| match effect {
            Effect::NotBuilt if !is_empty(at) => findings.report(at.place(), NOT_ENFORCED_REMOVE),
            Effect::NotBuilt => {}
            Effect::OnlyDefaultBuilt => leaves(at, shape, field, findings),
            Effect::PodsOnly => {
                if let Some(notices) = &mut pods_only {
                    notices.report(at.place(), "shapes pods only, and has no effect on a process that reads files");
                }
            }
        });
    }
}

const NOT_ENFORCED_REMOVE: &str = "not enforced yet: this version would ignore it, so it is refused; remove it";

fn rows() -> impl Iterator<Item = (&'static str, Effect)> {
    ROWS.into_iter().chain([ENV_FROM])
}

/// Calls `on` for each place that a row's path leads to.
fn visit(
    at: &Cursor<'_>,
    shape: &Shape,
    field: Option<&Field>,
    steps: &[&str],
    on: &mut dyn FnMut(&Cursor<'_>, &Shape, Option<&Field>),
) {
    let Some((step, rest)) = steps.split_first() else { return on(at, shape, field) };
    let name = step.trim_end_matches("[]");
    let (Some(child), Some(field)) = (at.get(name), shape.field(name)) else { return };
    if let (Shape::List { items, .. }, true) = (&field.shape, step.ends_with("[]")) {
        for item in child.items() {
            visit(&item, items, None, rest, on);
        }
    } else {
        visit(&child, &field.shape, Some(field), rest, on);
    }
}

/// Refuses every leaf that says something else than its default.
fn leaves(at: &Cursor<'_>, shape: &Shape, field: Option<&Field>, findings: &mut Findings) {
    if let Shape::Object { fields, .. } = shape {
        for field in fields {
            if let Some(child) = at.get(&field.name) {
                leaves(&child, &field.shape, Some(field), findings);
            }
        }
        return;
    }
    let default = field.and_then(|field| field.default.as_ref());
    if differs(at, shape, default) {
        let default = default.map(|default| format!(" or leave its default, {}", as_written(default)));
        findings.report(at.place(), format!("{NOT_ENFORCED_REMOVE}{}", default.unwrap_or_default()));
    }
}

/// Whether a well-formed value is another than the default. What is malformed was reported as that.
fn differs(at: &Cursor<'_>, shape: &Shape, default: Option<&serde_json::Value>) -> bool {
    let default_text = default.and_then(serde_json::Value::as_str);
    match (shape, at.text()) {
        (Shape::Text { format: Some(Format::Duration), .. }, Some(text)) => {
            let written = GatewayDuration::parse(text);
            written.is_some() && written != default_text.and_then(GatewayDuration::parse)
        }
        (Shape::Quantity, Some(text)) => {
            let written = ByteQuantity::parse(text);
            written.is_some() && written != default_text.and_then(ByteQuantity::parse)
        }
        (Shape::Quantity, None) => match (&at.node.value, default_text.and_then(ByteQuantity::parse)) {
            (Value::Int(written), Some(default)) => *written != i128::from(default.0),
            _ => false,
        },
        (Shape::Choice(choices), Some(text)) => {
            choices.iter().any(|(name, _)| name == text) && Some(text) != default_text
        }
        (Shape::Int { .. } | Shape::Number { .. }, None) => {
            number(at).is_some_and(|written| Some(written) != default.and_then(serde_json::Value::as_f64))
        }
        (Shape::Bool, _) => {
            at.bool().is_some_and(|written| Some(written) != default.and_then(serde_json::Value::as_bool))
        }
        (Shape::Text { .. }, Some(text)) => Some(text) != default_text,
        (Shape::Map { .. } | Shape::List { .. } | Shape::Any | Shape::Object { .. }, _) => !is_empty(at),
        (Shape::Text { .. } | Shape::Choice(_) | Shape::Int { .. } | Shape::Number { .. }, _) => false,
    }
}

#[expect(clippy::cast_precision_loss, reason = "compared with a default that is small")]
fn number(at: &Cursor<'_>) -> Option<f64> {
    match at.node.value {
        Value::Int(value) => Some(value as f64),
        Value::Float(value) => Some(value),
        Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => None,
    }
}

/// An empty list says as little as an absent one. An empty map may say much: `tls: {}` asks for a certificate.
fn is_empty(at: &Cursor<'_>) -> bool {
    matches!(&at.node.value, Value::List(items) if items.is_empty())
}

fn as_written(default: &serde_json::Value) -> String {
    default.as_str().map_or_else(|| default.to_string(), str::to_owned)
}
