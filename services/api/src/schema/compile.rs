//! JSON Schema, as `schemars` writes it for our structs, to a [`Shape`].

use serde_json::{Map, Value as Json};

use super::{Field, Origin, Presence, Shape, Unknown};
use crate::format::Format;

/// Keywords that are read somewhere below, or that say nothing about what is valid.
const KNOWN_KEYWORDS: [&str; 27] = [
    "$schema",
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "oneOf",
    "pattern",
    "properties",
    "propertyNames",
    "required",
    "title",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
];

/// Our own keywords.
const OWN_KEYWORDS: [&str; 4] = ["x-at-least", "x-at-most", "x-ours", "x-unit"];

/// The shape that a schema describes.
///
/// # Errors
/// A sentence on the first thing that is not understood: a mistake in one of our structs.
pub(super) fn shape(schema: &Json) -> Result<Shape, String> {
    let schema = match schema {
        Json::Bool(true) => return Ok(Shape::Any),
        Json::Object(schema) => schema,
        Json::Bool(false) | Json::Null | Json::Number(_) | Json::String(_) | Json::Array(_) => {
            return Err(format!("not a schema: {schema}"));
        }
    };
    if let Some(odd) = schema.keys().find(|key| !is_known(key)) {
        return Err(format!("keyword `{odd}` is not understood"));
    }
    if schema.contains_key("x-kubernetes-int-or-string") {
        return Ok(Shape::Quantity);
    }
    if let Some(options) = schema.get("anyOf").and_then(Json::as_array) {
        return optional(options);
    }
    if let Some(choices) = choices(schema) {
        return Ok(Shape::Choice(choices));
    }
    match type_of(schema)? {
        Some("object") => object(schema),
        Some("array") => list(schema),
        Some("string") => text(schema),
        Some("integer") => integer(schema),
        Some("number") => Ok(number(schema)),
        Some("boolean") => Ok(Shape::Bool),
        Some(other) => Err(format!("type `{other}` is not understood")),
        None => Ok(Shape::Any),
    }
}

fn is_known(keyword: &str) -> bool {
    KNOWN_KEYWORDS.contains(&keyword) || OWN_KEYWORDS.contains(&keyword)
}

/// The one type besides `null`: absent and null are the same to Kubernetes.
fn type_of(schema: &Map<String, Json>) -> Result<Option<&str>, String> {
    match schema.get("type") {
        None => Ok(None),
        Some(Json::String(name)) => Ok(Some(name)),
        Some(Json::Array(names)) => {
            let mut others = names.iter().filter_map(Json::as_str).filter(|name| *name != "null");
            match (others.next(), others.next()) {
                (Some(name), None) => Ok(Some(name)),
                _ => Err(format!("types {names:?} are not understood")),
            }
        }
        Some(other) => Err(format!("type {other} is not understood")),
    }
}

/// `anyOf` of a schema and null.
fn optional(options: &[Json]) -> Result<Shape, String> {
    let is_null = |option: &&Json| option.get("type").and_then(Json::as_str) == Some("null");
    let mut others = options.iter().filter(|option| !is_null(option));
    match (others.next(), others.next()) {
        (Some(only), None) => shape(only),
        _ => Err("only an `anyOf` with null is understood".into()),
    }
}

/// Texts that an enum allows, with their comments.
fn choices(schema: &Map<String, Json>) -> Option<Vec<(String, String)>> {
    if let Some(names) = schema.get("enum").and_then(Json::as_array) {
        return Some(names.iter().filter_map(Json::as_str).map(|name| (name.to_owned(), String::new())).collect());
    }
    let variants = schema.get("oneOf").and_then(Json::as_array)?;
    let mut found = Vec::new();
    for variant in variants {
        let doc = paragraphs(variant.get("description")).join(" ");
        match variant.get("const").and_then(Json::as_str) {
            Some(name) => found.push((name.to_owned(), doc)),
            None => found.extend(variant.as_object().and_then(choices)?),
        }
    }
    Some(found)
}

fn object(schema: &Map<String, Json>) -> Result<Shape, String> {
    let properties = schema.get("properties").and_then(Json::as_object);
    let preserve = schema.contains_key("x-kubernetes-preserve-unknown-fields");
    match (properties, schema.get("additionalProperties")) {
        (Some(properties), additional) => {
            let unknown = match (additional, preserve) {
                (Some(Json::Bool(false)), false) => Unknown::Refused,
                (_, true) => Unknown::Kept,
                (_, false) => return Err("an object says neither that it is closed nor that it is open".into()),
            };
            let required: Vec<&str> = schema
                .get("required")
                .and_then(Json::as_array)
                .into_iter()
                .flatten()
                .filter_map(Json::as_str)
                .collect();
            let mut fields = properties
                .iter()
                .map(|(name, property)| field(name, property, &required).map_err(|why| format!("{name}: {why}")))
                .collect::<Result<Vec<_>, _>>()?;
            // JSON maps keep the order of insertion or of names, as whoever else is built along wants it: pages and
            // messages must not depend on that.
            fields.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(Shape::Object { fields, unknown })
        }
        (None, Some(values @ Json::Object(_))) => Ok(Shape::Map {
            keys: schema.get("propertyNames").map(format_of).transpose()?.flatten(),
            values: Box::new(shape(values)?),
            entries_min: count(schema, "minProperties", 0),
            entries_max: count(schema, "maxProperties", u64::MAX),
        }),
        (None, Some(Json::Bool(false))) => Ok(Shape::Object { fields: Vec::new(), unknown: Unknown::Refused }),
        (None, _) => Ok(Shape::Any),
    }
}

