//! The schema of each kind of document, taken from its struct.
//!
//! `schemars` turns a struct with its attributes and comments into JSON Schema; this module turns the part of JSON
//! Schema that our structs use into a [`Shape`], which `check` holds documents against and `reference` prints. So a
//! field is declared once, in its struct. A keyword that is not understood here fails a test instead of being ignored:
//! a bound that nobody checks is worse than none.

pub(crate) mod check;
mod compile;
pub(crate) mod hint;

use serde_json::Value as Json;

use crate::format::Format;

/// What a value must look like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Named fields.
    Object {
        fields: Vec<Field>,
        unknown: Unknown,
    },
    /// Any keys.
    Map {
        keys: Option<Format>,
        values: Box<Shape>,
        entries_min: u64,
        entries_max: u64,
    },
    List {
        items: Box<Shape>,
        items_min: u64,
        items_max: u64,
    },
    Text {
        format: Option<Format>,
        chars_min: u64,
        chars_max: u64,
        at_least: Option<String>,
        at_most: Option<String>,
    },
    /// One of these texts, with what each means (may be empty).
    Choice(Vec<(String, String)>),
    /// A quantity: integer or text.
    Quantity,
    Int {
        min: i128,
        max: i128,
    },
    Number {
        min: f64,
        max: f64,
        above: Option<f64>,
    },
    Bool,
    /// Kubernetes' own type, taken as it is.
    Any,
}

/// What becomes of fields that the struct does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    Refused,
    /// Objects of Kubernetes that grow: `metadata`.
    Kept,
}

/// A field of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) presence: Presence,
    /// What an absent field means, if that is a value.
    pub(crate) default: Option<Json>,
    /// The comment on the struct's field, in paragraphs.
    pub(crate) doc: Vec<String>,
    pub(crate) unit: Option<String>,
    pub(crate) origin: Origin,
}

/// Whether a field may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    Optional,
}

/// Who thought of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The contract that operators know.
    Contract,
    /// An addition of this product.
    Ours,
}

/// The shape of a document struct.
pub(crate) fn of<T: schemars::JsonSchema>() -> Shape {
    compile::shape(&json::<T>()).expect("every keyword that our structs use is understood: a test compiles each kind")
}

/// The JSON Schema of a document struct, without references.
pub(crate) fn json<T: schemars::JsonSchema>() -> Json {
    let settings =
        schemars::generate::SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

impl Shape {
    /// The fields of an object; none of anything else.
    pub(crate) fn fields(&self) -> &[Field] {
        if let Self::Object { fields, .. } = self { fields } else { &[] }
    }

    /// The field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find(|field| field.name == name)
    }
}
