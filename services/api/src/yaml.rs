//! YAML text to trees that remember lines.
//!
//! Why not serde straight into structs: it stops at the first error and forgets lines. Here every duplicate key of a
//! file is found, a field can be named with its line, and hostile texts stay within bounds: bytes, documents, values,
//! depth and what aliases may expand to are all limited. JSON is read too, being YAML.
//!
//! Scalars mean what they mean to Kubernetes' tools as far as YAML 1.2 agrees; `yes`, `no`, `on` and `off` stay words
//! here and count as booleans only where a boolean is asked for, so that a model named `on` is not `true`.

mod compose;
mod scalar;

use crate::place::{Findings, Path, Place};

/// Most bytes of all sources together.
pub(crate) const SOURCE_BYTES_MAX: usize = 16 << 20;
/// Most documents in all sources together.
pub(crate) const DOCUMENTS_MAX: usize = 10_000;
/// Most values (scalars, keys among them, lists, maps) in all sources together. 10,000 endpoints need 200,000.
pub(crate) const VALUES_MAX: usize = 500_000;
/// Deepest nesting of lists and maps. Ours need 12; Kubernetes' own types about 20.
pub(crate) const DEPTH_MAX: usize = 64;
/// Most bytes that aliases may add in all sources together, text and tree counted.
pub(crate) const ALIASED_BYTES_MAX: usize = 16 << 20;

/// One document: which source it is from, and its tree.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) source: usize,
    pub(crate) root: Node,
}

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// From 1. In a map: the line of the key.
    pub(crate) line: u32,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Text),
    List(Vec<Node>),
    /// In the order of the text; keys are unique.
    Map(Vec<(String, Node)>),
}

/// A scalar that is no number, boolean or null.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) style: Style,
}

/// Whether a text could have been meant as something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Written bare.
    Plain,
    /// Quoted, or a block: a text and nothing else.
    Quoted,
}

/// A node with the way to it, as rules walk over trees.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) source: usize,
    pub(crate) node: &'a Node,
    pub(crate) path: Path,
}

/// What is left of the bounds that all sources share.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    documents: usize,
    values: usize,
    aliased_bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: SOURCE_BYTES_MAX, documents: DOCUMENTS_MAX, values: VALUES_MAX, aliased_bytes: ALIASED_BYTES_MAX }
    }
}

/// The documents of one source; empty ones are left out. What is no YAML is reported, and the documents before it are
/// returned all the same.
pub(crate) fn documents(source: usize, text: &str, budget: &mut Budget, findings: &mut Findings) -> Vec<Document> {
    if text.len() > budget.bytes {
        let message = format!("too long: all files together may have {SOURCE_BYTES_MAX} bytes");
        findings.report(Place { source: Some(source), line: None, path: Path::root() }, message);
        return Vec::new();
    }
    budget.bytes -= text.len();
    // The parser holds a whole `[…]` or `{…}` before it tells of the first value, so its values are bounded before.
    if text.bytes().filter(|b| *b == b',').count() > VALUES_MAX {
        let message = format!("too many commas: all files together may have {VALUES_MAX} values");
        findings.report(Place { source: Some(source), line: None, path: Path::root() }, message);
        return Vec::new();
    }
    let mut composer = compose::Composer::new(source, budget, findings);
    composer.run(text);
    composer.into_documents()
}

impl Node {
    /// The value of a key, if this is a map that has it and it is not null: Kubernetes takes null for absent.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(name, node)| name == key && node.value != Value::Null).map(|(_, node)| node)
    }

    /// What to call this value in a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn root(document: &'a Document) -> Self {
        Self { source: document.source, node: &document.root, path: Path::root() }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Self> {
        self.node.get(key).map(|node| Self { source: self.source, node, path: self.path.field(key) })
    }

    /// The field at the end of several keys.
    pub(crate) fn find(&self, keys: &[&str]) -> Option<Self> {
        keys.iter().try_fold(self.clone(), |cursor, key| cursor.get(key))
    }

    /// The items of a list; none if this is no list.
    pub(crate) fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let items: &'a [Node] = match &self.node.value {
            Value::List(items) => items,
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::Map(_) => &[],
        };
        let (source, path) = (self.source, self.path.clone());
        items.iter().enumerate().map(move |(index, node)| Self { source, node, path: path.item(index) })
    }

    /// The entries of a map; none if this is no map.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let entries: &'a [(String, Node)] = match &self.node.value {
            Value::Map(entries) => entries,
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) | Value::List(_) => &[],
        };
        let (source, path) = (self.source, self.path.clone());
        entries.iter().map(move |(key, node)| (key.as_str(), Self { source, node, path: path.field(key) }))
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        let node: &'a Node = self.node;
        if let Value::Text(text) = &node.value { Some(&text.text) } else { None }
    }

    pub(crate) fn bool(&self) -> Option<bool> {
        match &self.node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(Text { text, style: Style::Plain }) => scalar::word_as_bool(text),
            Value::Text(_) | Value::Null | Value::Int(_) | Value::Float(_) | Value::List(_) | Value::Map(_) => None,
        }
    }

    pub(crate) fn place(&self) -> Place {
        Place { source: Some(self.source), line: Some(self.node.line), path: self.path.clone() }
    }
}
