//! A [`Shape`] as the structural schema that the API server holds objects against.

use serde_json::{Map, Value as Json, json};

use super::rules;
use crate::{
    format::Format,
    reference::CHANGED,
    schema::{Field, Presence, Shape, Unknown},
};

/// Where no defaults may be filled in: these objects are laid over others field by field, and a default would count as said.
const LAID_OVER: &str = "spec.schedulers[].flowControl.";

/// Lists whose items are told apart by a field.
const KEYED: [(&str, &str); 5] = [
    ("spec.schedulers", "name"),
    ("spec.limits", "name"),
    ("spec.schedulers[].limits", "name"),
    ("status.conditions", "type"),
    ("status.schedulers", "name"),
];

/// The schema of a field with its description, default and rules. `path` is as in `spec.schedulers[].env`.
pub(super) fn described(field: &Field, path: &str) -> Json {
    let mut schema = open_api(&field.shape, path);
    let meaning: Vec<&str> =
        field.doc.iter().map(String::as_str).filter(|paragraph| !paragraph.starts_with(CHANGED)).collect();
    let unit = field.unit.as_ref().map(|unit| format!(" In {unit}.")).unwrap_or_default();
    schema["description"] = format!("{}{unit}", meaning.join(" ")).into();
    // An absent object stays absent, since some exclude each other; what is inside one has its defaults.
    let is_plain = field.default.as_ref().is_some_and(|default| !default.is_object() && !default.is_array());
    if let (Some(default), true, false) = (&field.default, is_plain, path.starts_with(LAID_OVER)) {
        schema["default"] = default.clone();
    }
    schema
}

/// The schema of a shape with the rules of its place.
pub(super) fn open_api(shape: &Shape, path: &str) -> Json {
    let mut schema = plain(shape, path);
    let found = rules::at(path, shape);
    if !found.is_empty() {
        schema["x-kubernetes-validations"] = found.into();
    }
    schema
}

fn plain(shape: &Shape, path: &str) -> Json {
    match shape {
        Shape::Object { fields, unknown } => object(fields, *unknown, path),
        Shape::Map { values, entries_min, entries_max, .. } => {
            let inner = open_api(values, &format!("{path}{{}}"));
            let mut schema = json!({"type": "object", "additionalProperties": inner});
            bound(&mut schema, "minProperties", *entries_min, 0);
            bound(&mut schema, "maxProperties", *entries_max, u64::MAX);
            schema
        }
        Shape::List { items, items_min, items_max } => {
            let mut schema = json!({"type": "array", "items": open_api(items, &format!("{path}[]"))});
            bound(&mut schema, "minItems", *items_min, 0);
            bound(&mut schema, "maxItems", *items_max, u64::MAX);
            let path = path.replace("schedulers[].conditions", "conditions");
            if let Some((_, key)) = KEYED.iter().find(|(keyed, _)| *keyed == path) {
                schema["x-kubernetes-list-type"] = "map".into();
                schema["x-kubernetes-list-map-keys"] = json!([key]);
            }
            schema
        }
        Shape::Text { format, chars_min, chars_max, .. } => text(*format, *chars_min, *chars_max),
        Shape::Choice(choices) => {
            json!({"type": "string", "enum": choices.iter().map(|(name, _)| name).collect::<Vec<_>>()})
        }
        Shape::Quantity => json!({
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": Format::Quantity.pattern(),
            "maxLength": Format::Quantity.chars().1,
            "minimum": 0,
        }),
        Shape::Int { min, max } => integer(*min, *max),
        Shape::Number { min, max, above } => number(*min, *max, *above),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Any => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    }
}

fn object(fields: &[Field], unknown: Unknown, path: &str) -> Json {
    let inside = |field: &Field| (field.name.clone(), described(field, &format!("{path}.{}", field.name)));
    let properties: Map<String, Json> = fields.iter().map(inside).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    let required: Vec<&str> =
        fields.iter().filter(|field| field.presence == Presence::Required).map(|field| field.name.as_str()).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if unknown == Unknown::Kept {
        schema["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    schema
}

fn text(format: Option<Format>, chars_min: u64, chars_max: u64) -> Json {
    let mut schema = json!({"type": "string"});
    // The least of a format that has a pattern is in the pattern.
    let (least, most) = format.map_or((0, u64::MAX), Format::chars);
    bound(&mut schema, "minLength", chars_min.max(least), 0);
    bound(&mut schema, "maxLength", chars_max.min(most), u64::MAX);
    if let Some(format) = format {
        schema["pattern"] = format.pattern().into();
    }
    schema
}

fn integer(min: i128, max: i128) -> Json {
    let format = if i32::try_from(min).is_ok() && i32::try_from(max).is_ok() { "int32" } else { "int64" };
    let mut schema = json!({"type": "integer", "format": format});
    // What the format says already is not said twice.
    if min > i128::from(i64::MIN) {
        schema["minimum"] = json!(i64::try_from(min).unwrap_or(i64::MIN));
    }
    if max < i128::from(i64::MAX) {
        schema["maximum"] = json!(i64::try_from(max).unwrap_or(i64::MAX));
    }
    schema
}

fn number(min: f64, max: f64, above: Option<f64>) -> Json {
    let mut schema = json!({"type": "number"});
    if let Some(above) = above {
        schema["minimum"] = json!(above);
        schema["exclusiveMinimum"] = true.into();
    } else if min > f64::MIN {
        schema["minimum"] = json!(min);
    }
    if max < f64::MAX {
        schema["maximum"] = json!(max);
    }
    schema
}

fn bound(schema: &mut Json, keyword: &str, value: u64, absent: u64) {
    if value != absent {
        schema[keyword] = value.into();
    }
}
