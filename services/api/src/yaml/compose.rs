//! Parser events to trees. No recursion: the stack of open lists and maps is bounded by [`DEPTH_MAX`].

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{
    ALIASED_BYTES_MAX, Budget, DEPTH_MAX, DOCUMENTS_MAX, Document, Node, Style, Text, VALUES_MAX, Value, scalar,
};
use crate::place::{Findings, Path, Place, shorten};

/// What a value costs besides its text when an alias repeats it, in bytes: its place in a tree.
const VALUE_BYTES: usize = size_of::<(String, Node)>();

/// For a second document that was pasted below the first.
const PARTED_HINT: &str = "; if another document begins here, put `---` on a line before it";

/// The key that merges maps into the one it stands in.
const MERGE_KEY: &str = "<<";

pub(super) struct Composer<'a> {
    source: usize,
    budget: &'a mut Budget,
    findings: &'a mut Findings,
    documents: Vec<Document>,
    open: Vec<Open>,
    /// Values with an anchor, with what each costs to repeat. Parser ids never repeat within a file.
    anchored: BTreeMap<usize, (Node, usize)>,
}

/// A list or map that is not complete yet.
struct Open {
    line: u32,
    /// 0: none.
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map {
        entries: Vec<(String, Node)>,
        /// Where each key is, so that a map of a million keys is no quadratic work.
        places: BTreeMap<String, usize>,
        key: Option<Key>,
    },
}

struct Key {
    text: String,
    line: u32,
}

/// The text cannot be read further; already reported.
struct Stop;

impl<'a> Composer<'a> {
    pub(super) fn new(source: usize, budget: &'a mut Budget, findings: &'a mut Findings) -> Self {
        Self { source, budget, findings, documents: Vec::new(), open: Vec::new(), anchored: BTreeMap::new() }
    }

    pub(super) fn into_documents(self) -> Vec<Document> {
        self.documents
    }

    pub(super) fn run(&mut self, text: &str) {
        let mut parser = Parser::new_from_str(text);
        while let Some(event) = parser.next_event() {
            let step = match event {
                Ok((event, span)) => self.event(event, line_of(span)),
                Err(error) => {
                    let line = u32::try_from(error.marker().line()).unwrap_or(u32::MAX);
                    Err(self.stop(line, format!("not valid YAML: {}", error.info())))
                }
            };
            if step.is_err() {
                return;
            }
        }
    }

    fn event(&mut self, event: Event<'_>, line: u32) -> Result<(), Stop> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => Ok(()),
            Event::DocumentEnd => {
                self.anchored.clear();
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag.as_deref(), line),
            Event::Alias(anchor) => self.alias(anchor, line),
            Event::SequenceStart(anchor, tag) => self.begin(Content::List(Vec::new()), anchor, tag.as_deref(), line),
            Event::MappingStart(anchor, tag) => {
                let content = Content::Map { entries: Vec::new(), places: BTreeMap::new(), key: None };
                self.begin(content, anchor, tag.as_deref(), line)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
        }
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        line: u32,
    ) -> Result<(), Stop> {
        self.spend_value(line)?;
        if let Some(Open { content: Content::Map { key: key @ None, .. }, .. }) = self.open.last_mut() {
            *key = Some(Key { text: text.into_owned(), line });
            return Ok(());
        }
        let as_text = tag.is_some_and(|tag| (tag.is_yaml_core_schema() && tag.suffix == "str") || is_bare(tag));
        if !as_text {
            self.check_tag(tag, &["int", "float", "bool", "null"], line)?;
        }
        let value = if style == ScalarStyle::Plain && !as_text {
            scalar::plain(&text)
        } else {
            Value::Text(Text { text: text.into_owned(), style: Style::Quoted })
        };
        self.complete(Node { line, value }, anchor)
    }

