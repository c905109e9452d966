//! Holds a tree against a [`Shape`]: every breach is reported, and what was right comes out as JSON for serde.
//!
//! What comes out has no nulls where Kubernetes takes them for absent, and booleans where YAML 1.1's words were
//! written. It is complete only if nothing was reported; then serde cannot fail on it.

use serde_json::{Map, Number, Value as Json};

use super::{
    Field, Presence, Shape, Unknown,
    hint::{home, nearest},
};
use crate::{
    duration::GatewayDuration,
    format::Format,
    place::{Findings, Place, quoted},
    quantity::ByteQuantity,
    yaml::{Cursor, Node, Value},
};

/// Holds a document, or a part of one, against its shape.
pub(crate) fn check(shape: &Shape, at: &Cursor<'_>, findings: &mut Findings) -> Json {
    match shape {
        Shape::Object { fields, unknown } => object(fields, *unknown, at, findings),
        Shape::Map { keys, values, entries_min, entries_max } => {
            map(*keys, values, (*entries_min, *entries_max), at, findings)
        }
        Shape::List { items, items_min, items_max } => list(items, (*items_min, *items_max), at, findings),
        Shape::Text { .. } => text(shape, at, findings),
        Shape::Choice(choices) => choice(choices, at, findings),
        Shape::Quantity => quantity(at, findings),
        Shape::Int { min, max } => integer(*min, *max, at, findings),
        Shape::Number { min, max, above } => number((*min, *max, *above), at, findings),
        Shape::Bool => match at.bool() {
            Some(value) => Json::Bool(value),
            None => wrong_kind("true or false", at, findings),
        },
        Shape::Any => plain_json(at.node),
    }
}

/// The value as JSON, as it is. What JSON has no word for (infinite numbers) becomes null.
pub(crate) fn plain_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => int_json(*value),
        Value::Float(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
        Value::Text(text) => Json::String(text.text.clone()),
        Value::List(items) => Json::Array(items.iter().map(plain_json).collect()),
        Value::Map(entries) => entries.iter().map(|(key, node)| (key.clone(), plain_json(node))).collect(),
    }
}

fn object(fields: &[Field], unknown: Unknown, at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let Value::Map(entries) = &at.node.value else { return wrong_kind("a map", at, findings) };
    // What a misspelt field can have meant: not one that is there already.
    let absent: Vec<&str> = fields
        .iter()
        .map(|field| field.name.as_str())
        .filter(|name| !entries.iter().any(|(key, _)| key == name))
        .collect();
    let mut out = Map::new();
    for (key, node) in entries {
        let child = Cursor { source: at.source, node, path: at.path.field(key) };
        match (fields.iter().find(|field| field.name == *key), unknown) {
            (Some(_), _) if node.value == Value::Null => {}
            (Some(field), _) => {
                out.insert(key.clone(), check(&field.shape, &child, findings));
            }
            (None, Unknown::Kept) => {
                out.insert(key.clone(), plain_json(node));
            }
            (None, Unknown::Refused) => unknown_field(key, fields, &absent, &child, findings),
        }
    }
    for field in fields.iter().filter(|field| field.presence == Presence::Required && at.get(&field.name).is_none()) {
        let place = Place { path: at.path.field(&field.name), ..at.place() };
        findings.report(place, "required field is missing");
    }
    Json::Object(out)
}

fn unknown_field(key: &str, fields: &[Field], absent: &[&str], at: &Cursor<'_>, findings: &mut Findings) {
    let hint = home(key, fields)
        .or_else(|| nearest(key, absent.iter().copied()).map(|name| format!("; did you mean `{name}`?")))
        .unwrap_or_default();
    findings.report(at.place(), format!("unknown field \"{}\"{hint}", at.path.as_str()));
}

fn map(keys: Option<Format>, values: &Shape, (min, max): (u64, u64), at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let Value::Map(entries) = &at.node.value else { return wrong_kind("a map", at, findings) };
    count_within("entries", entries.len(), (min, max), at, findings);
    let mut out = Map::new();
    for (key, child) in at.entries() {
        if let Some(format) = keys
            && !(format.holds(key) && key.chars().count() as u64 <= format.chars().1)
        {
            findings.report(child.place(), format!("key must be {}", format.phrase()));
        }
        if child.node.value != Value::Null {
            out.insert(key.to_owned(), check(values, &child, findings));
        }
    }
    Json::Object(out)
}

fn list(items: &Shape, (min, max): (u64, u64), at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let Value::List(nodes) = &at.node.value else { return wrong_kind("a list", at, findings) };
    count_within("items", nodes.len(), (min, max), at, findings);
    Json::Array(at.items().map(|item| check(items, &item, findings)).collect())
}

fn count_within(what: &str, count: usize, (min, max): (u64, u64), at: &Cursor<'_>, findings: &mut Findings) {
    let count = count as u64;
    if count < min {
        findings.report(at.place(), format!("must have at least {min} {what}, has {count}"));
    }
    if count > max {
        findings.report(at.place(), format!("must have at most {max} {what}, has {count}"));
    }
}