fn field(name: &str, schema: &Json, required: &[&str]) -> Result<Field, String> {
    let has = |keyword: &str| schema.get(keyword).is_some();
    Ok(Field {
        name: name.to_owned(),
        shape: shape(schema)?,
        presence: if required.contains(&name) { Presence::Required } else { Presence::Optional },
        default: schema.get("default").filter(|default| !default.is_null()).cloned(),
        doc: paragraphs(schema.get("description")),
        unit: schema.get("x-unit").and_then(Json::as_str).map(str::to_owned),
        origin: if has("x-ours") { Origin::Ours } else { Origin::Contract },
    })
}

/// A comment's paragraphs, each on one line.
fn paragraphs(description: Option<&Json>) -> Vec<String> {
    let text = description.and_then(Json::as_str).unwrap_or_default();
    text.split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|paragraph| !paragraph.is_empty())
        .collect()
}

fn list(schema: &Map<String, Json>) -> Result<Shape, String> {
    Ok(Shape::List {
        items: Box::new(schema.get("items").map_or(Ok(Shape::Any), shape)?),
        items_min: count(schema, "minItems", 0),
        items_max: count(schema, "maxItems", u64::MAX),
    })
}

fn text(schema: &Map<String, Json>) -> Result<Shape, String> {
    let bound = |keyword: &str| schema.get(keyword).and_then(Json::as_str).map(str::to_owned);
    Ok(Shape::Text {
        format: format_of(&Json::Object(schema.clone()))?,
        chars_min: count(schema, "minLength", 0),
        chars_max: count(schema, "maxLength", u64::MAX),
        at_least: bound("x-at-least"),
        at_most: bound("x-at-most"),
    })
}

fn format_of(schema: &Json) -> Result<Option<Format>, String> {
    let Some(name) = schema.get("format").and_then(Json::as_str) else {
        return if schema.get("pattern").is_some() { Err("a pattern without a format".into()) } else { Ok(None) };
    };
    match Format::ALL.into_iter().find(|format| format.name() == name) {
        Some(format) => Ok(Some(format)),
        None => Err(format!("format `{name}` is not understood")),
    }
}

fn integer(schema: &Map<String, Json>) -> Result<Shape, String> {
    let natural = match schema.get("format").and_then(Json::as_str) {
        Some("uint8") => (0, i128::from(u8::MAX)),
        Some("uint16") => (0, i128::from(u16::MAX)),
        Some("uint32") => (0, i128::from(u32::MAX)),
        Some("uint64") => (0, i128::from(u64::MAX)),
        Some("int32") => (i128::from(i32::MIN), i128::from(i32::MAX)),
        Some("int64") | None => (i128::from(i64::MIN), i128::from(i64::MAX)),
        Some(other) => return Err(format!("integer format `{other}` is not understood")),
    };
    let bound = |keyword: &str| schema.get(keyword).and_then(Json::as_i64).map(i128::from);
    Ok(Shape::Int { min: bound("minimum").unwrap_or(natural.0), max: bound("maximum").unwrap_or(natural.1) })
}

fn number(schema: &Map<String, Json>) -> Shape {
    let bound = |keyword: &str| schema.get(keyword).and_then(Json::as_f64);
    Shape::Number {
        min: bound("minimum").unwrap_or(f64::MIN),
        max: bound("maximum").unwrap_or(f64::MAX),
        above: bound("exclusiveMinimum"),
    }
}

fn count(schema: &Map<String, Json>, keyword: &str, absent: u64) -> u64 {
    schema.get(keyword).and_then(Json::as_u64).unwrap_or(absent)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_understood_is_refused_not_ignored() {
        for schema in [
            json!({ "type": "string", "contentEncoding": "base64" }),
            json!({ "type": "string", "pattern": "^a$" }),
            json!({ "type": "string", "format": "date-time" }),
            json!({ "type": ["string", "integer"] }),
            json!({ "type": "object", "properties": {} }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!(false),
        ] {
            assert!(shape(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn rusts_integers_keep_their_bounds() {
        for format in ["uint8", "uint16", "uint32", "uint64", "int32", "int64"] {
            let shape = shape(&json!({ "type": "integer", "format": format }));
            let bounded =
                matches!(shape, Ok(Shape::Int { min, max }) if min < max && (min == 0) == format.starts_with('u'));
            assert!(bounded, "{format}: {shape:?}");
        }
    }
}