    fn alias(&mut self, anchor: usize, line: u32) -> Result<(), Stop> {
        let Some(&(_, cost)) = self.anchored.get(&anchor) else {
            return Err(self.stop(line, "this alias names a key, or what it stands in itself".into()));
        };
        self.spend_aliased(cost, line)?;
        let Some((node, _)) = self.anchored.get(&anchor) else { return Ok(()) };
        let node = Node { line, value: node.value.clone() };
        if self.open.len() + depth(&node) > DEPTH_MAX {
            return Err(self.too_deep(line));
        }
        if let Some(Open { content: Content::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(self.stop(line, "an alias cannot be a key".into()));
        }
        self.complete(node, 0)
    }

    fn begin(&mut self, content: Content, anchor: usize, tag: Option<&Tag>, line: u32) -> Result<(), Stop> {
        self.spend_value(line)?;
        self.check_tag(tag, &["map", "seq"], line)?;
        if let Some(Open { content: Content::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(self.stop(line, "a key must be a text, not a list or map".into()));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(self.too_deep(line));
        }
        self.open.push(Open { line, anchor, content });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        let Open { line, anchor, content } = self.open.pop().expect("the parser ends only what it began");
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(self.merged(entries)),
        };
        self.complete(Node { line, value }, anchor)
    }

    /// Puts a complete value where it belongs.
    fn complete(&mut self, mut node: Node, anchor: usize) -> Result<(), Stop> {
        if anchor != 0 {
            // The copy kept for aliases is paid for as well: anchors inside anchors copy again and again.
            let cost = cost_bytes(&node);
            self.spend_aliased(cost, node.line)?;
            self.anchored.insert(anchor, (node.clone(), cost));
        }
        let outermost = self.open.len() == 1;
        let duplicate = match self.open.last_mut() {
            None => return self.document(node),
            Some(Open { content: Content::List(items), .. }) => {
                items.push(node);
                None
            }
            Some(Open { content: Content::Map { entries, places, key }, .. }) => {
                let key = key.take().expect("a value in a map follows its key");
                node.line = key.line;
                match places.get(&key.text) {
                    Some(&first) => {
                        // What every document begins with.
                        let hint = if outermost && key.text == "apiVersion" { PARTED_HINT } else { "" };
                        let message = format!("duplicate key, first in line {}{hint}", entries[first].1.line);
                        Some((key.line, message, key.text))
                    }
                    None => {
                        places.insert(key.text.clone(), entries.len());
                        entries.push((key.text, node));
                        None
                    }
                }
            }
        };
        if let Some((line, message, key)) = duplicate {
            let path = self.path().field(&key);
            self.findings.report(Place { source: Some(self.source), line: Some(line), path }, message);
        }
        Ok(())
    }

    fn document(&mut self, root: Node) -> Result<(), Stop> {
        if root.value == Value::Null {
            return Ok(());
        }
        if self.budget.documents == 0 {
            return Err(self.stop(root.line, format!("more than {DOCUMENTS_MAX} documents")));
        }
        self.budget.documents -= 1;
        self.documents.push(Document { source: self.source, root });
        Ok(())
    }

    /// Puts the maps under `<<` into the map around them; what that map says itself wins, then the first merged.
    fn merged(&mut self, mut entries: Vec<(String, Node)>) -> Vec<(String, Node)> {
        let Some(at) = entries.iter().position(|(key, _)| key == MERGE_KEY) else { return entries };
        let (_, node) = entries.remove(at);
        let line = node.line;
        let sources = match node.value {
            Value::List(items) => items,
            Value::Map(_) | Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {
                vec![node]
            }
        };
        let mut known: BTreeSet<String> = entries.iter().map(|(key, _)| key.clone()).collect();
        for source in sources {
            if let Value::Map(merged) = source.value {
                for (key, mut node) in merged {
                    if known.insert(key.clone()) {
                        node.line = line;
                        entries.push((key, node));
                    }
                }
            } else {
                let place = Place { source: Some(self.source), line: Some(line), path: self.path().field(MERGE_KEY) };
                self.findings.report(place, "`<<` merges maps, and this is none");
            }
        }
        entries
    }

    /// The way to the innermost open list or map.
    fn path(&self) -> Path {
        self.open.iter().fold(Path::root(), |path, open| match &open.content {
            Content::List(items) => path.item(items.len()),
            Content::Map { key: Some(key), .. } => path.field(&key.text),
            Content::Map { key: None, .. } => path,
        })
    }

    fn check_tag(&mut self, tag: Option<&Tag>, known: &[&str], line: u32) -> Result<(), Stop> {
        match tag {
            Some(tag) if !(tag.is_yaml_core_schema() && known.contains(&tag.suffix.as_str())) => {
                Err(self.stop(line, format!("tag `{}` is not supported", shorten(&tag.to_string(), 80))))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn spend_value(&mut self, line: u32) -> Result<(), Stop> {
        if self.budget.values == 0 {
            return Err(self.stop(line, format!("more than {VALUES_MAX} values in all files together")));
        }
        self.budget.values -= 1;
        Ok(())
    }

    fn spend_aliased(&mut self, cost_bytes: usize, line: u32) -> Result<(), Stop> {
        match self.budget.aliased_bytes.checked_sub(cost_bytes) {
            Some(left) => {
                self.budget.aliased_bytes = left;
                Ok(())
            }
            None => Err(self.stop(line, format!("anchors and aliases may repeat {ALIASED_BYTES_MAX} bytes in all"))),
        }
    }

    fn too_deep(&mut self, line: u32) -> Stop {
        self.stop(line, format!("nested more than {DEPTH_MAX} deep"))
    }

    fn stop(&mut self, line: u32, message: String) -> Stop {
        self.findings.report(Place { source: Some(self.source), line: Some(line), path: Path::root() }, message);
        Stop
    }
}

fn line_of(span: Span) -> u32 {
    u32::try_from(span.start.line()).unwrap_or(u32::MAX)
}

/// `!` alone: the value is what it looks like, a text.
fn is_bare(tag: &Tag) -> bool {
    tag.suffix.is_empty() && (tag.handle == "!" || tag.handle.is_empty())
        || (tag.handle.is_empty() && tag.suffix == "!")
}

fn cost_bytes(node: &Node) -> usize {
    VALUE_BYTES
        + match &node.value {
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
            Value::Text(text) => text.text.len(),
            Value::List(items) => items.iter().map(cost_bytes).sum(),
            Value::Map(entries) => entries.iter().map(|(key, node)| key.len() + cost_bytes(node)).sum(),
        }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => 0,
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|(_, node)| depth(node)).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