fn text(shape: &Shape, at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let Shape::Text { format, chars_min, chars_max, at_least, at_most } = shape else { return Json::Null };
    let Some(text) = at.text() else {
        return match format {
            Some(format) => wrong_kind(format.phrase(), at, findings),
            None => wrong_kind("a text", at, findings),
        };
    };
    let chars = text.chars().count() as u64;
    if chars > *chars_max {
        findings.report(at.place(), format!("must have at most {chars_max} characters, has {chars}"));
    } else if chars < *chars_min {
        findings.report(
            at.place(),
            if chars == 0 { "must not be empty".into() } else { format!("must have at least {chars_min} characters") },
        );
    } else if let Some(format) = format.filter(|format| !format.holds(text)) {
        // A key written where its variable's name belongs must not end up in a log.
        let found = if format == Format::EnvName { String::new() } else { format!(", not {}", shown(at.node)) };
        findings.report(at.place(), format!("must be {}{found}", format.phrase()));
    } else if let Some(breach) = outside(text, at_least.as_deref(), at_most.as_deref()) {
        findings.report(at.place(), format!("{breach}, not {text}"));
    }
    Json::String(text.to_owned())
}

/// Why a duration is outside its bounds, which are named as the documentation writes them.
fn outside(text: &str, at_least: Option<&str>, at_most: Option<&str>) -> Option<String> {
    let duration = GatewayDuration::parse(text)?;
    let beyond = |bound: &str, wrong: fn(&GatewayDuration, &GatewayDuration) -> bool| {
        GatewayDuration::parse(bound).is_some_and(|bound| wrong(&duration, &bound))
    };
    if let Some(least) = at_least.filter(|least| beyond(least, PartialOrd::lt)) {
        return Some(format!("must be at least {least}"));
    }
    at_most.filter(|most| beyond(most, PartialOrd::gt)).map(|most| format!("must be at most {most}"))
}

fn choice(choices: &[(String, String)], at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let names = || choices.iter().map(|(name, _)| name.as_str());
    let allowed = || names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match at.text() {
        Some(text) if names().any(|name| name == text) => Json::String(text.to_owned()),
        Some(text) => {
            let hint = nearest(text, names()).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            findings.report(at.place(), format!("must be one of {}, not {}{hint}", allowed(), shown(at.node)));
            Json::Null
        }
        None => wrong_kind(&format!("one of {}", allowed()), at, findings),
    }
}

fn quantity(at: &Cursor<'_>, findings: &mut Findings) -> Json {
    match (&at.node.value, at.text()) {
        (Value::Int(value), _) if (0..=i128::from(u64::MAX)).contains(value) => int_json(*value),
        (_, Some(text)) if ByteQuantity::parse(text).is_some() => Json::String(text.to_owned()),
        _ => wrong_kind(Format::Quantity.phrase(), at, findings),
    }
}

fn integer(min: i128, max: i128, at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let value = match &at.node.value {
        Value::Int(value) => *value,
        // Whole numbers that a tool wrote as `8000.0` or `1e3`: Kubernetes takes them too.
        #[expect(clippy::cast_possible_truncation, reason = "whole and far inside i128")]
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => *value as i128,
        Value::Float(_) | Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            return wrong_kind("an integer", at, findings);
        }
    };
    if value < min {
        findings.report(at.place(), format!("must be at least {min}, not {value}"));
    } else if value > max {
        findings.report(at.place(), format!("must be at most {max}, not {value}"));
    }
    int_json(value)
}

fn number((min, max, above): (f64, f64, Option<f64>), at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let value = match &at.node.value {
        #[expect(clippy::cast_precision_loss, reason = "a number is asked for, not an integer")]
        Value::Int(value) => *value as f64,
        Value::Float(value) if value.is_finite() => *value,
        Value::Float(_) | Value::Null | Value::Bool(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
            return wrong_kind("a number", at, findings);
        }
    };
    if let Some(above) = above.filter(|above| value <= *above) {
        findings.report(at.place(), format!("must be more than {above}, not {value}"));
    } else if value < min {
        findings.report(at.place(), format!("must be at least {min}, not {value}"));
    } else if value > max {
        findings.report(at.place(), format!("must be at most {max}, not {value}"));
    }
    Number::from_f64(value).map_or(Json::Null, Json::Number)
}

fn wrong_kind(wanted: &str, at: &Cursor<'_>, findings: &mut Findings) -> Json {
    let scalar = matches!(at.node.value, Value::Bool(_) | Value::Int(_) | Value::Float(_));
    let hint = if scalar && wanted == "a text" { "; put it in quotes" } else { "" };
    // A scalar in place of a map may be what must stay secret: `apiKey: sk-…`.
    let found = if matches!(wanted, "a map" | "a list") { at.node.kind().to_owned() } else { shown(at.node) };
    findings.report(at.place(), format!("must be {wanted}, not {found}{hint}"));
    Json::Null
}

/// A value as a message repeats it.
fn shown(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => quoted(&text.text),
        Value::Int(value) => format!("the integer {value}"),
        Value::Float(value) => format!("the number {value}"),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Null | Value::List(_) | Value::Map(_) => node.kind().to_owned(),
    }
}

fn int_json(value: i128) -> Json {
    if let Ok(value) = u64::try_from(value) {
        return Json::Number(value.into());
    }
    #[expect(clippy::cast_precision_loss, reason = "beyond 64 bits JSON numbers are floating point")]
    i64::try_from(value).map_or_else(
        |_| Number::from_f64(value as f64).map_or(Json::Null, Json::Number),
        |value| Json::Number(value.into()),
    )
}
